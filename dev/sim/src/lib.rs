//! Wire-level simulators of the cloud APIs that move public IP addresses between instances.

mod aws;
pub mod changes;
pub mod clock;
pub mod exchange;
pub mod faults;
mod gcp;
pub mod http;
pub mod limits;
pub mod log;
pub mod model;
pub mod permissions;
mod pipeline;
pub mod provider_id;
mod server;
pub mod settings;
mod shared;
pub mod world;
