//! How a call to a cloud fails. What to do about it is decided here, where the answer is read.

use std::time::Duration;

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}", .request_id.as_ref().map(|id| format!(" (request {id})")).unwrap_or_default())]
pub struct Error {
    /// What to do about it.
    pub class: Class,
    /// What the cloud said, and what to do about it; no secrets.
    pub message: String,
    /// How long the cloud asked to wait.
    pub retry_after: Option<Duration>,
    /// What the cloud's support will ask for.
    pub request_id: Option<String>,
}

/// Kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Too many requests: later, and less of them.
    Throttled,
    /// A server error, a time-out, a lost connection: it may or may not have been done. Read again.
    Transient,
    /// The token is stale, or somebody else was faster: read again.
    Conflict,
    /// It will not work like this, whoever tries.
    Permanent,
    /// The cloud cannot do this at all with this instance or address.
    Unsupported,
    /// The credentials are missing, expired, or do not allow it.
    Denied,
    /// [`crate::Call::may_write`] said no: nothing was sent.
    Fenced,
}

impl Class {
    /// As in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Throttled => "throttled",
            Self::Transient => "transient",
            Self::Conflict => "conflict",
            Self::Permanent => "permanent",
            Self::Unsupported => "unsupported",
            Self::Denied => "denied",
            Self::Fenced => "fenced",
        }
    }
}

impl Error {
    /// An error of a class, with what to say.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), retry_after: None, request_id: None }
    }

    /// The same, when it kept us from hearing what became of a write that was accepted.
    pub(crate) fn of_accepted(self) -> Self {
        let class = if self.class == Class::Throttled { Class::Transient } else { self.class };
        Self { class, message: format!("accepted, and then: {}", self.message), ..self }
    }
}
