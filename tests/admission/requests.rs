//! Requests as a person's client makes them, with strict field validation.

use anyhow::{Context as _, Result, bail};
use cluster::Cluster;
use crds::NetIPAllocation;
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, Status};
use serde_json::{Value, json};

/// A valid allocation to vary from.
pub fn allocation(name: &str) -> Value {
    json!({
        "apiVersion": "netinfra.darkbrains.com/v1alpha1",
        "kind": "NetIPAllocation",
        "metadata": { "name": name },
        "spec": { "reservedIPs": ["203.0.113.10"], "cloud": { "provider": "gcp" } },
    })
}

/// Sets a value at a JSON pointer, making objects on the way.
pub fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut place = object;
    for key in pointer.trim_start_matches('/').split('/') {
        if place.is_null() {
            *place = json!({});
        }
        place = &mut place[key];
    }
    *place = value;
}

/// The API, without Rust types in between: what is not valid must be sendable.
pub fn api(cluster: &Cluster) -> Api<DynamicObject> {
    Api::all_with(cluster.client(), &ApiResource::erase::<NetIPAllocation>(&()))
}

/// Creates an object as `kubectl create --validate=strict` does.
pub async fn create(cluster: &Cluster, object: &Value) -> Result<Value> {
    send(cluster, "POST", "?fieldValidation=Strict", object).await
}

/// What `kubectl create --dry-run=server` says.
pub async fn create_dry(cluster: &Cluster, object: &Value) -> Result<Value> {
    send(cluster, "POST", "?fieldValidation=Strict&dryRun=All", object).await
}

/// Replaces an object as `kubectl replace --validate=strict` does.
pub async fn replace(cluster: &Cluster, object: &Value) -> Result<Value> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).context("no name")?;
    send(cluster, "PUT", &format!("/{name}?fieldValidation=Strict"), object).await
}

async fn send(cluster: &Cluster, method: &str, path: &str, object: &Value) -> Result<Value> {
    let base = "/apis/netinfra.darkbrains.com/v1alpha1/netipallocations";
    let request = http::Request::builder()
        .method(method)
        .uri(format!("{base}{path}"))
        .header("Content-Type", "application/json")
        .body(serde_json::to_vec(object)?)?;
    Ok(cluster.client().request(request).await?)
}

/// The answer to a request that has to be refused.
pub fn refusal<T>(result: Result<T>) -> Result<Status> {
    match result {
        Ok(_) => bail!("was accepted"),
        Err(error) => match error.downcast::<kube::Error>()? {
            kube::Error::Api(status) => Ok(*status),
            other => Err(other.into()),
        },
    }
}

/// Removes an object, whatever its finalizers.
pub async fn remove(cluster: &Cluster, name: &str) -> Result<()> {
    api(cluster).delete(name, &kube::api::DeleteParams::default()).await?;
    Ok(())
}

/// Reads an object as it is stored.
pub async fn read(cluster: &Cluster, name: &str) -> Result<Value> {
    Ok(serde_json::to_value(api(cluster).get(name).await?)?)
}

/// How many objects there are whose name starts so.
pub async fn count(cluster: &Cluster, prefix: &str) -> Result<usize> {
    let list = api(cluster).list(&ListParams::default()).await?;
    Ok(list
        .items
        .iter()
        .filter(|o| o.metadata.name.as_deref().is_some_and(|n| n.starts_with(prefix)))
        .count())
}

/// Creates an object through the typed API (no strict validation), for what comes out of our own types.
pub async fn create_typed(cluster: &Cluster, object: &NetIPAllocation) -> Result<NetIPAllocation> {
    let api: Api<NetIPAllocation> = Api::all(cluster.client());
    Ok(api.create(&PostParams::default(), object).await?)
}
