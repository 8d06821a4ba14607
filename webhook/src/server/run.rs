//! Accepting connections, and the end of a server.

use super::answer::Answerer;
use super::connection::{Watchdog, converse};
use super::places::{Phase, Place, Places};
use super::{Limits, Shutdown, tls};
use axum::Router;
use rustls::server::ResolvesServerCert;
use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use telemetry::server::ServerMetrics;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// How long to wait when the process has no file descriptor left.
const NO_DESCRIPTOR_LEFT: Duration = Duration::from_millis(50);

/// How often a draining server looks whether requests are still under way.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were cut off because they did not end in time, or a second signal came.
    pub cut_off: usize,
}

/// Serves a router over TLS until `shutdown`, then drains: for [`Limits::drain_grace`] everything goes
/// on, with `Connection: close` in every answer; then the listener and the idle connections are closed,
/// and what is being answered has [`Limits::drain_timeout`] to finish.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    certificates: Arc<dyn ResolvesServerCert>,
    limits: Limits,
    metrics: ServerMetrics,
    shutdown: Shutdown,
) -> Result<Drained, rustls::Error> {
    let acceptor = tls::acceptor(certificates)?;
    let server = Server::new(router, Some(acceptor), limits, Some(metrics), shutdown.clone());
    let mut connections = JoinSet::new();
    tokio::select! {
        never = server.accept(&listener, &mut connections) => match never {},
        () = shutdown.draining() => {}
    }
    let grace = tokio::time::sleep(server.limits.drain_grace);
    tokio::select! {
        never = server.accept(&listener, &mut connections) => match never {},
        () = grace => {}
        () = shutdown.aborted() => {}
    }
    drop(listener);
    Ok(server.close(connections).await)
}

/// Serves a router without TLS (health, metrics) until the future is dropped, which closes everything.
/// Probes have to be answered to the very end, so there is no drain.
pub async fn serve_plain(listener: TcpListener, router: Router, limits: Limits) -> Infallible {
    let server = Server::new(router, None, limits, None, Shutdown::default());
    server.accept(&listener, &mut JoinSet::new()).await
}

/// What all connections share.
struct Server {
    answerer: Arc<Answerer>,
    acceptor: Option<TlsAcceptor>,
    places: Arc<Places>,
    limits: Arc<Limits>,
    metrics: Option<ServerMetrics>,
    shutdown: Shutdown,
    closing: CancellationToken,
}

impl Server {
    fn new(
        router: Router,
        acceptor: Option<TlsAcceptor>,
        limits: Limits,
        metrics: Option<ServerMetrics>,
        shutdown: Shutdown,
    ) -> Arc<Self> {
        let answerer = Answerer::new(router, limits.clone(), metrics.clone(), shutdown.clone());
        Arc::new(Self {
            answerer: Arc::new(answerer),
            acceptor,
            places: Arc::default(),
            limits: Arc::new(limits),
            metrics,
            shutdown,
            closing: CancellationToken::new(),
        })
    }

    /// Accepts for ever.
    async fn accept(self: &Arc<Self>, listener: &TcpListener, connections: &mut JoinSet<()>) -> Infallible {
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => self.admit(stream, connections),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(NO_DESCRIPTOR_LEFT).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    /// Gives the connection a place, if there is one.
    fn admit(self: &Arc<Self>, stream: TcpStream, connections: &mut JoinSet<()>) {
        let taken = self.places.take(Phase::Handshake, self.limits.connections);
        let evicted = taken.as_ref().map_or(Some("newcomer"), |(_, evicted)| evicted.map(Phase::name));
        if let (Some(phase), Some(metrics)) = (evicted, &self.metrics) {
            metrics.evicted.with_label_values(&[phase]).inc();
        }
        let Ok((place, _)) = taken else { return };
        let open = Open::new(Arc::clone(self), place);
        connections.spawn(async move { open.talk(stream).await });
    }

    /// Waits for what is being answered, and closes what is idle last: a request may be on its way there.
    async fn close(&self, mut connections: JoinSet<()>) -> Drained {
        let all_ended = async {
            while self.places.busy() {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            self.closing.cancel();
            while connections.join_next().await.is_some() {}
        };
        tokio::select! {
            () = all_ended => {}
            () = tokio::time::sleep(self.limits.drain_timeout) => {}
            () = self.shutdown.aborted() => {}
        }
        let cut_off = connections.len();
        if cut_off > 0 {
            tracing::warn!(cut_off, "connections that had not ended were cut off");
        }
        connections.shutdown().await;
        Drained { cut_off }
    }
}

/// An open connection; its place is free again however it ends.
struct Open {
    server: Arc<Server>,
    place: Arc<Place>,
}

impl Open {
    fn new(server: Arc<Server>, place: Arc<Place>) -> Self {
        if let Some(metrics) = &server.metrics {
            metrics.connections.inc();
        }
        Self { server, place }
    }

    async fn talk(&self, stream: TcpStream) {
        // An answer is one small write; waiting for more would only delay it.
        let _ = stream.set_nodelay(true);
        let server = &self.server;
        let (place, answerer) = (Arc::clone(&self.place), Arc::clone(&server.answerer));
        match &server.acceptor {
            None => converse(stream, place, answerer, &server.limits, &server.closing).await,
            Some(acceptor) => {
                if let Some(stream) = self.handshake(acceptor, stream).await {
                    converse(stream, place, answerer, &server.limits, &server.closing).await;
                }
            }
        }
    }

    async fn handshake(
        &self,
        acceptor: &TlsAcceptor,
        stream: TcpStream,
    ) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
        let mut watchdog = Watchdog::new(Arc::clone(&self.place), &self.server.limits);
        let done = tokio::select! {
            biased;
            done = acceptor.accept(stream) => Some(done),
            () = poll_fn(|cx| watchdog.poll(cx)) => None,
        };
        let (stream, outcome) = match done {
            Some(Ok(stream)) => (Some(stream), "ok"),
            Some(Err(error)) => (None, tls::outcome(&error)),
            None if self.place.evicted.is_cancelled() => (None, "evicted"),
            None => (None, "timeout"),
        };
        if let Some(metrics) = &self.server.metrics {
            metrics.handshakes.with_label_values(&[outcome]).inc();
        }
        stream
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.server.places.free(&self.place);
        if let Some(metrics) = &self.server.metrics {
            metrics.connections.dec();
        }
    }
}
