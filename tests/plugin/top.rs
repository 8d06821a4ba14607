//! `top` in a real terminal: tmux plays it, so that what is tested is what somebody would see.

use crate::stage::{Stage, netip};
use anyhow::{Context as _, Result, ensure};
use cluster::eventually;
use std::process::Stdio;
use tokio::process::Command;

/// A terminal with a program in it; it ends with this.
struct Terminal {
    socket: String,
}

impl Terminal {
    async fn start(stage: &Stage, command: &str) -> Result<Self> {
        let socket = stage.cluster.folder().join("tmux").display().to_string();
        let terminal = Self { socket };
        let config = stage.kubeconfig();
        let command = format!("KUBECONFIG={} {command}; echo ended with $?; sleep 600", config.display());
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "110", "-y", "30", &command]).await?;
        Ok(terminal)
    }

    async fn tmux(&self, args: &[&str]) -> Result<String> {
        let output = Command::new("tmux").args(["-S", &self.socket]).args(args).stdin(Stdio::null()).output();
        let output = output.await.context("this test needs tmux (Debian: apt-get install tmux)")?;
        ensure!(output.status.success(), "tmux {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Waits until the screen shows all of these.
    async fn shows(&self, words: &[&str]) -> Result<String> {
        eventually(&format!("the screen to show {words:?}"), async || {
            let screen = self.tmux(&["capture-pane", "-p"]).await?;
            let missing = words.iter().find(|word| !screen.contains(**word));
            ensure!(missing.is_none(), "{missing:?} is not on\n{screen}");
            Ok(screen)
        })
        .await
    }

    async fn press(&self, key: &str) -> Result<()> {
        self.tmux(&["send-keys", key]).await.map(drop)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut kill = std::process::Command::new("tmux");
        let _ = kill.args(["-S", &self.socket, "kill-server"]).stderr(Stdio::null()).status();
    }
}

/// What happens is seen as it happens, and `q` ends it well.
pub async fn top_shows_what_happens_as_it_happens() -> Result<()> {
    let stage = Stage::new().await?;
    let refused = netip(&stage.kubeconfig(), &["top"]).await?.refusal()?;
    ensure!(refused.contains("top needs a terminal"), "{refused}");
    let controller = stage.controller("controller-0", &[]).await?;
    let terminal = Terminal::start(&stage, &format!("{} top", env!("CARGO_BIN_EXE_kubectl-netip"))).await?;
    terminal.shows(&["There are no NetIPAllocations.", "q quit"]).await?;
    for (name, zone) in [("voice-1", 0), ("voice-2", 1)] {
        stage.add_node(name, zone, &[("pool", "voice")]).await?;
    }
    stage.add_address("203.0.113.10")?;
    let manifest = "{apiVersion: netinfra.darkbrains.com/v1alpha1, kind: NetIPAllocation, metadata: {name: voice}, \
                    spec: {reservedIPs: [203.0.113.10], nodeSelector: {pool: voice}, cloud: {provider: gcp}}}";
    stage.apply(manifest).await?;
    let screen = terminal
        .shows(&["voice  Ready (AllAttached)", "203.0.113.10  on voice-", "leader controller-0"])
        .await?;
    let (from, to) =
        if screen.contains("on voice-1") { ("voice-1", "voice-2") } else { ("voice-2", "voice-1") };
    stage.kubectl(&["cordon", from]).await?;
    terminal.shows(&[&format!("203.0.113.10  on {to}"), "NodeDrained"]).await?;
    terminal.press("w").await?;
    terminal.shows(&["gce://dev-project/"]).await?;
    controller.process.kill().await?;
    terminal.shows(&["THE CONTROLLER IS NOT ALIVE"]).await?;
    terminal.press("q").await?;
    terminal.shows(&["ended with 0"]).await?;
    Ok(())
}
