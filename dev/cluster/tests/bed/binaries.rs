//! Getting the binaries where there is no Go, and saying so when there is no way.

use anyhow::{Context as _, Result, ensure};
use cluster::harness::Bed;
use std::collections::HashMap;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::Command;

const ENSURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/control-plane/ensure");

/// Runs the script with an empty cache, on a machine without Go.
async fn ensure_binaries(cache: &Path, downloads: &str) -> Result<Output> {
    let output = Command::new(ENSURE)
        .args(cluster::Version::ALL.map(|version| format!("v{}", version.minor())))
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("CONTROL_PLANE_CACHE", cache)
        .env("KUBERNETES_DOWNLOADS", downloads)
        .env("ETCD_DOWNLOADS", downloads)
        .output()
        .await?;
    Ok(output)
}

pub async fn nothing_works_and_the_message_says_what_to_do(_: Arc<Bed>) -> Result<()> {
    let cache = tempfile::tempdir()?;
    let output = ensure_binaries(cache.path(), "http://127.0.0.1:1").await?;
    let message = String::from_utf8(output.stderr)?;
    ensure!(!output.status.success());
    for words in [
        "kube-apiserver cannot be had",
        "KUBEBUILDER_ASSETS=(not set)",
        "Go is not installed",
        "downloading: failed",
        "install Go",
        "CONTROL_PLANE=skip",
    ] {
        ensure!(message.contains(words), "{words:?} is not in:\n{message}");
    }
    Ok(())
}

pub async fn a_version_that_is_not_there_is_refused(_: Arc<Bed>) -> Result<()> {
    let output = Command::new(ENSURE).arg("v1.1").output().await?;
    let message = String::from_utf8(output.stderr)?;
    ensure!(!output.status.success() && message.contains("v1.1 is no version"), "{message}");
    Ok(())
}

/// A mirror of the release servers with small files in place of the binaries.
struct Mirror {
    files: HashMap<String, Vec<u8>>,
}

impl Mirror {
    fn new() -> Self {
        Self { files: HashMap::new() }
    }

    fn add(&mut self, path: &str, content: &[u8], checksum: &str) {
        self.files.insert(path.to_owned(), content.to_vec());
        self.files.insert(format!("{path}.sha256"), checksum.as_bytes().to_vec());
    }

    async fn serve(self) -> Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut request = String::new();
                let mut reader = BufReader::new(&mut socket);
                while reader.read_line(&mut request).await.is_ok_and(|n| n > 2) {}
                let path = request.split_whitespace().nth(1).unwrap_or_default();
                let (status, body) = match self.files.iter().find(|(end, _)| path.ends_with(*end)) {
                    Some((_, body)) => ("200 OK", body.as_slice()),
                    None => ("404 Not Found", &[][..]),
                };
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                let _ = socket.write_all(&[head.as_bytes(), body].concat()).await;
            }
        });
        Ok(url)
    }
}

async fn sha256(file: &Path) -> Result<String> {
    let output = Command::new("sha256sum").arg(file).output().await?;
    Ok(String::from_utf8(output.stdout)?.split(' ').next().context("no sum")?.to_owned())
}

pub async fn a_release_is_downloaded_and_checked(_: Arc<Bed>) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let program = scratch.path().join("program");
    std::fs::write(&program, "#!/bin/sh\necho fake\n")?;
    let (content, sum) = (std::fs::read(&program)?, sha256(&program).await?);
    let (archive, archive_name) = etcd_archive(scratch.path(), &content).await?;

    let mirror = |apiserver_sum: &str| {
        let mut mirror = Mirror::new();
        mirror.add("/kube-apiserver", &content, apiserver_sum);
        for tool in ["/kube-controller-manager", "/kube-scheduler", "/kubectl"] {
            mirror.add(tool, &content, &sum);
        }
        mirror
    };

    let bad = mirror(&"0".repeat(64)).serve().await?;
    let cache = tempfile::tempdir()?;
    let message = String::from_utf8(ensure_binaries(cache.path(), &bad).await?.stderr)?;
    ensure!(message.contains("does not have its published checksum"), "{message}");
    ensure!(message.contains("kube-apiserver cannot be had"), "{message}");

    let mut good = mirror(&sum);
    let archive_sum = sha256(&archive).await?;
    good.files.insert(format!("/{archive_name}"), std::fs::read(&archive)?);
    good.files.insert("/SHA256SUMS".into(), format!("{archive_sum}  {archive_name}\n").into_bytes());
    let output = ensure_binaries(cache.path(), &good.serve().await?).await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for version in cluster::Version::ALL {
        let path = cache.path().join(format!("kubernetes-{}/kube-apiserver", version.number()));
        ensure!(Command::new(&path).output().await?.stdout == b"fake\n", "{}", path.display());
    }
    let again = ensure_binaries(cache.path(), "http://127.0.0.1:1").await?;
    ensure!(again.status.success() && again.stderr.is_empty(), "the second time there is nothing to do");
    Ok(())
}

async fn etcd_archive(scratch: &Path, content: &[u8]) -> Result<(std::path::PathBuf, String)> {
    let go_mod = include_str!("../../control-plane/v1.36/go.mod");
    let line =
        go_mod.lines().find(|line| line.contains("go.etcd.io/etcd/server/v3 v")).context("not pinned")?;
    let version = line.split_whitespace().nth(1).context("no version")?;
    let machine = String::from_utf8(Command::new("uname").arg("-m").output().await?.stdout)?;
    let arch = machine.trim().replace("x86_64", "amd64").replace("aarch64", "arm64");
    let name = format!("etcd-{version}-linux-{arch}");
    std::fs::create_dir(scratch.join(&name))?;
    std::fs::write(scratch.join(&name).join("etcd"), content)?;
    let archive = scratch.join(format!("{name}.tar.gz"));
    let status =
        Command::new("tar").args(["-czf"]).arg(&archive).arg("-C").arg(scratch).arg(&name).status().await?;
    ensure!(status.success());
    Ok((archive, format!("{name}.tar.gz")))
}
