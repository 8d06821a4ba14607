//! The same through a real API server: a dry-run Pod create with no webhook, with fixed bytes that carry
//! the patch, and with ours.

use crate::load::Figures;
use crate::reviews;
use crate::servers::{Kind, Server};
use anyhow::{Context as _, Result, ensure};
use cluster::{Cluster, eventually};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::time::Instant;
use webhook::registration::{CONFIGURATION, Endpoint, PODS, configurations};

const ROUNDS: usize = 3;
const REQUESTS: usize = 300;

pub async fn run() -> Result<()> {
    let cluster = Cluster::start().await?;
    let servers = [
        ("no webhook", None),
        ("fixed bytes, patch", Some(Server::start(Kind::FixedPatch).await?)),
        ("ours, injected", Some(Server::start(Kind::Ours(1_000)).await?)),
    ];
    println!("{REQUESTS} dry-run Pod creates each, one at a time; p50 and p90 in microseconds\n");
    for round in 1..=ROUNDS {
        for (name, server) in &servers {
            register(&cluster, server.as_ref()).await?;
            let figures = measure(&cluster).await?;
            let [p50, p90] = [50, 90].map(|percent| figures.percentile(percent).as_micros());
            println!("round {round}  {name:<22}{p50:>8}{p90:>8}");
        }
    }
    Ok(())
}

async fn create(cluster: &Cluster) -> Result<Value> {
    let path = "/api/v1/namespaces/default/pods?dryRun=All";
    let request = http::Request::post(path).header("Content-Type", "application/json");
    Ok(cluster.client().request(request.body(serde_json::to_vec(&reviews::pod_of("web"))?)?).await?)
}

async fn measure(cluster: &Cluster) -> Result<Figures> {
    let mut latencies = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        let start = Instant::now();
        create(cluster).await?;
        latencies.push(start.elapsed());
    }
    Ok(Figures::new(0.0, latencies))
}

/// Makes the API server ask this server alone, and waits until it does.
async fn register(cluster: &Cluster, server: Option<&Server>) -> Result<()> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    // It is no error if there is none.
    let _ = api.delete(CONFIGURATION, &DeleteParams::default()).await;
    if let Some(server) = server {
        let url = format!("https://127.0.0.1:{}", server.port);
        let [mut mutating, _] = configurations(&Endpoint::Url(url));
        let webhooks = mutating["webhooks"].as_array_mut().context("no webhooks")?;
        webhooks.retain(|webhook| webhook["name"] == PODS);
        webhooks[0]["clientConfig"]["caBundle"] = json!(ByteString(server.pem().into_bytes()));
        webhooks[0]["failurePolicy"] = json!("Fail");
        api.patch(CONFIGURATION, &PatchParams::apply("bench"), &Patch::Apply(mutating)).await?;
    }
    eventually("the API server to ask it", async || {
        let affinity = create(cluster).await?["spec"]["affinity"].is_object();
        ensure!(affinity == server.is_some(), "affinity: {affinity}");
        Ok(())
    })
    .await
}
