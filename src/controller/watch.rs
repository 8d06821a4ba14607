//! Watches as streams of changes that end up in the controller's one mailbox.
//!
//! Lists and watches are called here and not by kube's `watcher`: that one has no limit for a call that is
//! never answered, and cannot tell a watch that is open and silent from one that hangs. Who waits for a
//! list has to be told what is in its way.

pub use super::failure::explain;

use super::Message;
use super::failure::{Failure, Health};
use super::pace::{Backoff, LONGEST_OF_ALL, LONGEST_OF_LISTS, LONGEST_OF_ONE, Lists};
use super::throttle::RetryAfter;
use futures::{FutureExt as _, StreamExt as _};
use kube::api::{ListParams, ObjectList, WatchEvent, WatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::time::Duration;
use telemetry::controller::Metrics;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};
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

/// What can be watched.
pub trait Watched:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static
{
}

impl<K> Watched for K where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static
{
}

/// Ends with its handle.
pub type Watching = AbortOnDropHandle<()>;

/// What to watch.
pub struct Subject<K> {
    api: Api<K>,
    /// In words: "pods in namespace prod".
    what: String,
    labels: Option<String>,
    fields: Option<String>,
    /// What its lists wait for; `None`: every allocation needs it, and it waits for nobody.
    lists: Option<Lists>,
    /// What the API server asked for last, of this watch.
    retry_after: RetryAfter,
}

impl<K: Resource<DynamicType = ()>> Subject<K> {
    /// All there are, for everybody.
    pub fn all(client: &Client, what: impl Into<String>) -> Self {
        let retry_after = RetryAfter::default();
        let api = Api::all(retry_after.noted_by(client));
        Self { api, what: what.into(), labels: None, fields: None, lists: None, retry_after }
    }

    /// Those in a namespace, for one workload.
    pub fn of_workload(client: &Client, namespace: &str, what: impl Into<String>, lists: &Lists) -> Self
    where
        K: Resource<Scope = NamespaceResourceScope>,
    {
        let retry_after = RetryAfter::default();
        let api = Api::namespaced(retry_after.noted_by(client), namespace);
        let (what, lists) = (what.into(), Some(lists.clone()));
        Self { api, what, labels: None, fields: None, lists, retry_after }
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
const STEADY: Duration = Duration::from_secs(5);
/// No watch is begun more often than this, whatever ends it.
const SHORTEST: Duration = Duration::from_millis(100);
const PAGE: u32 = 500;

/// Watches the subject for ever. A watch that panics ends the controller: what it was to tell is not heard of.
pub fn watch<K>(
    subject: Subject<K>,
    mailbox: mpsc::Sender<Message>,
    metrics: Metrics,
    wrap: impl Fn(Change<K>) -> Message + Send + Sync + 'static,
) -> Watching
where
    K: Watched,
{
    let what = subject.what.clone();
    let broken = mailbox.clone();
    let backoff = Backoff::new(if subject.lists.is_some() { LONGEST_OF_ONE } else { LONGEST_OF_ALL });
    let health = Health::default();
    let (relists, failures, silences) = (Backoff::new(LONGEST_OF_LISTS), 0, 0);
    let watcher = Watcher { subject, mailbox, metrics, wrap, health, backoff, relists, failures, silences };
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
    backoff: Backoff,
    /// Pauses before a list that is not the first, until the watch works: lists of thousands of nodes are no
    /// stand-in for a watch.
    relists: Backoff,
    /// Failures since the watch worked last. Lists that worked in between change nothing: a watch that fails
    /// after every list must not list without a pause.
    failures: u32,
    /// How often in a row nothing was heard of an open watch.
    silences: u32,
}

/// Nobody listens any more.
struct Over;

/// How an open watch ended.
enum Ended {
    /// As it should, or its end never arrived: it goes on from where it was.
    Well,
    Badly(Failure),
}

impl<K, W> Watcher<K, W>
where
    K: Watched,
    W: Fn(Change<K>) -> Message + Send + Sync + 'static,
{
    async fn run(mut self) {
        while let Ok(listed) = self.list().await {
            let Some(version) = listed else { continue };
            if self.follow(version).await.is_err() {
                return;
            }
            sleep(self.relists.pause(None, fastrand::f64())).await;
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
            let (since, page) = self.page(&parameters).await;
            let page = match page {
                Ok(page) => page,
                Err(failure) => return self.failed(&failure, since).await.map(|()| None),
            };
            for object in page.items {
                uids.extend(object.uid());
                self.tell(Change::Applied(object)).await?;
            }
            parameters.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if parameters.continue_token.is_none() {
                let version = page.metadata.resource_version.filter(|version| !version.is_empty());
                if version.is_none() {
                    return self.failed(&Failure::without_version(), since).await.map(|()| None);
                }
                if self.health.lists() {
                    self.tell_recovery().await?;
                }
                self.tell(Change::Listed(uids)).await?;
                return Ok(version);
            }
        }
    }

    /// One page of a list when it is its turn, and when it was asked for.
    async fn page(&self, parameters: &ListParams) -> (Instant, Result<ObjectList<K>, Failure>) {
        let call = async {
            let since = Instant::now();
            let page = match timeout(ANSWER, self.subject.api.list(parameters)).await {
                Ok(Ok(page)) => Ok(page),
                Ok(Err(error)) => Err(Failure::of(&error)),
                Err(_) => Err(Failure::unanswered(ANSWER)),
            };
            (since, page)
        };
        match &self.subject.lists {
            Some(lists) => lists.in_turn(self.failures > 0, call).await,
            None => call.await,
        }
    }

    /// Watches from there on, until everything has to be listed anew.
    async fn follow(&mut self, mut version: String) -> Result<(), Over> {
        loop {
            let parameters = WatchParams {
                label_selector: self.subject.labels.clone(),
                field_selector: self.subject.fields.clone(),
                timeout: Some(WATCH_SECONDS),
                bookmarks: true,
                send_initial_events: false,
            };
            let began = Instant::now();
            let (failure, since) = match timeout(ANSWER, self.subject.api.watch(&parameters, &version)).await
            {
                Ok(Ok(events)) => match self.events(pin!(events), &mut version).await? {
                    Ended::Well => {
                        sleep_until(began + SHORTEST).await;
                        continue;
                    }
                    Ended::Badly(failure) => (failure, Instant::now()),
                },
                Ok(Err(error)) => (Failure::of(&error), began),
                Err(_) => (Failure::unanswered(ANSWER), began),
            };
            self.failed(&failure, since).await?;
            if self.failures >= failure.relist_after {
                return Ok(());
            }
        }
    }

    /// Takes the events of one open watch, and the version that it has come to.
    async fn events<S>(&mut self, mut events: Pin<&mut S>, version: &mut String) -> Result<Ended, Over>
    where
        S: futures::Stream<Item = kube::Result<WatchEvent<K>>>,
    {
        let (opened, mut heard) = (Instant::now(), false);
        loop {
            let proven = self.failures == 0 && self.health.is_well();
            let event = match timeout(if proven { SILENCE } else { STEADY }, events.next()).await {
                Ok(Some(event)) => event,
                Ok(None) if heard || opened.elapsed() >= STEADY => return Ok(Ended::Well),
                Ok(None) => return Ok(Ended::Badly(Failure::ended_at_once())),
                Err(_) if !proven => {
                    self.works().await?;
                    continue;
                }
                Err(_) => return Ok(self.silent()),
            };
            let (change, next) = match event {
                Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    let next = object.resource_version();
                    (Some(Change::Applied(object)), next)
                }
                Ok(WatchEvent::Deleted(object)) => {
                    let next = object.resource_version();
                    (Some(Change::Gone(object)), next)
                }
                Ok(WatchEvent::Bookmark(bookmark)) => (None, Some(bookmark.metadata.resource_version)),
                Ok(WatchEvent::Error(status)) => return Ok(Ended::Badly(Failure::told(&status))),
                // One object that cannot be read costs only itself.
                Err(kube::Error::SerdeError(error)) => {
                    warn!("{}: an object cannot be read: {error}", self.subject.what);
                    continue;
                }
                Err(error) => return Ok(Ended::Badly(Failure::of(&error))),
            };
            if let Some(next) = next {
                if older(&next, version) {
                    return Ok(Ended::Badly(Failure::back_in_time(version, &next)));
                }
                *version = next;
            }
            (heard, self.silences) = (true, 0);
            self.works().await?;
            if let Some(change) = change {
                self.tell(change).await?;
            }
        }
    }

    /// Nothing came for long. A watch whose connection is gone is heard of again when it is begun anew.
    fn silent(&mut self) -> Ended {
        self.silences += 1;
        if self.silences < 2 {
            return Ended::Well;
        }
        self.silences = 0;
        Ended::Badly(Failure::silent())
    }

    /// A call failed: says so if it is time to, and waits a little.
    async fn failed(&mut self, failure: &Failure, since: Instant) -> Result<(), Over> {
        self.failures = self.failures.saturating_add(1);
        let asked = self.subject.retry_after.take().or(failure.retry_after);
        let pause = self.backoff.pause(asked, fastrand::f64());
        let (what, why) = (&self.subject.what, &failure.why);
        warn!("{what}: {why}; trying again in {pause:?}");
        self.metrics.watch_restarts.with_label_values(&[&*K::kind(&())]).inc();
        if let Some(why) = self.health.failed(why, since, Instant::now()) {
            if self.health.listed {
                warn!("{what} cannot be watched; what was known last counts until then");
            }
            self.tell(Change::Failed(format!("{what}: {why}"))).await?;
        }
        sleep(pause).await;
        Ok(())
    }

    async fn works(&mut self) -> Result<(), Over> {
        self.failures = 0;
        self.backoff.worked();
        self.relists.worked();
        if self.health.works() {
            self.tell_recovery().await?;
        }
        Ok(())
    }

    async fn tell_recovery(&self) -> Result<(), Over> {
        info!("{}: it works again", self.subject.what);
        self.tell(Change::Works).await
    }
}

/// Versions are ordered numbers.
fn older(one: &str, other: &str) -> bool {
    matches!((one.parse::<u64>(), other.parse::<u64>()), (Ok(one), Ok(other)) if one < other)
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
