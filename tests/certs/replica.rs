//! One replica: the real server, the real loop, a webhook that allows everything.

use crate::scene::Scene;
use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use certs::{Lifetimes, Manager, Resolver, Settings, Source, Target, manage};
use kube::Client;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use telemetry::Telemetry;
use telemetry::certs::CertMetrics;
use telemetry::server::ServerMetrics;
use tokio::task::JoinHandle;
use webhook::server::{self, Drained, Health, Limits, Shutdown};

/// What a test may want otherwise.
pub struct Options {
    pub source: Source,
    pub targets: Vec<Target>,
    pub names: Vec<String>,
    pub lifetimes: Lifetimes,
    pub limits: Limits,
    /// Whether every call needs a new handshake, so that trust is asked for again and again.
    pub handshake_per_call: bool,
}

pub struct Replica {
    pub address: SocketAddr,
    pub health: Health,
    pub resolver: Arc<Resolver>,
    pub certs: CertMetrics,
    pub server: ServerMetrics,
    shutdown: Shutdown,
    managing: JoinHandle<()>,
    serving: JoinHandle<Drained>,
}

impl Replica {
    pub async fn start(client: Client, options: Options) -> Result<Self> {
        let telemetry = Telemetry::new(None)?;
        let (certs, server) = (CertMetrics::register(&telemetry)?, ServerMetrics::register(&telemetry)?);
        let shutdown = Shutdown::default();
        let health = Health::new(&shutdown);
        let resolver = Arc::new(Resolver::default());
        let check = health.check("certificates");
        let manager = Manager {
            client,
            source: options.source,
            targets: options.targets,
            settings: Settings { names: options.names, lifetimes: options.lifetimes },
            resolver: Arc::clone(&resolver),
            metrics: certs.clone(),
            readiness: Arc::new(move |state| match state {
                Ok(()) => check.ready(),
                Err(why) => check.not_ready(why),
            }),
        };
        let listener = server::listen("webhook", "127.0.0.1:0".parse()?).await?;
        let address = listener.local_addr()?;
        let certificates: Arc<Resolver> = Arc::clone(&resolver);
        let serving = server::serve(
            listener,
            router(options.handshake_per_call),
            certificates,
            options.limits,
            server.clone(),
            shutdown.clone(),
        );
        let serving = tokio::spawn(async move { serving.await.expect("the server starts") });
        let managing = tokio::spawn(async move { match manage(manager).await {} });
        Ok(Self { address, health, resolver, certs, server, shutdown, managing, serving })
    }

    /// Starts with the scene's settings and stands behind its balancer.
    pub async fn join(scene: &Scene) -> Result<Self> {
        Self::join_with(scene, scene.options()).await
    }

    pub async fn join_with(scene: &Scene, options: Options) -> Result<Self> {
        let replica = Self::start(scene.client.clone(), options).await?;
        let health = replica.health.clone();
        scene.balancer.join(replica.address, move || std::future::ready(health.readiness().0));
        Ok(replica)
    }

    pub fn serial(&self) -> Option<String> {
        self.resolver.served_at(jiff::Timestamp::now()).map(|(leaf, _)| leaf.certificate.serial)
    }

    pub fn failures(&self, cause: &str) -> u64 {
        self.certs.failures.with_label_values(&[cause]).get()
    }

    pub fn rotations(&self, kind: &str) -> u64 {
        self.certs.rotations.with_label_values(&[kind]).get()
    }

    pub fn is_ready(&self) -> bool {
        self.health.readiness().0
    }

    /// As SIGTERM ends a process.
    pub async fn end(mut self) -> Result<Drained> {
        self.shutdown.drain();
        Ok((&mut self.serving).await?)
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.managing.abort();
        self.serving.abort();
    }
}

/// Allows everything, and leaves conversions as they are.
fn router(handshake_per_call: bool) -> Router {
    let connection = if handshake_per_call { "close" } else { "keep-alive" };
    let allow = async move |body: Bytes| {
        let review: Value = serde_json::from_slice(&body).expect("the API server sends JSON");
        let answer = json!({
            "apiVersion": review["apiVersion"], "kind": review["kind"],
            "response": { "uid": review["request"]["uid"], "allowed": true },
        });
        ([("connection", connection)], answer.to_string())
    };
    Router::new().route("/allow", post(allow))
}
