//! The watches that feed the index: all allocations, and the ReplicaSets of the namespaces that they
//! refer to, of which only the metadata is read.

use crate::state::State;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::apps::v1::ReplicaSet;
use kube::core::{ApiResource, Object, PartialObjectMeta};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Client, ResourceExt as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Everything but metadata and spec is skipped. The spec is raw: objects of an earlier schema need not
/// fit our types.
type LeanAllocation = Object<Option<Value>, Skipped>;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Skipped {}

/// Keeps the index up to date for ever.
pub async fn run(client: Client, state: Arc<State>) {
    tokio::join!(allocations(client.clone(), &state), replica_sets(client, &state));
}

async fn allocations(client: Client, state: &State) {
    let resource = ApiResource::erase::<crds::NetIPAllocation>(&());
    let api: Api<LeanAllocation> = Api::all_with(client, &resource);
    let mut events = pin!(watch(api, watcher::Config::default()).default_backoff());
    let mut listed = BTreeSet::new();
    while let Some(event) = next(&mut events, "allocations", state).await {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(object) => {
                listed.insert(object.name_any());
                apply(state, &object);
            }
            Event::InitDone => {
                state.update(|index| index.retain_allocations(&listed));
                listed.clear();
                state.allocations_listed();
            }
            Event::Apply(object) => apply(state, &object),
            Event::Delete(object) => state.update(|index| index.remove_allocation(&object.name_any())),
        }
    }
}

fn apply(state: &State, object: &LeanAllocation) {
    let spec = object.spec.as_ref().unwrap_or(&Value::Null);
    let deleting = object.metadata.deletion_timestamp.is_some();
    state.update(|index| index.apply_allocation(&object.name_any(), spec, deleting));
}

/// Starts and stops a watch per namespace as allocations come to refer to it or cease to.
async fn replica_sets(client: Client, state: &Arc<State>) {
    let mut changes = state.changes();
    let mut watches = JoinSet::new();
    let mut handles = HashMap::new();
    loop {
        changes.mark_unchanged();
        let wanted = state.index().namespaces_with_deployments();
        handles.retain(|namespace: &String, handle: &mut tokio::task::AbortHandle| {
            let keep = wanted.contains(namespace);
            if !keep {
                tracing::info!(namespace, "no allocation refers to a Deployment here any more");
                handle.abort();
                state.update(|index| index.retain_replica_sets(namespace, &BTreeSet::new()));
                state.replica_sets_listed(namespace);
            }
            keep
        });
        for namespace in wanted {
            handles.entry(namespace.clone()).or_insert_with(|| {
                tracing::info!(namespace, "watching ReplicaSets");
                watches.spawn(replica_sets_of(client.clone(), state.clone(), namespace))
            });
        }
        // The sender lives in `state`, so this does not fail while we run.
        if changes.changed().await.is_err() {
            return;
        }
    }
}

async fn replica_sets_of(client: Client, state: Arc<State>, namespace: String) {
    let api: Api<PartialObjectMeta<ReplicaSet>> = Api::namespaced(client, &namespace);
    let mut events = pin!(watch(api, watcher::Config::default()).default_backoff());
    let mut listed = BTreeSet::new();
    while let Some(event) = next(&mut events, "replicasets", &state).await {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(object) => {
                listed.insert(object.uid().unwrap_or_default());
                apply_replica_set(&state, &namespace, &object);
            }
            Event::InitDone => {
                state.update(|index| index.retain_replica_sets(&namespace, &listed));
                listed.clear();
                state.replica_sets_listed(&namespace);
            }
            Event::Apply(object) => apply_replica_set(&state, &namespace, &object),
            Event::Delete(object) => {
                let uid = object.uid().unwrap_or_default();
                state.update(|index| index.remove_replica_set(&namespace, &uid));
            }
        }
    }
}

fn apply_replica_set(state: &State, namespace: &str, object: &PartialObjectMeta<ReplicaSet>) {
    let uid = object.metadata.uid.as_deref().unwrap_or_default();
    let owners = object.metadata.owner_references.as_deref().unwrap_or_default();
    let deployment = owners
        .iter()
        .find(|owner| owner.controller == Some(true))
        .filter(|owner| owner.kind == "Deployment" && owner.api_version.starts_with("apps/"))
        .map(|owner| owner.name.as_str());
    // A status update is no news.
    if state.index().deployment_of(namespace, uid) != Some(deployment) {
        state.update(|index| index.apply_replica_set(namespace, uid, deployment));
    }
}

/// The next event. Errors are counted and said; the watch goes on by itself after a while.
async fn next<K>(
    events: &mut (impl Stream<Item = watcher::Result<Event<K>>> + Unpin),
    what: &str,
    state: &State,
) -> Option<Event<K>> {
    loop {
        match events.next().await? {
            Ok(event) => return Some(event),
            Err(error) => {
                state.metrics().watch_errors.with_label_values(&[what]).inc();
                tracing::warn!(watch = what, %error, "watch interrupted");
            }
        }
    }
}
