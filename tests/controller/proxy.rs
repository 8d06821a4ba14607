//! Something between a controller and the API server that can be told what to spoil.

use anyhow::Result;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use kube::Client;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoil {
    /// 403, as for a right that nobody gave.
    Forbid,
    /// No answer, ever.
    Hang,
    /// 429 as by priority and fairness, with `Retry-After: 1`.
    Throttle,
}

struct Rule {
    method: Option<&'static str>,
    path: String,
    spoil: Spoil,
    times: usize,
    hits: usize,
}

#[derive(Default)]
struct Shared {
    rules: Mutex<Vec<Rule>>,
    writing: AtomicUsize,
    most_writing: AtomicUsize,
    /// Answers that are on their way end with it.
    open: Mutex<CancellationToken>,
}

/// A proxy on loopback; ends with its handle.
pub struct Proxy {
    shared: Arc<Shared>,
    url: String,
    _serving: AbortOnDropHandle<()>,
}

type Between = (Client, Arc<Shared>);

impl Proxy {
    /// In front of the API server that the configuration is for, with its credentials.
    pub async fn start(config: kube::Config) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let router = Router::new().fallback(pass).with_state((Client::try_from(config)?, shared.clone()));
        let serving = tokio::spawn(async move { drop(axum::serve(listener, router).await) });
        Ok(Self { shared, url, _serving: AbortOnDropHandle::new(serving) })
    }

    /// How to reach the API server through it.
    pub fn config(&self) -> Result<kube::Config> {
        let mut config = kube::Config::new(self.url.parse()?);
        config.default_retry = false;
        Ok(config)
    }

    /// The next so many requests whose path begins like this are spoilt.
    pub fn spoil(&self, method: Option<&'static str>, path: &str, times: usize, spoil: Spoil) {
        let rule = Rule { method, path: path.to_owned(), spoil, times, hits: 0 };
        self.rules().push(rule);
    }

    /// No request whose path begins like this is spoilt any more.
    pub fn heal(&self, path: &str) {
        self.rules().iter_mut().filter(|rule| rule.path == path).for_each(|rule| rule.times = 0);
    }

    /// Ends every answer that is on its way, as a load balancer does that restarts: all watches begin anew.
    pub fn cut(&self) {
        std::mem::take(&mut *self.shared.open.lock().unwrap_or_else(PoisonError::into_inner)).cancel();
    }

    /// How many were.
    pub fn hits(&self, path: &str) -> usize {
        self.rules().iter().filter(|rule| rule.path == path).map(|rule| rule.hits).sum()
    }

    /// The most writes, leases aside, that were under way at once.
    pub fn most_writing(&self) -> usize {
        self.shared.most_writing.load(Ordering::SeqCst)
    }

    fn rules(&self) -> std::sync::MutexGuard<'_, Vec<Rule>> {
        self.shared.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a write while it lives.
struct Counted(Arc<Shared>);

impl Counted {
    fn new(shared: &Arc<Shared>) -> Self {
        let now = shared.writing.fetch_add(1, Ordering::SeqCst) + 1;
        shared.most_writing.fetch_max(now, Ordering::SeqCst);
        Self(shared.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.writing.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn pass(State((client, shared)): State<Between>, request: Request) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let spoil = {
        let mut rules = shared.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let rule = rules.iter_mut().find(|rule| {
            rule.times > 0 && path.starts_with(&rule.path) && rule.method.is_none_or(|m| method == m)
        });
        rule.map(|rule| {
            (rule.times, rule.hits) = (rule.times - 1, rule.hits + 1);
            rule.spoil
        })
    };
    match spoil {
        None => {}
        Some(Spoil::Hang) => std::future::pending::<()>().await,
        Some(Spoil::Forbid) => {
            let status = serde_json::json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
                "message": "pods is forbidden: User \"somebody\" cannot list resource \"pods\"",
            });
            return answer(403, &status.to_string(), None);
        }
        Some(Spoil::Throttle) => {
            return answer(429, "Too many requests, please try again later.", Some("1"));
        }
    }
    let writes = method != http::Method::GET && !path.contains("/leases") && !path.contains("/events");
    let _counted = writes.then(|| Counted::new(&shared));
    let until = shared.open.lock().unwrap_or_else(PoisonError::into_inner).clone();
    forward(&client, request, until).await.unwrap_or_else(|error| answer(502, &error.to_string(), None))
}

async fn forward(client: &Client, request: Request, until: CancellationToken) -> Result<Response> {
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    parts.uri = path.parse()?;
    parts.headers.remove(http::header::HOST);
    let body = body.collect().await?.to_bytes().to_vec();
    let request = http::Request::from_parts(parts, kube::client::Body::from(body));
    let response = client.send(request).await?;
    Ok(response.map(|body| {
        let data = Body::new(body).into_data_stream();
        Body::from_stream(data.take_until(until.cancelled_owned()))
    }))
}

fn answer(code: u16, text: &str, retry_after: Option<&str>) -> Response {
    let mut response = Response::builder().status(code);
    if let Some(seconds) = retry_after {
        response = response.header(http::header::RETRY_AFTER, seconds);
    }
    response.body(Body::from(text.to_owned())).expect("a response")
}
