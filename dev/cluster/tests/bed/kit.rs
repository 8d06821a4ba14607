//! Words that the tests share.

use anyhow::{Context as _, Result, ensure};
use cluster::harness::Bed;
use cluster::{Cluster, NodeSpec, Provider, Version, eventually};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

/// The shared cluster with `count` nodes of a test's own, labelled `pool=<name>`.
pub async fn with_nodes<'b>(bed: &'b Bed, name: &str, count: usize) -> Result<&'b Cluster> {
    let cluster = bed.cluster(Version::Newest).await?;
    add_nodes(cluster, name, count).await?;
    Ok(cluster)
}

/// Adds `count` nodes labelled `pool=<name>` and waits until pods can run there.
pub async fn add_nodes(cluster: &Cluster, name: &str, count: usize) -> Result<()> {
    let pool = NodeSpec::pool(Provider::Gcp, name, count);
    cluster.nodes().create_all(pool.into_iter().map(|node| node.label("pool", name))).await?;
    for number in 1..=count {
        eventually("the node to be Ready and free of taints", async || {
            let node = node(cluster, &format!("{name}-{number}")).await?;
            ensure!(ready(&node) == "True", "{:?}", node.status);
            ensure!(node.spec.and_then(|spec| spec.taints).is_none_or(|taints| taints.is_empty()), "tainted");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

pub async fn node(cluster: &Cluster, name: &str) -> Result<Node> {
    Ok(Api::<Node>::all(cluster.client()).get(name).await?)
}

/// `status` of the Ready condition.
pub fn ready(node: &Node) -> String {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.and_then(|all| all.iter().find(|c| c.type_ == "Ready"));
    ready.map_or_else(String::new, |condition| condition.status.clone())
}

pub async fn label_node(cluster: &Cluster, node: &str, key: &str, value: &str) -> Result<()> {
    let patch = json!({ "metadata": { "labels": { key: value } } });
    Api::<Node>::all(cluster.client()).patch(node, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// A workload of any kind whose pods run on the nodes of its test only.
pub fn workload(kind: &str, name: &str, spec: &Value, pod_spec: &Value) -> String {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": name },
        "spec": {
            "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": { "app": name } }, "spec": {
                "nodeSelector": { "pool": name },
                "terminationGracePeriodSeconds": 1,
                "containers": [{ "name": "main", "image": "none" }],
            }},
        },
    });
    merge(&mut object["spec"], spec);
    merge(&mut object["spec"]["template"]["spec"], pod_spec);
    object.to_string()
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

pub async fn apply(cluster: &Cluster, manifest: &str) -> Result<()> {
    cluster.kubectl_with_input(&["apply", "-f", "-"], manifest).await?.ok()?;
    Ok(())
}

/// The pods of a workload, by name.
pub async fn pods(cluster: &Cluster, app: &str) -> Result<Vec<Pod>> {
    let api: Api<Pod> = Api::default_namespaced(cluster.client());
    let mut pods = api.list(&ListParams::default().labels(&format!("app={app}"))).await?.items;
    pods.sort_by_key(ResourceExt::name_any);
    Ok(pods)
}

/// Waits until `count` pods of a workload run and are Ready, with none on its way out.
pub async fn running(cluster: &Cluster, app: &str, count: usize) -> Result<Vec<Pod>> {
    eventually(&format!("{count} running pods of {app}"), async || {
        let pods = pods(cluster, app).await?;
        ensure!(pods.len() == count, "there are {}", pods.len());
        for pod in &pods {
            ensure!(pod.metadata.deletion_timestamp.is_none(), "{} is terminating", pod.name_any());
            let status = pod.status.as_ref().context("no status")?;
            let conditions = status.conditions.as_deref().unwrap_or_default();
            ensure!(conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True"), "{status:?}");
        }
        Ok(pods)
    })
    .await
}

/// The node that a pod is on.
pub fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}
