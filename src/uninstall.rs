//! `ip-address-controller uninstall`: takes away what would block others once we are gone.
//!
//! The order matters. Webhook configurations go first: nothing depends on us from then on, and a running
//! webhook does not make them anew. Then, if asked for, the controller releases everything. Then it is
//! stopped, because it would put finalizers back; and then finalizers go. Each step can be repeated.

use crate::process;
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use crds::{ANNOTATION_INJECTED, FINALIZER, NetIPAllocation};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::ApiResource;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use webhook::server::Shutdown;

/// The controller's Deployment and its pods, as deploy/ names them.
const DEPLOYMENT: &str = "ip-address-controller";
const PODS: &str = "app.kubernetes.io/name=ip-address-controller,app.kubernetes.io/component=controller";
const POLL: Duration = Duration::from_millis(500);

/// Settings.
#[derive(Args, Clone, Debug)]
pub struct Uninstall {
    /// Delete all NetIPAllocations first, and wait until the running controller has released their addresses
    /// as each one's releasePolicy says. Without this, addresses and node labels stay as they are
    #[arg(long)]
    release: bool,
    /// Seconds that it may take
    #[arg(long, default_value_t = 300)]
    timeout: u64,
    /// Context of the kubeconfig; the current one, if not given
    #[arg(long)]
    context: Option<String>,
    /// Namespace of the controller [default: the service account's, else ip-address-controller]
    #[arg(long, env = "POD_NAMESPACE")]
    namespace: Option<String>,
    /// Name of the controller's Lease
    #[arg(long, env = "LEASE_NAME", default_value = "ip-address-controller-leader")]
    lease_name: String,
}

impl Uninstall {
    /// Does everything, in order. A signal ends it wherever it is, and it can be run again.
    pub fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let shutdown = Shutdown::on_signals()?;
            tokio::select! {
                done = self.work() => done,
                () = shutdown.draining() => bail!("told to stop before it was done; run it again to go on"),
            }
        })
    }

    async fn work(self) -> Result<()> {
        let client = process::client(self.context.as_deref()).await?;
        let until = Instant::now() + Duration::from_secs(self.timeout);
        let namespace = process::namespace(self.namespace.clone());
        Work { client, namespace, until, settings: self }.all().await
    }
}

struct Work {
    client: Client,
    namespace: String,
    until: Instant,
    settings: Uninstall,
}

impl Work {
    async fn all(&self) -> Result<()> {
        let deleted = webhook::registration::unregister(&self.client).await;
        deleted.context("cannot delete the webhook configurations")?;
        say("webhook configurations: gone");
        if self.settings.release {
            self.release().await?;
        }
        self.stop_controller().await?;
        self.take_finalizers_off().await?;
        say(if self.settings.release {
            "done"
        } else {
            "done; allocations, attached addresses and node labels stay as they are"
        });
        Ok(())
    }

    /// Allocations are read as they are, valid or not. Without the CRD there are none.
    async fn allocations(&self) -> Result<(Api<DynamicObject>, Vec<DynamicObject>)> {
        let resource = ApiResource::erase::<NetIPAllocation>(&());
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        match api.list(&ListParams::default()).await {
            Ok(list) => Ok((api, list.items)),
            Err(error) if is(&error, 404) => Ok((api, Vec::new())),
            Err(error) => Err(error).context("cannot list NetIPAllocations"),
        }
    }

    /// Deletes all allocations and waits for the controller to let them go, and what it injected with them.
    async fn release(&self) -> Result<()> {
        let (api, allocations) = self.allocations().await?;
        for allocation in &allocations {
            let name = allocation.name_any();
            match api.delete(&name, &DeleteParams::default()).await {
                Err(error) if !is(&error, 404) => {
                    return Err(error).with_context(|| format!("cannot delete NetIPAllocation {name}"));
                }
                _ => {}
            }
        }
        say(&format!("allocations: {} deleted; the controller releases their addresses", allocations.len()));
        self.wait(async || {
            let (_, left) = self.allocations().await?;
            let left: Vec<String> = left.iter().map(progress).collect();
            ensure!(
                left.is_empty(),
                "not released yet (does a controller run? `releasePolicy: Retain` lets one go without a call): {}",
                left.join("; ")
            );
            Ok(())
        })
        .await?;
        say("allocations: released");
        self.wait(async || {
            let left = self.injected().await?;
            ensure!(left.is_empty(), "these still ask for nodes of an allocation: {}", left.join(", "));
            Ok(())
        })
        .await
    }

    /// DaemonSets and waiting pods that still have the requirement, which the controller takes out.
    async fn injected(&self) -> Result<Vec<String>> {
        let sets: Api<DaemonSet> = Api::all(self.client.clone());
        let pods: Api<Pod> = Api::all(self.client.clone());
        let waiting = ListParams::default().fields("spec.nodeName=,status.phase=Pending");
        let sets = sets.list(&ListParams::default()).await.context("cannot list DaemonSets")?;
        let pods = pods.list(&waiting).await.context("cannot list Pods")?;
        let sets = sets.items.iter().filter(|set| {
            let template = set.spec.as_ref().map(|spec| &spec.template);
            template.is_some_and(|template| is_ours(template.metadata.as_ref(), template.spec.as_ref()))
        });
        let pods = pods.items.iter().filter(|pod| {
            pod.metadata.deletion_timestamp.is_none() && is_ours(Some(&pod.metadata), pod.spec.as_ref())
        });
        Ok(sets.map(full_name).chain(pods.map(full_name)).collect())
    }

    /// Scales the controller to nothing, and makes sure that nobody else leads.
    async fn stop_controller(&self) -> Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &self.namespace);
        let none = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
        match deployments.patch_scale(DEPLOYMENT, &PatchParams::default(), &none).await {
            Ok(_) => say(&format!("controller: Deployment {}/{DEPLOYMENT} scaled to 0", self.namespace)),
            Err(error) if is(&error, 404) => {
                say(&format!("controller: there is no Deployment {}/{DEPLOYMENT}", self.namespace));
            }
            Err(error) => return Err(error).context("cannot scale the controller to 0"),
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        self.wait(async || {
            let left = pods.list(&ListParams::default().labels(PODS)).await.context("cannot list Pods")?;
            let left: Vec<String> = left.items.iter().map(kube::ResourceExt::name_any).collect();
            ensure!(left.is_empty(), "controllers still run: {}", left.join(", "));
            Ok(())
        })
        .await?;
        self.nobody_leads().await
    }

    /// A controller that runs elsewhere renews its lease. One that was killed does not: its lease runs out.
    async fn nobody_leads(&self) -> Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let read = async || {
            let lease = leases.get_opt(&self.settings.lease_name).await.context("cannot read the Lease")?;
            let spec = lease.and_then(|lease| lease.spec);
            anyhow::Ok(spec.filter(|spec| !holder(spec).is_empty()))
        };
        let Some(first) = read().await? else { return Ok(()) };
        let seconds = u64::try_from(first.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
        let expires = Instant::now() + Duration::from_secs(seconds);
        say(&format!("controller: waiting {seconds} s for the lease of {}", holder(&first)));
        while Instant::now() < expires {
            match read().await? {
                None => return Ok(()),
                Some(spec) if spec != first => bail!(
                    "{} leads, and is no pod of Deployment {}/{DEPLOYMENT}: stop it, then run this again",
                    holder(&spec),
                    self.namespace
                ),
                Some(_) if Instant::now() >= self.until => {
                    bail!("gave up after {} s: the lease is not over yet", self.settings.timeout)
                }
                Some(_) => sleep(POLL).await,
            }
        }
        Ok(())
    }

    async fn take_finalizers_off(&self) -> Result<()> {
        let mut count = 0_usize;
        self.wait(async || {
            let (api, allocations) = self.allocations().await?;
            let mut left = Vec::new();
            for allocation in &allocations {
                let Some(number) = allocation.finalizers().iter().position(|name| name == FINALIZER) else {
                    continue;
                };
                let place = format!("/metadata/finalizers/{number}");
                let removal = json!([
                    { "op": "test", "path": place, "value": FINALIZER },
                    { "op": "remove", "path": place },
                ]);
                let name = allocation.name_any();
                let removal: Patch<()> = Patch::Json(serde_json::from_value(removal)?);
                match api.patch(&name, &PatchParams::default(), &removal).await {
                    Ok(_) => count += 1,
                    Err(error) if is(&error, 404) => {}
                    Err(error) => left.push(format!("{name}: {error}")),
                }
            }
            ensure!(left.is_empty(), "finalizers are left: {}", left.join("; "));
            Ok(())
        })
        .await?;
        say(&format!("finalizers: taken off {count} allocations"));
        Ok(())
    }

    /// Tries until it is so; what it still is when the time is over is the error.
    async fn wait(&self, mut check: impl AsyncFnMut() -> Result<()>) -> Result<()> {
        let mut told = String::new();
        loop {
            let checked = check().await;
            if let Err(error) = &checked
                && told != error.to_string()
            {
                told = error.to_string();
                say(&format!("waiting: {told}"));
            }
            match checked {
                Err(error) if Instant::now() >= self.until => {
                    let seconds = self.settings.timeout;
                    return Err(error)
                        .with_context(|| format!("gave up after {seconds} s; run it again to go on"));
                }
                Err(_) => sleep(POLL).await,
                done => return done,
            }
        }
    }
}

fn holder(spec: &LeaseSpec) -> &str {
    spec.holder_identity.as_deref().unwrap_or_default()
}

/// An allocation that is still there, and what its status says of it.
fn progress(allocation: &DynamicObject) -> String {
    let ips = allocation.data["status"]["ips"].as_array().into_iter().flatten();
    let words = ips.filter_map(|ip| Some(format!("{} {}", ip["address"].as_str()?, ip["message"].as_str()?)));
    format!("{} ({})", allocation.name_any(), words.collect::<Vec<_>>().join(", "))
}

/// Whether a pod or template has the requirement from us; what somebody else wrote, the controller leaves.
fn is_ours(metadata: Option<&ObjectMeta>, spec: Option<&PodSpec>) -> bool {
    let mark = metadata.and_then(|meta| meta.annotations.as_ref()?.get(ANNOTATION_INJECTED));
    let affinity = spec.and_then(|spec| serde_json::to_value(spec.affinity.as_ref()?).ok());
    affinity.is_some_and(|affinity| webhook::affinity::is_ours(mark.map(String::as_str), &affinity))
}

fn full_name<K: kube::Resource<DynamicType = ()>>(object: &K) -> String {
    format!("{} {}/{}", K::kind(&()), object.namespace().unwrap_or_default(), object.name_any())
}

fn is(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// One line of progress; nobody has to read it.
fn say(line: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stdout(), "{line}");
}
