//! However a cluster's owner ends, nothing stays: no process, no folder.

use anyhow::{Context as _, Result, bail, ensure};
use cluster::harness::Bed;
use cluster::{Cluster, eventually};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// `cluster up` as a person starts it, the folder of its cluster and the processes in it.
async fn up() -> Result<(Child, PathBuf, Vec<Pid>)> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_cluster"))
        .args(["up", "--nodes", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let line = lines.next_line().await?.context("it ended")?;
    let kubeconfig = line.strip_prefix("export KUBECONFIG=").with_context(|| line.clone())?;
    let folder = Path::new(kubeconfig).parent().context("no folder")?.to_owned();
    let pids = pids_of(&folder)?;
    ensure!(pids.len() >= 4, "only {} processes", pids.len());
    Ok((child, folder, pids))
}

/// Processes that have a folder in their command line.
fn pids_of(folder: &Path) -> Result<Vec<Pid>> {
    let needle = folder.to_str().context("not UTF-8")?;
    let mut pids = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        let command = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        if String::from_utf8_lossy(&command).contains(needle) {
            pids.push(pid);
        }
    }
    Ok(pids)
}

async fn all_gone(folder: &Path, pids: &[Pid]) -> Result<()> {
    eventually("everything to be gone", async || {
        ensure!(!folder.exists(), "{} is still there", folder.display());
        let left: Vec<_> = pids.iter().filter(|pid| test_kill_process(**pid).is_ok()).collect();
        ensure!(left.is_empty(), "still running: {left:?}");
        Ok(())
    })
    .await
}

async fn ended_by(signal: Signal) -> Result<()> {
    let (mut child, folder, pids) = up().await?;
    let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).context("it ended")?;
    kill_process(pid, signal)?;
    let status = child.wait().await?;
    ensure!(status.success() == (signal == Signal::INT), "{status}");
    all_gone(&folder, &pids).await
}

pub async fn interrupted_cluster_leaves_nothing(_: Arc<Bed>) -> Result<()> {
    ended_by(Signal::INT).await
}

pub async fn killed_cluster_leaves_nothing(_: Arc<Bed>) -> Result<()> {
    ended_by(Signal::KILL).await
}

#[allow(clippy::panic, clippy::expect_used)] // the subject of the test
pub async fn panicking_test_leaves_nothing(_: Arc<Bed>) -> Result<()> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    let test = std::thread::spawn(move || {
        runtime.block_on(async {
            let cluster = Cluster::start().await.expect("starts");
            sender.send(cluster.folder().to_owned()).expect("somebody listens");
            panic!("on purpose");
        });
    });
    let folder = receiver.await?;
    let pids = pids_of(&folder)?;
    let outcome = tokio::task::spawn_blocking(move || test.join()).await?;
    ensure!(outcome.is_err(), "it did not panic");
    all_gone(&folder, &pids).await
}

pub async fn failed_start_shows_the_log_and_leaves_nothing(_: Arc<Bed>) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let assets = tempfile::tempdir()?;
    let broken = assets.path().join("kube-apiserver");
    std::fs::write(&broken, "#!/bin/sh\necho the disk is on fire\nexit 3\n")?;
    std::fs::set_permissions(&broken, std::fs::Permissions::from_mode(0o755))?;
    let output = Command::new(env!("CARGO_BIN_EXE_cluster"))
        .args(["up"])
        .env("KUBEBUILDER_ASSETS", assets.path())
        .output()
        .await?;
    let message = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(1), "{}", output.status);
    for words in ["kube-apiserver did not start", "exit status: 3", "the disk is on fire"] {
        ensure!(message.contains(words), "{words:?} is not in:\n{message}");
    }
    let log = message.split_whitespace().find(|word| word.ends_with("kube-apiserver.log:"));
    let Some(folder) = log.and_then(|log| Path::new(log).parent()) else {
        bail!("no log named in:\n{message}")
    };
    all_gone(folder, &pids_of(folder)?).await
}
