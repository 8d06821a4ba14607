//! Admission: what a request means is decided by pure functions, one file per concern.

pub mod affinity;
pub mod allocation;
pub mod index;
pub mod server;
pub mod workload;
