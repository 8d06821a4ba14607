//! Schema and parser say the same of any text, and what they accept can be asked for: every request that
//! controller and webhook make of it is one that the API server understands.

use crate::requests::{allocation, create_dry, set};
use anyhow::{Context as _, Result, bail, ensure};
use cluster::harness::Bed;
use cluster::{Cluster, NodeSpec, Provider, Version};
use kube::Client;
use kube::client::Body;
use plan::parse::{Place, check_name, parse};
use serde_json::{Value, json};
use std::sync::Arc;

/// How many specs are tried on each API server; `SEED` repeats a run.
const SPECS: usize = 300;

/// Pieces of names: what people write, what breaks URLs and selectors, and what is fine.
const PIECES: &[&str] = &[
    "web",
    "prod",
    "a",
    "b2",
    "x-y",
    "1",
    "-",
    ".",
    "..",
    "_",
    " ",
    "\t",
    "\n",
    "/",
    ",",
    "=",
    "!",
    "%",
    "%20",
    "?",
    "#",
    "&",
    ";",
    ":",
    "\\",
    "\"",
    "'",
    "(",
    ")",
    "{{ .Values.ns }}",
    "${X}",
    "A",
    "Prod",
    "é",
    "日本",
    "\u{1F600}",
    "\u{0}",
    "\u{200B}",
    "kubernetes.io",
    "example.com/",
    "a/b",
];

fn text(random: &mut fastrand::Rng) -> String {
    match random.u8(0..10) {
        0 => "n".repeat(random.usize(60..67)),
        1 => "w.".repeat(random.usize(124..129)) + "w",
        2 => String::new(),
        // Mostly fine: otherwise next to nothing would be accepted.
        3..=6 => ["web", "prod", "web.v2", "a-1", "n1"][random.usize(0..5)].to_owned(),
        _ => (0..random.usize(1..4)).map(|_| PIECES[random.usize(0..PIECES.len())]).collect(),
    }
}

/// Where a text goes, and what is made of it.
type Setting = (&'static str, fn(String) -> Value);

/// A spec with such texts wherever a text ends up in a request.
fn spec(random: &mut fastrand::Rng) -> Value {
    let mut spec = json!({ "reservedIPs": ["203.0.113.77"], "cloud": { "provider": "gcp" } });
    let kind = ["Deployment", "StatefulSet", "DaemonSet"][random.usize(0..3)];
    let places: &[Setting] = &[
        ("/nodeSelector", |text| json!({ text: "x" })),
        ("/nodeSelector", |text| json!({ "role": text })),
        ("/cloud/region", |text| json!(text)),
        ("/cloud/zones", |text| json!(["a", text])),
        ("/tolerations", |text| json!([{ "key": text, "operator": "Exists" }])),
        ("/tolerations", |text| json!([{ "key": "k", "value": text }])),
        ("/deploymentRef", |text| json!({ "name": text, "namespace": "default" })),
        ("/deploymentRef", |text| json!({ "name": "web", "namespace": text })),
        (
            "/nodeSelectorTerms",
            |text| json!([{ "matchExpressions": [{ "key": text, "operator": "Exists" }] }]),
        ),
        (
            "/nodeSelectorTerms",
            |text| json!([{ "matchExpressions": [{ "key": "a", "operator": "NotIn", "values": ["x", text] }] }]),
        ),
        (
            "/nodeSelectorTerms",
            |text| json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [text] }] }]),
        ),
    ];
    if random.bool() {
        let (place, value) = places[random.usize(0..places.len())];
        set(&mut spec, place, value(text(random)));
    }
    if spec.get("deploymentRef").is_none() && random.u8(0..4) > 0 {
        spec["workloadRef"] = json!({ "kind": kind, "name": text(random), "namespace": text(random) });
    }
    spec
}

/// An integer is a value for Gt and Lt, and the schema does not tell operators apart.
fn is_integer_with_sign(spec: &Value) -> bool {
    let values = spec.pointer("/nodeSelectorTerms/0/matchExpressions/0/values/1").and_then(Value::as_str);
    values.is_some_and(|value| value.starts_with(['-', '+']) && value.parse::<i64>().is_ok())
}

pub async fn schema_and_parser_agree_and_what_they_accept_can_be_asked_for(
    bed: Arc<Bed>,
    version: Version,
) -> Result<()> {
    let cluster = bed.cluster(version).await?;
    let seed =
        std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("SEED={seed} on Kubernetes {}", version.number());
    let mut random = fastrand::Rng::with_seed(seed);
    let node = format!("labelled-{}", random.u32(..));
    cluster.nodes().create(NodeSpec::new(Provider::Gcp, &node, 0)).await?;
    let (mut accepted, mut refused) = (0, 0);
    for number in 0..SPECS {
        let spec = spec(&mut random);
        let mut object = allocation("sample");
        object["spec"] = spec.clone();
        let what = format!("SEED={seed}, number {number}: {spec}");
        let parsed = parse(&spec);
        let by_schema = create_dry(cluster, &object).await;
        match (&parsed, by_schema) {
            (Ok(_), Ok(_)) => accepted += 1,
            (Err(_), Err(_)) => refused += 1,
            (Err(_), Ok(_)) if is_integer_with_sign(&spec) => refused += 1,
            (Ok(_), Err(error)) => bail!("the schema alone refuses {what}: {error:#}"),
            (Err(faults), Ok(_)) => bail!("the parser alone refuses {what}: {faults:?}"),
        }
        if let Ok(spec) = parsed {
            asked_for(cluster, &spec).await.context(what)?;
        }
        let name = text(&mut random);
        if check_name(&name).is_ok() {
            label(cluster, &node, &name).await.with_context(|| format!("SEED={seed}: name {name:?}"))?;
        }
    }
    ensure!(accepted > SPECS / 5 && refused > SPECS / 5, "{accepted} accepted, {refused} refused");
    Ok(())
}

/// The requests that are made of a valid spec.
async fn asked_for(cluster: &Cluster, spec: &plan::parse::Spec) -> Result<()> {
    let client = cluster.client();
    if let Some(workload) = &spec.workload {
        let (space, name) = (&workload.namespace, &workload.name);
        for kind in ["deployments", "statefulsets", "daemonsets"] {
            let path =
                format!("/apis/apps/v1/namespaces/{space}/{kind}?fieldSelector=metadata.name%3D{name}");
            answered(&client, "GET", &path, None).await?;
            answered(&client, "GET", &format!("/apis/apps/v1/namespaces/{space}/{kind}/{name}"), None)
                .await?;
        }
        answered(&client, "GET", &format!("/apis/apps/v1/namespaces/{space}/replicasets"), None).await?;
        answered(&client, "GET", &format!("/api/v1/namespaces/{space}/pods"), None).await?;
        selected(&client, space).await?;
    }
    for term in spec.terms.iter().flat_map(|term| &term.match_fields) {
        ensure!(term.values.iter().all(|name| Place::Node.fits(name)));
        let path = format!("/api/v1/nodes?fieldSelector=metadata.name%3D{}", term.values[0]);
        answered(&client, "GET", &path, None).await?;
    }
    for (key, value) in &spec.node_selector {
        let path = format!("/api/v1/nodes?labelSelector={}%3D{value}", key.replace('/', "%2F"));
        answered(&client, "GET", &path, None).await?;
    }
    tainted(&client, spec).await
}

/// A namespace is one that the pod webhook can be narrowed to.
async fn selected(client: &Client, namespace: &str) -> Result<()> {
    let requirement =
        json!({ "key": "kubernetes.io/metadata.name", "operator": "In", "values": ["default", namespace] });
    let object = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": "sample" },
        "webhooks": [{ "name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                       "clientConfig": { "url": "https://127.0.0.1:1/" },
                       "namespaceSelector": { "matchExpressions": [requirement] } }],
    });
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations?dryRun=All";
    answered(client, "POST", path, Some(&object)).await
}

/// A pod may have these tolerations and this affinity: they are made of what pods and nodes may have.
async fn tainted(client: &Client, spec: &plan::parse::Spec) -> Result<()> {
    let terms: Vec<Value> = spec.terms.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
    let mut pod = super::super::webhook::kit::bare_pod();
    pod["spec"]["tolerations"] = serde_json::to_value(spec.tolerations.clone().unwrap_or_default())?;
    pod["spec"]["nodeSelector"] = serde_json::to_value(&spec.node_selector)?;
    if !terms.is_empty() {
        let required =
            json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } });
        pod["spec"]["affinity"] = json!({ "nodeAffinity": required });
    }
    answered(client, "POST", "/api/v1/namespaces/default/pods?dryRun=All", Some(&pod)).await
}

/// A node can be labelled with the name of an allocation.
async fn label(cluster: &Cluster, node: &str, name: &str) -> Result<()> {
    let patch = json!({ "metadata": { "labels": { "netinfra.darkbrains.com/allocation": name } } });
    answered(&cluster.client(), "PATCH", &format!("/api/v1/nodes/{node}"), Some(&patch)).await
}

/// The API server understands it: whatever it says, it is not that the request is none.
async fn answered(client: &Client, method: &str, path: &str, body: Option<&Value>) -> Result<()> {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder().method(method).uri(path).header("Content-Type", kind);
    let request = request.body(Body::from(body.map_or(Vec::new(), |body| body.to_string().into_bytes())));
    let request = request.with_context(|| format!("{path} is no URL"))?;
    let response = client.send(request).await.with_context(|| path.to_owned())?;
    let status = response.status().as_u16();
    ensure!(status != 400 && status != 422 && status < 500, "{method} {path}: {status}");
    Ok(())
}
