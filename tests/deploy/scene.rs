//! What was deployed, running: the real processes under the deployed accounts' tokens, beside a simulated
//! cloud. Pods of simulated nodes run nothing, so the processes stand for them.

use crate::kit::{BINARY, NAMESPACE, name};
use anyhow::{Context as _, Result, ensure};
use cluster::{Cluster, NodeSpec, Process, Provider, eventually};
use crds::{NetIPAllocation, NetIPAllocationStatus};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use serde_json::{Value, json};
use sim::{Sim, World};
use std::net::IpAddr;
use std::path::Path;

/// Addresses that the simulated cloud has.
pub const ADDRESSES: [&str; 2] = ["203.0.113.10", "203.0.113.11"];

/// A pool of nodes whose machines are in a simulated cloud, with two addresses reserved.
pub struct Scene<'c> {
    pub cluster: &'c Cluster,
    pub sim: Sim,
}

impl<'c> Scene<'c> {
    pub async fn set(cluster: &'c Cluster) -> Result<Self> {
        let sim = Sim::start(World::default()).await?;
        for address in ADDRESSES {
            sim.add_address(sim::Cloud::Gcp, address.parse()?)?;
        }
        for number in 1..=3 {
            let node = NodeSpec::new(Provider::Gcp, &format!("pool-{number}"), number).label("pool", "voice");
            sim.add_instance(&node.provider_id)?;
            cluster.nodes().create(node).await?;
        }
        cluster.kubectl(&["create", "namespace", "work"]).await?.ok()?;
        Ok(Self { cluster, sim })
    }

    /// Starts the program as a service account.
    pub async fn start(&self, program: &str, account: &str, env: &[(&str, String)]) -> Result<Process> {
        let kubeconfig = self.cluster.service_account_kubeconfig(NAMESPACE, account).await?;
        let plain = [
            ("KUBECONFIG", kubeconfig.display().to_string()),
            ("POD_NAMESPACE", NAMESPACE.to_owned()),
            ("HEALTH_ADDR", "127.0.0.1:0".to_owned()),
            ("METRICS_PORT", "0".to_owned()),
        ];
        let env = plain.iter().chain(env).cloned();
        self.cluster.launch(program, BINARY.as_ref(), &[program], env)
    }

    pub async fn controller(&self) -> Result<Process> {
        let env = [
            ("GCP_COMPUTE_ENDPOINT", self.sim.gcp_url()),
            ("GCP_CREDENTIALS", "anonymous".to_owned()),
            ("POD_NAME", "controller".to_owned()),
            ("LEASE_DURATION", "4".to_owned()),
        ];
        self.start("controller", "ip-address-controller", &env).await
    }

    pub async fn webhook(&self, port: u16) -> Result<Process> {
        let env = [
            ("WEBHOOK_ADDR", format!("127.0.0.1:{port}")),
            ("WEBHOOK_NAMES", "127.0.0.1".to_owned()),
            ("WEBHOOK_DRAIN_SECONDS", "1".to_owned()),
        ];
        self.start("webhook", "ip-address-controller-webhook", &env).await
    }

    pub fn allocations(&self) -> Api<NetIPAllocation> {
        Api::all(self.cluster.client())
    }

    /// Creates the allocation, once it is admitted.
    pub async fn allocate(&self) -> Result<()> {
        let manifest = json!({
            "apiVersion": "netinfra.darkbrains.com/v1alpha1", "kind": "NetIPAllocation",
            "metadata": { "name": "voice" },
            "spec": {
                "reservedIPs": ADDRESSES, "nodeSelector": { "pool": "voice" },
                "cloud": { "provider": "gcp" }, "reconcileInterval": 5,
                "workloadRef": { "kind": "Deployment", "name": "web", "namespace": "work" },
            },
        });
        eventually("the allocation to be admitted", async || {
            let said = self.cluster.kubectl_with_input(&["apply", "-f", "-"], &manifest.to_string()).await?;
            ensure!(said.success, "{}", said.stderr);
            Ok(())
        })
        .await
    }

    /// Two pods that need an address.
    pub async fn workload(&self) -> Result<()> {
        let manifest = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "web", "namespace": "work" },
            "spec": {
                "replicas": 2,
                "selector": { "matchLabels": { "app": "web" } },
                "template": {
                    "metadata": { "labels": { "app": "web" } },
                    "spec": { "terminationGracePeriodSeconds": 0,
                              "containers": [{ "name": "web", "image": "registry.example/web" }] },
                },
            },
        });
        self.cluster.kubectl_with_input(&["apply", "-f", "-"], &manifest.to_string()).await?.ok()?;
        Ok(())
    }

    pub async fn status(&self) -> Result<NetIPAllocationStatus> {
        Ok(self.allocations().get("voice").await?.status.unwrap_or_default())
    }

    /// How many addresses are on machines, by the cloud's word.
    pub fn attached(&self) -> Result<usize> {
        let holds = self.sim.snapshot().holds;
        let addresses: Vec<IpAddr> = ADDRESSES.iter().map(|a| a.parse()).collect::<Result<_, _>>()?;
        Ok(addresses.iter().filter(|address| holds.contains_key(*address)).count())
    }

    /// Nodes of the pool that carry the label.
    pub async fn marked(&self) -> Result<Vec<String>> {
        let nodes: Api<Node> = Api::all(self.cluster.client());
        let nodes = nodes.list(&kube::api::ListParams::default().labels("pool=voice,ip.ready=true")).await?;
        Ok(nodes.items.iter().map(kube::ResourceExt::name_any).collect())
    }

    /// Waits until both addresses are where they belong, and the marks too.
    pub async fn settled(&self) -> Result<Vec<String>> {
        eventually("both addresses to be attached", async || {
            let status = self.status().await?;
            let ready = status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
            ensure!(ready, "not Ready: {:?} {:?}", status.conditions, status.ips);
            let marked = self.marked().await?;
            ensure!(marked.len() == 2 && self.attached()? == 2, "marked are {marked:?}");
            Ok(marked)
        })
        .await
    }

    /// Waits until the workload's pods run on exactly these nodes.
    pub async fn pods_on(&self, nodes: &[String]) -> Result<()> {
        let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(self.cluster.client(), "work");
        eventually("pods on the nodes of the addresses", async || {
            let pods = pods.list(&kube::api::ListParams::default()).await?;
            let places: Vec<_> = pods.items.iter().map(|pod| pod.spec.as_ref()?.node_name.clone()).collect();
            let there = |place: &Option<String>| place.as_ref().is_some_and(|place| nodes.contains(place));
            ensure!(places.len() == 2 && places.iter().all(there), "{places:?} instead of {nodes:?}");
            Ok(())
        })
        .await
    }
}

/// The same objects with a URL on loopback in place of the Service, which no proxy serves here.
pub fn with_url(objects: &[Value], port: u16) -> Result<Vec<Value>> {
    let mut objects = objects.to_vec();
    for object in &mut objects {
        let place = name(object).to_owned();
        let Some(webhooks) = object.get_mut("webhooks").and_then(Value::as_array_mut) else { continue };
        for webhook in webhooks {
            let path = webhook["clientConfig"]["service"]["path"].as_str().context(place.clone())?;
            webhook["clientConfig"] = json!({ "url": format!("https://127.0.0.1:{port}{path}") });
        }
    }
    Ok(objects)
}

/// Requests that were forbidden to one of our accounts, by the API server's audit log.
pub fn forbidden(audit: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(audit)?;
    let entries = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let ours = |entry: &Value| {
        let user = entry["user"]["username"].as_str().unwrap_or_default();
        user.starts_with(&format!("system:serviceaccount:{NAMESPACE}:"))
    };
    let refused = entries.filter(|entry| ours(entry) && entry["responseStatus"]["code"] == 403);
    Ok(refused.map(|entry| format!("{} {}", entry["verb"], entry["requestURI"])).collect())
}
