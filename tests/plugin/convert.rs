//! Files in, files out; scripts for shells.

use crate::stage::{Stage, is_in_the_docs, netip};
use anyhow::{Context as _, Result, ensure};
use std::process::Stdio;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

const CONFIG: &str = "# Ours.\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}   # as it is\n";

/// The manifest of the docs.
fn legacy() -> Result<String> {
    let docs = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/plugin.md"))?;
    let block =
        docs.split("```yaml\n").find(|block| block.contains("deploymentRef:")).context("no manifest")?;
    Ok(block.split("```").next().unwrap_or_default().to_owned())
}

pub async fn files() -> Result<()> {
    let stage = Stage::new().await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("legacy.yaml");
    let legacy = legacy()?;
    std::fs::write(&file, format!("{CONFIG}---\n{legacy}"))?;
    let (file, to) = (file.display().to_string(), folder.path().join("current"));
    let to = to.display().to_string();
    let answer = stage.netip(&["convert", "-f", &file, "--to", &to]).await?;
    ensure!(answer.code == 0 && answer.stdout.is_empty(), "{}", answer.stderr);
    ensure!(answer.stderr.contains("maxSurge has no effect"), "{}", answer.stderr);
    let converted = std::fs::read_to_string(format!("{to}/legacy.yaml"))?;
    ensure!(converted.starts_with(&format!("{CONFIG}---\n")), "{converted}");
    stage.kubectl(&["apply", "-f", &format!("{to}/legacy.yaml")]).await?;
    let stored = stage.json(&["get", "nia", "voice"]).await?;
    ensure!(stored["spec"]["workloadRef"]["name"] == "sip", "{stored}");
    ensure!(stored["spec"].get("deploymentRef").is_none(), "{stored}");
    // Standard input and output.
    let piped = pipe(&legacy).await?;
    ensure!(converted.ends_with(&piped), "{piped}");
    is_in_the_docs("convert < legacy.yaml 2>/dev/null", &piped)?;
    ensure!(pipe(CONFIG).await? == CONFIG, "other kinds are not touched");
    std::fs::write(&file, legacy.replace("203.0.113.10", "10.0.0.1"))?;
    let refused = stage.netip(&["convert", "-f", &file, "--to", &to]).await?.refusal()?;
    ensure!(
        refused.contains("document 1: NetIPAllocation voice is not valid: spec.reservedIPs[0]"),
        "{refused}"
    );
    let now = std::fs::read_to_string(format!("{to}/legacy.yaml"))?;
    ensure!(now == converted, "nothing is written when something is wrong");
    let missing = stage.netip(&["convert", "-f", "/no/such/file"]).await?.refusal()?;
    ensure!(missing.contains("/no/such/file cannot be read"), "{missing}");
    Ok(())
}

async fn pipe(input: &str) -> Result<String> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kubectl-netip"))
        .arg("convert")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut stdin = child.stdin.take().context("no stdin")?;
    stdin.write_all(input.as_bytes()).await?;
    drop(stdin);
    let output = child.wait_with_output().await?;
    ensure!(output.status.success(), "it failed");
    Ok(String::from_utf8(output.stdout)?)
}

pub async fn completions() -> Result<()> {
    let nowhere = std::path::Path::new("/no/kubeconfig");
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = netip(nowhere, &["completion", shell]).await?.ok()?;
        for word in ["status", "why", "plan", "history", "doctor", "convert", "kubectl-netip"] {
            ensure!(script.contains(word), "{shell} does not know {word}");
        }
    }
    // In a real shell.
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_kubectl-netip")).parent().context("no folder")?;
    let ask = "source <(kubectl-netip completion bash); COMP_WORDS=(kubectl-netip do); COMP_CWORD=1; \
               _kubectl__netip kubectl-netip do kubectl-netip; echo \"${COMPREPLY[@]}\"";
    let path = format!("{}:{}", folder.display(), std::env::var("PATH")?);
    let output = Command::new("bash").args(["-c", ask]).env("PATH", path).output().await?;
    let reply = String::from_utf8(output.stdout)?;
    ensure!(reply.trim() == "doctor", "{reply:?} {}", String::from_utf8_lossy(&output.stderr));
    by_kubectl(&folder.display().to_string()).await
}

/// kubectl asks a script for what may follow `kubectl netip`; the one of the docs.
async fn by_kubectl(folder: &str) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let docs = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/plugin.md"))?;
    let script = docs.split("```sh\n").find(|block| block.starts_with("#!/bin/sh")).context("no script")?;
    let scripts = tempfile::tempdir()?;
    let file = scripts.path().join("kubectl_complete-netip");
    std::fs::write(&file, script.split("```").next().unwrap_or_default())?;
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755))?;
    let kubectl = cluster::Binaries::ensure(cluster::Version::Newest)?.kubectl;
    let path = format!("{}:{folder}:{}", scripts.path().display(), std::env::var("PATH")?);
    let output = Command::new(kubectl).args(["__complete", "netip", "do"]).env("PATH", path).output().await?;
    let reply = String::from_utf8(output.stdout)?;
    ensure!(reply.starts_with("doctor\tCheck the installation"), "{reply}");
    Ok(())
}
