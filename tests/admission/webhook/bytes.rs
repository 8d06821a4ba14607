//! Bytes that the API server would not send, over real TLS: an answer in the four hundreds or a refusal,
//! and a process that goes on.

use super::kit::{Guarded, guarded, works};
use anyhow::{Context as _, Result, ensure};
use cluster::Version;
use cluster::harness::Bed;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::client::Body;
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use std::sync::Arc;

/// A client of the webhook itself that trusts what the API server trusts.
async fn client(guarded: &Guarded) -> Result<Client> {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(guarded.cluster.client());
    let configuration = api.get("ip-address-controller").await?;
    let webhook = configuration.webhooks.unwrap_or_default().into_iter().next().context("no webhook")?;
    let bundle = webhook.client_config.ca_bundle.context("no caBundle")?;
    let url = format!("https://127.0.0.1:{}", guarded.hook.port);
    let mut config = Config::new(url.parse()?);
    let pem = String::from_utf8(bundle.0)?;
    config.root_cert = Some(
        pem.split_inclusive("-----END CERTIFICATE-----")
            .filter(|part| part.contains("BEGIN"))
            .map(|part| {
                use rustls::pki_types::pem::PemObject as _;
                Ok(rustls::pki_types::CertificateDer::from_pem_slice(part.as_bytes())?.to_vec())
            })
            .collect::<Result<_>>()?,
    );
    Ok(Client::try_from(config)?)
}

async fn send(client: &Client, method: &str, path: &str, kind: &str, body: Vec<u8>) -> Result<(u16, String)> {
    use http_body_util::BodyExt as _;
    let request = http::Request::builder().method(method).uri(path).header("Content-Type", kind);
    let response = client.send(request.body(Body::from(body))?).await?;
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
}

fn review(operation: &str, object: &Value) -> Value {
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u-1", "operation": operation, "object": object, "oldObject": object, "namespace": "n",
        "resource": { "group": "netinfra.darkbrains.com", "version": "v1alpha1", "resource": "netipallocations" },
    }})
}

fn hostile() -> Vec<(&'static str, Vec<u8>)> {
    let good = review("CREATE", &json!({ "metadata": { "name": "x" }, "spec": {} }));
    let with = |path: &str, value: Value| {
        let mut review = good.clone();
        *review.pointer_mut(path).unwrap_or(&mut Value::Null) = value;
        review.to_string().into_bytes()
    };
    let text = good.to_string();
    let mut not_utf8 = text.clone().into_bytes();
    not_utf8[5] = 0xff;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    vec![
        ("v1beta1", with("/apiVersion", json!("admission.k8s.io/v1beta1"))),
        ("empty", Vec::new()),
        ("no uid", with("/request/uid", json!(""))),
        ("no request", with("/request", Value::Null)),
        ("no object", with("/request/object", Value::Null)),
        ("DELETE", with("/request/operation", json!("DELETE"))),
        ("DELETE with null object", {
            let mut review = review("DELETE", &Value::Null);
            review["request"]["oldObject"] = json!({ "metadata": { "name": "x" } });
            review.to_string().into_bytes()
        }),
        ("deep", deep.clone().into_bytes()),
        ("deep inside", text.replace(r#""spec":{}"#, &format!(r#""spec":{deep}"#)).into_bytes()),
        ("a key twice", text.replace(r#""uid":"u-1""#, r#""uid":"u-1","uid":"u-2""#).into_bytes()),
        ("a key of the spec twice", text.replace(r#""spec":{}"#, r#""spec":{"a":1,"a":2}"#).into_bytes()),
        ("not UTF-8", not_utf8),
        ("8 MiB of nothing", vec![b' '; 8 << 20]),
        ("8 MiB of text", format!("\"{}\"", "x".repeat((8 << 20) - 2)).into_bytes()),
    ]
}

pub async fn what_is_no_review_is_refused_and_nothing_falls_over(_: Arc<Bed>) -> Result<()> {
    let guarded = guarded(Version::Newest).await?;
    let client = client(guarded).await?;
    let pid = guarded.hook.process.id();
    for path in ["/mutate-allocations", "/validate-allocations", "/mutate-pods"] {
        for (what, body) in hostile() {
            let (status, answer) = send(&client, "POST", path, "application/json", body)
                .await
                .with_context(|| format!("{path}: {what}"))?;
            ensure!((400..500).contains(&status), "{path}: {what}: {status} {answer}");
        }
        // Above the limit the answer comes while the body is still being sent, which not every client reads.
        if let Ok((status, _)) = send(&client, "POST", path, "application/json", vec![b' '; 9 << 20]).await {
            ensure!(status == 413, "{status}");
        }
        let (status, _) = send(&client, "GET", path, "application/json", Vec::new()).await?;
        ensure!(status == 405, "{status}");
        let body = review("CREATE", &json!({})).to_string().into_bytes();
        let (status, _) = send(&client, "POST", path, "text/plain", body).await?;
        ensure!(status == 415, "{status}");
    }
    // A spec of the wrong type is a refusal with a reason, not an error.
    let body = review("CREATE", &json!({ "metadata": { "name": "x" }, "spec": 7 })).to_string();
    let (status, answer) =
        send(&client, "POST", "/mutate-allocations", "application/json", body.into_bytes()).await?;
    let answer: Value = serde_json::from_str(&answer).with_context(|| answer.clone())?;
    ensure!(status == 200 && answer["response"]["allowed"] == false, "{status} {answer}");
    ensure!(answer["response"]["uid"] == "u-1", "{answer}");
    guarded.hook.process.check_running()?;
    ensure!(guarded.hook.process.id() == pid, "it was restarted");
    ensure!(!guarded.hook.log()?.contains("panicked"), "something panicked");
    works(&guarded.cluster).await
}

/// Three bodies that once took 200 to 500 MiB each. They are answered with a refusal, or cut off for their
/// size, and the process stays as small as it was.
pub async fn hostile_bodies_cost_little_memory(_: Arc<Bed>) -> Result<()> {
    let guarded = super::kit::start(Version::Newest).await?;
    let client = client(&guarded).await?;
    let before = peak_kib(&guarded)?;
    for path in ["/mutate-allocations", "/validate-allocations"] {
        for (what, body) in trees() {
            // Above the limit the answer comes while the body is still being sent.
            if let Ok((status, answer)) = send(&client, "POST", path, "application/json", body).await {
                ensure!(
                    status == 413 || status == 400 || answer.contains("\"allowed\":false"),
                    "{path}: {what}: {status} {answer}"
                );
            }
        }
    }
    // The limit itself: what an honest request never has is not even read, what it may have is.
    for (kib, expected) in [(300, 200), (1500, 413)] {
        let object = json!({
            "metadata": { "name": "x" }, "status": { "text": "x".repeat(kib << 10) },
            "spec": { "reservedIPs": ["203.0.113.9"], "cloud": { "provider": "gcp" } },
        });
        let body = review("CREATE", &object).to_string().into_bytes();
        match send(&client, "POST", "/mutate-allocations", "application/json", body).await {
            Ok((status, answer)) => ensure!(status == expected, "{kib} KiB: {status} {answer}"),
            // Above the limit the answer comes while the body is still being sent.
            Err(error) => ensure!(expected == 413, "{kib} KiB: {error:#}"),
        }
    }
    let more = peak_kib(&guarded)?.saturating_sub(before);
    println!("memory: {} MiB before, at most {} MiB more", before >> 10, more >> 10);
    ensure!(more < 64 << 10, "{} MiB more", more >> 10);
    guarded.hook.process.check_running()?;
    works(&guarded.cluster).await
}

/// Lists of tiny objects, in the spec and where nobody looks: as large as the limit lets pass, and larger.
fn trees() -> Vec<(String, Vec<u8>)> {
    let list = |bytes: usize| format!("[{}{{}}]", "{\"\":0},".repeat(bytes / 7));
    let object = |fields: String| format!("{{\"metadata\":{{\"name\":\"x\"}},{fields}}}");
    let review = |object: &str| {
        let mut review = review("UPDATE", &json!({}));
        review["request"]["object"] = json!("OBJECT");
        review["request"]["oldObject"] = json!("OLD");
        review.to_string().replace("\"OBJECT\"", object).replace("\"OLD\"", "{\"spec\":{}}")
    };
    let mut bodies = Vec::new();
    for bytes in [1_000_000, 1 << 20, 1_700 << 10] {
        for field in ["spec", "status", "metadata"] {
            let text = match field {
                "metadata" => {
                    format!("{{\"metadata\":{{\"name\":\"x\",\"managedFields\":{}}}}}", list(bytes))
                }
                "status" => object(format!("\"spec\":7,\"status\":{}", list(bytes))),
                _ => object(format!("\"spec\":{}", list(bytes))),
            };
            bodies.push((format!("{bytes} bytes of {field}"), review(&text).into_bytes()));
        }
    }
    bodies
}

/// The most memory that the process has ever held.
fn peak_kib(guarded: &Guarded) -> Result<u64> {
    let pid = guarded.hook.process.id().context("it does not run")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}
