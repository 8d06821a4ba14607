//! Watches as streams of changes that end up in the controller's one mailbox.
//!
//! Lists and watches are called here and not by kube's `watcher`: that one has no limit for a call that is
//! never answered, and cannot tell a watch that is open and silent from one that hangs. Who waits for a
//! list has to be told what is in its way.

use super::Message;
use futures::{FutureExt as _, StreamExt as _};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::panic::AssertUnwindSafe;
use std::time::Duration;
use telemetry::controller::Metrics;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

/// A change of one kind of objects.
#[derive(Debug)]
pub enum Change<K> {
    /// It is like this now.
    Applied(K),
    /// It is gone.
    Gone(K),
    /// A list begins: versions that were seen before may be of another history (etcd was restored).
    Begun,
    /// A list is complete: what is not among these UIDs is gone.
    Listed(BTreeSet<String>),
    /// It cannot be listed, or it was and has not been heard of for long, and why.
    Failed(String),
    /// It works again.
    Works,
}

/// Ends with its handle.
pub type Watching = AbortOnDropHandle<()>;

/// What to watch.
pub struct Subject<K> {
    pub api: Api<K>,
    /// In words: "pods in namespace prod".
    pub what: String,
    pub labels: Option<String>,
    pub fields: Option<String>,
}

impl<K> Subject<K> {
    pub fn new(api: Api<K>, what: impl Into<String>) -> Self {
        Self { api, what: what.into(), labels: None, fields: None }
    }

    pub fn labels(self, labels: &str) -> Self {
        Self { labels: Some(labels.to_owned()), ..self }
    }

    pub fn fields(self, fields: &str) -> Self {
        Self { fields: Some(fields.to_owned()), ..self }
    }
}

/// How long one page of a list, or the beginning of a watch, may take.
const ANSWER: Duration = Duration::from_secs(30);
/// The API server ends a watch after this long.
const WATCH_SECONDS: u32 = 290;
/// Bookmarks come about once a minute. A watch that says nothing for longer may be dead, its connection gone
/// without a word; it is begun anew from where it was, which costs one request if it was not.
const SILENCE: Duration = Duration::from_secs(90);
/// A watch that has been open for this long works, though nothing happened.
const STEADY: Duration = Duration::from_secs(10);
const PAGE: u32 = 500;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// An API server that comes back is noticed within seconds.
const LAST_PAUSE: Duration = Duration::from_secs(2);
/// Watches that could not be begun in a row before everything is listed anew: the version that they begin
/// with may be one that the API server has not reached.
const RELIST_AFTER: u32 = 5;

/// Watches the subject for ever. A watch that panics ends the controller: what it was to tell is not heard of.
pub fn watch<K>(
    subject: Subject<K>,
    mailbox: mpsc::Sender<Message>,
    metrics: Metrics,
    wrap: impl Fn(Change<K>) -> Message + Send + Sync + 'static,
) -> Watching
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let what = subject.what.clone();
    let broken = mailbox.clone();
    let watcher = Watcher { subject, mailbox, metrics, wrap, health: Health::default(), pause: FIRST_PAUSE };
    AbortOnDropHandle::new(tokio::spawn(async move {
        if AssertUnwindSafe(watcher.run()).catch_unwind().await.is_err() {
            let _ = broken.send(Message::Broken(format!("the watch of {what} ended badly"))).await;
        }
    }))
}

struct Watcher<K, W> {
    subject: Subject<K>,
    mailbox: mpsc::Sender<Message>,
    metrics: Metrics,
    wrap: W,
    health: Health,
    pause: Duration,
}

/// Nobody listens any more.
struct Over;

/// What becomes of a watch.
enum Then {
    /// It goes on from this version.
    Resume(String),
    /// Everything has to be listed anew.
    Relist,
}

impl<K, W> Watcher<K, W>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    W: Fn(Change<K>) -> Message + Send + Sync + 'static,
{
    async fn run(mut self) {
        loop {
            let ended = match self.list().await {
                Ok(Some(version)) => self.follow(version).await,
                Ok(None) => Ok(()),
                Err(over) => Err(over),
            };
            if ended.is_err() {
                return;
            }
            // What makes us list anew may do so again at once.
            sleep(FIRST_PAUSE).await;
        }
    }

    async fn tell(&self, change: Change<K>) -> Result<(), Over> {
        self.mailbox.send((self.wrap)(change)).await.map_err(|_| Over)
    }

    /// Lists everything, page by page; the version to watch from, or `None`: it has to be tried again.
    async fn list(&mut self) -> Result<Option<String>, Over> {
        self.tell(Change::Begun).await?;
        let mut uids = BTreeSet::new();
        let mut parameters = ListParams {
            label_selector: self.subject.labels.clone(),
            field_selector: self.subject.fields.clone(),
            limit: Some(PAGE),
            ..ListParams::default()
        };
        loop {
            let page = match timeout(ANSWER, self.subject.api.list(&parameters)).await {
                Ok(Ok(page)) => page,
                Ok(Err(error)) => return self.failed(&explain(&error)).await.map(|()| None),
                Err(_) => return self.failed(&unanswered()).await.map(|()| None),
            };
            for object in page.items {
                uids.extend(object.uid());
                self.tell(Change::Applied(object)).await?;
            }
            parameters.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if parameters.continue_token.is_none() {
                let version = page.metadata.resource_version.filter(|version| !version.is_empty());
                if version.is_none() {
                    return self.failed("the list has no resourceVersion").await.map(|()| None);
                }
                self.health.listed = true;
                self.works().await?;
                self.tell(Change::Listed(uids)).await?;
                return Ok(version);
            }
        }
    }

    /// Watches from there on, until everything has to be listed anew.
    async fn follow(&mut self, mut version: String) -> Result<(), Over> {
        let mut refused = 0;
        loop {
            let parameters = WatchParams {
                label_selector: self.subject.labels.clone(),
                field_selector: self.subject.fields.clone(),
                timeout: Some(WATCH_SECONDS),
                bookmarks: true,
                send_initial_events: false,
            };
            let failed = match timeout(ANSWER, self.subject.api.watch(&parameters, &version)).await {
                Ok(Ok(events)) => {
                    refused = 0;
                    match self.events(std::pin::pin!(events), version).await? {
                        Then::Resume(from) => version = from,
                        Then::Relist => return Ok(()),
                    }
                    continue;
                }
                Ok(Err(kube::Error::Api(status))) if status.code == 410 => return Ok(()),
                Ok(Err(error)) => explain(&error),
                Err(_) => unanswered(),
            };
            self.failed(&failed).await?;
            refused += 1;
            if refused >= RELIST_AFTER {
                return Ok(());
            }
        }
    }

    /// Takes the events of one open watch.
    async fn events<S>(&mut self, mut events: std::pin::Pin<&mut S>, version: String) -> Result<Then, Over>
    where
        S: futures::Stream<Item = kube::Result<WatchEvent<K>>>,
    {
        let (mut version, opened) = (version, Instant::now());
        loop {
            let patience = if self.health.is_well() { SILENCE } else { STEADY };
            let event = match timeout(patience, events.next()).await {
                Ok(event) => event,
                Err(_) if patience == STEADY => {
                    self.works().await?;
                    continue;
                }
                // Its end never arrived.
                Err(_) => return Ok(Then::Resume(version)),
            };
            let object = match event {
                Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => Change::Applied(object),
                Some(Ok(WatchEvent::Deleted(object))) => Change::Gone(object),
                Some(Ok(WatchEvent::Bookmark(bookmark))) => {
                    let next = bookmark.metadata.resource_version;
                    if older(&next, &version) {
                        info!(
                            "{}: its history was replaced by an older one; listing anew",
                            self.subject.what
                        );
                        return Ok(Then::Relist);
                    }
                    version = next;
                    self.works().await?;
                    continue;
                }
                Some(Ok(WatchEvent::Error(status))) if status.code == 410 => return Ok(Then::Relist),
                Some(Ok(WatchEvent::Error(status))) => {
                    self.failed(&sentence(&status)).await?;
                    return Ok(Then::Resume(version));
                }
                // One object that cannot be read costs only itself.
                Some(Err(kube::Error::SerdeError(error))) => {
                    warn!("{}: an object cannot be read: {error}", self.subject.what);
                    continue;
                }
                Some(Err(error)) => {
                    self.failed(&explain(&error)).await?;
                    return Ok(Then::Resume(version));
                }
                None => {
                    if opened.elapsed() < FIRST_PAUSE {
                        sleep(FIRST_PAUSE).await;
                    }
                    return Ok(Then::Resume(version));
                }
            };
            if let Change::Applied(object) | Change::Gone(object) = &object {
                version = object.resource_version().unwrap_or(version);
            }
            self.works().await?;
            self.tell(object).await?;
        }
    }

    /// A call failed: says so if it is time to, and waits a little.
    async fn failed(&mut self, why: &str) -> Result<(), Over> {
        let (kind, pause) = (K::kind(&()), self.pause);
        warn!("{}: {why}; trying again in {pause:?}", self.subject.what);
        self.metrics.watch_restarts.with_label_values(&[&*kind]).inc();
        if let Some(why) = self.health.failed(why, Instant::now()) {
            self.tell(Change::Failed(format!("{}: {why}", self.subject.what))).await?;
        }
        sleep(pause.mul_f64(0.75 + 0.5 * fastrand::f64())).await;
        self.pause = (pause * 2).min(LAST_PAUSE);
        Ok(())
    }

    async fn works(&mut self) -> Result<(), Over> {
        self.pause = FIRST_PAUSE;
        if self.health.works() {
            self.tell(Change::Works).await?;
        }
        Ok(())
    }
}

/// Whether a watch can be relied on.
#[derive(Debug, Default)]
struct Health {
    /// There was a complete list: what is known is old at worst.
    listed: bool,
    failing_since: Option<Instant>,
    /// What was said of it last.
    said: Option<String>,
}

/// How long what was listed is good enough while the watch fails.
const OUTDATED: Duration = Duration::from_secs(30);

impl Health {
    /// A call failed; what is to be said, if it is news.
    fn failed(&mut self, why: &str, now: Instant) -> Option<String> {
        let since = *self.failing_since.get_or_insert(now);
        let counts = !self.listed || now.duration_since(since) > OUTDATED;
        let news = counts && self.said.as_deref() != Some(why);
        if news {
            self.said = Some(why.to_owned());
        }
        news.then(|| why.to_owned())
    }

    /// It works; whether that is news.
    fn works(&mut self) -> bool {
        self.failing_since = None;
        self.said.take().is_some()
    }

    fn is_well(&self) -> bool {
        self.failing_since.is_none()
    }
}

fn unanswered() -> String {
    format!("no answer within {} s", ANSWER.as_secs())
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

fn sentence(status: &kube::core::Status) -> String {
    let reason = if status.reason.is_empty() { String::new() } else { format!(" {}", status.reason) };
    format!("{}{reason}: {}", status.code, status.message)
}

/// Versions are ordered numbers.
fn older(one: &str, other: &str) -> bool {
    matches!((one.parse::<u64>(), other.parse::<u64>()), (Ok(one), Ok(other)) if one < other)
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn before_the_first_list_every_failure_is_said_once() {
        let (mut health, now) = (Health::default(), Instant::now());
        assert_eq!(health.failed("403", now).as_deref(), Some("403"));
        assert_eq!(health.failed("403", now), None, "no news");
        assert_eq!(health.failed("503", now).as_deref(), Some("503"));
        assert!(health.works());
        assert!(!health.works(), "no news either");
    }

    #[tokio::test]
    async fn what_was_listed_is_good_enough_for_a_while() {
        let mut health = Health { listed: true, ..Health::default() };
        let now = Instant::now();
        assert_eq!(health.failed("503", now), None);
        assert_eq!(health.failed("503", now + OUTDATED), None);
        let later = now + OUTDATED + Duration::from_secs(1);
        assert_eq!(health.failed("503", later).as_deref(), Some("503"));
        assert!(health.works());
        assert_eq!(health.failed("503", later), None, "it begins anew");
    }

    /// What it was to tell would never be heard of.
    #[tokio::test]
    async fn a_watch_that_panics_ends_the_controller() {
        let config = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
        let api = Api::all(kube::Client::try_from(config).expect("a client"));
        let telemetry = telemetry::Telemetry::new(None).expect("telemetry");
        let metrics = Metrics::new(&telemetry).expect("metrics");
        let (send, mut mailbox) = mpsc::channel(1);
        let subject = Subject::<super::super::lean::Node>::new(api, "nodes");
        let _watching = watch(subject, send, metrics, |_| panic!("a bug of ours"));
        let message = mailbox.recv().await;
        assert!(matches!(message, Some(Message::Broken(what)) if what.contains("nodes")));
    }

    #[test]
    fn versions_are_numbers() {
        assert!(older("99", "100"));
        assert!(!older("100", "100"));
        assert!(!older("", "100"), "what is no number is not compared");
    }
}
