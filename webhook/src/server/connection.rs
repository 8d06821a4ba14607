//! One connection, from its first byte to its end, with somebody who watches the clock.

use super::Limits;
use super::answer::Answerer;
use super::places::{Phase, Place};
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Room for a request's header; more is answered with 431.
const HEADER_BYTES: usize = 64 << 10;

/// Answers requests until the client goes, the clock or `closing` says so, or room is needed.
pub async fn converse<S>(
    stream: S,
    place: Arc<Place>,
    answerer: Arc<Answerer>,
    limits: &Limits,
    closing: &CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    place.enter(Phase::Idle);
    let watched = Watched { stream, place: Arc::clone(&place) };
    let mut watchdog = Watchdog::new(Arc::clone(&place), limits);
    let service = service_fn(move |request: Request<Incoming>| {
        let (answerer, place) = (Arc::clone(&answerer), Arc::clone(&place));
        async move { Ok::<_, Infallible>(answerer.answer(place, request).await) }
    });
    // hyper's own header timeout also runs while a connection is idle: the API server's kept connections
    // would be closed under it. The watchdog tells the two apart.
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(watched), service);
    let (mut connection, mut closing) = (pin!(connection), pin!(closing.cancelled()));
    let mut told = false;
    poll_fn(|cx| {
        // The connection first: a request that has already arrived is answered, not cut off.
        if connection.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if !told && closing.as_mut().poll(cx).is_ready() {
            told = true;
            connection.as_mut().graceful_shutdown();
            cx.waker().wake_by_ref();
        }
        watchdog.poll(cx)
    })
    .await;
}

/// Ready when a connection has taken too long, or has to make room. What a connection is at changes only
/// while it is polled, so it is enough to look after each poll.
pub struct Watchdog<'l> {
    place: Arc<Place>,
    limits: &'l Limits,
    sleep: Pin<Box<Sleep>>,
    evicted: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<'l> Watchdog<'l> {
    pub fn new(place: Arc<Place>, limits: &'l Limits) -> Self {
        let sleep = Box::pin(sleep_until(place.deadline(limits)));
        let evicted = Box::pin(place.evicted.clone().cancelled_owned());
        Self { place, limits, sleep, evicted }
    }

    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.place.deadline(self.limits);
        if self.sleep.deadline() != deadline {
            self.sleep.as_mut().reset(deadline);
        }
        if self.evicted.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        self.sleep.as_mut().poll(cx)
    }
}

/// A stream that reports when bytes arrive.
struct Watched<S> {
    stream: S,
    place: Arc<Place>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            self.place.bytes_arrived();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
