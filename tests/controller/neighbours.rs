//! A healthy allocation beside every kind of bad one, with the real controller and webhook: it fails over
//! as if it were alone, also after a restart; and each bad one can be edited and deleted.

use anyhow::{Context as _, Result, ensure};
use cluster::{Cluster, Provider, eventually};
use faults::{Act, History, Plan, Proxy, Scope, Side, Step, Which};
use playground::{NAMESPACE, Playground, Replica, is_ready};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// How often a list is spoilt: more often than anybody asks during this test.
const ALWAYS: usize = 2000;

/// The predecessor's CRD, under which hardly anything was checked.
const OLD_CRD: &str = include_str!("../deploy/fixtures/predecessor.yaml");

fn allocation(name: &str, address: &str, pool: &str, workload: &Value) -> Value {
    json!({
        "apiVersion": "netinfra.darkbrains.com/v1alpha1", "kind": "NetIPAllocation", "metadata": { "name": name },
        "spec": {
            "reservedIPs": [address], "nodeSelector": { "pool": pool }, "cloud": { "provider": "gcp" },
            "reconcileInterval": 5, "workloadRef": workload,
            "failover": { "notReadyGraceSeconds": 0, "stormThresholdPercent": 100 },
        },
    })
}

/// Names of the bad ones, and what they refer to.
fn references() -> Vec<(&'static str, Value)> {
    let deployment =
        |namespace: &str, name: &str| json!({ "kind": "Deployment", "namespace": namespace, "name": name });
    vec![
        ("space", deployment("prod ", "web")),
        ("slash", deployment("prod/web", "web")),
        ("template", deployment("{{ .Values.ns }}", "web")),
        ("comma", deployment("prod", "web,x=y")),
        ("long", deployment("prod", &"a".repeat(253))),
        ("forbidden", deployment("forbidden", "web")),
        ("hanging", deployment("hanging", "web")),
        ("going", deployment("going", "web")),
    ]
}

/// Every field that the predecessor had, and none as it should be.
fn broken() -> Value {
    json!({
        "apiVersion": "netinfra.darkbrains.com/v1alpha1", "kind": "NetIPAllocation", "metadata": { "name": "broken" },
        "spec": {
            "reservedIPs": ["10.0.0.1", "10.0.0.1", "no address", "203.0.113.77 ", ""],
            "workloadRef": { "kind": "Deployment", "name": "", "namespace": "a b" },
            "nodeSelector": { "no key!": "no value!", "": "" },
            "cloud": { "region": " ", "zones": ["", "a b"] },
            "reconcileInterval": 2_000_000_000_000_i64,
        },
    })
}

/// The cluster with what was stored under the old schema, and ours in force.
async fn stored() -> Result<Cluster> {
    let cluster = Cluster::start().await?;
    let manager = "--field-manager=dev-cluster";
    let apply = ["apply", "--server-side", manager, "-f", "-"];
    cluster.kubectl_with_input(&apply, OLD_CRD).await?.ok()?;
    for (number, (name, workload)) in references().into_iter().enumerate() {
        let object = allocation(name, &format!("203.0.113.{}", 20 + number), "bad", &workload);
        store(&cluster, &object).await?;
    }
    store(&cluster, &broken()).await?;
    cluster.install_crds().await?;
    Ok(cluster)
}

async fn store(cluster: &Cluster, object: &Value) -> Result<()> {
    eventually("the old CRD to be served", async || {
        cluster
            .kubectl_with_input(&["create", "--validate=false", "-f", "-"], &object.to_string())
            .await?
            .ok()
            .map(drop)
    })
    .await
}

/// The processes, both behind a proxy that forbids one list and never answers another.
struct Processes {
    proxy: Proxy,
    controller: Replica,
    webhook: Replica,
}

async fn start(stage: &Playground, number: usize) -> Result<Processes> {
    let mut proxy = Proxy::new(Plan::default());
    let through = async |proxy: &mut Proxy, account: &str| -> Result<PathBuf> {
        let kubeconfig = stage.cluster.service_account_kubeconfig(NAMESPACE, account).await?;
        proxy.api_server(&kubeconfig, account).await
    };
    let controller = through(&mut proxy, "ip-address-controller").await?;
    let webhook = through(&mut proxy, "ip-address-controller-webhook").await?;
    for (namespace, act) in
        [("forbidden", Act::Answer { status: 403, retry_after: None }), ("hanging", Act::Hang)]
    {
        for verb in ["list", "watch"] {
            for _ in 0..ALWAYS {
                proxy.add(Step::new(Which::verb(Side::Api, verb, &format!("{namespace}:*")), act));
            }
        }
    }
    let (controller, webhook) = (controller.display().to_string(), webhook.display().to_string());
    Ok(Processes {
        controller: stage.controller(&format!("controller-{number}"), &[("KUBECONFIG", &controller)]).await?,
        webhook: stage.webhook_with(&format!("webhook-{number}"), &[("KUBECONFIG", &webhook)]).await?,
        proxy,
    })
}

impl Processes {
    /// Both are ready, whatever cannot be listed.
    async fn ready(&self) -> Result<()> {
        self.controller.ready().await?;
        self.webhook.ready().await
    }

    /// The faults happened: each list was asked for and spoilt.
    fn faults_happened(&self) -> Result<()> {
        for (namespace, fault) in [("forbidden", "answer"), ("hanging", "hang")] {
            let seen = self.proxy.seen();
            let spoilt = seen.iter().filter(|seen| {
                seen.name.object.starts_with(&format!("{namespace}:")) && seen.fault.as_deref() == Some(fault)
            });
            for caller in ["ip-address-controller", "ip-address-controller-webhook"] {
                let count = spoilt.clone().filter(|seen| seen.name.caller == caller).count();
                ensure!(count > 0, "{caller} asked for nothing in {namespace}");
            }
        }
        Ok(())
    }
}

async fn set(stage: &Playground) -> Result<()> {
    for number in 1..=3 {
        stage.add_node(&format!("good-{number}"), number, &[("pool", "good")]).await?;
    }
    for number in 1..=8 {
        stage.add_node(&format!("bad-{number}"), number, &[("pool", "bad")]).await?;
    }
    for number in 0..8 {
        stage.add_address(&format!("203.0.113.{}", 20 + number))?;
    }
    stage.add_address("203.0.113.10")?;
    for namespace in ["good", "prod", "forbidden", "hanging", "going"] {
        stage.kubectl(&["create", "namespace", namespace]).await?;
    }
    // A namespace that does not go away.
    let held = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "held", "namespace": "going", "finalizers": ["example.com/never"] },
    });
    stage.apply(&held.to_string()).await?;
    stage.kubectl(&["delete", "namespace", "going", "--wait=false"]).await?;
    let labels = json!({ "app": "web" });
    let pod = json!({ "terminationGracePeriodSeconds": 0, "containers": [{ "name": "web", "image": "registry.example/web" }] });
    let web = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web", "namespace": "good" },
        "spec": { "replicas": 1, "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels }, "spec": pod } },
    });
    let good = allocation(
        "good",
        "203.0.113.10",
        "good",
        &json!({ "kind": "Deployment", "namespace": "good", "name": "web" }),
    );
    eventually("the webhook to let it pass", async || stage.apply(&good.to_string()).await).await?;
    stage.apply(&web.to_string()).await?;
    Ok(())
}

/// The node that the healthy allocation's address is on, once it and its pod are there.
async fn settled(stage: &Playground) -> Result<String> {
    eventually("the healthy allocation to be Ready with its pod", async || {
        let object = stage.json(&["get", "nia", "good"]).await?;
        ensure!(is_ready(&object), "{}", object["status"]);
        let node = object["status"]["ips"][0]["node"].as_str().context("no node")?.to_owned();
        let pods = stage.json(&["get", "pods", "-n", "good"]).await?;
        let here = |pod: &Value| is_ready(pod) && pod["spec"]["nodeName"] == node.as_str();
        ensure!(pods["items"].as_array().into_iter().flatten().any(here), "no pod on {node}");
        Ok(node)
    })
    .await
}

/// The node of the address dies, and it goes elsewhere; then the node comes back.
async fn fails_over(stage: &Playground) -> Result<()> {
    let from = settled(stage).await?;
    stage.cluster.nodes().mark_not_ready(&from).await?;
    eventually("the address to leave the dead node", async || {
        let object = stage.json(&["get", "nia", "good"]).await?;
        let node = object["status"]["ips"][0]["node"].as_str().unwrap_or_default().to_owned();
        ensure!(is_ready(&object) && !node.is_empty() && node != from, "{}", object["status"]);
        Ok(())
    })
    .await?;
    stage.cluster.nodes().revive(&from).await?;
    settled(stage).await.map(drop)
}

/// What the status of each bad one says.
async fn are_told(stage: &Playground) -> Result<()> {
    for (name, kind, reason) in [
        ("space", "Degraded", "InvalidSpec"),
        ("slash", "Degraded", "InvalidSpec"),
        ("template", "Degraded", "InvalidSpec"),
        ("comma", "Degraded", "InvalidSpec"),
        ("broken", "Degraded", "InvalidSpec"),
        ("long", "Ready", "WorkloadNotFound"),
        ("going", "Ready", "WorkloadNotFound"),
        ("forbidden", "Degraded", "WorkloadUnknown"),
        ("hanging", "Degraded", "WorkloadUnknown"),
    ] {
        eventually(&format!("{name} to be {reason}"), async || {
            let object = stage.json(&["get", "nia", name]).await?;
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let told = conditions
                .iter()
                .any(|c| c["type"] == kind && c["status"] == "True" && c["reason"] == reason);
            ensure!(told, "{conditions:#?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// Takes away what was told, so that whoever comes next has to tell it again.
async fn forget(stage: &Playground) -> Result<()> {
    let nothing = json!({ "status": { "conditions": [] } }).to_string();
    let names = references().into_iter().map(|(name, _)| name).chain(["broken"]);
    for name in names {
        let patch = ["patch", "nia", name, "--subresource=status", "--type=merge", "-p", &nothing];
        stage.kubectl(&patch).await.with_context(|| name.to_owned())?;
    }
    Ok(())
}

/// Metadata can be changed, the mistake can be mended, and the object goes when it is told to.
async fn can_be_edited_and_deleted(stage: &Playground) -> Result<()> {
    let mended =
        json!({ "spec": { "workloadRef": { "kind": "Deployment", "namespace": "prod", "name": "web" } } });
    let mended = mended.to_string();
    for (name, _) in references() {
        stage.kubectl(&["annotate", "nia", name, "touched=yes"]).await.with_context(|| name.to_owned())?;
        stage
            .kubectl(&["patch", "nia", name, "--type=merge", "-p", &mended])
            .await
            .with_context(|| name.to_owned())?;
        stage.kubectl(&["delete", "nia", name, "--timeout=120s"]).await.with_context(|| name.to_owned())?;
    }
    stage.kubectl(&["annotate", "nia", "broken", "touched=yes"]).await?;
    stage.kubectl(&["delete", "nia", "broken", "--timeout=120s"]).await?;
    Ok(())
}

pub async fn bad_neighbours_cost_nobody_else() -> Result<()> {
    let binary = env!("CARGO_BIN_EXE_ip-address-controller").as_ref();
    let stage = Playground::on(stored().await?, binary, Provider::Gcp).await?;
    let first = start(&stage, 1).await?;
    set(&stage).await.with_context(|| first.webhook.process.log_tail())?;
    first.ready().await?;
    fails_over(&stage).await.with_context(|| first.controller.process.log_tail())?;
    are_told(&stage).await.with_context(|| first.controller.process.log_tail())?;
    first.faults_happened()?;
    // The same for who begins in this state.
    first.controller.process.kill().await?;
    first.webhook.process.kill().await?;
    forget(&stage).await?;
    let second = start(&stage, 2).await?;
    second.ready().await?;
    fails_over(&stage).await.with_context(|| second.controller.process.log_tail())?;
    are_told(&stage).await.with_context(|| second.controller.process.log_tail())?;
    second.faults_happened()?;
    can_be_edited_and_deleted(&stage).await?;
    no_violations(&stage).await
}

/// It plays on no stage of ours, so it says itself what is its own.
async fn no_violations(stage: &Playground) -> Result<()> {
    let mut scope = Scope { lag: Duration::from_secs(30), ..Scope::default() };
    scope = scope.caller("controller-1").caller("controller-2");
    scope = scope.allocation("good", ["203.0.113.10".parse()?]);
    for (number, (name, _)) in references().into_iter().enumerate() {
        scope = scope.allocation(name, [format!("203.0.113.{}", 20 + number).parse()?]);
    }
    let nodes = (1..=3).map(|n| ("good", n)).chain((1..=8).map(|n| ("bad", n)));
    for (pool, number) in nodes {
        let node = stage.json(&["get", "node", &format!("{pool}-{number}")]).await?;
        scope = scope.instance(node["spec"]["providerID"].as_str().context("no instance")?);
    }
    let history = History::of(scope, &stage.sim, &stage.cluster.audit_log())?;
    ensure!(history.our_calls().next().is_some(), "no call of ours: nothing would be checked");
    let violations = faults::check(&history);
    ensure!(violations.is_empty(), "what must never happen: {violations:#?}");
    Ok(())
}
