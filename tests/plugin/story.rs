//! An installation that works, a drain that waits, a controller that dies: what the plugin says at each
//! moment.

use crate::stage::{Stage, is_in_the_docs, netip};
use anyhow::{Context as _, Result, ensure};
use cluster::eventually;
use playground::is_ready;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tokio::process::Command;

/// Two pods of one StatefulSet, each on a node of its own, with what admission injects.
fn stateful_set(replicas: u32) -> Value {
    let labels = json!({ "app": "sip" });
    let mut template = json!({ "metadata": { "labels": labels }, "spec": {
        "terminationGracePeriodSeconds": 0,
        "containers": [{ "name": "sip", "image": "registry.example/sip" }],
        "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
            { "labelSelector": { "matchLabels": labels }, "topologyKey": "kubernetes.io/hostname" },
        ] } },
    } });
    let patch = webhook::affinity::inject(&template, "", &BTreeSet::from(["voice".to_owned()]));
    json_patch::patch(&mut template, &patch).expect("it applies");
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "sip", "namespace": "demo" },
        "spec": {
            "replicas": replicas, "serviceName": "sip", "selector": { "matchLabels": labels },
            "template": template,
        },
    })
}

fn allocation(name: &str, addresses: &[&str], workload: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "netinfra.darkbrains.com/v1alpha1", "kind": "NetIPAllocation", "metadata": { "name": name },
        "spec": {
            "reservedIPs": addresses, "nodeSelector": { "pool": name }, "cloud": { "provider": "gcp" },
            "reconcileInterval": 5,
        },
    });
    if !workload.is_null() {
        object["spec"]["workloadRef"] = workload.clone();
    }
    object
}

/// Waits until a pod is Ready there.
async fn pod_on(stage: &Stage, pod: &str, node: &str) -> Result<()> {
    eventually(&format!("{pod} to be Ready on {node}"), async || {
        let object = stage.json(&["get", "pod", "-n", "demo", pod]).await?;
        ensure!(is_ready(&object) && object["spec"]["nodeName"] == node, "{object}");
        Ok(())
    })
    .await
}

async fn ready(stage: &Stage, name: &str, attached: usize) -> Result<()> {
    eventually(&format!("{name} to be Ready"), async || {
        let object = stage.json(&["get", "nia", name]).await?;
        ensure!(is_ready(&object) && object["status"]["attached"] == attached, "{object}");
        Ok(())
    })
    .await
}

async fn set(stage: &Stage) -> Result<()> {
    for (name, zone, pool) in
        [("voice-1", 0, "voice"), ("voice-2", 1, "voice"), ("voice-3", 2, "voice"), ("mail-1", 0, "mail")]
    {
        stage.add_node(name, zone, &[("pool", pool)]).await?;
    }
    for address in ["203.0.113.10", "203.0.113.11", "203.0.113.20"] {
        stage.add_address(address)?;
    }
    stage.kubectl(&["create", "namespace", "demo"]).await?;
    // The webhook refuses what it does not know yet, so each is tried until it is taken.
    let workload = json!({ "kind": "StatefulSet", "name": "sip", "namespace": "demo" });
    for object in [
        allocation("mail", &["203.0.113.20"], &Value::Null),
        allocation("voice", &["203.0.113.10"], &workload),
    ] {
        eventually("the webhook to let it pass", async || stage.apply(&object.to_string()).await).await?;
    }
    // One after the other, so that everybody's place is known.
    ready(stage, "mail", 1).await?;
    ready(stage, "voice", 1).await?;
    stage.apply(&stateful_set(1).to_string()).await?;
    pod_on(stage, "sip-0", "voice-1").await?;
    let both = allocation("voice", &["203.0.113.10", "203.0.113.11"], &workload);
    stage.apply(&both.to_string()).await?;
    ready(stage, "voice", 2).await?;
    stage.apply(&stateful_set(2).to_string()).await?;
    pod_on(stage, "sip-1", "voice-2").await
}

pub async fn play() -> Result<()> {
    let stage = Stage::new().await?;
    let (_webhook, controller) =
        (stage.webhook("webhook").await?, stage.controller("controller-0", &[]).await?);
    set(&stage).await.with_context(|| format!("the controller: {}", controller.process.log_tail()))?;
    all_is_well(&stage).await?;
    formats(&stage).await?;
    colours(&stage).await?;
    run_by_kubectl(&stage).await?;
    a_drain_that_waits(&stage).await?;
    controller.process.kill().await?;
    a_dead_controller(&stage).await?;
    let _successor = stage.controller("controller-1", &[]).await?;
    what_was_planned_is_done(&stage).await
}

async fn all_is_well(stage: &Stage) -> Result<()> {
    eventually("the webhook to be registered and trusted", async || {
        stage.netip(&["doctor"]).await?.ok().map(drop)
    })
    .await?;
    for command in
        ["status", "status mail -o wide", "why 203.0.113.10", "why voice-3", "why demo/sip-0", "doctor"]
    {
        let args: Vec<&str> = command.split(' ').collect();
        is_in_the_docs(command, &stage.netip(&args).await?.ok()?)?;
    }
    ensure!(stage.netip(&["plan"]).await?.ok()?.is_empty(), "nothing is to be done, and nothing is said");
    let why = stage.netip(&["why", "pod/sip-0", "-n", "demo"]).await?.ok()?;
    ensure!(why.contains("It is on voice-1, which holds one."), "{why}");
    for (args, expected) in [
        (["status", "nobody"], "there is no NetIPAllocation \"nobody\"; there are: mail, voice"),
        (["why", "198.51.100.9"], "no valid NetIPAllocation lists 198.51.100.9"),
        (["why", "nobody"], "nobody is no address, no node, and no pod (in namespace default)"),
    ] {
        let said = stage.netip(&args).await?.refusal()?;
        ensure!(said.starts_with(&format!("kubectl netip: {expected}")), "{said}");
    }
    Ok(())
}

async fn formats(stage: &Stage) -> Result<()> {
    let as_json: Value = serde_json::from_str(&stage.netip(&["status", "-o", "json"]).await?.ok()?)?;
    let as_yaml: Value = serde_saphyr::from_str(&stage.netip(&["status", "-o", "yaml"]).await?.ok()?)?;
    ensure!(as_json == as_yaml, "{as_json}\n{as_yaml}");
    let voice = &as_json["allocations"][1];
    ensure!(as_json["controller"]["alive"] == true && voice["ready"] == true, "{as_json}");
    ensure!(
        voice["addresses"][1]["pods"]
            == json!([{ "name": "demo/sip-1", "state": "Ready", "node": "voice-2" }]),
        "{voice}"
    );
    let wide = stage.netip(&["status", "-o", "wide"]).await?.ok()?;
    ensure!(wide.contains("gce://dev-project/us-central1-a/voice-1"), "{wide}");
    let why: Value = serde_json::from_str(&stage.netip(&["why", "203.0.113.10", "-o", "json"]).await?.ok()?)?;
    ensure!(why["addresses"][0]["reason"] == "Attached" && why["addresses"][0]["node"] == "voice-1", "{why}");
    Ok(())
}

async fn colours(stage: &Stage) -> Result<()> {
    let colour = "\u{1b}[32m";
    ensure!(!stage.netip(&["status"]).await?.ok()?.contains(colour), "no terminal, no colours");
    ensure!(
        stage.netip(&["status", "--color", "always"]).await?.ok()?.contains(colour),
        "colours as asked for"
    );
    let on_a_terminal = async |no_color: &str| -> Result<String> {
        let output = Command::new("script")
            .args(["-qec", concat!(env!("CARGO_BIN_EXE_kubectl-netip"), " status"), "/dev/null"])
            .env("KUBECONFIG", stage.kubeconfig())
            .env("TERM", "xterm")
            .env("NO_COLOR", no_color)
            .output()
            .await
            .context("script, of bsdutils, makes the terminal")?;
        Ok(String::from_utf8(output.stdout)?)
    };
    ensure!(on_a_terminal("").await?.contains(colour), "a terminal has colours");
    let plain = on_a_terminal("1").await?;
    ensure!(plain.contains("voice") && !plain.contains(colour), "NO_COLOR: {plain}");
    Ok(())
}

/// As people call it.
async fn run_by_kubectl(stage: &Stage) -> Result<()> {
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_kubectl-netip")).parent().context("no folder")?;
    let path = format!("{}:{}", folder.display(), std::env::var("PATH")?);
    let by_kubectl = Command::new(stage.cluster.kubectl_path())
        .args(["netip", "status", "mail"])
        .env("PATH", path)
        .env("KUBECONFIG", stage.kubeconfig())
        .output()
        .await?;
    let by_kubectl = String::from_utf8(by_kubectl.stdout)?;
    ensure!(by_kubectl == stage.netip(&["status", "mail"]).await?.ok()?, "{by_kubectl}");
    Ok(())
}

async fn a_drain_that_waits(stage: &Stage) -> Result<()> {
    stage.kubectl(&["cordon", "voice-1"]).await?;
    eventually("the controller to say that it waits", async || {
        let object = stage.json(&["get", "nia", "voice"]).await?;
        ensure!(object["status"]["ips"][0]["reason"] == "WaitingForDrain", "{object}");
        Ok(())
    })
    .await?;
    let why = stage.netip(&["why", "203.0.113.10"]).await?.ok()?;
    ensure!(why.contains("WaitingForDrain  The address stays on its cordoned node"), "{why}");
    ensure!(why.contains("voice-1  Cordoned  The node is cordoned."), "{why}");
    ensure!(stage.netip(&["plan"]).await?.ok()?.is_empty(), "it waits");
    Ok(())
}

async fn a_dead_controller(stage: &Stage) -> Result<()> {
    // The pod goes, and its successor finds no node.
    stage.kubectl(&["delete", "pod", "-n", "demo", "sip-0"]).await?;
    eventually("the new pod to wait", async || {
        let why = stage.netip(&["why", "demo/sip-0"]).await?.ok()?;
        ensure!(
            why.contains("It waits for a node. Nodes that hold an address and can take pods: voice-2."),
            "{why}"
        );
        Ok(())
    })
    .await?;
    eventually("the death to be told", async || {
        let status = stage.netip(&["status"]).await?.ok()?;
        ensure!(status.starts_with("THE CONTROLLER IS NOT ALIVE: controller-0 renewed Lease"), "{status}");
        ensure!(status.contains("demo/sip-0  Pending"), "{status}");
        Ok(())
    })
    .await?;
    is_in_the_docs("plan", &stage.netip(&["plan"]).await?.ok()?)?;
    let plan: Value = serde_json::from_str(&stage.netip(&["plan", "voice", "-o", "json"]).await?.ok()?)?;
    ensure!(plan["controller"]["alive"] == false && plan["changes"][0]["cause"] == "NodeDrained", "{plan}");
    let doctor = stage.netip(&["doctor"]).await?;
    ensure!(doctor.code == 1 && doctor.stdout.matches("WRONG").count() == 1, "{}", doctor.stdout);
    ensure!(doctor.stdout.contains("WRONG    controller    controller-0 renewed Lease"), "{}", doctor.stdout);
    Ok(())
}

/// What `plan` said when nobody was there to do it.
async fn what_was_planned_is_done(stage: &Stage) -> Result<()> {
    pod_on(stage, "sip-0", "voice-3").await?;
    let history = stage.netip(&["history", "voice", "-o", "json"]).await?.ok()?;
    let history: Value = serde_json::from_str(&history)?;
    let moved = &history[0];
    ensure!(
        moved["from"] == "voice-1" && moved["to"] == "voice-3" && moved["cause"] == "NodeDrained",
        "{moved}"
    );
    is_in_the_docs("history voice", &stage.netip(&["history", "voice"]).await?.ok()?)?;
    ensure!(stage.netip(&["plan"]).await?.ok()?.is_empty(), "it is done");
    stage.kubectl(&["uncordon", "voice-1"]).await?;
    let gone = netip(&stage.cluster.folder().join("no-such-file"), &["status"]).await?.refusal()?;
    ensure!(gone.starts_with("kubectl netip: no cluster to talk to: set KUBECONFIG"), "{gone}");
    stage.cluster.apiserver().kill().await?;
    let dead = stage.netip(&["status"]).await?.refusal()?;
    ensure!(dead.starts_with("kubectl netip: the cluster does not answer: check KUBECONFIG"), "{dead}");
    Ok(())
}
