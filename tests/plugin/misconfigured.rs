//! Ten mistakes that people really make. Each has to be understood from `kubectl describe` and from
//! `kubectl netip why` alone, and both have to say the same.

use crate::stage::Stage;
use anyhow::{Context as _, Result, ensure};
use cluster::eventually;
use serde_json::{Value, json};
use sim::{Fault, On, Rule};

/// A mistake: its name, the addresses, the spec besides them, and what has to be told of it.
struct Mistake {
    name: &'static str,
    addresses: &'static [&'static str],
    spec: Value,
    told: &'static [&'static str],
}

/// All nodes, by pool; `kubectl describe` counts all of them.
const NODES: [(&str, &str); 9] = [
    ("good-1", "good"),
    ("foreign-1", "foreign"),
    ("foreign-2", "foreign"),
    ("cordoned-1", "cordoned"),
    ("cordoned-2", "cordoned"),
    ("denied-1", "denied"),
    ("small-1", "small"),
    ("small-2", "small"),
    ("tainted-1", "tainted"),
];

fn mistakes() -> Vec<Mistake> {
    let pool = |pool: &str, more: Value| {
        let mut spec = json!({ "nodeSelector": { "pool": pool }, "cloud": { "provider": "gcp" } });
        json_patch::merge(&mut spec, &more);
        spec
    };
    let one = |name, address, spec, told| Mistake { name, addresses: address, spec, told };
    vec![
        one(
            "no-node-matches",
            &["203.0.113.1"],
            pool("typo", json!({})),
            &["0/9 nodes can take it: 9 NodeNotSelected"],
        ),
        one(
            "wrong-zone",
            &["203.0.113.2"],
            pool("good", json!({ "cloud": { "zones": ["us-central1-q"] } })),
            &["0/9 nodes can take it: 8 NodeNotSelected, 1 OutsideZones"],
        ),
        one(
            "foreign-address",
            &["203.0.113.3"],
            pool("foreign", json!({})),
            &["0/9 nodes can take it: 7 NodeNotSelected, 2 HoldsForeignAddress"],
        ),
        one(
            "all-cordoned",
            &["203.0.113.4"],
            pool("cordoned", json!({})),
            &["0/9 nodes can take it: 7 NodeNotSelected, 2 Cordoned"],
        ),
        one(
            "missing-permission",
            &["203.0.113.5"],
            pool("denied", json!({})),
            &["PermissionDenied", "1 CoolingOff"],
        ),
        one(
            "wrong-region",
            &["203.0.113.6"],
            pool("good", json!({ "cloud": { "region": "europe-west1" } })),
            &["0/9 nodes can take it: 8 NodeNotSelected, 1 OutsideZones"],
        ),
        one(
            "pool-too-small",
            &["203.0.113.7", "203.0.113.8", "203.0.113.9"],
            pool("small", json!({})),
            &["0/9 nodes can take it: 7 NodeNotSelected, 2 HoldsAddress"],
        ),
        one(
            "unknown-workload",
            &["203.0.113.10"],
            pool(
                "good",
                json!({ "workloadRef": { "kind": "Deployment", "name": "nope", "namespace": "prod" } }),
            ),
            &["Deployment prod/nope does not exist"],
        ),
        one(
            "taint",
            &["203.0.113.11"],
            pool("tainted", json!({ "tolerations": [] })),
            &["0/9 nodes can take it: 8 NodeNotSelected, 1 Tainted"],
        ),
        one(
            "wrong-cloud",
            &["203.0.113.12"],
            pool("good", json!({ "cloud": { "provider": "aws" } })),
            &["0/9 nodes can take it: 8 NodeNotSelected, 1 OtherCloud"],
        ),
    ]
}

async fn set(stage: &Stage) -> Result<()> {
    for (number, (name, pool)) in NODES.into_iter().enumerate() {
        stage.add_node(name, number % 3, &[("pool", pool)]).await?;
    }
    for (number, node) in ["foreign-1", "foreign-2"].into_iter().enumerate() {
        let address = format!("198.51.100.{}", number + 1);
        stage.add_address(&address)?;
        let object = stage.json(&["get", "node", node]).await?;
        let id = object["spec"]["providerID"].as_str().context("no provider ID")?;
        stage.sim.attach(address.parse()?, id)?;
    }
    for node in ["cordoned-1", "cordoned-2"] {
        stage.kubectl(&["cordon", node]).await?;
    }
    stage.kubectl(&["taint", "node", "tainted-1", "dedicated=mail:NoSchedule"]).await?;
    let on = On {
        target: Some("denied-1".to_owned()),
        ..On::action(sim::Cloud::Gcp, "instances.addAccessConfig")
    };
    // A deny policy on one VM, in Google's words.
    let message = "Required 'compute.instances.addAccessConfig' permission for 'denied-1'";
    let fault =
        Fault::Error { code: "forbidden".to_owned(), message: Some(message.to_owned()), status: None };
    stage.sim.fault(Rule { on, skip: 0, times: None, fault });
    stage.kubectl(&["create", "namespace", "prod"]).await?;
    Ok(())
}

pub async fn ten_mistakes_are_explained() -> Result<()> {
    let stage = Stage::new().await?;
    let controller = stage.controller("controller-0", &[]).await?;
    set(&stage).await?;
    let mistakes = mistakes();
    for Mistake { name, addresses, spec, .. } in &mistakes {
        for address in *addresses {
            stage.add_address(address)?;
        }
        let mut spec = spec.clone();
        spec["reservedIPs"] = json!(addresses);
        spec["reconcileInterval"] = json!(5);
        let object = json!({
            "apiVersion": "netinfra.darkbrains.com/v1alpha1", "kind": "NetIPAllocation",
            "metadata": { "name": name }, "spec": spec,
        });
        stage.apply(&object.to_string()).await?;
    }
    for mistake in &mistakes {
        is_explained(&stage, mistake)
            .await
            .with_context(|| format!("{}: {}", mistake.name, controller.process.log_tail()))?;
    }
    at_rest_nothing_is_written(&stage, &mistakes).await
}

async fn is_explained(stage: &Stage, mistake: &Mistake) -> Result<()> {
    let Mistake { name, addresses, told, .. } = mistake;
    let last = addresses.last().context("no address")?;
    eventually(&format!("{name} to be explained"), async || {
        let described = stage.kubectl(&["describe", "nia", name]).await?;
        let (status, events) = described.split_once("Events:").context("no events")?;
        let why = stage.netip(&["why", last]).await?.ok()?;
        for text in *told {
            ensure!(status.contains(text), "the status does not say {text:?}: {status}");
            ensure!(events.contains(text), "no event says {text:?}: {events}");
            // Of a workload the pods are explained, not the address.
            let of_the_workload = text.starts_with("Deployment");
            ensure!(of_the_workload || why.contains(text), "`why` does not say {text:?}: {why}");
        }
        let wide = stage.netip(&["why", last, "-o", "wide"]).await?.ok()?;
        let promised = wide.lines().find(|line| line.contains("could take it") && is_bad(line));
        ensure!(promised.is_none(), "`why` promises a node: {wide}");
        Ok(())
    })
    .await
}

/// Nodes that the cloud alone speaks against: who does not believe the controller takes them for good ones.
fn is_bad(line: &str) -> bool {
    line.contains("foreign-")
}

/// What is told is not told again and again: ten allocations wait, and nothing but time changes.
async fn at_rest_nothing_is_written(stage: &Stage, mistakes: &[Mistake]) -> Result<()> {
    let versions = async || -> Result<Vec<(String, String)>> {
        let mut versions = Vec::new();
        // What is refused by the cloud is tried again, and that is written down.
        for mistake in mistakes.iter().filter(|mistake| mistake.name != "missing-permission") {
            let object = stage.json(&["get", "nia", mistake.name]).await?;
            let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
            versions.push((mistake.name.to_owned(), version));
        }
        Ok(versions)
    };
    let before = versions().await?;
    // Two audits and more.
    tokio::time::sleep(std::time::Duration::from_secs(12)).await;
    let after = versions().await?;
    ensure!(before == after, "written although nothing changed: {before:?} {after:?}");
    Ok(())
}
