//! A real Kubernetes control plane as plain processes on loopback, with simulated nodes.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use cluster::{Cluster, NodeSpec};
//! let cluster = Cluster::start().await?;
//! cluster.nodes().create_all(NodeSpec::pool(5)).await?;
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
mod control_plane;
pub mod harness;
mod nodes;
mod pki;
mod ports;
mod process;
mod wait;

pub use binaries::{Binaries, Version};
pub use control_plane::{Cluster, ClusterBuilder, Component, KubectlOutput};
pub use nodes::{NodeSpec, Nodes, Provider};
pub use ports::free as free_port;
pub use process::{Process, Program, Reaper};
pub use wait::eventually;
