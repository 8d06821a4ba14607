//! `cluster up`: a cluster to play with.

mod bench;

use anyhow::Result;
use clap::{Parser, Subcommand};
use cluster::{Cluster, NodeSpec, Provider, Version, interrupted};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// A real Kubernetes control plane on this machine, with simulated nodes.
#[derive(Parser)]
#[command(name = "cluster")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a cluster and keep it until Ctrl-C
    Up {
        /// How many simulated nodes to start with
        #[arg(long, default_value_t = 3)]
        nodes: usize,
        /// Cloud that the nodes pretend to be of
        #[arg(long, value_enum, default_value_t = Provider::Gcp)]
        provider: Provider,
        /// Run the API server of the oldest supported Kubernetes version
        #[arg(long)]
        oldest: bool,
        /// Seconds of silence after which a node is marked Unknown
        #[arg(long, default_value_t = 40)]
        node_grace: u64,
    },
    /// Measure how fast simulated nodes and their pods come up
    Bench {
        /// How many nodes
        #[arg(long, default_value_t = 1_000)]
        nodes: usize,
        /// How many pods
        #[arg(long, default_value_t = 10_000)]
        pods: usize,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    cluster::init_logging();
    let work = async {
        match Cli::parse().command {
            Command::Up { nodes, provider, oldest, node_grace } => {
                let version = if oldest { Version::Oldest } else { Version::Newest };
                up(version, provider, nodes, Duration::from_secs(node_grace)).await
            }
            Command::Bench { nodes, pods } => bench::run(nodes, pods).await,
        }
    };
    tokio::select! {
        result = work => match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("cluster: {error:#}");
                ExitCode::FAILURE
            }
        },
        () = interrupted() => {
            eprintln!("removing the cluster");
            ExitCode::SUCCESS
        }
    }
}

async fn up(version: Version, provider: Provider, nodes: usize, grace: Duration) -> Result<()> {
    let start = Instant::now();
    eprintln!("starting Kubernetes {}", version.number());
    let cluster = Cluster::builder().version(version).node_grace(grace).start().await?;
    cluster.install_crds().await?;
    cluster.nodes().create_all(NodeSpec::pool(provider, "node", nodes)).await?;
    eprintln!(
        "ready after {:.1} s, with {nodes} simulated nodes and our CRDs. Try:\n",
        start.elapsed().as_secs_f32()
    );
    println!("export KUBECONFIG={}", cluster.admin_kubeconfig().display());
    eprintln!(
        "kubectl get nodes     (kubectl of this version: {})\n\nCtrl-C removes everything.",
        cluster.kubectl_path().display()
    );
    std::future::pending().await
}
