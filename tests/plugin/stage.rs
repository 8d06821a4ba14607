//! A cluster, a simulated cloud, and the processes that people run.

use anyhow::{Context as _, Result, ensure};
use cluster::Provider;
use playground::Playground;
use std::ops::Deref;
use std::path::Path;
use tokio::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// What a command of the plugin answered.
pub struct Answer {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Answer {
    /// What was printed by a command that has to work.
    pub fn ok(self) -> Result<String> {
        ensure!(self.code == 0, "exit code {}: {}{}", self.code, self.stdout, self.stderr);
        ensure!(self.stderr.is_empty(), "{}", self.stderr);
        Ok(self.stdout)
    }

    /// The one line of a command that has to fail.
    pub fn refusal(self) -> Result<String> {
        ensure!(self.code == 1 && self.stdout.is_empty(), "exit code {}: {}", self.code, self.stdout);
        ensure!(self.stderr.lines().count() == 1, "more than a line: {}", self.stderr);
        Ok(self.stderr)
    }
}

/// Runs the plugin.
pub async fn netip(kubeconfig: &Path, args: &[&str]) -> Result<Answer> {
    let output = Command::new(env!("CARGO_BIN_EXE_kubectl-netip"))
        .args(args)
        .env("KUBECONFIG", kubeconfig)
        .env_remove("NO_COLOR")
        .output()
        .await?;
    Ok(Answer {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout)?,
        stderr: String::from_utf8(output.stderr)?,
    })
}

/// The playground, and the plugin.
pub struct Stage(Playground);

impl Deref for Stage {
    type Target = Playground;

    fn deref(&self) -> &Playground {
        &self.0
    }
}

impl Stage {
    /// A cluster with our CRD, namespace and roles; nothing runs yet.
    pub async fn new() -> Result<Self> {
        let binary = env!("CARGO_BIN_EXE_ip-address-controller").as_ref();
        Ok(Self(Playground::start(binary, Provider::Gcp).await?))
    }

    /// The plugin, run by the administrator.
    pub async fn netip(&self, args: &[&str]) -> Result<Answer> {
        netip(&self.kubeconfig(), args).await
    }
}

/// docs/plugin.md shows this command with this output. `GENERATE=1` (with one test thread) writes it there.
pub fn is_in_the_docs(command: &str, output: &str) -> Result<()> {
    let file = format!("{ROOT}/docs/plugin.md");
    let docs = std::fs::read_to_string(&file)?;
    let head = format!("```\n$ kubectl netip {command}\n");
    let (before, rest) = docs.split_once(&head).with_context(|| format!("{command} is not in the docs"))?;
    let (shown, after) = rest.split_once("```").context("a block that does not end")?;
    if std::env::var_os("GENERATE").is_some() {
        return Ok(std::fs::write(&file, format!("{before}{head}{output}```{after}"))?);
    }
    ensure!(
        masked(shown) == masked(output),
        "docs/plugin.md shows for {command}\n{shown}\nand it is\n{output}"
    );
    Ok(())
}

/// Times and durations are never the same twice; they are shown as words here.
fn masked(text: &str) -> String {
    let word = |word: &str| {
        let duration = word.strip_suffix(['s', 'm']).is_some_and(|number| number.parse::<f64>().is_ok());
        let time = word.parse::<jiff::Timestamp>().is_ok();
        if duration || time { "TIME".to_owned() } else { word.to_owned() }
    };
    let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}
