//! GCP's Compute API. Numbers are those of the list of behaviours in docs/simulators.md.

mod access_configs;
mod reads;

use crate::kit::{Bed, small_world};
use serde_json::{Value, json};
use sim::{Cloud, On};

const FREE: &str = "203.0.1.1";

fn free() -> Value {
    json!({ "natIP": FREE, "name": "ours", "type": "ONE_TO_ONE_NAT", "networkTier": "PREMIUM" })
}

fn add_action() -> On {
    On::action(Cloud::Gcp, "instances.addAccessConfig")
}

/// A world whose first node has no external address.
async fn bare() -> Bed {
    let mut world = small_world();
    world.instances[0].ephemeral = false;
    Bed::start(world).await
}
