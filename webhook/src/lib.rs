//! Admission: what a request means is decided by pure functions, one file per concern; a thin shell
//! around them serves the API server's calls and keeps the index that they are answered from.

pub mod affinity;
pub mod allocation;
mod claims;
pub mod decide;
pub mod index;
mod json;
pub mod registration;
pub mod review;
mod router;
pub mod server;
pub mod state;
pub mod watch;
pub mod workload;

pub use router::router;
