//! The webhook's certificates: made, shared by replicas, published and rotated without a failed call.
//!
//! One Secret holds a certificate authority (CA) of our own and the leaf that it signed. What has to
//! happen next is one pure function, [`decide`], of what the Secret holds, what the API server has been
//! told to trust, and the time; [`carry_out`] makes the Secret's next contents; [`manage`] watches,
//! writes and publishes. Three rules hold at every step:
//!
//! - the published bundle is a union: a CA is added before it signs, and goes when the last leaf that it
//!   signed has expired;
//! - a leaf is served once its CA is published everywhere, and has been for a margin, because the API
//!   server's own caches lag;
//! - replicas need no leader: each write names the version that it read, and who loses reads again.

mod bundle;
mod consumer;
mod contents;
mod decide;
mod files;
mod issue;
mod manage;
mod material;
mod pace;
mod resolve;
mod rotate;
mod settings;
mod store;
mod turn;
mod watch;

pub use bundle::bundle;
pub use consumer::{Consumer, FIELD_MANAGER, Kind, Target};
pub use contents::{Contents, Fault};
pub use decide::{Decision, Step, decide, published};
pub use files::{FileError, Files};
pub use issue::carry_out;
pub use manage::{Manager, Readiness, Source, manage};
pub use material::{Authority, Certificate, Leaf, Unusable};
pub use resolve::{Resolver, choose};
pub use rotate::{RotateError, rotate};
pub use settings::{Lifetimes, Settings};
pub use turn::{Turn, turn};

#[cfg(test)]
mod tests;
