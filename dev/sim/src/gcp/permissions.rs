//! `testIamPermissions` of instances, addresses and subnetworks: which of some permissions the caller has.
//!
//! It answers by the role alone. Organisation policies are no permissions: what they forbid is granted here.

use super::errors::{error, not_found};
use crate::http::{ApiError, Reply};
use crate::model::things::Cloud;
use crate::pipeline::Context;
use serde_json::json;

/// The permissions among those asked for that the role has. One that is about another kind of thing is
/// refused: whether the real API does is not documented, and this is harder on a client.
pub fn test(context: &Context, key: &str, kind: &str, permissions: &[String]) -> Result<Reply, ApiError> {
    let world = context.state.cloud(Cloud::Gcp);
    let exists = match kind {
        "instances" => world.instances.get(key).is_some(),
        "addresses" => world.addresses.get(key).is_some(),
        // All nodes of a region are in its one subnet.
        _ => key.ends_with("/subnetworks/default"),
    };
    if !exists {
        return Err(not_found(key));
    }
    let of_kind = format!("compute.{kind}.");
    if let Some(other) = permissions.iter().find(|one| !one.starts_with(&of_kind)) {
        return Err(error("badRequest", format!("Permission {other} is not valid for this resource.")));
    }
    let roles = &context.state.roles;
    let granted: Vec<&String> =
        permissions.iter().filter(|permission| roles.allows(Cloud::Gcp, permission)).collect();
    // Nothing granted is an empty object.
    let body = if granted.is_empty() { json!({}) } else { json!({ "permissions": granted }) };
    Ok(Reply::json(200, &body))
}
