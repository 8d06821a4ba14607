//! Nodes that allocations select, and what their provider IDs are good for.

use super::{Found, Level};
use crate::plugin::snapshot::Snapshot;
use cloud::ProviderId;
use plan::{Reason, World};

pub fn check(snapshot: &Snapshot) -> Vec<Found> {
    let world = &snapshot.world;
    let mut found = Vec::new();
    for (name, object) in &world.allocations {
        let spec = match &object.spec {
            Ok(spec) => spec,
            Err(faults) => {
                let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
                let message = format!("NetIPAllocation {name} is not valid: {}", faults.join("; "));
                found.push((Level::Wrong, message, format!("kubectl edit nia {name}")));
                continue;
            }
        };
        let explanations =
            spec.addresses.iter().map(|address| plan::explain(world, snapshot.time(), *address));
        let Some(explanation) = explanations.flatten().find(|e| e.allocation == *name) else { continue };
        let refused = |reason| {
            let candidates = explanation.candidates.iter().filter(move |c| c.refusal == Some(reason));
            candidates.map(|candidate| candidate.node.as_str())
        };
        let outside: Vec<&str> =
            refused(Reason::NodeNotSelected).chain(refused(Reason::OutsideZones)).collect();
        let alien: Vec<&str> = refused(Reason::OtherCloud).collect();
        if !alien.is_empty() {
            found.push(other_cloud(name, &format!("{:?}", spec.provider).to_lowercase(), &alien));
        }
        if outside.len() + alien.len() == world.nodes.len() {
            let message = format!(
                "no node can ever hold an address of {name}: none matches its nodeSelector, cloud, region and zones"
            );
            let what_to_do =
                format!("compare `kubectl get nia {name} -o yaml` with `kubectl get nodes --show-labels`");
            found.push((Level::Wrong, message, what_to_do));
        }
        let pool =
            world.nodes.keys().map(String::as_str).filter(|n| !outside.contains(n) && !alien.contains(n));
        found.extend(pool.filter_map(|node| unusable(world, node)));
    }
    found.dedup();
    found
}

fn other_cloud(name: &str, provider: &str, nodes: &[&str]) -> Found {
    let message = format!("{name} selects nodes without a provider ID of {provider}: {}", nodes.join(", "));
    let what_to_do =
        "the cloud's node controller sets spec.providerID: is it running? Or narrow the nodeSelector"
            .to_owned();
    (Level::Wrong, message, what_to_do)
}

/// A provider ID that names nothing that an address can be attached to.
fn unusable(world: &World, name: &str) -> Option<Found> {
    let id = &world.nodes.get(name)?.provider_id;
    let (why, what_to_do) = match ProviderId::parse(id) {
        None => ("names no instance that is understood", "correct spec.providerID"),
        Some(ProviderId::Fargate { .. }) => ("is Fargate, which has no instance", "narrow the nodeSelector"),
        Some(ProviderId::AzureUniform { .. }) => (
            "is in a scale set of orchestration mode Uniform, whose interfaces cannot be written",
            "use a Flexible scale set or a VirtualMachines pool, or narrow the nodeSelector",
        ),
        Some(_) => return None,
    };
    Some((Level::Wrong, format!("node {name}: its provider ID {id} {why}"), what_to_do.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_ids_that_name_no_usable_instance_are_found() {
        let set = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute";
        let ids = [
            ("gce://p/z/n", None),
            ("gce://nonsense", Some("names no instance")),
            ("aws:///eu-west-1a/0123456789-abc/fargate-ip-10-0-0-1", Some("Fargate")),
            (
                &format!("{set}/virtualMachineScaleSets/v/virtualMachines/0"),
                Some("orchestration mode Uniform"),
            ),
        ];
        for (id, expected) in ids {
            let mut world = World::default();
            let node = plan::Node { provider_id: id.to_owned(), ..plan::Node::default() };
            world.nodes.insert("n1".to_owned(), node);
            let message = unusable(&world, "n1").map(|(_, message, _)| message);
            match expected {
                None => assert_eq!(message, None),
                Some(words) => {
                    assert!(message.as_ref().is_some_and(|m| m.contains(words)), "{id}: {message:?}");
                }
            }
        }
    }
}
