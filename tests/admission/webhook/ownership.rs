//! DaemonSets belong to whoever applies them: our own writes pass the webhook by, take no field away from
//! anybody, and stay out of the way of server-side apply.

use super::kit::{allocation, api, forget, guarded, namespace, reference, required, selects};
use crate::requests::create;
use anyhow::{Context as _, Result, bail, ensure};
use cluster::harness::Bed;
use cluster::{Cluster, Version, eventually};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use webhook::workload::{disown, set_daemon_set};

const MARK: &str = "netinfra.darkbrains.com/injected";

fn daemon_set(space: &str, affinity: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "edge", "namespace": space },
        "spec": {
            "selector": { "matchLabels": { "app": "edge" } },
            "template": { "metadata": { "labels": { "app": "edge" } },
                          "spec": { "containers": [{ "name": "main", "image": "none" }] } },
        },
    });
    if !affinity.is_null() {
        object["spec"]["template"]["spec"]["affinity"] = affinity.clone();
    }
    object
}

fn in_zone(zone: &str) -> Value {
    let zone = json!({ "key": "zone", "operator": "In", "values": [zone] });
    json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchExpressions": [zone] }] } } })
}

/// As the controller does it.
async fn set(sets: &Api<DynamicObject>, names: &[&str]) -> Result<Value> {
    let names: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let params =
        PatchParams { field_manager: Some(crds::FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let object = serde_json::to_value(sets.get("edge").await?)?;
    let patch = Patch::Json::<()>(set_daemon_set(&object, &names));
    sets.patch("edge", &params, &patch).await?;
    eventually("to own nothing", async || {
        let written = serde_json::to_value(sets.get("edge").await?)?;
        Ok(sets.patch("edge", &params, &Patch::Json::<()>(disown(&written))).await?)
    })
    .await?;
    Ok(serde_json::to_value(sets.get("edge").await?)?["spec"]["template"].take())
}

async fn applied(cluster: &Cluster, object: &Value) -> Result<()> {
    let flags = ["apply", "--server-side", "-f", "-"];
    cluster.kubectl_with_input(&flags, &object.to_string()).await?.ok()?;
    Ok(())
}

async fn template(sets: &Api<DynamicObject>) -> Result<Value> {
    Ok(serde_json::to_value(sets.get("edge").await?)?["spec"]["template"].take())
}

/// A DaemonSet that is new to the webhook has the requirement, and a mark beside it.
async fn injected(cluster: &Cluster, sets: &Api<DynamicObject>, object: &Value, name: &str) -> Result<()> {
    eventually("a new DaemonSet to get the requirement", async || {
        applied(cluster, object).await?;
        let template = template(sets).await?;
        if required(&template) != [[name]] {
            sets.delete("edge", &kube::api::DeleteParams::default()).await?;
            bail!("not known to the webhook yet");
        }
        ensure!(template["metadata"]["annotations"][MARK] == name, "{}", template["metadata"]);
        Ok(())
    })
    .await
}

/// What the controller takes out stays out, also where the webhook still knows the allocation.
pub async fn the_controllers_own_writes_pass_by(_: Arc<Bed>, version: Version) -> Result<()> {
    let cluster = &guarded(version).await?.cluster;
    let (space, plain) = ("passing", daemon_set("passing", &Value::Null));
    namespace(cluster, space).await?;
    create(cluster, &allocation("passer", &["198.51.100.61"], &reference("DaemonSet", space, "edge")))
        .await?;
    selects(cluster, space, true).await?;
    let sets = api(cluster.client(), space, "apps", "DaemonSet");
    injected(cluster, &sets, &plain, "passer").await?;
    let removed = set(&sets, &[]).await?;
    ensure!(required(&removed).is_empty(), "somebody put it back: {}", removed["spec"]["affinity"]);
    ensure!(removed["metadata"]["annotations"].get(MARK).is_none(), "{}", removed["metadata"]);
    let added = set(&sets, &["passer"]).await?;
    ensure!(required(&added) == [["passer"]], "{}", added["spec"]["affinity"]);
    // A user's write does not take it away.
    let gone = json!([{ "op": "remove", "path": "/spec/template/spec/affinity" }]);
    let patch = Patch::Json::<()>(serde_json::from_value(gone)?);
    sets.patch("edge", &PatchParams::default(), &patch).await?;
    ensure!(required(&template(&sets).await?) == [["passer"]], "a user took it away");
    forget(cluster, &["passer"]).await
}

/// Whoever applies server-side can go on, with an affinity of their own or without, changed or not, whether the
/// webhook put the requirement in or the controller.
pub async fn server_side_apply_needs_no_force(_: Arc<Bed>, version: Version) -> Result<()> {
    let cluster = &guarded(version).await?.cluster;
    let space = "applied";
    namespace(cluster, space).await?;
    create(cluster, &allocation("applier", &["198.51.100.62"], &reference("DaemonSet", space, "edge")))
        .await?;
    selects(cluster, space, true).await?;
    let sets = api(cluster.client(), space, "apps", "DaemonSet");
    let ours = |zone: Option<&str>, template: &Value| -> Result<()> {
        ensure!(required(template) == [["applier"]], "{}", template["spec"]["affinity"]);
        let text = template["spec"]["affinity"].to_string();
        ensure!(zone.is_none_or(|zone| text.contains(&format!("[\"{zone}\"]"))), "{text}");
        Ok(())
    };
    for (first, then) in
        [(Value::Null, in_zone("a")), (in_zone("a"), in_zone("b")), (in_zone("a"), in_zone("a"))]
    {
        injected(cluster, &sets, &daemon_set(space, &first), "applier").await?;
        applied(cluster, &daemon_set(space, &then)).await.context("after the webhook")?;
        ours(Some(if then == in_zone("b") { "b" } else { "a" }), &template(&sets).await?)?;
        set(&sets, &[]).await?;
        set(&sets, &["applier"]).await?;
        applied(cluster, &daemon_set(space, &then)).await.context("after the controller, unchanged")?;
        ours(None, &template(&sets).await?)?;
        applied(cluster, &daemon_set(space, &in_zone("c"))).await.context("after the controller, changed")?;
        ours(Some("c"), &template(&sets).await?)?;
        applied(cluster, &daemon_set(space, &Value::Null)).await.context("without an affinity")?;
        ours(None, &template(&sets).await?)?;
        let owners = serde_json::to_value(sets.get("edge").await?.metadata.managed_fields)?.to_string();
        ensure!(!owners.contains("\"ip-address-controller\""), "{owners}");
        sets.delete("edge", &kube::api::DeleteParams::default()).await?;
    }
    forget(cluster, &["applier"]).await
}
