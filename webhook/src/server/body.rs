//! Reading a request's body within its limits of size, time and memory.

use super::Limits;
use axum::body::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long the rest of a body that is too large is read and thrown away, so that a client that writes
/// before it reads gets to see the answer.
const DISCARD: Duration = Duration::from_millis(500);

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Larger than the limit.
    TooLarge,
    /// Not there in time.
    TooSlow,
    /// All bodies together take too much.
    Overloaded,
    /// The client hung up or broke the rules of HTTP.
    Broken,
}

/// A body, and its part of the memory for all bodies.
pub struct Held {
    pub bytes: Bytes,
    _memory: Option<OwnedSemaphorePermit>,
}

/// Memory for bodies, in KiB.
pub fn memory(limits: &Limits) -> Arc<Semaphore> {
    Arc::new(Semaphore::new((limits.all_bodies_bytes >> 10).min(Semaphore::MAX_PERMITS)))
}

/// Reads a body of at most so many bytes.
pub async fn read(
    mut body: Incoming,
    most: usize,
    limits: &Limits,
    memory: &Arc<Semaphore>,
) -> Result<Held, Fault> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > most {
        // A client that asked first (`Expect: 100-continue`) is told no, and sends nothing.
        return Err(Fault::TooLarge);
    }
    let reading = collect(&mut body, announced, most, memory);
    let fault = match tokio::time::timeout(limits.body, reading).await {
        Ok(Ok(held)) => return Ok(held),
        Ok(Err(fault)) => fault,
        Err(_) => Fault::TooSlow,
    };
    if matches!(fault, Fault::TooLarge | Fault::Overloaded) {
        let _ = tokio::time::timeout(DISCARD, async { while let Some(Ok(_)) = body.frame().await {} }).await;
    }
    Err(fault)
}

async fn collect(
    body: &mut Incoming,
    announced: usize,
    most: usize,
    memory: &Arc<Semaphore>,
) -> Result<Held, Fault> {
    let mut bytes = Vec::with_capacity(announced.min(Limits::FREE_BODY_BYTES));
    let mut permit: Option<OwnedSemaphorePermit> = None;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Fault::Broken)?.into_data() else { continue };
        let length = bytes.len() + data.len();
        if length > most {
            return Err(Fault::TooLarge);
        }
        hold(&mut permit, length, memory)?;
        bytes.extend_from_slice(&data);
    }
    Ok(Held { bytes: bytes.into(), _memory: permit })
}

/// Takes memory for what has really arrived: announcing much costs others nothing.
fn hold(
    permit: &mut Option<OwnedSemaphorePermit>,
    length: usize,
    memory: &Arc<Semaphore>,
) -> Result<(), Fault> {
    let needed = length.saturating_sub(Limits::FREE_BODY_BYTES).div_ceil(1 << 10);
    let missing = needed.saturating_sub(permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits));
    if missing == 0 {
        return Ok(());
    }
    let missing = u32::try_from(missing).map_err(|_| Fault::Overloaded)?;
    let more = Arc::clone(memory).try_acquire_many_owned(missing).map_err(|_| Fault::Overloaded)?;
    match permit {
        Some(held) => held.merge(more),
        None => *permit = Some(more),
    }
    Ok(())
}
