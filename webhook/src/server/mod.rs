//! The server: TLS, limits, timeouts and a drain that no caller notices, around an axum [`Router`].
//!
//! HTTP/1.1 only: the API server offers nothing else to a Service, and what is not spoken cannot be
//! flooded. Three rules come from how the API server calls webhooks:
//!
//! - A connection that is closed just as a call arrives on it is a failed write for a user. So the idle
//!   timeout is longer than the API server's 90 s, and a draining server says `Connection: close` for a
//!   while before it closes anything.
//! - 503 is tried again only if it carries `Retry-After`.
//! - Anybody in the cluster can connect. What takes memory, a file descriptor or a processor is bounded,
//!   and when connections run out, the one that dawdles longest makes room.

mod answer;
mod body;
mod connection;
mod health;
mod limits;
mod listen;
mod metrics;
mod places;
mod run;
mod shutdown;
mod tls;

pub use health::{Check, Health};
pub use limits::Limits;
pub use listen::listen;
pub use metrics::metrics_router;
pub use run::{Drained, serve, serve_plain};
pub use shutdown::Shutdown;

#[cfg(test)]
mod tests;
