//! Free loopback ports.

use anyhow::{Result, bail};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the range from which the kernel takes ports for outgoing connections, so that none of those
/// can sit on a port between our look and the server's bind.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// A port that nobody listens on. Each call of a process gives another one, and two processes start
/// their search in different places.
pub fn free() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let size = RANGE.end - RANGE.start;
    let offset = u16::try_from(std::process::id().wrapping_mul(97) % u32::from(size))?;
    for _ in 0..size {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = RANGE.start + (offset.wrapping_add(step) % size);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port between {} and {}", RANGE.start, RANGE.end)
}
