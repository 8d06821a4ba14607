//! The index as requests and watches share it, and how much of it is there.
//!
//! Allocations are all or nothing: without their first list no question can be answered. ReplicaSets are
//! followed by namespace, and a namespace that cannot be listed gates nothing: its pods are known by the names
//! of their ReplicaSets. Only after a start all of them are waited for, a short while, so that a restart
//! lets no pod slip by.

use crate::index::Index;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use telemetry::webhook::Metrics;
use tokio::sync::watch;

/// What reviews are answered from.
pub struct State {
    index: RwLock<Index>,
    metrics: Metrics,
    namespaces: Mutex<Namespaces>,
    allocations: AtomicBool,
    complete: AtomicBool,
    changes: watch::Sender<u64>,
}

/// How it is with the ReplicaSets of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Following {
    /// They are being listed for the first time.
    Begun,
    /// They are known.
    Listed,
    /// They cannot be listed or watched: what is known of them may be old.
    Failing,
}

#[derive(Default)]
struct Namespaces {
    followed: BTreeMap<String, Following>,
    /// What is still waited for after the start.
    awaited: BTreeSet<String>,
}

const ALLOCATIONS: &str = "allocations";
const REPLICA_SETS: &str = "replicasets";

impl State {
    /// With nothing known yet.
    pub fn new(excluded: BTreeSet<String>, metrics: Metrics) -> Self {
        for name in [ALLOCATIONS, REPLICA_SETS] {
            metrics.index_synced.with_label_values(&[name]).set(0);
        }
        Self {
            index: RwLock::new(Index::new(excluded)),
            metrics,
            namespaces: Mutex::default(),
            allocations: AtomicBool::new(false),
            complete: AtomicBool::new(false),
            changes: watch::Sender::new(0),
        }
    }

    /// The index as it is now.
    pub fn index(&self) -> RwLockReadGuard<'_, Index> {
        // A panic while it was written is a bug, but no reason to answer nothing for ever.
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles of the metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Changes the index without telling anybody.
    pub fn with_index<T>(&self, change: impl FnOnce(&mut Index) -> T) -> T {
        change(&mut self.index.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the index and wakes who waits for changes.
    pub fn update(&self, change: impl FnOnce(&mut Index)) {
        let sizes = self.with_index(|index| {
            change(index);
            index.sizes()
        });
        for (name, size) in [
            (ALLOCATIONS, sizes.allocations),
            ("addresses", sizes.addresses),
            ("workloads", sizes.workloads),
            (REPLICA_SETS, sizes.replica_sets),
        ] {
            let size = i64::try_from(size).unwrap_or(i64::MAX);
            self.metrics.index_size.with_label_values(&[name]).set(size);
        }
        self.tell();
    }

    /// Tells of every change of the index.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn tell(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Whether allocations have been listed once: then questions about allocations can be answered.
    pub fn knows_allocations(&self) -> bool {
        self.allocations.load(Ordering::Acquire)
    }

    /// Whether everything that is waited for is there: then every question can be answered.
    pub fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// What is still waited for.
    pub fn missing(&self) -> Vec<String> {
        if !self.knows_allocations() {
            return vec![ALLOCATIONS.to_owned()];
        }
        let namespaces = self.lock();
        namespaces.awaited.iter().map(|namespace| format!("{REPLICA_SETS} in {namespace}")).collect()
    }

    /// All allocations have been listed; which ReplicaSets are needed is known now.
    pub fn allocations_listed(&self) {
        let mut namespaces = self.lock();
        if !self.allocations.swap(true, Ordering::AcqRel) {
            let listed = |namespace: &String| namespaces.followed.get(namespace) == Some(&Following::Listed);
            let mut needed = self.index().namespaces_with_deployments();
            needed.retain(|namespace| !listed(namespace));
            namespaces.awaited = needed;
            self.metrics.index_synced.with_label_values(&[ALLOCATIONS]).set(1);
        }
        self.settle(&namespaces);
    }

    /// What has become of the ReplicaSets of a namespace. True: that is news.
    pub fn follows(&self, namespace: &str, now: Following) -> bool {
        let mut namespaces = self.lock();
        // The last word of a watch that was just stopped says nothing.
        if now != Following::Begun && !namespaces.followed.contains_key(namespace) {
            return false;
        }
        let news = namespaces.followed.insert(namespace.to_owned(), now) != Some(now);
        if now == Following::Listed {
            namespaces.awaited.remove(namespace);
        }
        if news {
            self.with_index(|index| index.set_failing(namespace, now == Following::Failing));
            let synced = i64::from(now == Following::Listed);
            self.metrics.namespace_synced.with_label_values(&[namespace]).set(synced);
        }
        self.settle(&namespaces);
        news
    }

    /// Nobody needs the ReplicaSets of a namespace any more.
    pub fn forget_namespace(&self, namespace: &str) {
        let mut namespaces = self.lock();
        namespaces.followed.remove(namespace);
        namespaces.awaited.remove(namespace);
        self.with_index(|index| index.set_failing(namespace, false));
        // It may never have been there.
        let _ = self.metrics.namespace_synced.remove_label_values(&[namespace]);
        self.settle(&namespaces);
    }

    /// A namespace that has not been listed in a good while counts as failing.
    pub fn lose_patience_with(&self, namespace: &str) -> bool {
        let begun = self.lock().followed.get(namespace) == Some(&Following::Begun);
        begun && self.follows(namespace, Following::Failing)
    }

    /// Goes on without what is still missing; says what that is.
    pub fn go_on(&self) -> Vec<String> {
        let mut namespaces = self.lock();
        let missing = std::mem::take(&mut namespaces.awaited);
        self.settle(&namespaces);
        missing.into_iter().collect()
    }

    fn settle(&self, namespaces: &Namespaces) {
        if self.knows_allocations() && namespaces.awaited.is_empty() {
            self.complete.store(true, Ordering::Release);
        }
        let all = self.is_complete() && namespaces.followed.values().all(|now| *now == Following::Listed);
        self.metrics.index_synced.with_label_values(&[REPLICA_SETS]).set(all.into());
        // Readiness says what is missing.
        self.tell();
    }

    fn lock(&self) -> MutexGuard<'_, Namespaces> {
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
