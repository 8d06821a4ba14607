//! What a caller may cost.

use std::time::Duration;

/// Limits of a server. The defaults suit the API server as the only honest caller.
#[derive(Clone, Debug)]
pub struct Limits {
    /// From the accepted connection to the end of the TLS handshake.
    pub handshake: Duration,
    /// From a request's first byte to the end of its header.
    pub header: Duration,
    /// From the end of the header to the end of the body. The API server sends both at once.
    pub body: Duration,
    /// From the end of the body to the end of the answer; no webhook may be called for longer than 30 s.
    pub answer: Duration,
    /// How long a connection without a request stays open. The API server closes its own after 90 s, and
    /// it has to be first.
    pub idle: Duration,
    /// The largest body. A Pod of 1 MiB can make a review of 6.3 MB; controller-runtime has 7 MiB.
    pub body_bytes: usize,
    /// Paths whose bodies are smaller, and how large they may be.
    pub body_bytes_of: Vec<(&'static str, usize)>,
    /// What all bodies that are being read or worked on may take together, beyond the first
    /// [`Self::FREE_BODY_BYTES`] of each.
    pub all_bodies_bytes: usize,
    /// Connections at the same time, handshakes included.
    pub connections: usize,
    /// Requests at the same time, counted from when their body is there. Above it: 503 at once.
    pub requests: usize,
    /// How long a draining server goes on accepting, so that endpoints can move on.
    pub drain_grace: Duration,
    /// How long answers under way may take once the listener is closed.
    pub drain_timeout: Duration,
}

impl Limits {
    /// What a body may take without being counted: an ordinary review is smaller.
    pub const FREE_BODY_BYTES: usize = 32 << 10;

    /// The largest body of a request for this path.
    pub fn body_bytes_of(&self, path: &str) -> usize {
        let of = self.body_bytes_of.iter().find(|(of, _)| *of == path);
        of.map_or(self.body_bytes, |(_, bytes)| self.body_bytes.min(*bytes))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            header: Duration::from_secs(10),
            body: Duration::from_secs(10),
            answer: Duration::from_secs(30),
            idle: Duration::from_mins(2),
            body_bytes: 8 << 20,
            body_bytes_of: Vec::new(),
            all_bodies_bytes: 64 << 20,
            connections: 1024,
            requests: 256,
            drain_grace: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(30),
        }
    }
}
