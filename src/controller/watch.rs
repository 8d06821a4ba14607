//! Watches as streams of changes that end up in the controller's one mailbox.

use super::Message;
use futures::StreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;
use telemetry::controller::Metrics;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

/// A change of one kind of objects.
#[derive(Debug)]
pub enum Change<K> {
    /// It is like this now.
    Applied(K),
    /// It is gone.
    Gone(K),
    /// A list is complete: what is not among these UIDs is gone.
    Listed(BTreeSet<String>),
}

/// Ends with its handle.
pub type Watching = AbortOnDropHandle<()>;

/// Watches what the configuration selects, for ever.
pub fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
    mailbox: mpsc::Sender<Message>,
    metrics: Metrics,
    wrap: impl Fn(Change<K>) -> Message + Send + 'static,
) -> Watching
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut events = std::pin::pin!(watcher::watcher(api, config));
        let mut listed = BTreeSet::new();
        let mut pause = FIRST_PAUSE;
        while let Some(event) = events.next().await {
            let change = match event {
                Ok(Event::Init) => {
                    listed.clear();
                    continue;
                }
                Ok(Event::InitApply(object)) => {
                    listed.extend(object.uid());
                    Change::Applied(object)
                }
                Ok(Event::InitDone) => Change::Listed(std::mem::take(&mut listed)),
                Ok(Event::Apply(object)) => Change::Applied(object),
                Ok(Event::Delete(object)) => Change::Gone(object),
                Err(error) => {
                    let kind = K::kind(&());
                    warn!("watch of {kind} objects: {error}; trying again in {pause:?}");
                    metrics.watch_restarts.with_label_values(&[&*kind]).inc();
                    tokio::time::sleep(pause.mul_f64(0.75 + 0.5 * fastrand::f64())).await;
                    pause = (pause * 2).min(LAST_PAUSE);
                    continue;
                }
            };
            pause = FIRST_PAUSE;
            if mailbox.send(wrap(change)).await.is_err() {
                return;
            }
        }
    }))
}

const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// An API server that comes back is noticed within seconds.
const LAST_PAUSE: Duration = Duration::from_secs(2);
