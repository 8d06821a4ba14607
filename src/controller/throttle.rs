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
