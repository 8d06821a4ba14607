//! A server under test and the clients of these tests.

use super::*;
use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::SendRequest;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use telemetry::Telemetry;
use telemetry::server::ServerMetrics;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub const NAME: &str = "webhook.test";

/// A running server.
pub struct Served {
    pub address: SocketAddr,
    pub metrics: ServerMetrics,
    pub shutdown: Shutdown,
    pub done: JoinHandle<Result<Drained, rustls::Error>>,
    pub trust: RootCertStore,
    /// Lets the handler of `/slow` answer.
    pub release: Arc<Notify>,
    /// How often a handler was called.
    pub calls: Arc<Mutex<usize>>,
}

#[derive(Debug)]
struct One(Arc<CertifiedKey>);

impl ResolvesServerCert for One {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

impl Served {
    /// With limits of the test's choice.
    pub async fn start(limits: Limits) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let cert = rcgen::CertificateParams::new(vec![NAME.to_owned()]).unwrap().self_signed(&key).unwrap();
        let mut trust = RootCertStore::empty();
        trust.add(cert.der().clone()).unwrap();
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let der = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let certified = CertifiedKey::from_der(vec![cert.der().clone()], der, &provider).unwrap();
        let listener = listen("test", "127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let metrics = ServerMetrics::register(&Telemetry::new(None).unwrap()).unwrap();
        let shutdown = Shutdown::default();
        let (release, calls) = (Arc::new(Notify::new()), Arc::new(Mutex::new(0)));
        let serving = serve(
            listener,
            router(&release, &calls),
            Arc::new(One(Arc::new(certified))),
            limits,
            metrics.clone(),
            shutdown.clone(),
        );
        Self {
            address,
            metrics,
            shutdown: shutdown.clone(),
            done: tokio::spawn(serving),
            trust,
            release,
            calls,
        }
    }

    pub async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A TLS connection as the API server makes it.
    pub async fn tls(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
        self.tls_with(self.client_config(&versions)).await
    }

    pub async fn tls_with(&self, config: ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(NAME).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, self.tcp().await).await
    }

    pub fn client_config(&self, versions: &[&'static rustls::SupportedProtocolVersion]) -> ClientConfig {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(self.trust.clone())
            .with_no_client_auth()
    }

    /// An HTTP connection that is kept.
    pub async fn http(&self) -> Caller {
        let stream = self.tls().await.unwrap();
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let closed = tokio::spawn(async move { drop(connection.await) });
        Caller { sender, closed }
    }

    /// Fails if an ordinary call does not get its ordinary answer.
    pub async fn works(&self) {
        let answer = self.http().await.post("/echo", "hello").await.unwrap();
        assert_eq!((answer.status(), answer.body().as_ref()), (StatusCode::OK, &b"hello"[..]));
    }

    pub fn refused(&self, reason: &str) -> u64 {
        self.metrics.refused.with_label_values(&[reason]).get()
    }

    pub fn handshakes(&self, outcome: &str) -> u64 {
        self.metrics.handshakes.with_label_values(&[outcome]).get()
    }
}

/// One kept connection of a client.
pub struct Caller {
    pub sender: SendRequest<Full<Bytes>>,
    /// Ends when the connection does.
    pub closed: JoinHandle<()>,
}

impl Caller {
    pub async fn post(
        &mut self,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<Response<Bytes>, hyper::Error> {
        self.send(Request::post(path).header("host", NAME).body(Full::new(body.into())).unwrap()).await
    }

    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, hyper::Error> {
        self.sender.ready().await?;
        let (parts, body) = self.sender.send_request(request).await?.into_parts();
        Ok(Response::from_parts(parts, body.collect().await?.to_bytes()))
    }
}

fn router(release: &Arc<Notify>, calls: &Arc<Mutex<usize>>) -> Router {
    let (release, count) = (Arc::clone(release), Arc::clone(calls));
    let slow = async move || {
        *count.lock().unwrap() += 1;
        release.notified().await;
        "at last"
    };
    Router::new()
        .route("/echo", post(async |body: Bytes| body))
        .route("/slow", post(slow))
        .route("/panic", post(async || -> &'static str { panic!("a handler that fails, on purpose") }))
}

/// Waits for something that other tasks are about to do.
pub async fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    for _ in 0..12_000 {
        if check() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited two minutes for: {what}");
}
