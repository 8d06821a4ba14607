//! What trouble costs those who have none: `make bench-isolation`. The real binary, simulated clouds on the
//! wire; every figure stands beside the same without the trouble, in the same run.

use crate::bench::percentile;
use crate::processes::Replica;
use crate::stage::Stage;
use anyhow::{Context as _, Result, ensure};
use cloud::Cloud;
use cluster::{NodeSpec, Provider, eventually};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sim::{Fault, On, Rule};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LEASE_SECONDS: u64 = 15;
/// Turns that the variants take, and failovers in each.
const TURNS: usize = 4;
const ROUNDS: usize = 5;
const ALLOCATIONS: usize = 1000;
const ADDRESSES: usize = 20;

/// All of them, or the one that is named.
pub async fn run(only: Option<&str>) -> Result<()> {
    let is_wanted = |name: &str| only.is_none_or(|only| only == name);
    if is_wanted("accounts") {
        Box::pin(accounts()).await?;
    }
    if is_wanted("herd") {
        Box::pin(herd()).await?;
    }
    if is_wanted("wide") {
        Box::pin(wide()).await?;
    }
    Ok(())
}

fn allocation(name: &str, provider: &str, addresses: &[String], pool: &str) -> Value {
    json!({
        "apiVersion": "netinfra.darkbrains.com/v1alpha1", "kind": "NetIPAllocation", "metadata": { "name": name },
        "spec": {
            "reservedIPs": addresses, "cloud": { "provider": provider }, "nodeSelector": { "pool": pool },
            "reconcileInterval": 5, "failover": { "notReadyGraceSeconds": 0, "stormThresholdPercent": 100 },
        },
    })
}

/// The healthy allocation: one address, four nodes.
struct Healthy {
    stage: Stage,
    nodes: Vec<NodeSpec>,
    address: IpAddr,
}

impl Healthy {
    async fn new() -> Result<Self> {
        Self::with_grace(Duration::from_secs(40)).await
    }

    /// Heartbeats come four times in that time.
    async fn with_grace(grace: Duration) -> Result<Self> {
        let cluster = cluster::Cluster::builder().node_grace(grace);
        let stage = Stage::on(cluster, Some(Cloud::Gcp)).await?;
        let nodes: Vec<NodeSpec> = (0..4)
            .map(|n| NodeSpec::new(Provider::Gcp, &format!("fine-{n}"), n).label("pool", "fine"))
            .collect();
        nodes.iter().try_for_each(|node| stage.cloud.add_instance(&node.provider_id))?;
        stage.cluster.nodes().create_all(nodes.clone()).await?;
        let address: IpAddr = [198, 51, 100, 1].into();
        stage.cloud.add_address(address)?;
        let healthy = Self { stage, nodes, address };
        healthy.create(&allocation("fine", "gcp", &[address.to_string()], "fine")).await?;
        Ok(healthy)
    }

    async fn create(&self, object: &Value) -> Result<()> {
        let input = object.to_string();
        self.stage.cluster.kubectl_with_input(&["create", "-f", "-"], &input).await?.ok().map(drop)
    }

    fn client(&self) -> Client {
        self.stage.cluster.client()
    }

    /// The node of the address, once everything is settled.
    async fn settled(&self) -> Result<&NodeSpec> {
        let api: Api<crds::NetIPAllocation> = Api::all(self.client());
        eventually("the healthy one to be Ready", async || {
            let status = api.get("fine").await?.status.unwrap_or_default();
            let ready = status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
            ensure!(ready, "{:?}", status.conditions);
            let holder = self.stage.cloud.holder(self.address).context("it is nowhere")?;
            self.nodes.iter().find(|node| node.provider_id == holder).context("no such node")
        })
        .await
    }

    /// From NotReady to the address being on another node by the cloud's word, in milliseconds.
    async fn failover(&self) -> Result<f64> {
        let from = self.settled().await?;
        let began = Instant::now();
        self.stage.cluster.nodes().mark_not_ready(&from.name).await?;
        let limit = Duration::from_mins(2);
        while self.stage.cloud.holder(self.address).is_none_or(|holder| holder == from.provider_id) {
            ensure!(began.elapsed() < limit, "it did not move: {:?}", self.stage.cloud.holder(self.address));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let took = began.elapsed().as_secs_f64() * 1e3;
        self.stage.cluster.nodes().revive(&from.name).await?;
        Ok(took)
    }

    async fn failovers(&self, count: usize) -> Result<Vec<f64>> {
        let mut times = Vec::new();
        for _ in 0..count {
            times.push(self.failover().await?);
        }
        Ok(times)
    }
}

fn reserve(sim: &sim::Sim, cloud: sim::Cloud, addresses: &[String]) -> Result<()> {
    for address in addresses {
        sim.add_address(cloud, address.parse()?)?;
    }
    Ok(())
}

fn compare(what: &str, without: &[f64], with: &[f64]) {
    let [p50, p90] = [0.5, 0.9]
        .map(|share| (percentile(&mut without.to_vec(), share), percentile(&mut with.to_vec(), share)));
    println!(
        "{what}: median {:.1} ms without, {:.1} with ({:.2}x); p90 {:.1} and {:.1} ({:.2}x)",
        p50.0,
        p50.1,
        p50.1 / p50.0,
        p90.0,
        p90.1,
        p90.1 / p90.0
    );
}

/// One account that is fine, one whose calls all hang, one that throttles everything.
async fn accounts() -> Result<()> {
    let healthy = Healthy::new().await?;
    let sim = healthy.stage.cloud.simulator();
    let mut bad = Vec::new();
    for (provider, name, cloud, cloud_name) in [
        (Provider::Azure, "hangs", sim::Cloud::Azure, "azure"),
        (Provider::Aws, "throttles", sim::Cloud::Aws, "aws"),
    ] {
        for number in 0..4 {
            let node = NodeSpec::new(provider, &format!("{name}-{number}"), number).label("pool", name);
            sim.add_instance(&node.provider_id)?;
            healthy.stage.cluster.nodes().create(node).await?;
        }
        let addresses: Vec<String> =
            (0..20).map(|n| format!("203.0.{}.{}", if name == "hangs" { 1 } else { 2 }, n + 1)).collect();
        reserve(sim, cloud, &addresses)?;
        let mut object = allocation(name, cloud_name, &addresses, name);
        object["spec"]["releasePolicy"] = json!("Retain");
        bad.push((name, object));
    }
    let rule =
        |cloud, fault| Rule { on: On { cloud: Some(cloud), ..On::default() }, skip: 0, times: None, fault };
    sim.fault(rule(sim::Cloud::Azure, Fault::Delay { seconds: 3600.0 }));
    sim.fault(rule(sim::Cloud::Aws, Fault::Throttle { seconds: Some(5.0) }));
    let _replica = Replica::start_with(&healthy.stage, &healthy.stage.cloud, LEASE_SECONDS, "bench")?;
    healthy.settled().await?;
    healthy.failovers(2).await?;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    let api: Api<crds::NetIPAllocation> = Api::all(healthy.client());
    for _ in 0..TURNS {
        alone.extend(healthy.failovers(ROUNDS).await?);
        for (_, object) in &bad {
            healthy.create(object).await?;
        }
        eventually("both accounts to be in trouble", async || {
            for (name, _) in &bad {
                let status = api.get(name).await?.status.unwrap_or_default();
                let silent =
                    |condition: &Condition| condition.type_ == "Degraded" && condition.status == "True";
                ensure!(status.conditions.iter().any(silent), "{name}: {:?}", status.conditions);
            }
            Ok(())
        })
        .await?;
        beside.extend(healthy.failovers(ROUNDS).await?);
        for (name, _) in &bad {
            api.delete(name, &DeleteParams::default()).await?;
        }
        eventually("both to be gone", async || {
            let left = api.list(&ListParams::default()).await?.items.len();
            ensure!(left == 1, "{left} are left");
            Ok(())
        })
        .await?;
    }
    compare("failover beside an account that hangs and one that throttles", &alone, &beside);
    Ok(())
}

/// Gets a namespace again and again until it is told to stop; how long each took, in milliseconds. Not a list: a list
/// from the API server's cache waits up to 100 ms for etcd's word whenever anybody writes anything.
async fn another_client(client: Client, stop: Arc<AtomicBool>) -> Result<Vec<f64>> {
    let api: Api<Namespace> = Api::all(client);
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        api.get("default").await?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(times)
}

/// What another client sees, and what failovers take, while something goes on.
async fn meanwhile(
    healthy: &Healthy,
    goes_on: impl AsyncFn() -> Result<()>,
) -> Result<(Vec<f64>, Vec<f64>, Duration)> {
    let stop = Arc::new(AtomicBool::new(false));
    let other = tokio::spawn(another_client(healthy.client(), stop.clone()));
    let began = Instant::now();
    let done = AtomicBool::new(false);
    let (took, failovers) = tokio::join!(
        async {
            let ended = goes_on().await;
            done.store(true, Ordering::Relaxed);
            ended.map(|()| began.elapsed())
        },
        async {
            let mut times = Vec::new();
            while !done.load(Ordering::Relaxed) {
                times.push(healthy.failover().await?);
            }
            Ok::<_, anyhow::Error>(times)
        }
    );
    stop.store(true, Ordering::Relaxed);
    Ok((other.await??, failovers?, took?))
}

async fn all_are_told(healthy: &Healthy) -> Result<()> {
    let api: Api<crds::NetIPAllocation> = Api::all(healthy.client());
    let began = Instant::now();
    // Lists of all of them would be most of the load: statuses are written in the order of names, so the last one
    // is asked for until it has one.
    let last = format!("idle-{}", ALLOCATIONS - 1);
    while api.get(&last).await?.status.is_none() && began.elapsed() < Duration::from_mins(5) {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    loop {
        let all = api.list(&ListParams::default()).await?.items;
        let bare = all.iter().filter(|object| object.status.is_none()).count();
        if bare == 0 && all.len() > ALLOCATIONS {
            return Ok(());
        }
        ensure!(began.elapsed() < Duration::from_mins(5), "{bare} of {} have no status", all.len());
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// 1,000 new allocations with 20 addresses each, and a restart into them. A call to the cloud takes 50 ms, which
/// is little for a cloud; without that the time of a plan is all that a failover takes.
async fn herd() -> Result<()> {
    let healthy = Healthy::new().await?;
    let on = On { cloud: Some(sim::Cloud::Gcp), ..On::default() };
    let fault = Fault::Delay { seconds: 0.05 };
    healthy.stage.cloud.simulator().fault(Rule { on, skip: 0, times: None, fault });
    let replica = Replica::start_with(&healthy.stage, &healthy.stage.cloud, LEASE_SECONDS, "first")?;
    healthy.settled().await?;
    healthy.failovers(2).await?;
    let (idle_lists, idle_failovers, _) = meanwhile(&healthy, async || {
        tokio::time::sleep(Duration::from_secs(10)).await;
        Ok(())
    })
    .await?;
    // They are all created before the controller may look at them: what is measured is what it does.
    replica.signal(rustix::process::Signal::TERM)?;
    eventually("it to end", async || {
        ensure!(replica.process.exit_status()?.is_some(), "not yet");
        Ok(())
    })
    .await?;
    for chunk in 0..10 {
        let items: Vec<Value> = (0..ALLOCATIONS / 10)
            .map(|n| {
                let number = chunk * ALLOCATIONS / 10 + n;
                let address = |k: usize| {
                    let [.., b, c, d] = u32::try_from(number * ADDRESSES + k + 1).unwrap_or(0).to_be_bytes();
                    format!("11.{b}.{c}.{d}")
                };
                let addresses: Vec<String> = (0..ADDRESSES).map(address).collect();
                allocation(&format!("idle-{number}"), "gcp", &addresses, "nobody")
            })
            .collect();
        healthy.create(&json!({ "apiVersion": "v1", "kind": "List", "items": items })).await?;
    }
    let replica = Replica::start_with(&healthy.stage, &healthy.stage.cloud, LEASE_SECONDS, "second")?;
    let (lists, failovers, took) = meanwhile(&healthy, async || all_are_told(&healthy).await).await?;
    println!(
        "{ALLOCATIONS} new allocations x {ADDRESSES} addresses: all told after {:.1} s",
        took.as_secs_f64()
    );
    compare("  another client's requests", &idle_lists, &lists);
    compare("  failover in the midst of it", &idle_failovers, &failovers);
    replica.signal(rustix::process::Signal::TERM)?;
    eventually("it to end", async || {
        ensure!(replica.process.exit_status()?.is_some(), "not yet");
        Ok(())
    })
    .await?;
    let began = Instant::now();
    let replica = Replica::start_with(&healthy.stage, &healthy.stage.cloud, LEASE_SECONDS, "third")?;
    let (lists, failovers, _) = meanwhile(&healthy, async || {
        replica.leads().await?;
        println!(
            "a restart into {ALLOCATIONS} allocations: leads after {:.1} s",
            began.elapsed().as_secs_f64()
        );
        tokio::time::sleep(Duration::from_secs(15)).await;
        Ok(())
    })
    .await?;
    compare("  another client's requests", &idle_lists, &lists);
    compare("  failover in the midst of it", &idle_failovers, &failovers);
    let log = replica.process.log_tail();
    ensure!(!log.contains("did not answer in time"), "{log}");
    Ok(())
}

/// 5,000 nodes: beside 100 allocations that see all of them, and beside an account that refuses 1,000
/// addresses.
async fn wide() -> Result<()> {
    // So many heartbeats would take all of the machine.
    let healthy = Healthy::with_grace(Duration::from_hours(1)).await?;
    let sim = healthy.stage.cloud.simulator();
    let wide = (0..3996).map(|n| NodeSpec::new(Provider::Gcp, &format!("wide-{n}"), n).label("pool", "wide"));
    let refused =
        (0..1000).map(|n| NodeSpec::new(Provider::Aws, &format!("refused-{n}"), n).label("pool", "refused"));
    let nodes: Vec<NodeSpec> = wide.chain(refused).collect();
    nodes.iter().try_for_each(|node| sim.add_instance(&node.provider_id).map(drop))?;
    healthy.stage.cluster.nodes().create_all(nodes).await?;
    let _replica = Replica::start_with(&healthy.stage, &healthy.stage.cloud, LEASE_SECONDS, "wide")?;
    healthy.settled().await?;
    healthy.failovers(2).await?;
    let alone = healthy.failovers(TURNS * ROUNDS).await?;
    for number in 0..100 {
        let addresses: Vec<String> = (0..10).map(|k| format!("203.{number}.1.{}", k + 1)).collect();
        reserve(sim, sim::Cloud::Gcp, &addresses)?;
        let mut object = allocation(&format!("wide-{number}"), "gcp", &addresses, "wide");
        // What they would attach is not the question here; all that is asked of nodes is.
        object["spec"]["paused"] = json!(true);
        healthy.create(&object).await?;
    }
    let beside = healthy.failovers(TURNS * ROUNDS).await?;
    compare("5,000 nodes: failover beside 100 allocations that see them", &alone, &beside);
    let on = On { mutating: Some(true), ..On { cloud: Some(sim::Cloud::Aws), ..On::default() } };
    let fault = Fault::Error { code: "UnauthorizedOperation".to_owned(), message: None, status: None };
    let rule = sim.fault(Rule { on, skip: 0, times: None, fault });
    for number in 0..10 {
        let addresses: Vec<String> = (0..100).map(|k| format!("198.{number}.1.{}", k + 1)).collect();
        reserve(sim, sim::Cloud::Aws, &addresses)?;
        healthy.create(&allocation(&format!("refused-{number}"), "aws", &addresses, "refused")).await?;
    }
    eventually("attaches to be refused", async || {
        let events = sim.events(0);
        let refused = events.iter().filter(|event| event.cloud == sim::Cloud::Aws && event.mutating).count();
        ensure!(refused > 20, "{refused} so far");
        Ok(())
    })
    .await?;
    let refusing = healthy.failovers(TURNS * ROUNDS).await?;
    compare("5,000 nodes: failover beside an account that refuses 1,000 addresses", &beside, &refusing);
    sim.remove_fault(rule);
    Ok(())
}
