//! The servers that are measured, each in a process of its own.

use crate::reviews;
use anyhow::{Context as _, Result, bail};
use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use serde_json::json;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::Stdio;
use std::sync::Arc;
use telemetry::Telemetry;
use telemetry::server::ServerMetrics;
use telemetry::webhook::Metrics;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use webhook::server::{Limits, Shutdown, listen};
use webhook::state::State;

/// What is served.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// The same bytes, whatever is asked.
    Fixed,
    /// The same bytes with the patch that ours makes; the API server wants its uid back, so that is read.
    FixedPatch,
    /// Ours, with so many indexed addresses.
    Ours(usize),
}

impl Kind {
    pub fn parse(text: &str) -> Result<Self> {
        if text == "fixed" {
            return Ok(Self::Fixed);
        }
        if text == "fixed-patch" {
            return Ok(Self::FixedPatch);
        }
        Ok(Self::Ours(text.parse().with_context(|| format!("{text:?} is neither fixed nor a number"))?))
    }

    fn argument(self) -> String {
        match self {
            Self::Fixed => "fixed".to_owned(),
            Self::FixedPatch => "fixed-patch".to_owned(),
            Self::Ours(size) => size.to_string(),
        }
    }

    fn router(self, telemetry: &Telemetry) -> Result<Router> {
        match self {
            Self::Fixed => {
                let answer = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","allowed":true}}"#;
                // It reads the body, as everybody has to.
                let fixed = async move |_: Bytes| ([("Content-Type", "application/json")], answer);
                Ok(["/mutate-pods", "/validate-allocations"]
                    .into_iter()
                    .fold(Router::new(), |router, path| router.route(path, post(fixed))))
            }
            Self::FixedPatch => Ok(Router::new().route("/mutate-pods", post(fixed_patch))),
            Self::Ours(size) => {
                let state = Arc::new(State::new(BTreeSet::new(), Metrics::new(telemetry)?));
                for number in 0..size.div_ceil(20) {
                    state.with_index(|index| {
                        index.apply_allocation(&format!("a{number}"), &reviews::spec(number), false);
                    });
                }
                state.allocations_listed();
                state.follows("default", webhook::state::Following::Begun);
                state.follows("default", webhook::state::Following::Listed);
                Ok(webhook::router(&state))
            }
        }
    }
}

async fn fixed_patch(body: Bytes) -> ([(&'static str, &'static str); 1], String) {
    let patch = json!([{ "op": "add", "path": "/spec/affinity", "value": {
        "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [{ "matchExpressions": [
            { "key": "ip.ready", "operator": "In", "values": ["true"] },
            { "key": "netinfra.darkbrains.com/allocation", "operator": "In", "values": ["a0"] },
        ]}]}},
    }}]);
    let patch = STANDARD.encode(patch.to_string());
    let text = String::from_utf8_lossy(&body);
    let uid =
        text.split_once("\"uid\":\"").and_then(|(_, rest)| rest.split_once('"')).map_or("", |(uid, _)| uid);
    let answer = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{{"uid":"{uid}","allowed":true,"patchType":"JSONPatch","patch":"{patch}"}}}}"#
    );
    ([("Content-Type", "application/json")], answer)
}

#[derive(Debug)]
struct One(Arc<CertifiedKey>);

impl ResolvesServerCert for One {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// Serves until standard input ends: prints the port and the certificate, then waits.
pub async fn serve(kind: Kind) -> Result<()> {
    let key = rcgen::KeyPair::generate()?;
    let certificate = rcgen::CertificateParams::new(["127.0.0.1".to_owned()])?.self_signed(&key)?;
    let private = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
    let signing = rustls::crypto::aws_lc_rs::sign::any_supported_type(&private)?;
    let resolver = Arc::new(One(Arc::new(CertifiedKey::new(vec![certificate.der().clone()], signing))));
    let telemetry = Telemetry::new(None)?;
    let router = kind.router(&telemetry)?;
    let listener = listen("bench", "127.0.0.1:0".parse()?).await?;
    println!("{} {}", listener.local_addr()?.port(), STANDARD.encode(certificate.der()));
    std::io::stdout().flush()?;
    let metrics = ServerMetrics::register(&telemetry)?;
    tokio::spawn(webhook::server::serve(
        listener,
        router,
        resolver,
        Limits::default(),
        metrics,
        Shutdown::default(),
    ));
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await??;
    Ok(())
}

/// A server that runs; it ends with this.
pub struct Server {
    child: Child,
    pub port: u16,
    pub certificate: CertificateDer<'static>,
}

impl Server {
    pub async fn start(kind: Kind) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", &kind.argument()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = child.stdout.take().context("no output")?;
        let line = BufReader::new(stdout).lines().next_line().await?.context("the server did not start")?;
        let Some((port, certificate)) = line.split_once(' ') else { bail!("{line:?}") };
        let certificate = CertificateDer::from(STANDARD.decode(certificate)?);
        Ok(Self { child, port: port.parse()?, certificate })
    }

    /// The certificate as the API server takes it.
    pub fn pem(&self) -> String {
        let text = STANDARD.encode(&self.certificate);
        format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
    }

    /// CPU seconds that it has used so far.
    pub fn cpu(&self) -> Result<f64> {
        let id = self.child.id().context("it has ended")?;
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
        let after = stat.rsplit_once(')').context("an odd stat")?.1;
        let ticks = |field: usize| -> Result<f64> {
            Ok(after.split_whitespace().nth(field).context("an odd stat")?.parse::<f64>()?)
        };
        // 100 ticks a second on every Linux of the last decades.
        Ok((ticks(11)? + ticks(12)?) / 100.0)
    }
}
