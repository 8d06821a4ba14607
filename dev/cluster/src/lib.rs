//! A real Kubernetes control plane as plain processes on loopback, with simulated nodes.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use cluster::{Cluster, NodeSpec, Provider};
//! let cluster = Cluster::start().await?;
//! cluster.nodes().create_all(NodeSpec::pool(Provider::Gcp, "node", 5)).await?;
//! cluster.apiserver().kill().await?;
//! cluster.apiserver().start().await?;
//! # Ok(())
//! # }
//! ```
//!
//! etcd, kube-apiserver, kube-controller-manager and kube-scheduler are the real ones. What a cloud and
//! a kubelet would do (registering nodes, heartbeats, running and ending pods) is played by [`Nodes`].
//! Everything ends with the [`Cluster`], and with the process however that ends.

mod binaries;
mod component;
mod control_plane;
pub mod harness;
mod layout;
mod nodes;
mod pki;
mod ports;
mod process;
mod wait;

pub use binaries::{Binaries, Version};
pub use component::Component;
pub use control_plane::{Cluster, ClusterBuilder, KubectlOutput};
pub use nodes::{NodeSpec, Nodes, Provider};
pub use ports::free as free_port;
pub use process::{Process, Program, Reaper};
pub use wait::{eventually, interrupted};

/// Logs to standard error what `RUST_LOG` asks for; nothing, if it asks for nothing: failed probes of
/// servers that are just starting are no news.
pub fn init_logging() {
    use tracing_subscriber::filter::{EnvFilter, LevelFilter};
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::OFF.into()).from_env_lossy();
    // A second call changes nothing.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
}
