//! Many at once: the numbers of moves and calls are the smallest that can be.

use crate::memory::{Recorded, Verb};
use crate::stage::Stage;
use anyhow::{Result, ensure};
use cluster::{NodeSpec, Provider, eventually};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// More than one page of a list.
const NODES: usize = 520;
const ALLOCATIONS: u32 = 100;

pub async fn five_hundred_nodes_and_two_hundred_addresses_settle_with_the_fewest_calls() -> Result<()> {
    let stage = Stage::empty().await?;
    let specs = NodeSpec::pool(Provider::Gcp, "node", NODES);
    let record = stage.record()?;
    for spec in &specs {
        stage.cloud.add_instance(&spec.provider_id)?;
        record.node(&spec.name, &spec.provider_id);
    }
    stage.cluster.nodes().create_all(specs.clone()).await?;
    let addresses: Vec<IpAddr> =
        (0..2 * ALLOCATIONS).map(|n| IpAddr::V4(Ipv4Addr::from(0xc633_6400 + n))).collect();
    for (number, pair) in addresses.chunks(2).enumerate() {
        pair.iter().try_for_each(|address| stage.cloud.add_address(*address))?;
        for address in pair {
            record.address(*address);
        }
        record.allocation(&format!("allocation-{number}"));
        let manifest = json!({
            "apiVersion": "netinfra.darkbrains.com/v1alpha1", "kind": "NetIPAllocation",
            "metadata": { "name": format!("allocation-{number}") },
            "spec": {
                "reservedIPs": pair, "cloud": { "provider": "gcp" },
            },
        });
        let input = manifest.to_string();
        stage.cluster.kubectl_with_input(&["create", "-f", "-"], &input).await?.ok()?;
    }
    let replica = stage.replica("scale", None, Duration::from_secs(15))?;
    settled(&stage, &addresses).await?;
    let first = stage.cloud.memory().calls();
    let count = |verb: Verb| first.iter().filter(|call| call.verb == verb).count();
    println!(
        "first: {} attaches, {} detaches, {} reads",
        count(Verb::Attach),
        count(Verb::Detach),
        count(Verb::Read)
    );
    ensure!(count(Verb::Attach) == addresses.len() && count(Verb::Detach) == 0, "each address once");

    // All nodes of a zone fall silent. The grace of 30 s lets all of them be seen to before the first
    // address goes, so none goes to a neighbour that is about to fall.
    let zone = &specs[0].zone;
    let silent: BTreeSet<&str> =
        specs.iter().filter(|spec| spec.zone == *zone).map(|spec| spec.provider_id.as_str()).collect();
    let hit =
        addresses.iter().filter(|a| stage.cloud.holder(**a).is_some_and(|id| silent.contains(&*id))).count();
    for spec in specs.iter().filter(|spec| spec.zone == *zone) {
        stage.cluster.nodes().silence(&spec.name).await?;
    }
    let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(stage.cluster.client());
    eventually("the control plane to see the silence", async || {
        let all = nodes.list(&kube::api::ListParams::default()).await?.items;
        let ready =
            all.iter().filter(|node| is_silent(node, &silent) && crate::scene::node_is_ready(node)).count();
        ensure!(ready == 0, "{ready} silent nodes are Ready");
        Ok(())
    })
    .await?;
    eventually("every address to have left the zone", async || {
        let there =
            addresses.iter().filter(|a| stage.cloud.holder(**a).is_none_or(|id| silent.contains(&*id)));
        let there = there.count();
        ensure!(there == 0, "{there} are still there or nowhere");
        Ok(())
    })
    .await?;
    settled(&stage, &addresses).await?;
    let calls = stage.cloud.memory().calls().split_off(first.len());
    let count = |verb: Verb| calls.iter().filter(|call| call.verb == verb).count();
    // On a slow machine the control plane needs longer than the grace to see all of them: who goes to one
    // that is not seen yet has to go on.
    let astray = calls.iter().filter(|call| call.verb == Verb::Attach && silent.contains(&*call.instance));
    let astray = astray.count();
    println!(
        "a zone gone: {hit} addresses hit, {} attaches, {} detaches, {astray} to nodes that still looked well",
        count(Verb::Attach),
        count(Verb::Detach)
    );
    let healthy = |call: &&Recorded| call.verb == Verb::Detach && !silent.contains(&*call.instance);
    ensure!(calls.iter().find(healthy).is_none(), "no healthy node lost its address");
    ensure!(
        hit > 0 && count(Verb::Attach) == hit + astray && count(Verb::Detach) == hit + astray,
        "each address that was hit once"
    );
    replica.stop().await
}

fn is_silent(node: &k8s_openapi::api::core::v1::Node, silent: &BTreeSet<&str>) -> bool {
    node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).is_some_and(|id| silent.contains(id))
}

/// Every allocation is Ready and nothing is on its way.
async fn settled(stage: &Stage, addresses: &[IpAddr]) -> Result<()> {
    let api: kube::Api<crds::NetIPAllocation> = kube::Api::all(stage.cluster.client());
    eventually("all allocations to be Ready", async || {
        let held = addresses.iter().filter(|address| stage.cloud.holder(**address).is_some()).count();
        ensure!(held == addresses.len(), "{held} of {} addresses are attached", addresses.len());
        let all = api.list(&kube::api::ListParams::default()).await?.items;
        let ready = all.iter().filter(|object| {
            let status = object.status.clone().unwrap_or_default();
            crate::scene::condition(&status, "Ready") == "True"
                && status.ips.iter().all(|ip| ip.operation.is_none())
        });
        let ready = ready.count();
        ensure!(ready == all.len(), "{ready} of {} are Ready", all.len());
        Ok(())
    })
    .await
}
