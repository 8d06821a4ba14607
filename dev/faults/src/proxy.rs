//! The proxy: every request is numbered, named, held against the plan, sent on and written down.

use crate::answers::bytes_of::Body;
use crate::answers::{refusal, whole};
use crate::name::{self, Name, Side};
use crate::plan::{Act, Failure, Plan, Step};
use crate::tls::{self, Kubeconfig};
use crate::upstream::Upstream;
use anyhow::{Context as _, Result};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sim::Sim;
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A request that came by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Its place in the order of all requests to all sides, from 1.
    pub seq: u64,
    /// When it came.
    pub at: Timestamp,
    /// What it asks for.
    #[serde(flatten)]
    pub name: Name,
    /// How many of that name there were, this one included.
    pub occurrence: u32,
    /// The status of its reply; none if there was none, or not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What was made to go wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// On which side of its request's effect a process is to die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The request has not been sent on, and will not be.
    Before,
    /// The request was done; its reply is held back.
    After,
}

/// Somebody is to be killed now.
#[derive(Clone, Debug, PartialEq)]
pub struct Crash {
    /// The request of whoever is to be killed.
    pub seen: Seen,
    /// Before its effect, or after it.
    pub when: When,
}

/// The proxy. Dropping it ends it.
pub struct Proxy {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
    crashes: mpsc::UnboundedReceiver<Crash>,
    plan: Plan,
}

struct Shared {
    state: Mutex<State>,
    crash: mpsc::UnboundedSender<Crash>,
}

#[derive(Default)]
struct State {
    /// Faults that are still to come.
    to_come: Vec<Step>,
    seen: Vec<Seen>,
    counts: HashMap<Name, u32>,
}

/// A connection that is to be reset.
#[derive(Debug, thiserror::Error)]
#[error("the plan resets this connection")]
struct Broken;

impl Drop for Proxy {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Proxy {
    /// A proxy that follows a plan; nobody can reach it yet.
    pub fn new(plan: Plan) -> Self {
        let (crash, crashes) = mpsc::unbounded_channel();
        let state = State { to_come: plan.steps.clone(), ..State::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), crash });
        Self { shared, tasks: Vec::new(), crashes, plan }
    }

    /// Stands in front of an API server for one caller: reads a kubeconfig and writes another one beside it,
    /// by which that user's requests come here and go on as they are.
    pub async fn api_server(&mut self, kubeconfig: &Path, caller: &str) -> Result<PathBuf> {
        let config = Kubeconfig::read(kubeconfig)?;
        let (address, name) = config.server()?;
        let upstream = Upstream { address, tls: Some((config.connector()?, name)) };
        let (authority, acceptor) = tls::acceptor()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let here = listener.local_addr()?;
        self.serve(listener, Side::Api, caller, upstream, Some(acceptor));
        let file = kubeconfig.with_extension(format!("{caller}.proxied"));
        std::fs::write(&file, serde_json::to_vec_pretty(&config.at(here, &authority))?)?;
        Ok(file)
    }

    /// Stands in front of one simulated cloud; gives the URL to be used instead.
    pub async fn cloud(&mut self, side: Side, url: &str) -> Result<String> {
        let address = url.strip_prefix("http://").context("no http")?.parse()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let here = listener.local_addr()?;
        self.serve(listener, side, "anonymous", Upstream { address, tls: None }, None);
        Ok(format!("http://{here}"))
    }

    /// Stands in front of all simulated clouds; gives what a process needs in its environment to call them
    /// through here, under that name.
    pub async fn clouds(&mut self, sim: &Sim, caller: &str) -> Result<Vec<(&'static str, String)>> {
        let sides = [(Side::Gcp, sim.gcp_url()), (Side::Aws, sim.aws_url()), (Side::Azure, sim.azure_url())];
        let mut environment = sim.environment(caller);
        for (side, url) in sides {
            let here = self.cloud(side, &url).await?;
            for (_, value) in &mut environment {
                *value = value.replace(&url, &here);
            }
        }
        Ok(environment)
    }

    fn serve(
        &mut self,
        listener: TcpListener,
        side: Side,
        caller: &str,
        upstream: Upstream,
        tls: Option<TlsAcceptor>,
    ) {
        let door =
            Arc::new(Door { shared: self.shared.clone(), side, caller: caller.to_owned(), upstream, tls });
        self.tasks.push(tokio::spawn(accept(listener, door)));
    }

    /// Adds a fault to those that are to come.
    pub fn add(&mut self, step: Step) {
        self.plan.steps.push(step.clone());
        self.shared.state().to_come.push(step);
    }

    /// The faults that have not happened: a test of a fault that did not happen shows nothing.
    pub fn to_come(&self) -> Vec<Step> {
        self.shared.state().to_come.clone()
    }

    /// All requests so far, in their order.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.state().seen.clone()
    }

    /// Waits until somebody is to be killed.
    pub async fn crash(&mut self) -> Option<Crash> {
        self.crashes.recv().await
    }

    /// What has to be kept of a run that went wrong.
    pub fn failure(&self, workload: &str, wrong: Vec<String>, replay: &str) -> Failure {
        Failure {
            workload: workload.to_owned(),
            plan: self.plan.clone(),
            wrong,
            replay: replay.to_owned(),
            requests: self.seen(),
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Numbers a request and says what is to happen to it.
    fn arrived(&self, name: Name) -> (Seen, Option<Act>) {
        let mut state = self.state();
        let count = state.counts.entry(name.clone()).or_default();
        *count += 1;
        let occurrence = *count;
        let seq = state.seen.len() as u64 + 1;
        let found = state.to_come.iter().position(|step| step.on.fits(seq, &name, occurrence));
        let act = found.map(|at| state.to_come.remove(at).act);
        let fault = act.map(|act| act.name().to_owned());
        let seen = Seen { seq, at: Timestamp::now(), name, occurrence, status: None, fault };
        state.seen.push(seen.clone());
        (seen, act)
    }

    fn answered(&self, seq: u64, status: u16) {
        let at = usize::try_from(seq - 1).unwrap_or(usize::MAX);
        if let Some(seen) = self.state().seen.get_mut(at) {
            seen.status = Some(status);
        }
    }

    fn crash(&self, seen: &Seen, when: When) {
        // Nobody waits for crashes that are in no plan.
        let _ = self.crash.send(Crash { seen: seen.clone(), when });
    }
}

/// One way in.
struct Door {
    shared: Arc<Shared>,
    side: Side,
    caller: String,
    upstream: Upstream,
    tls: Option<TlsAcceptor>,
}

impl Door {
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, Broken> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| Broken)?.to_bytes();
        let asked = name::Request {
            method: &parts.method,
            path: parts.uri.path(),
            query: parts.uri.query().unwrap_or_default(),
            body: &body,
        };
        let (seen, act) = self.shared.arrived(name::name(self.side, &self.caller, asked));
        let mut request = Request::from_parts(parts, Full::new(body));
        // The body is whole now.
        request.headers_mut().remove("transfer-encoding");
        match act {
            None => self.send(&seen, request).await,
            Some(Act::Delay { seconds }) => {
                tokio::time::sleep(Duration::try_from_secs_f64(seconds).unwrap_or_default()).await;
                self.send(&seen, request).await
            }
            Some(Act::Answer { status, retry_after }) => {
                self.shared.answered(seen.seq, status);
                Ok(refusal(self.side, status, retry_after))
            }
            Some(Act::Hang) => std::future::pending().await,
            Some(Act::Cut) => Err(Broken),
            Some(Act::CrashBefore) => {
                self.shared.crash(&seen, When::Before);
                std::future::pending().await
            }
            Some(Act::ReplyLost) => {
                self.send_whole(&seen, request).await?;
                Err(Broken)
            }
            Some(Act::CrashAfter) => {
                self.send_whole(&seen, request).await?;
                self.shared.crash(&seen, When::After);
                std::future::pending().await
            }
        }
    }

    /// Sends a request on; the reply goes back as it comes.
    async fn send(&self, seen: &Seen, request: Request<Full<Bytes>>) -> Result<Response<Body>, Broken> {
        let mut reply = self.upstream.send(request).await.map_err(|_| Broken)?;
        self.shared.answered(seen.seq, reply.status().as_u16());
        for of_connection in ["transfer-encoding", "connection"] {
            reply.headers_mut().remove(of_connection);
        }
        Ok(reply.map(http_body_util::BodyExt::boxed))
    }

    /// The same, and the reply is there whole: what it was an answer to is done.
    async fn send_whole(&self, seen: &Seen, request: Request<Full<Bytes>>) -> Result<Response<Body>, Broken> {
        let (parts, body) = self.send(seen, request).await?.into_parts();
        let body = body.collect().await.map_err(|_| Broken)?.to_bytes();
        Ok(Response::from_parts(parts, whole(body)))
    }
}

async fn accept(listener: TcpListener, door: Arc<Door>) {
    // Dropping the set ends all connections with the proxy.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(greet(stream, door.clone()))),
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn greet(stream: TcpStream, door: Arc<Door>) {
    let _ = stream.set_nodelay(true);
    match &door.tls {
        None => converse(stream, door).await,
        Some(acceptor) => {
            if let Ok(stream) = acceptor.accept(stream).await {
                converse(stream, door.clone()).await;
            }
        }
    }
}

/// A stream that can be broken off so that the other side notices.
trait Reset {
    fn reset(&self);
}

impl Reset for TcpStream {
    fn reset(&self) {
        let _ = self.set_zero_linger();
    }
}

impl Reset for TlsStream<TcpStream> {
    fn reset(&self) {
        self.get_ref().0.reset();
    }
}

async fn converse<S>(stream: S, door: Arc<Door>)
where
    S: AsyncRead + AsyncWrite + Reset + Unpin + Send,
{
    let service = service_fn(move |request| {
        let door = door.clone();
        Box::pin(async move { door.answer(request).await })
    });
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let ended = poll_fn(|cx| connection.poll_without_shutdown(cx)).await;
    if ended.is_err() {
        // Without lingering, closing sends a reset: the caller cannot know how far its request came.
        connection.into_parts().io.into_inner().reset();
    }
}
