//! docs/migration.md, command by command, with a CRD and objects of the predecessor's shape.

use crate::pages::{self, Command, ROOT, program};
use crate::stage::{BINARY, shell};
use anyhow::{Context as _, Result, ensure};
use cluster::{Provider, eventually};
use playground::Playground;
use serde_json::Value;
use std::path::Path;

const CRD: &str = "crd/netipallocations.netinfra.darkbrains.com";

/// The page's commands that are run here, in order.
struct Page(std::vec::IntoIter<Command>);

impl Page {
    fn read() -> Result<Self> {
        let commands = pages::commands()?.into_iter();
        let ours = commands
            .filter(|command| command.page == "docs/migration.md" && program(&command.text) != "helm");
        Ok(Self(ours.collect::<Vec<_>>().into_iter()))
    }

    /// Runs the next command, which has to be the one that the test is at.
    async fn run(&mut self, world: &Playground, expected: &str) -> Result<String> {
        let command = self.0.next().with_context(|| format!("the page ends before {expected}"))?;
        ensure!(command.text.contains(expected), "{command}: {expected} was expected here");
        shell(&world.cluster, &command.text).await.with_context(|| command.to_string())
    }
}

/// What the predecessor left: its CRD, its objects, its Deployment, its marks, its attachments.
async fn predecessor() -> Result<Playground> {
    let world = Playground::start(Path::new(BINARY), Provider::Gcp).await?;
    world.kubectl(&["delete", CRD]).await?;
    for (zone, name) in ["voice-1", "voice-2", "voice-3"].into_iter().enumerate() {
        world.add_node(name, zone, &[("pool", "voice")]).await?;
    }
    for address in ["203.0.113.10", "203.0.113.11", "203.0.113.12"] {
        world.add_address(address)?;
    }
    let fixture = |name: &str| format!("{ROOT}/tests/deploy/fixtures/{name}");
    world.kubectl(&["apply", "-f", &fixture("predecessor.yaml")]).await?;
    world.kubectl(&["wait", "--for=condition=Established", CRD, "--timeout=60s"]).await?;
    world.kubectl(&["apply", "-f", &fixture("predecessor-objects.yaml")]).await?;
    world.kubectl(&["create", "namespace", "work"]).await?;
    world.apply(include_str!("predecessor.yaml")).await?;
    for (address, node) in [("203.0.113.10", "voice-1"), ("203.0.113.11", "voice-2")] {
        let node_object = world.json(&["get", "node", node]).await?;
        let machine = node_object["spec"]["providerID"].as_str().context("no provider ID")?;
        world.sim.attach(address.parse()?, machine)?;
        world.kubectl(&["label", "node", node, "ip.ready=true"]).await?;
    }
    world.kubectl(&["-n", "work", "rollout", "status", "deployment/web", "--timeout=120s"]).await?;
    Ok(world)
}

pub async fn the_page_is_played() -> Result<()> {
    let world = predecessor().await?;
    let mut page = Page::read()?;
    page.run(&world, "allocations-before.yaml").await?;
    let pods = pods(&world).await?;
    page.run(&world, "apply -f crds/").await?;
    page.run(&world, "--replicas=0").await?;
    page.run(&world, "wait --for=delete pod").await?;
    page.run(&world, r#""mode":"Plan""#).await?;
    let calls = world.sim.events(0).last().map_or(0, |event| event.seq);
    let webhook = world.webhook("webhook").await?;
    let controller = world.controller("controller", &[]).await?;
    webhook.ready().await?;
    controller.ready().await?;
    let done = taken_over(&world, &mut page, calls).await;
    done.with_context(|| controller.process.log_tail())?;
    ensure!(self::pods(&world).await? == pods, "pods were made anew");
    // Going back: ours stop first, as the page's command would stop them in their Deployments.
    webhook.process.stop().await?;
    controller.process.stop().await?;
    going_back(&world, &mut page).await
}

/// From mode Plan to Ready, without a call that changes anything in the cloud.
async fn taken_over(world: &Playground, page: &mut Page, calls: u64) -> Result<()> {
    eventually("the plan to be written", async || {
        let voice = world.json(&["get", "nia", "voice"]).await?;
        ensure!(voice["status"]["plan"].as_array().is_some_and(|plan| !plan.is_empty()), "{voice}");
        Ok(())
    })
    .await?;
    let plan = page.run(world, "PLAN:.status.plan").await?;
    ensure!(!plan.contains("Attach") && !plan.contains("Detach") && !plan.contains("Move"), "{plan}");
    page.run(world, r#""mode":"Enforce""#).await?;
    // The broken object can be read, edited and deleted; it alone cannot become Ready.
    world.kubectl(&["annotate", "nia", "broken", "note=still-there"]).await?;
    eventually("it to say what is wrong", async || {
        let wide = world.kubectl(&["get", "nia", "broken", "-o", "wide"]).await?;
        ensure!(wide.contains("InvalidSpec"), "{wide}");
        Ok(())
    })
    .await?;
    world.kubectl(&["delete", "nia", "broken", "--timeout=60s"]).await?;
    page.run(world, "wait --for=condition=Ready nia --all").await?;
    let history = page.run(world, "kubectl netip history").await?;
    ensure!(!history.contains("203.0.113"), "something moved: {history}");
    let moved: Vec<_> = world
        .sim
        .events(calls)
        .into_iter()
        .filter(|event| event.mutating || !event.changes.is_empty())
        .collect();
    ensure!(moved.is_empty(), "adopted is not moved: {moved:?}");
    can_be_edited(world).await
}

/// A third address goes to the third node.
async fn can_be_edited(world: &Playground) -> Result<()> {
    let addresses = r#"{"spec":{"reservedIPs":["203.0.113.10","203.0.113.11","203.0.113.12"]}}"#;
    world.kubectl(&["patch", "nia", "voice", "--type=merge", "-p", addresses]).await?;
    eventually("the third address to be attached", async || {
        let voice = world.json(&["get", "nia", "voice"]).await?;
        ensure!(voice["status"]["attached"] == 3, "{voice}");
        Ok(())
    })
    .await
}

/// Everything stays, and theirs can start again.
async fn going_back(world: &Playground, page: &mut Page) -> Result<()> {
    let held = world.sim.snapshot().holds;
    page.run(world, "ip-address-controller uninstall").await?;
    page.run(world, "--replicas=2").await?;
    ensure!(page.0.next().is_none(), "the page goes on");
    ensure!(world.sim.snapshot().holds == held && held.len() == 3, "{held:?}");
    let voice = world.json(&["get", "nia", "voice"]).await?;
    ensure!(voice["metadata"].get("finalizers").is_none(), "{voice}");
    let nodes = world.json(&["get", "nodes", "-l", "ip.ready=true"]).await?;
    ensure!(nodes["items"].as_array().map_or(0, Vec::len) == 3, "{nodes}");
    let left = world
        .kubectl(&["get", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "-o", "name"])
        .await?;
    ensure!(!left.contains("ip-address-controller"), "{left}");
    // Theirs writes without a status and without a webhook.
    let back = r#"{"spec":{"reservedIPs":["203.0.113.10","203.0.113.11"]}}"#;
    world.kubectl(&["patch", "nia", "voice", "--type=merge", "-p", back]).await.map(drop)
}

/// The pods of the workload, by identity and place.
async fn pods(world: &Playground) -> Result<Vec<(Value, Value)>> {
    let pods = world.json(&["-n", "work", "get", "pods"]).await?;
    let pods = pods["items"].as_array().context("no list")?.iter();
    let mut pods: Vec<_> =
        pods.map(|pod| (pod["metadata"]["uid"].clone(), pod["spec"]["nodeName"].clone())).collect();
    pods.sort_by_key(|(uid, _)| uid.to_string());
    Ok(pods)
}
