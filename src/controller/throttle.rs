//! What the API server says about how long to wait: `Retry-After`, which kube's errors do not carry.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
use kube::client::Body;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// The last `Retry-After`; clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct RetryAfter(Arc<AtomicU64>);

impl RetryAfter {
    /// A client that takes note, on top of another one.
    pub fn noted_by(&self, client: &Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        Client::new(Noting { client: client.clone(), noted: self.clone() }, namespace)
    }

    /// What was noted since this was asked last.
    pub fn take(&self) -> Option<Duration> {
        Some(self.0.swap(0, Ordering::Relaxed)).filter(|seconds| *seconds > 0).map(Duration::from_secs)
    }

    fn note(&self, response: &http::Response<Body>) {
        let header = response.headers().get(http::header::RETRY_AFTER);
        let seconds = header.and_then(|value| value.to_str().ok()?.parse().ok());
        if let Some(seconds) = seconds.filter(|_| response.status() == http::StatusCode::TOO_MANY_REQUESTS) {
            // Whoever asks for an hour is asked again before.
            self.0.store(u64::min(seconds, 60), Ordering::Relaxed);
        }
    }
}

struct Noting {
    client: Client,
    noted: RetryAfter,
}

impl tower::Service<http::Request<Body>> for Noting {
    type Response = http::Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, kube::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<kube::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let (client, noted) = (self.client.clone(), self.noted.clone());
        async move {
            let response = client.send(request).await?;
            noted.note(&response);
            Ok(response)
        }
        .boxed()
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    fn response(status: u16, retry_after: Option<&str>) -> http::Response<Body> {
        let mut builder = http::Response::builder().status(status);
        if let Some(value) = retry_after {
            builder = builder.header(http::header::RETRY_AFTER, value);
        }
        builder.body(Body::empty()).expect("a response")
    }

    #[test]
    fn what_the_api_server_asks_for_is_noted_once() {
        for (status, header, expected) in [
            (429, Some("8"), Some(8)),
            (429, Some("3600"), Some(60)),
            (429, None, None),
            (429, Some("soon"), None),
            (503, Some("8"), None),
            (200, Some("8"), None),
        ] {
            let noted = RetryAfter::default();
            noted.note(&response(status, header));
            assert_eq!(noted.take(), expected.map(Duration::from_secs), "{status} {header:?}");
            assert_eq!(noted.take(), None, "it counts once");
        }
    }
}
