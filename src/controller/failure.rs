//! What goes wrong with a watch: in whose words, what it says of the version that was asked for, and from when
//! on it matters to others.

use kube::core::Status;
use std::time::Duration;
use tokio::time::Instant;

/// A call, or an open watch, that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The API server's words, or those of what is between it and us.
    pub why: String,
    /// After so many failures in a row everything is listed anew: the version that was asked for may be to blame.
    pub relist_after: u32,
    /// What the API server asks for.
    pub retry_after: Option<Duration>,
}

/// The version is gone for good.
const AT_ONCE: u32 = 1;
/// It may be one that this API server has not reached, or never will: etcd was restored from a snapshot.
const SECOND_TIME: u32 = 2;
/// Something that cannot be read may come with it again and again.
const FIFTH_TIME: u32 = 5;
/// Nobody has looked at it.
const NEVER: u32 = u32::MAX;

impl Failure {
    /// Nobody answered in time. A version that lies ahead is waited for.
    pub fn unanswered(limit: Duration) -> Self {
        Self::new(format!("no answer within {} s", limit.as_secs()), SECOND_TIME)
    }

    /// What was watched has another history now.
    pub fn back_in_time(from: &str, to: &str) -> Self {
        Self::new(
            format!("version {from} is followed by {to}: its history was replaced by an older one"),
            AT_ONCE,
        )
    }

    /// The watch was over before it told of anything.
    pub fn ended_at_once() -> Self {
        Self::new("the watch ended as soon as it had begun".to_owned(), SECOND_TIME)
    }

    /// It was open for long, twice, and not even a bookmark came: nothing is told from a version that lies ahead.
    pub fn silent() -> Self {
        Self::new("the watch is open and silent".to_owned(), AT_ONCE)
    }

    /// A list that nothing can be watched from.
    pub fn without_version() -> Self {
        Self::new("the list has no resourceVersion".to_owned(), AT_ONCE)
    }

    pub fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::told(status),
            kube::Error::Service(_) | kube::Error::HyperError(_) => Self::new(explain(error), NEVER),
            _ => Self::new(explain(error), FIFTH_TIME),
        }
    }

    /// What the API server says, as an answer or as an event.
    pub fn told(status: &Status) -> Self {
        let expired = status.code == 410
            || matches!(status.reason.as_str(), "Expired" | "Gone")
            || status.message.contains("too old resource version");
        let relist_after = match status.code {
            _ if expired => AT_ONCE,
            429 => NEVER,
            _ => SECOND_TIME,
        };
        let asked = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        let retry_after = (asked > 0).then(|| Duration::from_secs(asked.into()));
        Self { retry_after, ..Self::new(sentence(status), relist_after) }
    }

    fn new(why: String, relist_after: u32) -> Self {
        Self { why, relist_after, retry_after: None }
    }
}

/// Whether a watch can be relied on.
#[derive(Debug, Default)]
pub struct Health {
    /// There was a complete list: what is known is old at worst.
    pub listed: bool,
    failing_since: Option<Instant>,
    /// What was said of it last.
    said: Option<String>,
}

/// How long what was listed is good enough while the watch fails.
const OUTDATED: Duration = Duration::from_secs(30);

impl Health {
    /// It has failed since then at least; what is to be said, if it is news.
    pub fn failed(&mut self, why: &str, since: Instant, now: Instant) -> Option<String> {
        let since = *self.failing_since.get_or_insert(since);
        let counts = !self.listed || now.duration_since(since) >= OUTDATED;
        let news = counts && self.said.as_deref() != Some(why);
        if news {
            self.said = Some(why.to_owned());
        }
        news.then(|| why.to_owned())
    }

    /// Everything was listed; whether that is news. A watch that failed for long has to work as well: what is
    /// listed now and then is known late.
    pub fn lists(&mut self) -> bool {
        !std::mem::replace(&mut self.listed, true) && self.works()
    }

    /// It works; whether that is news.
    pub fn works(&mut self) -> bool {
        self.failing_since = None;
        self.said.take().is_some()
    }

    pub fn is_well(&self) -> bool {
        self.failing_since.is_none()
    }
}

/// The API server's words, or those of what is between it and us.
pub fn explain(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => sentence(status),
        other => {
            let mut source: &dyn std::error::Error = other;
            while let Some(deeper) = source.source() {
                source = deeper;
            }
            source.to_string()
        }
    }
}

fn sentence(status: &Status) -> String {
    let reason = if status.reason.is_empty() { String::new() } else { format!(" {}", status.reason) };
    format!("{}{reason}: {}", status.code, status.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_the_version_decides_when_to_list_anew() {
        for (code, reason, message, relist_after) in [
            (410, "Expired", "The resourceVersion for the provided watch is too old.", AT_ONCE),
            (410, "", "", AT_ONCE),
            (0, "Gone", "", AT_ONCE),
            (500, "InternalError", "too old resource version: 5 (1000)", AT_ONCE),
            (500, "InternalError", "etcdserver: mvcc: required revision is a future revision", SECOND_TIME),
            (504, "Timeout", "Too large resource version: 1000, current: 5", SECOND_TIME),
            (504, "Timeout", "etcdserver: request timed out", SECOND_TIME),
            (403, "Forbidden", "no", SECOND_TIME),
            (429, "TooManyRequests", "later", NEVER),
        ] {
            let status = Status::failure(message, reason).with_code(code);
            assert_eq!(Failure::told(&status).relist_after, relist_after, "{code} {reason} {message}");
        }
        let nobody = kube::Error::Service("connection refused".into());
        assert_eq!(Failure::of(&nobody).relist_after, NEVER, "nobody has looked at the version");
        let details = serde_json::from_str(r#"{"retryAfterSeconds":7}"#).ok();
        let busy = Status { details, ..Status::failure("later", "TooManyRequests").with_code(429) };
        assert_eq!(Failure::told(&busy).retry_after, Some(Duration::from_secs(7)));
    }

    #[tokio::test]
    async fn before_the_first_list_every_failure_is_said_once() {
        let (mut health, now) = (Health::default(), Instant::now());
        assert_eq!(health.failed("403", now, now).as_deref(), Some("403"));
        assert_eq!(health.failed("403", now, now), None, "no news");
        assert_eq!(health.failed("503", now, now).as_deref(), Some("503"));
        assert!(health.lists());
        assert!(!health.lists() && !health.works(), "no news either");
    }

    #[tokio::test]
    async fn what_was_listed_is_good_enough_for_a_while() {
        let (mut health, now) = (Health { listed: true, ..Health::default() }, Instant::now());
        assert_eq!(health.failed("503", now, now), None);
        let later = now + OUTDATED;
        assert_eq!(health.failed("503", later, later).as_deref(), Some("503"));
        assert!(health.works());
        assert_eq!(health.failed("503", later, later), None, "it begins anew");
        assert_eq!(health.failed("503", later, later + OUTDATED).as_deref(), Some("503"));
    }

    /// A call that was not answered for as long has failed all the while.
    #[tokio::test]
    async fn a_call_that_hangs_fails_from_its_beginning_on() {
        let (mut health, now) = (Health { listed: true, ..Health::default() }, Instant::now());
        assert_eq!(health.failed("no answer", now, now + OUTDATED).as_deref(), Some("no answer"));
    }

    /// It would be said and taken back with every list, and the status of an allocation written each time.
    #[tokio::test]
    async fn lists_alone_do_not_end_the_trouble_of_a_watch() {
        let (mut health, now) = (Health { listed: true, ..Health::default() }, Instant::now());
        assert!(health.failed("403", now, now + OUTDATED).is_some());
        assert!(!health.lists());
        let later = now + OUTDATED * 2;
        assert_eq!(health.failed("403", later, later), None, "it was said");
        assert!(health.works());
    }
}
