//! How fast the simulators are: latency of lists in a large world, and requests per second.
//!
//! `cargo run --release -p sim --example bench`. Client and servers share the machine's cores, so the
//! figures are what a test on this machine gets, not what the servers alone could do.

use anyhow::Result;
use sim::{AddressSpec, Cloud, InstanceSpec, Sim, World};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ADDRESSES: u32 = 10_000;
const INSTANCES: u32 = 5_000;
const CALLERS: usize = 16;
const SECONDS: u64 = 5;
const AZURE: &str = "/subscriptions/00000000-0000-0000-0000-000000000001";

#[tokio::main]
async fn main() -> Result<()> {
    let sim = Sim::start(large_world()).await?;
    let client = reqwest::Client::new();
    println!("{ADDRESSES} addresses and {INSTANCES} instances in each cloud\n");
    println!("{:<58} {:>9} {:>9} {:>9}", "list", "median", "p99", "bytes");
    for (name, url) in lists(&sim) {
        let (median, worst, bytes) = latency(&client, &url).await?;
        println!("{name:<58} {median:>7.2}ms {worst:>7.2}ms {bytes:>9}");
    }
    println!();
    for (name, url) in gets(&sim) {
        println!("{name:<58} {:>9.0} requests/s", throughput(&client, &url).await);
    }
    Ok(())
}

fn large_world() -> World {
    let mut world = World::default();
    for cloud in Cloud::ALL {
        for n in 0..INSTANCES {
            let zone = ["a", "b", "c"][n as usize % 3];
            let id = match cloud {
                Cloud::Gcp => format!("gce://dev-project/us-central1-{zone}/node-{n}"),
                Cloud::Aws => format!("aws:///eu-west-1{zone}/i-{n:017x}"),
                Cloud::Azure => format!(
                    "azure://{AZURE}/resourceGroups/dev-nodes/providers/Microsoft.Compute/virtualMachines/node-{n}"
                ),
            };
            world = world.instance(InstanceSpec::of(&id));
        }
        for n in 0..ADDRESSES {
            let first = 50 + u32::from(cloud as u8);
            let ip = IpAddr::V4(Ipv4Addr::from((first << 24) | n));
            world = world.reserved(AddressSpec::free(cloud, ip));
        }
    }
    world
}

/// The lists that a controller reads.
fn lists(sim: &Sim) -> Vec<(&'static str, String)> {
    let gcp = format!("{}/compute/v1/projects/dev-project", sim.gcp_url());
    let aws = format!("{}/?Version=2016-11-15&Action=", sim.aws_url());
    let azure = format!("{}{AZURE}/providers", sim.azure_url());
    let two_hundred: Vec<u32> = (0..200).collect();
    let gcp_filter: Vec<String> = two_hundred.iter().map(|n| format!("(address=\"50.0.0.{n}\")")).collect();
    let aws_filter = two_hundred.iter().map(|n| format!("&Filter.1.Value.{}=51.0.0.{n}", n + 1));
    let aws_filter = aws_filter.collect::<String>();
    vec![
        ("gcp addresses, a page of 500", format!("{gcp}/regions/us-central1/addresses?maxResults=500")),
        (
            "gcp addresses, 200 picked by filter",
            format!("{gcp}/regions/us-central1/addresses?filter={}", gcp_filter.join("%20OR%20")),
        ),
        ("gcp instances of all zones, a page of 500", format!("{gcp}/aggregated/instances?maxResults=500")),
        ("aws addresses, all 10,000 (there are no pages)", format!("{aws}DescribeAddresses")),
        (
            "aws addresses, 200 picked by filter",
            format!("{aws}DescribeAddresses&Filter.1.Name=public-ip{aws_filter}"),
        ),
        ("aws instances, a page of 1,000", format!("{aws}DescribeInstances&MaxResults=1000")),
        (
            "azure addresses, a page of 100",
            format!("{azure}/Microsoft.Network/publicIPAddresses?api-version=2024-05-01"),
        ),
        (
            "azure instances, a page of 100",
            format!("{azure}/Microsoft.Compute/virtualMachines?api-version=2024-07-01"),
        ),
    ]
}

/// Reads of one thing.
fn gets(sim: &Sim) -> Vec<(&'static str, String)> {
    vec![
        (
            "gcp instance",
            format!("{}/compute/v1/projects/dev-project/zones/us-central1-a/instances/node-0", sim.gcp_url()),
        ),
        (
            "aws address by filter",
            format!(
                "{}/?Action=DescribeAddresses&Filter.1.Name=public-ip&Filter.1.Value.1=51.0.0.1",
                sim.aws_url()
            ),
        ),
        (
            "azure interface",
            format!(
                "{}{AZURE}/resourceGroups/dev-nodes/providers/Microsoft.Network/networkInterfaces/node-0-nic\
                 ?api-version=2024-05-01",
                sim.azure_url()
            ),
        ),
    ]
}

async fn latency(client: &reqwest::Client, url: &str) -> Result<(f64, f64, usize)> {
    let mut times = Vec::new();
    let mut bytes = 0;
    for _ in 0..100 {
        let start = Instant::now();
        let reply = client.get(url).send().await?.error_for_status()?;
        bytes = reply.bytes().await?.len();
        times.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[times.len() / 2], times[times.len() * 99 / 100], bytes))
}

#[allow(clippy::cast_precision_loss)] // a count of requests is far below 2^52
async fn throughput(client: &reqwest::Client, url: &str) -> f64 {
    let answered = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let callers = (0..CALLERS).map(|_| {
        let (client, url, answered) = (client.clone(), url.to_owned(), Arc::clone(&answered));
        tokio::spawn(async move {
            while start.elapsed() < Duration::from_secs(SECONDS) {
                let reply = client.get(&url).send().await.and_then(reqwest::Response::error_for_status);
                if let Ok(reply) = reply
                    && reply.bytes().await.is_ok()
                {
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        let _ = caller.await;
    }
    answered.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64()
}
