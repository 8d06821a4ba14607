//! The load: connections that are kept, each with one request at a time.

use crate::servers::Server;
use anyhow::{Context as _, Result, ensure};
use axum::body::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_rustls::TlsConnector;

pub struct Load {
    pub path: &'static str,
    pub body: Vec<u8>,
    pub concurrency: usize,
    pub requests: usize,
}

pub struct Figures {
    pub cpu_per_thousand: f64,
    latencies: Vec<Duration>,
}

impl Figures {
    pub fn new(cpu_per_thousand: f64, mut latencies: Vec<Duration>) -> Self {
        latencies.sort();
        Self { cpu_per_thousand, latencies }
    }

    pub fn percentile(&self, percent: usize) -> Duration {
        let place = (self.latencies.len() * percent / 100).min(self.latencies.len().saturating_sub(1));
        self.latencies.get(place).copied().unwrap_or_default()
    }
}

impl Load {
    /// A tenth first, uncounted.
    pub async fn run(&self, server: &Server) -> Result<Figures> {
        self.send(server, self.requests / 10).await?;
        let before = server.cpu()?;
        let latencies = self.send(server, self.requests).await?;
        let cpu = server.cpu()? - before;
        Ok(Figures::new(cpu * 1_000.0 / latencies.len() as f64, latencies))
    }

    async fn send(&self, server: &Server, requests: usize) -> Result<Vec<Duration>> {
        let mut roots = RootCertStore::empty();
        roots.add(server.certificate.clone())?;
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let connector = TlsConnector::from(Arc::new(config));
        let each = requests.div_ceil(self.concurrency);
        let body = Bytes::from(self.body.clone());
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..self.concurrency {
            tasks.spawn(connection(connector.clone(), server.port, self.path, body.clone(), each));
        }
        let mut all = Vec::with_capacity(requests);
        while let Some(latencies) = tasks.join_next().await {
            all.extend(latencies??);
        }
        Ok(all)
    }
}

async fn connection(
    connector: TlsConnector,
    port: u16,
    path: &str,
    body: Bytes,
    count: usize,
) -> Result<Vec<Duration>> {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    let stream = connector.connect(ServerName::try_from("127.0.0.1")?, stream).await.context("TLS")?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let mut latencies = Vec::with_capacity(count);
    for _ in 0..count {
        let request = http::Request::post(path)
            .header("Host", "127.0.0.1")
            .header("Content-Type", "application/json")
            .body(Full::new(body.clone()))?;
        let start = Instant::now();
        let response = sender.send_request(request).await?;
        let status = response.status();
        let answer = response.into_body().collect().await?.to_bytes();
        latencies.push(start.elapsed());
        ensure!(status == 200, "{status}: {answer:?}");
    }
    Ok(latencies)
}
