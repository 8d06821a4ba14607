//! What the clouds say, as far as the controller has published it in `status.ips` and `status.refusals`.

use crds::{IpStatus, NodeRefusal};
use plan::{AddressView, InstanceView, Reason, Seen, Time, World};
use std::net::IpAddr;

/// Fills in what the controller wrote down of the clouds' words. Of instances it names a few of those that
/// cannot take an address; any other node's is taken for one that runs and can.
pub fn believe(world: &mut World, now: Time) {
    let records = world.allocations.values().flat_map(|allocation| &allocation.status.ips);
    let said = records.filter(|record| record.reason.as_deref() != Some(Reason::HeldByAllocation.as_str()));
    let views: Vec<(IpAddr, Seen<AddressView>)> = said
        .filter_map(|record| Some((record.address.parse().ok()?, Seen { view: view(record)?, at: now })))
        .collect();
    world.addresses.extend(views);
    let ids = world.nodes.values().map(|node| node.provider_id.clone()).filter(|id| !id.is_empty());
    let running = || Seen { view: InstanceView::Running { refuses: None }, at: now };
    world.instances = ids.map(|id| (id, running())).collect();
    let refusals = world.allocations.values().flat_map(|allocation| &allocation.status.refusals);
    for refusal in refusals {
        let named = refusal.nodes.iter().filter_map(|name| world.nodes.get(name));
        for id in named.map(|node| node.provider_id.clone()).filter(|id| !id.is_empty()) {
            if let Some(view) = instance(refusal) {
                world.instances.insert(id, Seen { view, at: now });
            }
        }
    }
}

/// What the cloud said of the instances behind a refusal, where it was the cloud's word.
fn instance(refusal: &NodeRefusal) -> Option<InstanceView> {
    let message = refusal.message.clone().unwrap_or_default();
    match Reason::from_name(&refusal.reason)? {
        reason @ (Reason::HoldsForeignAddress | Reason::Unsupported) => {
            Some(InstanceView::Running { refuses: Some((reason, message)) })
        }
        Reason::CloudUnknown => Some(InstanceView::Unknown { message }),
        Reason::InstanceStopped => Some(InstanceView::Stopped),
        _ => None,
    }
}

fn view(record: &IpStatus) -> Option<AddressView> {
    Some(match record.state.as_str() {
        "Attached" => {
            AddressView::Attached { provider_id: record.provider_id.clone()?, token: String::new() }
        }
        "Free" => AddressView::Free { token: String::new() },
        "NotFound" => AddressView::NotFound,
        "HeldByOther" => AddressView::HeldByOther { holder: holder(record) },
        "Unknown" => AddressView::Unknown { message: detail(record).unwrap_or_default().to_owned() },
        _ => return None,
    })
}

/// The published sentence is what the reason means, and in brackets what was said.
fn detail(record: &IpStatus) -> Option<&str> {
    let reason = Reason::from_name(record.reason.as_deref()?)?;
    let (_, rest) = record.message.as_deref()?.split_once(reason.meaning())?;
    rest.strip_prefix(" (")?.rsplit_once(')').map(|(detail, _)| detail)
}

fn holder(record: &IpStatus) -> String {
    let detail = detail(record).unwrap_or_default();
    let named = detail.strip_prefix("it is on ").and_then(|rest| rest.split_once(", which is not ours"));
    named.map_or("something else", |(holder, _)| holder).to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A world with one allocation and one node, of which the cloud says this.
    fn world(view: AddressView) -> World {
        let spec = json!({ "reservedIPs": ["203.0.113.1"], "cloud": { "provider": "gcp" } });
        let allocation = plan::Allocation {
            uid: "a".into(),
            created: Time(0),
            generation: 1,
            deleting: false,
            has_finalizer: true,
            spec: plan::parse::parse(&spec).map(std::sync::Arc::new),
            status: std::sync::Arc::default(),
        };
        let node = plan::Node { provider_id: "gce://p/z/n1".into(), ready: true, ..plan::Node::default() };
        let mut world = World::default();
        world.allocations.insert("voice".into(), allocation);
        world.nodes.insert("n1".into(), node);
        world.addresses.insert("203.0.113.1".parse().unwrap(), Seen { view, at: Time(0) });
        world
    }

    /// What the controller publishes of a view is believed to be that view.
    #[test]
    fn what_is_published_is_read_back() {
        let token = String::new;
        for view in [
            AddressView::Attached { provider_id: "gce://p/z/n1".into(), token: token() },
            AddressView::Free { token: token() },
            AddressView::NotFound,
            AddressView::HeldByOther { holder: "forwardingRules/lb (eu)".into() },
            AddressView::Unknown { message: "429: slow down (please)".into() },
        ] {
            let mut world = world(view.clone());
            believe(&mut world, Time(0)); // so that the node can take it
            let mut plan = plan::plan(&world, Time(1000));
            let mut published = world.clone();
            published.addresses.clear();
            published.allocations.get_mut("voice").unwrap().status = plan.statuses.remove("voice").unwrap();
            believe(&mut published, Time(2000));
            let read = published.addresses.into_values().next().unwrap().view;
            assert_eq!(read, view);
        }
    }

    /// What the controller says of a node is believed: the cloud was asked there, and not here.
    #[test]
    fn a_node_that_was_refused_by_the_cloud_is_not_taken_for_a_good_one() {
        let address: IpAddr = "203.0.113.1".parse().unwrap();
        for (reason, expected) in [
            (Reason::HoldsForeignAddress, Some(Reason::HoldsForeignAddress)),
            (Reason::Unsupported, Some(Reason::Unsupported)),
            (Reason::InstanceStopped, Some(Reason::InstanceStopped)),
            (Reason::CloudUnknown, Some(Reason::CloudUnknown)),
            (Reason::NotReady, None), // of Kubernetes, which is asked here
        ] {
            let mut world = world(AddressView::Free { token: String::new() });
            let refusal = NodeRefusal {
                reason: reason.as_str().to_owned(),
                count: 1,
                nodes: vec!["n1".to_owned()],
                message: Some("it holds 198.51.100.7".to_owned()),
            };
            let voice = world.allocations.get_mut("voice").unwrap();
            std::sync::Arc::make_mut(&mut voice.status).refusals = vec![refusal];
            believe(&mut world, Time(0));
            let free = Seen { view: AddressView::Free { token: String::new() }, at: Time(0) };
            world.addresses.insert(address, free);
            let explained = plan::explain(&world, Time(1000), address).unwrap();
            assert_eq!(explained.candidates[0].refusal, expected, "{reason:?}");
        }
    }
}
