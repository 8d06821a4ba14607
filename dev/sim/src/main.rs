//! `sim`: the simulated clouds as a command, for curl, the vendors' SDKs and the demo.

use anyhow::{Context as _, Result};
use clap::Parser;
use sim::{Ports, Sim, World};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// Simulated clouds on loopback: GCP Compute, AWS EC2 and Azure's Resource Manager.
#[derive(Parser)]
#[command(name = "sim")]
struct Cli {
    /// Port of the GCP Compute API; 0 is any free one
    #[arg(long, default_value_t = 0)]
    gcp: u16,
    /// Port of the AWS EC2 API; 0 is any free one
    #[arg(long, default_value_t = 0)]
    aws: u16,
    /// Port of the Azure Resource Manager; 0 is any free one
    #[arg(long, default_value_t = 0)]
    azure: u16,
    /// Port of the admin API, by which faults are set and the world is changed; 0 is any free one
    #[arg(long, default_value_t = 0)]
    admin: u16,
    /// YAML file with the world to start with; without it, three nodes and three addresses per cloud
    #[arg(long)]
    state: Option<PathBuf>,
    /// YAML file that the world is written to at the end
    #[arg(long)]
    save: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> Result<()> {
    let world = match &cli.state {
        Some(path) => read(path)?,
        None => World::example(),
    };
    let ports = Ports { gcp: cli.gcp, aws: cli.aws, azure: cli.azure, admin: cli.admin };
    let sim = Sim::start_on(world, ports).await?;
    println!("gcp   {}", sim.gcp_url());
    println!("aws   {}", sim.aws_url());
    println!("azure {}", sim.azure_url());
    println!("admin {}", sim.admin_url());
    eprintln!("\ncurl {} shows what can be done; Ctrl-C ends.", sim.admin_url());
    interrupted().await;
    if let Some(path) = &cli.save {
        let yaml = sim.world().to_yaml()?;
        std::fs::write(path, yaml).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<World> {
    let text = std::fs::read_to_string(path).with_context(|| {
        format!("cannot read {}; leave --state out to start with an example", path.display())
    })?;
    World::from_yaml(&text).with_context(|| path.display().to_string())
}

/// Ctrl-C, or the SIGTERM of `kill` and `timeout`.
async fn interrupted() {
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        },
        Err(_) => drop(tokio::signal::ctrl_c().await),
    }
}
