//! A cluster with a webhook process beside it, and words that the tests share.

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use cluster::{Cluster, Process, Version, eventually, free_port};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use std::path::PathBuf;
use tokio::sync::OnceCell;

/// Namespace of the webhook, and its service account.
pub const NAMESPACE: &str = "ip-address-controller";
pub const ACCOUNT: &str = "ip-address-controller-webhook";
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A cluster and the webhook process that guards it.
pub struct Guarded {
    pub cluster: Cluster,
    pub hook: Hook,
}

/// The cluster of a version that all tests share. Tests run at the same time, so each has names and
/// addresses of its own.
pub async fn guarded(version: Version) -> Result<&'static Guarded> {
    static OLDEST: OnceCell<Result<Guarded, String>> = OnceCell::const_new();
    static NEWEST: OnceCell<Result<Guarded, String>> = OnceCell::const_new();
    let cell = match version {
        Version::Oldest => &OLDEST,
        Version::Newest => &NEWEST,
    };
    let started = async || start(version).await.map_err(|error| format!("{error:#}"));
    cell.get_or_init(started).await.as_ref().map_err(|error| anyhow!("{error}"))
}

/// A cluster with a webhook of its own, for a test that hurts it.
pub async fn start(version: Version) -> Result<Guarded> {
    let cluster = bare(version).await?;
    allow(&cluster, "webhook-self-registration").await?;
    let hook = Hook::start(&cluster, &Registration::Own).await?;
    works(&cluster).await?;
    Ok(Guarded { cluster, hook })
}

/// A cluster with CRDs, the webhook's namespace and its role.
pub async fn bare(version: Version) -> Result<Cluster> {
    let cluster = Cluster::builder().version(version).start().await?;
    cluster.install_crds().await?;
    cluster.kubectl(&["create", "namespace", NAMESPACE]).await?.ok()?;
    account(&cluster).await?;
    Ok(cluster)
}

/// The webhook's account, with the rights of deploy/rbac and no others.
async fn account(cluster: &Cluster) -> Result<()> {
    allow(cluster, "webhook").await?;
    allow(cluster, "certs").await
}

/// The same, and what `WEBHOOK_URL` needs.
pub async fn allow_all(cluster: &Cluster) -> Result<()> {
    account(cluster).await?;
    allow(cluster, "webhook-self-registration").await
}

/// Gives the webhook's account what a manifest of deploy/ allows.
async fn allow(cluster: &Cluster, manifest: &str) -> Result<()> {
    cluster.kubectl(&["apply", "-f", &format!("{ROOT}/deploy/rbac/{manifest}.yaml")]).await?.ok()?;
    Ok(())
}

/// Who makes the webhook configurations.
#[derive(PartialEq)]
pub enum Registration {
    /// The process itself (`WEBHOOK_URL`).
    Own,
    /// Somebody else.
    Others,
}

/// The webhook process.
pub struct Hook {
    pub process: Process,
    pub port: u16,
    pub health_port: u16,
    pub metrics_port: u16,
    log: PathBuf,
}

impl Hook {
    pub async fn start(cluster: &Cluster, registration: &Registration) -> Result<Self> {
        let (port, health_port, metrics_port) = (free_port()?, free_port()?, free_port()?);
        let kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, ACCOUNT).await?;
        let mut env = vec![
            ("KUBECONFIG", kubeconfig.display().to_string()),
            ("POD_NAMESPACE", NAMESPACE.to_owned()),
            ("WEBHOOK_ADDR", format!("127.0.0.1:{port}")),
            ("HEALTH_ADDR", format!("127.0.0.1:{health_port}")),
            ("METRICS_PORT", metrics_port.to_string()),
            ("WEBHOOK_DRAIN_SECONDS", "1".to_owned()),
            ("RUST_LOG", "info,webhook=debug".to_owned()),
        ];
        match registration {
            Registration::Own => {
                env.push(("WEBHOOK_URL", format!("https://127.0.0.1:{port}")));
                env.push(("WEBHOOK_UNREGISTER", "true".to_owned()));
            }
            Registration::Others => env.push(("WEBHOOK_NAMES", "127.0.0.1".to_owned())),
        }
        let name = format!("webhook-{port}");
        let binary = env!("CARGO_BIN_EXE_ip-address-controller").as_ref();
        let process = cluster.launch(&name, binary, &["webhook"], env)?;
        let log = cluster.folder().join(format!("{name}.log"));
        Ok(Self { process, port, health_port, metrics_port, log })
    }

    /// What `/readyz` says, and its status code.
    pub async fn readyz(&self) -> Result<(u16, String)> {
        get(self.health_port, "/readyz").await
    }

    pub async fn metrics(&self) -> Result<String> {
        Ok(get(self.metrics_port, "/metrics").await?.1)
    }

    pub fn log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(&self.log)?)
    }
}

/// A plain HTTP request on loopback.
pub async fn get(port: u16, path: &str) -> Result<(u16, String)> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok()).context("no status")?;
    Ok((status, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()))
}

/// Waits until the API server asks the webhook, and trusts it.
pub async fn works(cluster: &Cluster) -> Result<()> {
    let mut bad = crate::requests::allocation("is-the-webhook-there");
    bad["spec"]["reservedIPs"] = json!(["not an address"]);
    eventually("the webhook to be asked", async || {
        let answer = crate::requests::refusal(crate::requests::create(cluster, &bad).await)?.message;
        ensure!(answer.contains("denied the request"), "{answer}");
        Ok(())
    })
    .await
}

/// Makes a namespace, and waits for its service account: before it is there, no pod can be made.
pub async fn namespace(cluster: &Cluster, name: &str) -> Result<()> {
    cluster.kubectl(&["create", "namespace", name]).await?.ok()?;
    let api: Api<k8s_openapi::api::core::v1::ServiceAccount> = Api::namespaced(cluster.client(), name);
    eventually("the service account", async || Ok(api.get("default").await.map(drop)?)).await
}

/// An allocation of a workload.
pub fn allocation(name: &str, addresses: &[&str], workload: &Value) -> Value {
    let mut object = crate::requests::allocation(name);
    object["spec"]["reservedIPs"] = json!(addresses);
    if !workload.is_null() {
        object["spec"]["workloadRef"] = workload.clone();
    }
    object
}

pub fn reference(kind: &str, namespace: &str, name: &str) -> Value {
    json!({ "kind": kind, "name": name, "namespace": namespace })
}

/// A pod of a StatefulSet, which need not exist.
pub fn pod_of(kind: &str, owner: &str) -> Value {
    let owner = json!({ "apiVersion": "apps/v1", "kind": kind, "name": owner, "controller": true,
                        "uid": "00000000-0000-0000-0000-000000000001" });
    let mut pod = bare_pod();
    pod["metadata"]["ownerReferences"] = json!([owner]);
    pod
}

pub fn bare_pod() -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "generateName": "pod-" },
            "spec": { "containers": [{ "name": "main", "image": "none" }] } })
}

pub fn api(client: Client, namespace: &str, group: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    Api::namespaced_with(client, namespace, &resource)
}

/// What a pod would become, without making it.
pub async fn dry_run(cluster: &Cluster, namespace: &str, pod: &Value) -> Result<Value> {
    let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    let request = http::Request::post(path).header("Content-Type", "application/json");
    Ok(cluster.client().request(request.body(serde_json::to_vec(pod)?)?).await?)
}

/// The allocations that the requirement of a pod names, in the order of its terms.
pub fn required(pod: &Value) -> Vec<Vec<String>> {
    let terms = pod.pointer(
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms",
    );
    let names = |term: &Value| {
        let expressions = term["matchExpressions"].as_array()?;
        let ready = expressions.iter().any(|e| e["key"] == "ip.ready" && e["values"] == json!(["true"]));
        let ours = expressions.iter().find(|e| e["key"] == "netinfra.darkbrains.com/allocation")?;
        let names = ours["values"].as_array()?.iter().filter_map(|name| name.as_str().map(str::to_owned));
        ready.then(|| names.collect())
    };
    terms.and_then(Value::as_array).into_iter().flatten().filter_map(names).collect()
}

/// Waits until pods of a workload get exactly these allocations.
pub async fn injects(cluster: &Cluster, namespace: &str, set: &str, names: &[&str]) -> Result<()> {
    eventually(&format!("pods of {namespace}/{set} to be sent to {names:?}"), async || {
        let pod = dry_run(cluster, namespace, &pod_of("StatefulSet", set)).await?;
        let expected = if names.is_empty() { vec![] } else { vec![names.to_vec()] };
        ensure!(required(&pod) == expected, "{}", pod["spec"]["affinity"]);
        Ok(())
    })
    .await
}

/// The pod webhook's namespaceSelector.
pub async fn selector(cluster: &Cluster) -> Result<Value> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    let configuration = serde_json::to_value(api.get("ip-address-controller").await?)?;
    let webhooks = configuration["webhooks"].as_array().context("no webhooks")?;
    let pods = webhooks.iter().find(|webhook| webhook["name"] == "pods.netinfra.darkbrains.com");
    Ok(pods.context("no pod webhook")?["namespaceSelector"].clone())
}

/// Waits until the selector has a namespace, or has it no longer.
pub async fn selects(cluster: &Cluster, namespace: &str, yes: bool) -> Result<()> {
    eventually(&format!("the selector to have {namespace}: {yes}"), async || {
        let selector = selector(cluster).await?;
        let values = selector.pointer("/matchExpressions/0/values").and_then(Value::as_array);
        let has = values.is_some_and(|values| values.contains(&json!(namespace)));
        ensure!(has == yes, "{selector}");
        Ok(())
    })
    .await
}

pub async fn apply(cluster: &Cluster, object: &Value) -> Result<()> {
    cluster.kubectl_with_input(&["apply", "-f", "-"], &object.to_string()).await?.ok()?;
    Ok(())
}

/// The pods with a label `app`, by name, when there are so many and all of them run.
pub async fn running(cluster: &Cluster, namespace: &str, app: &str, count: usize) -> Result<Vec<Value>> {
    let api = api(cluster.client(), namespace, "", "Pod");
    eventually(&format!("{count} running pods of {app}"), async || {
        let pods = api.list(&ListParams::default().labels(&format!("app={app}"))).await?.items;
        ensure!(pods.len() == count, "there are {}", pods.len());
        let pods: Vec<Value> = pods.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
        for pod in &pods {
            ensure!(pod["status"]["phase"] == "Running", "{}", pod["status"]);
            ensure!(pod["metadata"]["deletionTimestamp"].is_null(), "terminating");
        }
        Ok(pods)
    })
    .await
}

/// Sets labels, or finalizers, or anything else, by a merge patch.
pub async fn merge(cluster: &Cluster, name: &str, patch: &Value) -> Result<Value> {
    let patched =
        crate::requests::api(cluster).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(serde_json::to_value(patched)?)
}

/// Runs kubectl with an editor or other environment.
pub async fn kubectl_with_env(cluster: &Cluster, args: &[&str], env: &[(&str, &str)]) -> Result<String> {
    let output = tokio::process::Command::new(cluster.kubectl_path())
        .args(args)
        .env("KUBECONFIG", cluster.admin_kubeconfig())
        .env("KUBECACHEDIR", cluster.folder().join("kubectl-cache"))
        .envs(env.iter().copied())
        .output()
        .await?;
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        bail!("kubectl {args:?} failed: {text}");
    }
    Ok(text)
}

/// Namespaces are removed by nobody here; allocations are, so that addresses are free again.
pub async fn forget(cluster: &Cluster, names: &[&str]) -> Result<()> {
    for name in names {
        crate::requests::remove(cluster, name).await?;
    }
    Ok(())
}
