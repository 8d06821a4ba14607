//! One connection, from its first byte to its end, with somebody who watches the clock.

use super::Limits;
use super::answer::Answerer;
use super::places::{Phase, Place};
use axum::http::Request;
use futures::FutureExt as _;
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
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::{Sleep, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Room for a request's header; more is answered with 431.
const HEADER_BYTES: usize = 64 << 10;

/// What an idle connection gets before it is closed. A request may be on its way: its sender takes this
/// for the answer, and the API server tries again after a 503 with `Retry-After`. A close alone would be
/// an error that nobody tries again. Who waits for nothing throws it away with the connection.
const FAREWELL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// How long to wait for the other side to close after we did: what is closed with bytes unread is reset,
/// and a reset can overtake an answer.
const LINGER: Duration = Duration::from_secs(1);

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
    let of_requests = Arc::clone(&place);
    let service = service_fn(move |request: Request<Incoming>| {
        let (answerer, place) = (Arc::clone(&answerer), Arc::clone(&of_requests));
        Box::pin(async move { Ok::<_, Infallible>(answerer.answer(place, request).await) })
    });
    // hyper's own header timeout also runs while a connection is idle: the API server's kept connections
    // would be closed under it. The watchdog tells the two apart.
    let mut connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(watched), service);
    let mut wake_to_close = pin!(closing.cancelled().fuse());
    let mut told = false;
    let end = poll_fn(|cx| {
        // The connection first: a request that has already arrived is answered, not cut off.
        if connection.poll_without_shutdown(cx).is_ready() {
            return Poll::Ready(if told { End::Idle } else { End::Finished });
        }
        let idle = place.phase() == Phase::Idle;
        let _ = wake_to_close.as_mut().poll(cx);
        if idle && !told && closing.is_cancelled() {
            told = true;
            // hyper sends what is left of an answer, and is done.
            Pin::new(&mut connection).graceful_shutdown();
            cx.waker().wake_by_ref();
        }
        watchdog.poll(cx).map(|()| if idle { End::Idle } else { End::TooSlow })
    })
    .await;
    let stream = connection.into_parts().io.into_inner().stream;
    // Who takes his time with this, too, is cut off.
    let _ = timeout(LINGER, end.say_goodbye(stream)).await;
}

/// Why a connection ends.
enum End {
    /// Client or answer said so.
    Finished,
    /// It waits for a request, and we want it closed.
    Idle,
    /// It took too long for something, or had to make room while it did.
    TooSlow,
}

impl End {
    async fn say_goodbye<S: AsyncRead + AsyncWrite + Unpin>(self, mut stream: S) {
        match self {
            Self::TooSlow => return,
            Self::Idle if stream.write_all(FAREWELL).await.is_err() => return,
            Self::Idle | Self::Finished => {}
        }
        if stream.shutdown().await.is_ok() {
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        }
    }
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
