//! Which of a plan's writes come first.

use super::super::followers::Followers;
use super::super::watch::Change;
use super::*;
use plan::{AddressView, InstanceView, Node, Notice, Pod, Seen, Time, Workload, World};
use serde_json::{Value, from_value, json};
use std::sync::Arc;

const NOW: Time = Time(1_000_000_000);

fn state() -> State {
    let client = kube::Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    let metrics = telemetry::controller::Metrics::new(&telemetry::Telemetry::new(None).unwrap()).unwrap();
    let mailbox = tokio::sync::mpsc::channel(1).0;
    State::new(World::default(), Followers::new(client, mailbox, metrics))
}

fn address(number: u8) -> IpAddr {
    IpAddr::from([203, 0, 113, number])
}

fn instance(node: &str) -> String {
    format!("gce://p/z/{node}")
}

fn key(kind: crds::WorkloadKind, name: &str) -> WorkloadKey {
    WorkloadKey { kind, namespace: "web".to_owned(), name: name.to_owned() }
}

/// An allocation of one address, for the nodes of a pool.
fn allocate(state: &mut State, name: &str, number: u8, finalizer: bool, more: &Value) {
    let finalizers = if finalizer { json!([crds::FINALIZER]) } else { json!([]) };
    let mut spec = json!({
        "reservedIPs": [address(number)], "cloud": { "provider": "gcp" }, "nodeSelector": { "pool": name },
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    let object = json!({
        "metadata": { "name": name, "uid": name, "resourceVersion": "1", "finalizers": finalizers },
        "spec": spec,
    });
    state.allocation(Change::Applied(from_value(object).unwrap()));
    let free = AddressView::Free { token: "free".to_owned() };
    state.world.addresses.insert(address(number), Seen { view: free, at: NOW });
}

/// A node of a pool, and whether it is marked with an address.
fn node<'s>(state: &'s mut State, name: &str, pool: &str, marked: Option<u8>) -> &'s mut Node {
    let mut node = Node { uid: name.to_owned(), provider_id: instance(name), ready: true, ..Node::default() };
    node.labels.insert("pool", pool);
    if let Some(number) = marked {
        node.labels.insert(crds::LABEL_READY, "true");
        node.labels.insert(crds::LABEL_ALLOCATION, pool);
        node.reserved_ip = Some(address(number).to_string());
    }
    let view = InstanceView::Running { refuses: None };
    state.world.instances.insert(instance(name), Seen { view, at: NOW });
    state.world.nodes.entry(name.to_owned()).or_insert(node)
}

fn attach(state: &mut State, number: u8, node: &str) {
    let view = AddressView::Attached { provider_id: instance(node), token: "1".to_owned() };
    state.world.addresses.insert(address(number), Seen { view, at: NOW });
}

fn in_words(offers: impl IntoIterator<Item = Offer>) -> Vec<String> {
    let words = |offer: Offer| match offer {
        Offer::Finalizer(change) => format!("finalizer {}", change.allocation),
        Offer::Marks(NodeMarks { node, marks, .. }) => {
            format!("{} {node}", if marks.is_some() { "mark" } else { "unmark" })
        }
        Offer::Status { name, .. } => format!("status {name}"),
        Offer::Evict(eviction, pods) => format!("evict {} of {}", eviction.name, pods.len()),
        Offer::Template(change) => format!("template {}", change.workload.name),
    };
    offers.into_iter().map(words).collect()
}

/// The urgent writes of the plan for a world, and the others.
fn sorted(state: &State) -> (Vec<String>, Vec<String>) {
    let mut plan = plan::plan(&state.world, NOW);
    let Sorted { urgent, idle } = Sorted::new(&mut plan, state, |_| false);
    (in_words(urgent), in_words(idle))
}

#[tokio::test]
async fn the_claim_of_a_first_attach_is_urgent_and_what_has_no_node_is_not() {
    let mut state = state();
    allocate(&mut state, "voice", 1, false, &json!({}));
    node(&mut state, "n1", "voice", None);
    allocate(&mut state, "nowhere", 2, false, &json!({}));
    let (urgent, idle) = sorted(&state);
    assert_eq!(urgent, ["finalizer voice", "status voice"]);
    assert_eq!(idle, ["finalizer nowhere", "status nowhere"]);
}

#[tokio::test]
async fn marks_of_a_node_that_an_address_leaves_and_the_claim_of_the_move_are_urgent() {
    let mut state = state();
    allocate(&mut state, "voice", 1, true, &json!({}));
    node(&mut state, "n1", "voice", Some(1)).unschedulable = true;
    node(&mut state, "n2", "voice", None);
    attach(&mut state, 1, "n1");
    allocate(&mut state, "nowhere", 2, true, &json!({}));
    let (urgent, idle) = sorted(&state);
    assert_eq!(urgent, ["status voice", "unmark n1"]);
    assert_eq!(idle, ["status nowhere"]);
}

#[tokio::test]
async fn marks_of_a_node_that_an_address_has_arrived_at_are_urgent() {
    let mut state = state();
    allocate(&mut state, "voice", 1, true, &json!({}));
    node(&mut state, "n1", "voice", None);
    attach(&mut state, 1, "n1");
    let (urgent, idle) = sorted(&state);
    assert_eq!(urgent, ["mark n1"]);
    assert_eq!(idle, ["status voice"], "nothing is under way: nobody waits for it");
}

/// That a move has ended is urgent too: the next one of the allocation may wait for it.
#[tokio::test]
async fn the_end_of_a_move_is_urgent() {
    let mut state = state();
    allocate(&mut state, "voice", 1, true, &json!({}));
    node(&mut state, "n1", "voice", Some(1));
    attach(&mut state, 1, "n1");
    let claimed = json!({
        "ips": [{
            "address": address(1), "state": "Free",
            "operation": {
                "id": "1", "cause": "FirstAttach", "toProviderID": instance("n1"),
                "startedAt": "1970-01-12T00:00:00Z", "epoch": 0,
            },
        }],
    });
    state.world.allocations.get_mut("voice").unwrap().status = Arc::new(from_value(claimed).unwrap());
    let (urgent, idle) = sorted(&state);
    assert_eq!(urgent, ["status voice"]);
    assert_eq!(idle, [""; 0]);
}

/// A pod in the wrong place, and a DaemonSet without the requirement.
fn with_pods() -> State {
    let mut state = state();
    let workload =
        |kind: &str, name: &str| json!({ "workloadRef": { "kind": kind, "namespace": "web", "name": name } });
    allocate(&mut state, "voice", 1, true, &workload("Deployment", "sip"));
    allocate(&mut state, "agents", 2, true, &workload("DaemonSet", "agent"));
    for (number, name, pool) in [(1, "n1", "voice"), (2, "n2", "agents")] {
        node(&mut state, name, pool, Some(number));
        attach(&mut state, number, name);
    }
    node(&mut state, "n3", "voice", None);
    let (sip, agent) =
        (key(crds::WorkloadKind::Deployment, "sip"), key(crds::WorkloadKind::DaemonSet, "agent"));
    state.world.workloads.insert(agent, Workload::default());
    state.world.workloads.insert(sip.clone(), Workload::default());
    let pod = Pod {
        namespace: "web".to_owned(),
        name: "sip-1".to_owned(),
        workload: Arc::new(sip),
        node: Some("n3".into()),
        finished: false,
        ready: true,
        deleting: false,
        created: Time(0),
        injected: None,
        ours: false,
    };
    state.world.pods.insert("u1".to_owned(), pod);
    state.world.noticed.insert(Notice::Misplaced("u1".to_owned()), Time(0));
    state
}

#[tokio::test]
async fn pods_and_templates_come_after_what_is_urgent_and_before_what_nobody_waits_for() {
    let mut state = with_pods();
    allocate(&mut state, "moves", 3, true, &json!({}));
    node(&mut state, "n4", "moves", None);
    let (urgent, idle) = sorted(&state);
    assert_eq!(urgent, ["status moves"]);
    assert_eq!(idle, ["evict sip-1 of 1", "template agent", "status agents", "status voice"]);
    let agent = key(crds::WorkloadKind::DaemonSet, "agent");
    state.world.unlisted.insert(agent, "403".to_owned());
    assert!(!sorted(&state).1.contains(&"template agent".to_owned()), "nobody knows what is in it");
}

#[tokio::test]
async fn nothing_is_said_of_an_address_that_was_not_read_yet() {
    let mut state = state();
    allocate(&mut state, "voice", 1, true, &json!({}));
    node(&mut state, "n1", "voice", None);
    let mut plan = plan::plan(&state.world, NOW);
    let Sorted { urgent, idle } = Sorted::new(&mut plan, &state, |awaited| *awaited == address(1));
    assert_eq!((in_words(urgent).len(), in_words(idle).len()), (0, 0));
}
