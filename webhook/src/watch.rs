//! The watches that feed the index: all allocations, and the ReplicaSets of the namespaces that they
//! refer to, of which only the metadata is read.

use crate::state::{Following, State};
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::ReplicaSet;
use kube::core::{ApiResource, Object, PartialObjectMeta};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

/// How long ReplicaSets are waited for: after a start with everything, later with the pods of their
/// namespace.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the API server may take for the next piece of a list.
const LIST: Duration = Duration::from_secs(30);
/// The pause before a watch that ended is begun anew.
const AGAIN: Duration = Duration::from_secs(1);

/// An event, or what went wrong.
type Taken<K> = Result<Event<K>, String>;

/// Everything but metadata and spec is skipped. The spec is raw: objects of an earlier schema need not
/// fit our types.
type LeanAllocation = Object<Option<Value>, Skipped>;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Skipped {}

/// Keeps the index up to date for ever.
pub async fn run(client: Client, state: Arc<State>) -> Infallible {
    tokio::select! {
        never = allocations(client.clone(), &state) => never,
        never = replica_sets(client, &state) => never,
        never = patience(&state) => never,
    }
}

async fn allocations(client: Client, state: &State) -> Infallible {
    let resource = ApiResource::erase::<crds::NetIPAllocation>(&());
    let api: Api<LeanAllocation> = Api::all_with(client, &resource);
    let mut listed = BTreeSet::new();
    let taken = |event: Taken<LeanAllocation>| match event {
        Err(error) => complain(state, "allocations", None, &error),
        Ok(Event::Init) => listed.clear(),
        Ok(Event::InitApply(object)) => {
            listed.insert(object.name_any());
            apply(state, &object);
        }
        Ok(Event::InitDone) => {
            state.update(|index| index.retain_allocations(&listed));
            listed.clear();
            state.allocations_listed();
        }
        Ok(Event::Apply(object)) => apply(state, &object),
        Ok(Event::Delete(object)) => state.update(|index| index.remove_allocation(&object.name_any())),
    };
    follow(api, taken).await
}

fn apply(state: &State, object: &LeanAllocation) {
    let spec = object.spec.as_ref().unwrap_or(&Value::Null);
    let deleting = object.metadata.deletion_timestamp.is_some();
    state.update(|index| index.apply_allocation(&object.name_any(), spec, deleting));
}

/// After the start, goes on without the ReplicaSets that do not come.
async fn patience(state: &State) -> Infallible {
    let mut changes = state.changes();
    // The sender lives in `state`, so this does not fail while we run.
    let _ = changes.wait_for(|_| state.knows_allocations()).await;
    sleep(PATIENCE).await;
    let missing = state.go_on();
    if !missing.is_empty() {
        tracing::warn!(namespaces = ?missing, "ReplicaSets are not listed yet; going on without them");
    }
    std::future::pending().await
}

/// Starts and stops a watch per namespace as allocations come to refer to it or cease to.
async fn replica_sets(client: Client, state: &Arc<State>) -> Infallible {
    let mut changes = state.changes();
    let mut watches = JoinSet::new();
    let mut handles: HashMap<String, AbortHandle> = HashMap::new();
    loop {
        changes.mark_unchanged();
        let wanted = state.index().namespaces_with_deployments();
        handles.retain(|namespace, handle| {
            let keep = wanted.contains(namespace);
            if !keep {
                tracing::info!(namespace, "no allocation refers to a Deployment here any more");
                handle.abort();
                state.update(|index| index.retain_replica_sets(namespace, &BTreeSet::new()));
                state.forget_namespace(namespace);
            }
            keep
        });
        for namespace in wanted {
            handles.entry(namespace.clone()).or_insert_with(|| {
                tracing::info!(namespace, "watching ReplicaSets");
                state.follows(&namespace, Following::Begun);
                watches.spawn(replica_sets_of(client.clone(), state.clone(), namespace))
            });
        }
        tokio::select! {
            // The sender lives in `state`, so this does not fail while we run.
            _ = changes.changed() => {}
            Some(ended) = watches.join_next_with_id() => {
                // One that we stopped is not in the table any more. What is left has panicked: once more.
                let Err(error) = ended;
                if handles.values().any(|handle| handle.id() == error.id()) {
                    tracing::error!(%error, "a watch of ReplicaSets ended; it is begun anew");
                    handles.retain(|_, handle| handle.id() != error.id());
                    sleep(AGAIN).await;
                }
            }
        }
    }
}

async fn replica_sets_of(client: Client, state: Arc<State>, namespace: String) -> Infallible {
    let api: Api<PartialObjectMeta<ReplicaSet>> = Api::namespaced(client, &namespace);
    let mut listed = BTreeSet::new();
    let taken = |event: Taken<PartialObjectMeta<ReplicaSet>>| {
        match event {
            Err(error) => {
                complain(&state, "replicasets", Some(&namespace), &error);
                fails(&state, &namespace);
                return;
            }
            Ok(Event::Init) => return listed.clear(),
            Ok(Event::InitApply(object)) => {
                listed.insert(object.uid().unwrap_or_default());
                return apply_replica_set(&state, &namespace, &object);
            }
            Ok(Event::InitDone) => {
                state.update(|index| index.retain_replica_sets(&namespace, &listed));
                listed.clear();
            }
            Ok(Event::Apply(object)) => apply_replica_set(&state, &namespace, &object),
            Ok(Event::Delete(object)) => {
                let uid = object.uid().unwrap_or_default();
                state.update(|index| index.remove_replica_set(&namespace, &uid));
            }
        }
        if state.follows(&namespace, Following::Listed) {
            tracing::info!(namespace, "ReplicaSets are listed");
        }
    };
    let mut following = pin!(follow(api, taken));
    tokio::select! {
        never = &mut following => never,
        () = sleep(PATIENCE) => {
            if state.lose_patience_with(&namespace) {
                tracing::warn!(namespace, "{BY_NAME}");
            }
            following.await
        }
    }
}

const BY_NAME: &str =
    "ReplicaSets cannot be watched here: until they can, pods are taken for their Deployment's by name";

fn fails(state: &State, namespace: &str) {
    if state.follows(namespace, Following::Failing) {
        tracing::warn!(namespace, "{BY_NAME}");
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

/// Lists and watches for ever. An error is handed on, and the watch goes on by itself after a while; one that
/// ends, or a list that hangs, is begun anew.
async fn follow<K>(api: Api<K>, mut taken: impl FnMut(Taken<K>)) -> Infallible
where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    loop {
        let mut events = pin!(watch(api.clone(), watcher::Config::default()).default_backoff());
        let mut listing = true;
        loop {
            let next = events.next();
            let next = if listing { timeout(LIST, next).await } else { Ok(next.await) };
            match next {
                Ok(Some(Ok(event))) => {
                    listing = matches!(event, Event::Init | Event::InitApply(_));
                    taken(Ok(event));
                }
                Ok(Some(Err(error))) => taken(Err(error.to_string())),
                Ok(None) => break taken(Err("the watch ended".to_owned())),
                Err(_) => break taken(Err(format!("no answer to a list for {LIST:?}"))),
            }
        }
        sleep(AGAIN).await;
    }
}

fn complain(state: &State, what: &str, namespace: Option<&str>, error: &str) {
    state.metrics().watch_errors.with_label_values(&[what]).inc();
    tracing::warn!(watch = what, namespace, error, "watch interrupted");
}
