//! What goes wrong with clouds: nothing is lost, nobody is evicted, and it converges when the error ends.

use crate::memory::{Fault, Verb};
use crate::scene::marked_for;
use crate::stage::Stage;
use anyhow::{Result, ensure};
use cloud::Class;
use cluster::eventually;
use serde_json::json;
use std::time::Duration;

/// All but throttling, which is the whole account's affair.
const CLASSES: [Class; 4] = [Class::Transient, Class::Conflict, Class::Permanent, Class::Denied];
const STEPS: [Verb; 3] = [Verb::Detach, Verb::Attach, Verb::Preflight];

pub async fn an_unreadable_cloud_takes_no_marks_and_evicts_nobody(stage: &Stage) -> Result<()> {
    let scene = stage.scene("unreadable", 2, 1).await?;
    scene.allocate(scene.workload_ref("Deployment")).await?;
    scene.workload("Deployment", 1, true, 0).await?;
    scene.settled().await?;
    scene.pods_ready(1).await?;
    let pods: Vec<_> = scene.pods().await?.into_iter().map(|pod| pod.metadata.uid).collect();
    let unreadable = scene.spoil(Verb::Read, usize::MAX, Fault::Error(Class::Transient));
    scene.condition("Degraded", "True", "CloudUnknown").await?;
    scene.cordon(1).await?;
    scene
        .nothing_happens("nothing is done on a guess", async || {
            let node = scene.node(1).await?;
            ensure!(marked_for(&node, &scene.name, scene.addresses[0]), "marks were taken");
            let now: Vec<_> = scene.pods().await?.into_iter().map(|pod| pod.metadata.uid).collect();
            ensure!(now == pods, "pods were touched");
            ensure!(scene.places() == [Some(1)], "it moved");
            Ok(())
        })
        .await?;
    stage.cloud.heal(&unreadable);
    scene.condition("Degraded", "False", "").await?;
    Ok(())
}

pub async fn each_class_of_error_at_each_step(stage: &Stage) -> Result<()> {
    let cases = CLASSES
        .iter()
        .flat_map(|class| STEPS.map(|verb| (verb, *class)))
        // What cannot be detached stays, and is tried again after minutes.
        .filter(|case| *case != (Verb::Detach, Class::Permanent));
    futures::future::try_join_all(cases.map(|(verb, class)| a_move_with_an_error(stage, verb, class)))
        .await?;
    Ok(())
}

/// One after the other: GCP leaves a throttled caller out for the rest of the minute, whatever it asks for.
pub async fn an_account_that_is_throttled_at_each_step_is_left_alone_and_then_served(
    stage: &Stage,
) -> Result<()> {
    for verb in STEPS {
        a_move_with_an_error(stage, verb, Class::Throttled).await?;
    }
    Ok(())
}

async fn a_move_with_an_error(stage: &Stage, verb: Verb, class: Class) -> Result<()> {
    let name = format!("error-{verb:?}-{}", class.as_str()).to_lowercase();
    let scene = stage.scene(&name, 3, 1).await?;
    scene.allocate(json!({})).await?;
    ensure!(scene.settled().await? == [1], "{name}: begins on the first node");
    // Twice is not for what makes it turn to the other node, nor for what may cost a minute each time.
    let times = if matches!(class, Class::Transient | Class::Conflict) { 2 } else { 1 };
    let fault = scene.spoil(verb, times, Fault::Error(class));
    scene.cordon(1).await?;
    eventually(&format!("{name}: to be on another node"), async || {
        let places = scene.places();
        ensure!(places != [Some(1)] && places != [None], "{places:?}: {}", scene.story().await?);
        Ok(())
    })
    .await?;
    scene.settled().await?;
    ensure!(!stage.cloud.is_to_come(&fault), "{name}: the fault has not happened");
    Ok(())
}

pub async fn a_lost_reply_is_read_back_and_not_done_twice(stage: &Stage) -> Result<()> {
    let scene = stage.scene("lost-reply", 2, 1).await?;
    for verb in [Verb::Attach, Verb::Detach] {
        scene.spoil(verb, 1, Fault::LostReply);
    }
    scene.allocate(json!({})).await?;
    // The first node, or the second if the first attach was given up before it was read back.
    let first = scene.settled().await?[0];
    scene.cordon(first).await?;
    scene.arrives(0, 3 - first).await?;
    let writes = stage.cloud.writes(scene.addresses[0]);
    ensure!(writes.len() == 3, "each call once: {writes:?}");
    Ok(())
}

pub async fn a_slow_cloud_holds_up_nobody_else(stage: &Stage) -> Result<()> {
    let slow = stage.scene("slow", 2, 1).await?;
    let quick = stage.scene("quick", 2, 1).await?;
    slow.spoil(Verb::Attach, 1, Fault::Delay(Duration::from_mins(1)));
    slow.allocate(json!({})).await?;
    slow.reason(0, "Attaching").await?;
    quick.allocate(json!({})).await?;
    quick.settled().await?;
    ensure!(slow.places() == [None], "the slow call was still under way");
    slow.settled().await?;
    Ok(())
}

pub async fn a_foreign_address_on_the_target_is_never_displaced(stage: &Stage) -> Result<()> {
    let scene = stage.scene("foreign", 2, 1).await?;
    let theirs = "192.0.2.77".parse()?;
    stage.cloud.put_foreign(theirs, &scene.instance(1))?;
    scene.allocate(json!({})).await?;
    scene.arrives(0, 2).await?;
    ensure!(stage.cloud.writes(scene.addresses[0]).len() == 1, "node 1 is left alone");
    Ok(())
}

pub async fn an_address_on_a_foreign_machine_is_never_taken(stage: &Stage) -> Result<()> {
    let scene = stage.scene("theirs", 1, 1).await?;
    let foreign = "gce://dev-project/us-central1-a/somebody-elses";
    stage.cloud.add_instance(foreign)?;
    stage.cloud.attach_by_hand(scene.addresses[0], foreign)?;
    scene.allocate(json!({})).await?;
    scene.reason(0, "HeldByOther").await?;
    scene.condition("Degraded", "True", "HeldByOther").await?;
    ensure!(stage.cloud.writes(scene.addresses[0]).is_empty(), "not touched");
    Ok(())
}
