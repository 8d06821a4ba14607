//! Admission: what a request means is decided by pure functions, one file per concern; a thin shell
//! around them serves the API server's calls and keeps the index that they are answered from.

pub mod affinity;
pub mod allocation;
mod claims;
pub mod decide;
pub mod index;
mod json;
#[cfg(feature = "serve")]
pub mod registration;
pub mod review;
#[cfg(feature = "serve")]
mod router;
#[cfg(feature = "serve")]
pub mod server;
#[cfg(feature = "serve")]
pub mod state;
#[cfg(feature = "serve")]
pub mod watch;
pub mod workload;

#[cfg(feature = "serve")]
pub use router::router;
