//! ip-address-controller: keeps reserved static public IPs attached to healthy cloud VM nodes and makes
//! the right workloads run there.

mod certs_rotate;
mod certs_status;
mod cli;
pub mod controller;
pub mod leader;
pub mod plugin;
mod process;
mod traces;
mod uninstall;
pub mod webhook;

pub use cli::Cli;
