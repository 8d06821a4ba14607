//! The image's root folder, made by the script that the Dockerfile runs, and the program in it with nothing
//! else around.

use crate::kit::{BINARY, NAMESPACE, ROOT, Way, apply, cluster, render, run};
use anyhow::{Context as _, Result, ensure};
use cluster::harness::Bed;
use cluster::{Cluster, Process, eventually, free_port};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::process::Command;

const PROGRAM: &str = "/usr/local/bin/ip-address-controller";

async fn root(folder: &Path) -> Result<PathBuf> {
    let root = folder.join("root");
    run(Command::new(format!("{ROOT}/deploy/image/rootfs")).arg(BINARY).arg(&root)).await?;
    Ok(root)
}

fn files(root: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                found.insert(entry.path().strip_prefix(root)?.display().to_string());
            }
        }
    }
    Ok(found)
}

/// Before a command: it sees the folder as its root and is the image's user. Who is not root here has to be
/// content with a user namespace.
fn inside(root: &Path) -> (PathBuf, Vec<String>) {
    let root = root.display().to_string();
    if rustix::process::geteuid().is_root() {
        ("chroot".into(), vec!["--userspec=65532:65532".to_owned(), root])
    } else {
        ("unshare".into(), vec!["--map-root-user".to_owned(), format!("--root={root}")])
    }
}

pub async fn the_root_folder_has_what_is_needed_and_nothing_else(_: Arc<Bed>) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let root = root(folder.path()).await?;
    let files = files(&root)?;
    let known = |file: &str| {
        ["etc/group", "etc/nsswitch.conf", "etc/passwd", "etc/ssl/certs/ca-certificates.crt"].contains(&file)
            || file == PROGRAM.trim_start_matches('/')
            || file.starts_with("var/lib/dpkg/status.d/")
            || (file.starts_with("lib") && file.contains(".so."))
    };
    let unknown: Vec<&String> = files.iter().filter(|file| !known(file)).collect();
    ensure!(unknown.is_empty(), "what is {unknown:?}?");
    ensure!(files.len() < 20, "{files:?}");
    let (command, args) = inside(&root);
    for (arg, word) in
        [("version", env!("CARGO_PKG_VERSION")), ("--help", "uninstall"), ("crds", "netipallocations")]
    {
        let said =
            run(Command::new(&command).args(&args).args([PROGRAM, arg]).env_clear().env("PATH", path()))
                .await?;
        ensure!(said.contains(word), "{arg}: {said}");
    }
    Ok(())
}

/// Where chroot is; the program inside has no use for it.
fn path() -> String {
    std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin"
}

/// The same program makes the same bytes, whenever it is packed.
pub async fn the_root_folder_is_reproducible(_: Arc<Bed>) -> Result<()> {
    let mut sums = BTreeSet::new();
    for _ in 0..2 {
        let folder = tempfile::tempdir()?;
        let root = root(folder.path()).await?;
        let pack = format!("tar --sort=name --owner=0 --group=0 -C {} -c . | sha256sum", root.display());
        sums.insert(run(Command::new("sh").args(["-c", &pack])).await?);
    }
    ensure!(sums.len() == 1, "{sums:?}");
    Ok(())
}

pub async fn the_dockerfile_is_clean(_: Arc<Bed>) -> Result<()> {
    run(&mut Command::new(format!("{ROOT}/deploy/image/lint"))).await?;
    Ok(())
}

/// Starts a command of the program in the root folder, as an account.
async fn start(
    cluster: &Cluster,
    root: &Path,
    command: &'static str,
    account: &str,
) -> Result<(Process, u16)> {
    let port = free_port()?;
    let kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, account).await?;
    // As a token would be mounted.
    let mounted = format!("{command}.kubeconfig");
    std::fs::copy(kubeconfig, root.join(&mounted))?;
    let (path_of, mut args) = inside(root);
    args.extend([PROGRAM.to_owned(), command.to_owned()]);
    let env = [
        ("KUBECONFIG", format!("/{mounted}")),
        ("POD_NAMESPACE", NAMESPACE.to_owned()),
        ("HEALTH_ADDR", format!("127.0.0.1:{port}")),
        ("METRICS_PORT", "0".to_owned()),
        ("WEBHOOK_ADDR", "127.0.0.1:0".to_owned()),
        ("PATH", path()),
    ];
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    Ok((cluster.launch(&format!("{command}-in-image"), &path_of, &args, env)?, port))
}

pub async fn controller_and_webhook_become_ready_in_it(_: Arc<Bed>) -> Result<()> {
    let cluster = cluster().await?;
    apply(&cluster, &render(Way::Kustomize("base")).await?).await?;
    let folder = tempfile::tempdir()?;
    let root = root(folder.path()).await?;
    let accounts = [("controller", "ip-address-controller"), ("webhook", "ip-address-controller-webhook")];
    for (command, account) in accounts {
        let (process, port) = start(&cluster, &root, command, account).await?;
        eventually(&format!("the {command} to be ready"), async || {
            process.check_running()?;
            let answer = reqwest::get(format!("http://127.0.0.1:{port}/readyz")).await?;
            let (status, text) = (answer.status(), answer.text().await?);
            ensure!(status.is_success(), "{text}{}", process.log_tail());
            Ok(())
        })
        .await?;
        if let Some(id) = process.id() {
            let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
            let user = status.lines().find(|line| line.starts_with("Uid:")).context("no user")?;
            let root = rustix::process::geteuid().is_root();
            ensure!(!root || user.contains("65532"), "{user}");
        }
        process.stop().await?;
    }
    Ok(())
}
