//! What must never happen, done by hand under the controller's own name, through the same wires: the runner has to
//! report each of it. A checker that has not been seen to fail proves nothing.

#![allow(clippy::large_futures)] // each is awaited once, by the runner

use crate::invariants::{Report, report};
use crate::memory::Memory;
use crate::played::Played;
use crate::scene::Scene;
use crate::stage::Stage;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use cloud::{AddressState, Ask, Call, Provider};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The controller of a shared stage.
const CONTROLLER: &str = "controller";
/// How a play ends that has done what it must not.
const DONE: &str = "what must never happen was done";

/// Plays, and asserts that the runner reports these invariants, and no other.
async fn reported(expected: &[&str], play: impl Future<Output = Result<()>>) -> Result<()> {
    // A play that fails is judged as well, and its end is not waited for.
    let Report { ended, violations, .. } =
        report(async { play.await.and_then(|()| bail!(DONE)) }, Duration::ZERO).await?;
    let ended = ended.err().context("it has not ended")?;
    ensure!(ended.to_string() == DONE, "{ended:#}");
    let found: BTreeSet<&str> = violations.iter().map(|violation| violation.invariant).collect();
    ensure!(found == expected.iter().copied().collect(), "{expected:?} were planted: {violations:?}");
    Ok(())
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

/// The cloud, as somebody of that name calls it.
fn provider(scene: &Scene<'_>, caller: &str) -> Result<Arc<dyn Provider>> {
    let connect = scene.stage.cloud.connect(caller)?;
    let account = connect.account_of(&scene.instance(1)).context("no account")?;
    connect.open(&account).map_err(|error| anyhow!("{error:?}"))
}

/// Takes an address off a node of a scene.
async fn detach(scene: &Scene<'_>, caller: &str, address: IpAddr, node: usize) -> Result<()> {
    let provider = provider(scene, caller)?;
    let instance = scene.instance(node);
    let ask = Ask { addresses: [address].into(), instances: [instance.clone()].into() };
    let reading = provider.read(&ask, deadline()).await;
    let Some(AddressState::Attached { token, .. }) = reading.addresses.get(&address) else {
        bail!("it is not there: {reading:?}");
    };
    let call = Call { deadline: deadline(), key: "planted", may_write: &|| true };
    provider.detach(address, &instance, token, &call).await.map_err(|error| anyhow!("{error:?}"))
}

/// One address on node 1 of two.
async fn begin<'s>(stage: &'s Stage, name: &str) -> Result<Scene<'s>> {
    let scene = stage.scene(name, 2, 1).await?;
    scene.allocate(json!({})).await?;
    ensure!(scene.settled().await? == [1], "it begins on the first node");
    Ok(scene)
}

pub async fn a_detach_from_a_healthy_node(stage: &Stage) -> Result<()> {
    // The node is still marked, there was no cause to move, and nothing was to happen.
    reported(&["I5", "I7", "I9"], async {
        let scene = begin(stage, "planted-detach").await?;
        scene.moves(&[0]);
        let once = std::sync::atomic::AtomicBool::new(false);
        scene
            .nothing_happens("a person would think", async || {
                if !once.swap(true, std::sync::atomic::Ordering::Relaxed) {
                    detach(&scene, CONTROLLER, scene.addresses[0], 1).await?;
                }
                Ok(())
            })
            .await
    })
    .await
}

pub async fn a_call_of_somebody_who_does_not_lead(stage: &Stage) -> Result<()> {
    stage.add_caller("deposed");
    reported(&["I5", "I13"], async {
        let scene = begin(stage, "planted-deposed").await?;
        detach(&scene, "deposed", scene.addresses[0], 1).await
    })
    .await
}

pub async fn a_drain_that_is_not_waited_for(stage: &Stage) -> Result<()> {
    reported(&["I5", "I6"], async {
        let scene = stage.scene("planted-drain", 2, 1).await?;
        scene.allocate(scene.workload_ref("Deployment")).await?;
        scene.workload("Deployment", 1, true, 0).await?;
        scene.settled().await?;
        ensure!(scene.pods_ready(1).await? == [1], "the pod is where the address is");
        scene.cordon(1).await?;
        detach(&scene, CONTROLLER, scene.addresses[0], 1).await
    })
    .await
}

pub async fn marks_of_a_node_that_has_no_address(stage: &Stage) -> Result<()> {
    // And for a node by its name alone.
    reported(&["I4", "I15"], async {
        let scene = begin(stage, "planted-marks").await?;
        let nodes: Api<Node> = Api::all(Client::try_from(stage.config())?);
        let apply = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "labels": { crds::LABEL_READY: "true", crds::LABEL_ALLOCATION: scene.name },
                "annotations": { crds::ANNOTATION_RESERVED_IP: scene.addresses[0].to_string() },
            },
        });
        let params = PatchParams::default();
        nodes.patch(&scene.node_name(2), &params, &Patch::Merge(&apply)).await?;
        Ok(())
    })
    .await
}

pub async fn a_finalizer_that_goes_before_the_address(stage: &Stage) -> Result<()> {
    reported(&["I10"], async {
        let scene = begin(stage, "planted-finalizer").await?;
        let allocations: Api<crds::NetIPAllocation> = Api::all(Client::try_from(stage.config())?);
        let none = json!([{ "op": "add", "path": "/metadata/finalizers", "value": [] }]);
        let patch = Patch::Json::<()>(serde_json::from_value(none)?);
        allocations.patch(&scene.name, &PatchParams::default(), &patch).await?;
        Ok(())
    })
    .await
}

pub async fn a_status_that_says_ready_when_it_is_not(stage: &Stage) -> Result<()> {
    reported(&["I18"], async {
        let scene = stage.scene("planted-status", 1, 2).await?;
        scene.allocate(json!({})).await?;
        scene.condition("Ready", "False", "MoreAddressesThanNodes").await?;
        let allocations: Api<crds::NetIPAllocation> = Api::all(Client::try_from(stage.config())?);
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "Fine", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let status = json!({ "status": { "observedGeneration": 1, "conditions": [ready] } });
        allocations.patch_status(&scene.name, &PatchParams::default(), &Patch::Merge(&status)).await?;
        Ok(())
    })
    .await
}

/// The address is on node 1, and node 2 was promised.
pub async fn an_end_that_is_not_as_promised(stage: &Stage) -> Result<()> {
    let play = async {
        let scene = begin(stage, "planted-end").await?;
        scene.ends_on(&[2]);
        Ok(())
    };
    let Report { ended, violations, .. } = report(play, Duration::from_secs(8)).await?;
    ended?;
    let found: BTreeSet<&str> = violations.iter().map(|violation| violation.invariant).collect();
    ensure!(found == ["I8"].into(), "{violations:?}");
    Ok(())
}

/// An instance loses the address of its own, and does not get it back.
pub async fn an_instance_that_is_left_bare(stage: &Stage) -> Result<()> {
    let play = async {
        let scene = begin(stage, "planted-bare").await?;
        let instance = scene.instance(2);
        let mut parts = instance.rsplit('/');
        let (name, zone) = (parts.next().context("no name")?, parts.next().context("no zone")?);
        let sim = stage.cloud.simulator();
        let url = format!(
            "{}/as/{CONTROLLER}/compute/v1/projects/dev-project/zones/{zone}/instances/{name}/deleteAccessConfig\
             ?accessConfig=external-nat&networkInterface=nic0",
            sim.gcp_url()
        );
        let answer = reqwest::Client::new().post(url).send().await?;
        ensure!(answer.status().is_success(), "{}", answer.text().await?);
        Ok(())
    };
    let Report { ended, violations, .. } = report(play, Duration::from_secs(8)).await?;
    ended?;
    let found: BTreeSet<&str> = violations.iter().map(|violation| violation.invariant).collect();
    ensure!(found == ["L2"].into(), "{violations:?}");
    Ok(())
}

/// A secret that is written where everybody can read it.
pub async fn a_token_in_an_annotation(stage: &Stage) -> Result<()> {
    reported(&["I5", "I19"], async {
        let scene = begin(stage, "planted-token").await?;
        let nodes: Api<Node> = Api::all(Client::try_from(stage.config())?);
        let uid = scene.node(2).await?.metadata.uid;
        let patch =
            json!({ "metadata": { "uid": uid, "annotations": { "example.com/debug": stage.token()? } } });
        nodes.patch(&scene.node_name(2), &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    })
    .await
}

/// The cloud in memory sends what it is told to: no provider of a vendor would.
pub async fn attaches_that_no_provider_would_send(stage: &Stage) -> Result<()> {
    let Played::Memory(memory) = &stage.cloud else { bail!("this needs the cloud in memory") };
    let memory: Memory = memory.called_by(CONTROLLER);
    reported(&["I1", "I2", "I3", "I12"], async {
        let scene = stage.scene("planted-attach", 3, 2).await?;
        scene.allocate(json!({})).await?;
        ensure!(scene.settled().await? == [1, 2], "they begin on the first nodes");
        let call = Call { deadline: deadline(), key: "planted", may_write: &|| true };
        let (first, foreign) = (scene.addresses[0], "192.0.2.200".parse()?);
        memory.attach(first, &scene.instance(1), "free", &call).await.context("it is there already")?;
        ensure!(memory.attach(first, &scene.instance(3), "free", &call).await.is_err(), "it is held");
        ensure!(memory.attach(first, &scene.instance(2), "free", &call).await.is_err(), "there is another");
        ensure!(memory.attach(foreign, &scene.instance(3), "free", &call).await.is_err(), "not ours");
        Ok(())
    })
    .await
}
