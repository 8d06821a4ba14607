//! Connections: reads requests, sends replies, or breaks off as the script says.

use crate::http::{HttpRequest, Reply};
use crate::pipeline::Outcome;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// A connection that is to end; no request on it is answered any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Broken {
    #[error("the script resets this connection")]
    Reset,
    #[error("the script closes this connection")]
    HungUp,
}

/// Serves requests on a listener until the task is dropped.
pub async fn serve<H, F>(listener: TcpListener, handler: H)
where
    H: Fn(HttpRequest) -> F + Send + Sync + 'static,
    F: Future<Output = Outcome> + Send + 'static,
{
    let handler = Arc::new(handler);
    // Dropping the set ends all connections with the server.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(converse(stream, Arc::clone(&handler)))),
                // No more files can be open just now; some will be closed.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn converse<H, F>(stream: TcpStream, handler: Arc<H>)
where
    H: Fn(HttpRequest) -> F + Send + Sync + 'static,
    F: Future<Output = Outcome> + Send + 'static,
{
    let _ = stream.set_nodelay(true);
    let Ok(local) = stream.local_addr() else { return };
    let service = service_fn(move |request: Request<Incoming>| {
        let handler = Arc::clone(&handler);
        Box::pin(async move {
            let request = read(request, local).await.map_err(|_| Broken::Reset)?;
            match handler(request).await {
                Outcome::Reply(reply) => write(reply).map_err(|_| Broken::Reset),
                Outcome::Reset => Err(Broken::Reset),
                Outcome::HangUp => Err(Broken::HungUp),
                Outcome::Silence => std::future::pending().await,
            }
        })
    });
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let ended = poll_fn(|cx| connection.poll_without_shutdown(cx)).await;
    if ended.is_err_and(|error| !is_hung_up(&error)) {
        // Without lingering, closing sends a reset: the caller cannot know how far its request came.
        let stream = connection.into_parts().io.into_inner();
        let _ = stream.set_zero_linger();
    }
}

fn is_hung_up(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error);
    cause.and_then(|cause| cause.downcast_ref()) == Some(&Broken::HungUp)
}

async fn read(request: Request<Incoming>, local: SocketAddr) -> Result<HttpRequest, hyper::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes().to_vec();
    let headers: HashMap<String, String> = parts
        .headers
        .iter()
        .map(|(name, value)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        })
        .collect();
    let query = parts.uri.query().unwrap_or_default();
    let query = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let (named, path) = split_caller(&percent_decode(parts.uri.path()));
    let host = headers.get("host").cloned().unwrap_or_else(|| local.to_string());
    let prefix = named.as_ref().map(|name| format!("/as/{name}")).unwrap_or_default();
    Ok(HttpRequest {
        method: parts.method.to_string(),
        path,
        query,
        headers,
        body,
        base_url: format!("http://{host}{prefix}"),
        named,
    })
}

/// Callers without credentials can be told apart by an endpoint of `http://host/as/NAME`.
fn split_caller(path: &str) -> (Option<String>, String) {
    let named = path.strip_prefix("/as/").map(|rest| rest.split_once('/').unwrap_or((rest, "")));
    match named {
        Some((name, rest)) => (Some(name.to_owned()), format!("/{rest}")),
        None => (None, path.to_owned()),
    }
}

/// A path as the caller meant it. A `+` in a path is a plus.
fn percent_decode(path: &str) -> String {
    let kept = path.replace('+', "%2B");
    let mut pairs = form_urlencoded::parse(kept.as_bytes());
    // A path has no `&` or `=` in the APIs served here; were there one, the path would match nothing.
    pairs.next().map_or_else(String::new, |(decoded, _)| decoded.into_owned())
}

fn write(reply: Reply) -> Result<Response<Full<Bytes>>, http::Error> {
    let mut response = Response::builder().status(reply.status).header("content-type", reply.content_type);
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    response.body(Full::new(Bytes::from(reply.body)))
}
