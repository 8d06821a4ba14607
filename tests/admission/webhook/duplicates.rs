//! An address is in one object only.

use super::kit::{allocation, forget, guarded, merge, start};
use crate::requests::{create, refusal, remove};
use anyhow::{Context as _, Result, ensure};
use cluster::harness::Bed;
use cluster::{Cluster, Version, eventually};
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use std::sync::Arc;

async fn refused(cluster: &Cluster, name: &str, addresses: &[&str], by: &str, address: &str) -> Result<()> {
    let object = allocation(name, addresses, &Value::Null);
    names_it(&refusal(create(cluster, &object).await).context("create")?.message, by, address)
}

fn names_it(answer: &str, by: &str, address: &str) -> Result<()> {
    ensure!(answer.contains("denied the request"), "{answer}");
    let words = format!("{address} is already in NetIPAllocation {by:?}");
    ensure!(answer.contains(&words), "{words:?} is not in: {answer}");
    Ok(())
}

fn list(addresses: &[&str]) -> Value {
    json!({ "spec": { "reservedIPs": addresses } })
}

pub async fn the_other_object_is_named(_: Arc<Bed>, version: Version) -> Result<()> {
    let cluster = &guarded(version).await?.cluster;
    create(cluster, &allocation("first", &["192.0.2.1", "2001:db8::d:1"], &Value::Null)).await?;
    refused(cluster, "second", &["192.0.2.2", "192.0.2.1"], "first", "192.0.2.1").await?;
    refused(cluster, "second", &["2001:DB8:0::d:1"], "first", "2001:db8::d:1").await?;
    refused(cluster, "second", &["::ffff:192.0.2.1"], "first", "192.0.2.1").await?;
    create(cluster, &allocation("second", &["192.0.2.2"], &Value::Null)).await?;
    let update = merge(cluster, "second", &list(&["192.0.2.2", "192.0.2.1"])).await;
    names_it(&refusal(update).context("update")?.message, "first", "192.0.2.1")?;
    merge(cluster, "first", &list(&["2001:db8::d:1", "192.0.2.1", "192.0.2.3"]))
        .await
        .context("one's own list may change")?;
    forget(cluster, &["first", "second"]).await
}

pub async fn an_address_moves_in_two_steps(_: Arc<Bed>) -> Result<()> {
    let cluster = &guarded(Version::Newest).await?.cluster;
    create(cluster, &allocation("giver", &["192.0.2.11", "192.0.2.12"], &Value::Null)).await?;
    create(cluster, &allocation("taker", &["192.0.2.13"], &Value::Null)).await?;
    merge(cluster, "giver", &list(&["192.0.2.12"])).await?;
    // The watch has to show the first step.
    eventually("the address to be free", async || {
        merge(cluster, "taker", &list(&["192.0.2.13", "192.0.2.11"])).await
    })
    .await?;
    refused(cluster, "third", &["192.0.2.11"], "taker", "192.0.2.11").await?;
    forget(cluster, &["giver", "taker"]).await
}

pub async fn a_deleted_object_frees_its_addresses_and_one_being_deleted_does_not(_: Arc<Bed>) -> Result<()> {
    let cluster = &guarded(Version::Newest).await?.cluster;
    let mut object = allocation("leaving", &["192.0.2.21"], &Value::Null);
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create(cluster, &object).await?;
    remove(cluster, "leaving").await?;
    refused(cluster, "heir", &["192.0.2.21"], "leaving", "192.0.2.21").await?;
    merge(cluster, "leaving", &json!({ "metadata": { "finalizers": null } })).await?;
    let heir = allocation("heir", &["192.0.2.21"], &Value::Null);
    eventually("the address to be free", async || create(cluster, &heir).await).await?;
    forget(cluster, &["heir"]).await
}

/// `kubectl apply -f folder/`: the second comes before the watch shows the first.
pub async fn of_two_in_quick_succession_one_is_refused(_: Arc<Bed>) -> Result<()> {
    let cluster = &guarded(Version::Newest).await?.cluster;
    for round in 0..10 {
        let names = [format!("quick-{round}-a"), format!("quick-{round}-b")];
        let address = format!("192.0.2.{}", 31 + round);
        let objects = names.each_ref().map(|name| allocation(name, &[&address], &Value::Null));
        let (a, b) = tokio::join!(create(cluster, &objects[0]), create(cluster, &objects[1]));
        let won = match (a, b) {
            (Ok(_), Err(error)) => (0, error),
            (Err(error), Ok(_)) => (1, error),
            (a, b) => anyhow::bail!("round {round}: {a:?} {b:?}"),
        };
        let answer = refusal::<()>(Err(won.1))?.message;
        names_it(&answer, &names[won.0], &address)?;
        remove(cluster, &names[won.0]).await?;
    }
    Ok(())
}

pub async fn a_dry_run_holds_nothing(_: Arc<Bed>) -> Result<()> {
    let cluster = &guarded(Version::Newest).await?.cluster;
    let dry = allocation("dry", &["192.0.2.51"], &Value::Null).to_string();
    cluster.kubectl_with_input(&["create", "--dry-run=server", "-f", "-"], &dry).await?.ok()?;
    create(cluster, &allocation("wet", &["192.0.2.51"], &Value::Null)).await.context("held by a dry run")?;
    forget(cluster, &["wet"]).await
}

pub async fn a_clash_is_found_among_twenty_thousand_addresses(_: Arc<Bed>) -> Result<()> {
    let guarded = start(Version::Newest).await?;
    let cluster = &guarded.cluster;
    let addresses =
        |object: usize| -> Vec<String> { (0..20).map(|n| format!("2001:db8:1::{object:x}:{n:x}")).collect() };
    let objects = (0..1_000).map(|number| {
        let addresses = addresses(number);
        let texts: Vec<&str> = addresses.iter().map(String::as_str).collect();
        allocation(&format!("many-{number}"), &texts, &Value::Null)
    });
    let created = futures::stream::iter(objects.map(|object| async move { create(cluster, &object).await }));
    created.buffer_unordered(16).try_collect::<Vec<_>>().await?;
    refused(cluster, "clash", &["2001:DB8:1::1F4:7"], "many-500", "2001:db8:1::1f4:7").await?;
    eventually("all of them to be indexed", async || {
        let metrics = guarded.hook.metrics().await?;
        ensure!(metrics.contains(r#"index_entries{index="addresses"} 20000"#), "{metrics}");
        Ok(())
    })
    .await?;
    refused(cluster, "clash", &["2001:db8:1::3e7:13"], "many-999", "2001:db8:1::3e7:13").await
}
