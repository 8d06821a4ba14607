//! The parts that talk to the API server, when it fails: what goes wrong once heals, and what goes wrong in
//! one place stays there. Time is simulated.

use crate::fake::{Fault, Server};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use telemetry::Telemetry;
use telemetry::webhook::Metrics;
use webhook::registration::keep_narrow;
use webhook::state::State;

fn state() -> Arc<State> {
    let metrics = Metrics::new(&Telemetry::new(None).expect("metrics")).expect("metrics");
    Arc::new(State::new(BTreeSet::new(), metrics))
}

fn allocation(name: &str, address: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "netinfra.darkbrains.com/v1alpha1", "kind": "NetIPAllocation",
        "metadata": { "name": name, "uid": name, "resourceVersion": "1" },
        "spec": { "reservedIPs": [address], "cloud": { "provider": "gcp" },
                  "workloadRef": { "kind": "Deployment", "name": "web", "namespace": namespace } },
    })
}

fn names(of: &[&str]) -> BTreeSet<String> {
    of.iter().map(|name| (*name).to_owned()).collect()
}

async fn heals(faults: &[Fault]) {
    let (state, server) = (state(), Arc::new(Server::default()));
    server.faults.lock().expect("nobody panics").extend_from_slice(faults);
    let object = allocation("voice", "203.0.113.1", "prod");
    state.update(|index| index.apply_allocation("voice", &object["spec"], false));
    state.allocations_listed();
    let (client, of_task) = (server.client(), Arc::clone(&state));
    let task = tokio::spawn(async move { keep_narrow(client, &of_task).await });
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(server.faults.lock().expect("nobody panics").is_empty(), "nothing went wrong");
    assert_eq!(server.selected(), names(&["prod"]), "after {faults:?}");
    // And it goes on: another namespace.
    let object = allocation("more", "203.0.113.2", "later");
    state.update(|index| index.apply_allocation("more", &object["spec"], false));
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(server.selected(), names(&["later", "prod"]));
    task.abort();
}

/// A write that fails, and the read after it: the selector is written all the same, soon.
#[tokio::test(start_paused = true)]
async fn a_selector_that_could_not_be_written_is_written_later() {
    for one in [Fault::Error, Fault::Forbidden, Fault::Hang] {
        heals(&[one]).await;
        for other in [Fault::Error, Fault::Hang] {
            heals(&[one, other]).await;
            heals(&[one, other, one, other, other]).await;
        }
    }
}

/// Namespaces whose ReplicaSets cannot be listed gate nothing but themselves, for no longer than a short
/// while after the start.
#[tokio::test(start_paused = true)]
async fn namespaces_that_cannot_be_listed_gate_nothing() {
    let (state, server) = (state(), Arc::new(Server::default()));
    *server.namespaces.lock().expect("nobody panics") =
        vec![("forbidden", Fault::Forbidden), ("hanging", Fault::Hang), ("broken", Fault::Error)];
    *server.allocations.lock().expect("nobody panics") = vec![
        allocation("a", "203.0.113.1", "fine"),
        allocation("b", "203.0.113.2", "forbidden"),
        allocation("c", "203.0.113.3", "hanging"),
        allocation("d", "203.0.113.4", "broken"),
        // Stored before there was a rule.
        allocation("e", "203.0.113.5", "prod "),
        allocation("f", "203.0.113.6", "prod/web"),
        allocation("g", "203.0.113.7", "{{ .Values.ns }}"),
    ];
    let (client, of_task) = (server.client(), Arc::clone(&state));
    let task = tokio::spawn(async move { webhook::watch::run(client, of_task).await });
    let mut changes = state.changes();
    changes.wait_for(|_| state.knows_allocations()).await.expect("it is alive");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!state.is_complete(), "a restart lets no pod slip by");
    let missing: Vec<String> =
        ["broken", "forbidden", "hanging"].map(|name| format!("replicasets in {name}")).into();
    assert_eq!(state.missing(), missing);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(state.is_complete() && state.missing().is_empty(), "{:?}", state.missing());
    for (namespace, failing) in [("fine", false), ("forbidden", true), ("hanging", true), ("broken", true)] {
        assert_eq!(state.index().is_failing(namespace), failing, "{namespace}");
    }
    assert_eq!(state.index().namespaces(), names(&["broken", "fine", "forbidden", "hanging"]));
    // All is well again: so it is here.
    server.namespaces.lock().expect("nobody panics").clear();
    tokio::time::sleep(Duration::from_mins(3)).await;
    for namespace in ["fine", "forbidden", "hanging", "broken"] {
        assert!(!state.index().is_failing(namespace), "{namespace}");
    }
    let calls = server.calls.lock().expect("nobody panics").len();
    assert!(calls < 200, "{calls} calls in three minutes");
    task.abort();
}
