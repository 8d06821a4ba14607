//! Wire-level simulators of the cloud APIs that move public IP addresses between instances.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use sim::{Cloud, Fault, On, Rule, Sim, World};
//! use std::net::Ipv4Addr;
//!
//! let world = World::of_nodes(["gce://dev-project/us-central1-a/node-1"])
//!     .address(Cloud::Gcp, Ipv4Addr::new(203, 0, 113, 10));
//! let sim = Sim::start(world).await?;
//! // … point a client at sim.gcp_url() …
//! sim.fault(Rule::once(On::action(Cloud::Gcp, "instances.addAccessConfig"), Fault::LostReply));
//! for event in sim.events(0) {
//!     println!("{} {} by {}", event.seq, event.action, event.caller);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! One HTTP server per cloud answers on loopback: GCP's Compute API, AWS's EC2 Query API, Azure's Resource
//! Manager. All three show one model of instances, interfaces, addresses, operations and a clock, and all
//! that happens in them is in one log with one order. They share no code with the clients they test.

mod admin;
mod aws;
mod azure;
mod changes;
mod clock;
mod exchange;
mod faults;
mod gcp;
mod http;
mod limits;
mod log;
mod model;
mod permissions;
mod pipeline;
mod provider_id;
mod server;
mod settings;
mod shared;
mod sim;
mod world;

pub use changes::{Change, ChangeError};
pub use exchange::Exchange;
pub use faults::{Fault, On, Rule};
pub use limits::{Bucket, Buckets, Limits};
pub use log::{About, Event, Hold, HoldChange, Kind, OwnChange, Purpose, Snapshot};
pub use model::operations::Pace;
pub use model::things::{Cloud, InstanceState};
pub use permissions::Roles;
pub use settings::{
    AwsSettings, AzureSettings, Busy, Found, GcpSettings, Repeated, Settings, Unassociated, WhileUpdating,
};
pub use sim::{Ports, Sim};
pub use world::{AddressSpec, InstanceSpec, World, WorldError};
