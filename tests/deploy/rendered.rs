//! What is rendered, without a cluster: both ways make the same objects, and these are as they must be.

use crate::kit::{
    NAMESPACE, OTHER_VALUES, PAIRS, Way, chart, helm, is_hook, kind, name, render, values_file,
};
use anyhow::{Context as _, Result, bail, ensure};
use cluster::harness::Bed;
use ip_address_controller::controller::GRACE;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What can be told apart only by who renders it: Helm makes no namespace, and has annotations of its own;
/// strategic merges put environment variables into another order.
fn comparable(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let objects = objects.into_iter().filter(|object| kind(object) != "Namespace");
    objects
        .map(|mut object| {
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
                if let Some(annotations) = annotations {
                    annotations.retain(|key, _| !key.starts_with("helm.sh/"));
                }
                metadata.retain(|key, value| key != "annotations" || *value != serde_json::json!({}));
            }
            let containers =
                object.pointer_mut("/spec/template/spec/containers").and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                if let Some(env) = container.get_mut("env").and_then(Value::as_array_mut) {
                    env.sort_by_key(|variable| variable["name"].to_string());
                }
            }
            (format!("{} {}", kind(&object), name(&object)), object)
        })
        .collect()
}

/// Where two values differ first, and how.
fn difference(at: &str, left: &Value, right: &Value) -> Option<String> {
    match (left, right) {
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            a.iter().find_map(|(key, value)| difference(&format!("{at}/{key}"), value, &b[key]))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let mut pairs = a.iter().zip(b).enumerate();
            pairs.find_map(|(number, (a, b))| difference(&format!("{at}/{number}"), a, b))
        }
        // `0.0` is `0`.
        (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => None,
        _ => (left != right).then(|| format!("{at}: {left} and {right}")),
    }
}

pub async fn chart_and_kustomize_make_the_same_objects(_: Arc<Bed>) -> Result<()> {
    for (folder, values) in PAIRS {
        let (mut ours, mut hooks): (Vec<_>, Vec<_>) =
            render(Way::Chart(*values)).await?.into_iter().partition(|object| !is_hook(object));
        hooks.retain(|object| object["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete");
        let crd = ours.iter_mut().find(|object| kind(object) == "CustomResourceDefinition");
        let kept = &crd.context("no CRD")?["metadata"]["annotations"]["helm.sh/resource-policy"];
        ensure!(kept == "keep", "helm uninstall would delete all allocations");
        for (made, theirs) in [(ours, *folder), (hooks, "uninstall")] {
            let theirs = comparable(render(Way::Kustomize(theirs)).await?);
            let made = comparable(made);
            ensure!(made.len() > 5, "{folder}: next to nothing was rendered");
            let (left, right): (BTreeSet<_>, BTreeSet<_>) = (made.keys().collect(), theirs.keys().collect());
            ensure!(left == right, "{folder}: the chart makes {left:?}, kustomize {right:?}");
            for (key, object) in &made {
                if let Some(difference) = difference("", object, &theirs[key]) {
                    bail!("{folder}: {key}: the chart's and kustomize's differ at {difference}");
                }
            }
        }
    }
    Ok(())
}

/// Every rendering that there is.
async fn all() -> Result<Vec<(Way, Vec<Value>)>> {
    let pairs = PAIRS.iter().flat_map(|(folder, values)| [Way::Kustomize(folder), Way::Chart(*values)]);
    let others = OTHER_VALUES.iter().map(|values| Way::Chart(Some(values)));
    let mut all = Vec::new();
    for way in pairs.chain(others).chain([Way::Kustomize("uninstall")]) {
        all.push((way, render(way).await?));
    }
    Ok(all)
}

pub async fn pods_are_as_they_must_be(_: Arc<Bed>) -> Result<()> {
    let mut seen = 0;
    for (way, objects) in all().await? {
        for object in &objects {
            let place = if kind(object) == "Pod" { "/spec" } else { "/spec/template/spec" };
            let Some(pod) = object.pointer(place) else { continue };
            check_pod(pod).with_context(|| format!("{way:?}: {} {}", kind(object), name(object)))?;
            seen += 1;
        }
    }
    ensure!(seen > 30, "only {seen} pods were looked at");
    Ok(())
}

fn check_pod(pod: &Value) -> Result<()> {
    ensure!(pod["securityContext"]["runAsNonRoot"] == true, "may be root");
    ensure!(pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault", "no seccomp");
    ensure!(pod["automountServiceAccountToken"] == true, "it needs its token, and says so");
    ensure!(pod["serviceAccountName"] != "default" && pod["serviceAccountName"].is_string(), "no account");
    let container = &pod["containers"][0];
    let security = &container["securityContext"];
    ensure!(security["readOnlyRootFilesystem"] == true, "its files can be written");
    ensure!(security["allowPrivilegeEscalation"] == false, "privileges can be gained");
    ensure!(security["capabilities"]["drop"] == serde_json::json!(["ALL"]), "has capabilities");
    for quantity in ["requests", "limits"] {
        ensure!(container["resources"][quantity]["memory"].is_string(), "no {quantity} of memory");
    }
    let seconds = pod["terminationGracePeriodSeconds"].as_u64();
    let needed = match container["name"].as_str() {
        Some("controller") => GRACE + Duration::from_secs(10),
        Some("webhook") => {
            let env = container["env"].as_array().context("no environment")?;
            let drain = env.iter().find(|variable| variable["name"] == "WEBHOOK_DRAIN_SECONDS");
            let drain = drain.and_then(|drain| drain["value"].as_str()).context("no drain")?.parse()?;
            Duration::from_secs(drain) + webhook::server::Limits::default().drain_timeout
        }
        Some("uninstall" | "test") => return Ok(()),
        other => bail!("what is {other:?}?"),
    };
    ensure!(seconds > Some(needed.as_secs()), "{seconds:?} s are too few for {needed:?}");
    for probe in ["livenessProbe", "readinessProbe"] {
        ensure!(container[probe]["httpGet"]["port"] == "health", "no {probe}");
    }
    Ok(())
}

/// Our namespace and the names in it follow the release's.
pub async fn another_namespace_is_meant_everywhere(_: Arc<Bed>) -> Result<()> {
    let values = values_file("production");
    let args = ["template", "x", "-n", "elsewhere", "--kube-version=1.33.0", "--values", &values, &chart()];
    let text = helm(None, &args).await?;
    ensure!(text.matches("elsewhere").count() > 30, "the release's namespace is not used");
    for line in text.lines() {
        let stale =
            line.contains(&format!("namespace: {NAMESPACE}")) || line.contains(&format!("{NAMESPACE}.svc"));
        ensure!(!stale, "{line}");
    }
    Ok(())
}

pub async fn the_chart_is_clean(_: Arc<Bed>) -> Result<()> {
    let chart = chart();
    helm(None, &["lint", "--strict", &chart]).await?;
    let files = PAIRS.iter().filter_map(|(_, values)| *values).chain(OTHER_VALUES.iter().copied());
    for values in files {
        helm(None, &["lint", "--strict", "--values", &values_file(values), &chart]).await?;
    }
    Ok(())
}

/// Mistakes in values are told at once, not by pods that do not start.
pub async fn values_that_cannot_be_are_refused(_: Arc<Bed>) -> Result<()> {
    let chart = chart();
    for (set, word) in [
        ("controller.replica=2", "replica"),
        ("webhook.port=0", "port"),
        ("controller.leaseDuration=1", "leaseDuration"),
        ("image.digest=latest", "digest"),
        ("priorityClass.value=2000000000", "value"),
        ("uninstall.release=maybe", "release"),
    ] {
        let args = ["template", "x", "--kube-version=1.33.0", "--set", set, &chart];
        let Err(error) = helm(None, &args).await else { bail!("{set} was taken") };
        ensure!(error.to_string().contains(word), "{set}: {error}");
    }
    Ok(())
}
