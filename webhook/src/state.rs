//! The index as requests and watches share it, and whether it is complete.

use crate::index::Index;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};
use telemetry::webhook::Metrics;
use tokio::sync::watch;

/// What reviews are answered from.
pub struct State {
    index: RwLock<Index>,
    metrics: Metrics,
    /// What has not been listed yet; once this is empty, it stays so.
    missing: Mutex<BTreeSet<String>>,
    complete: AtomicBool,
    changes: watch::Sender<u64>,
}

const ALLOCATIONS: &str = "allocations";

impl State {
    /// With nothing known yet.
    pub fn new(excluded: BTreeSet<String>, metrics: Metrics) -> Self {
        for name in [ALLOCATIONS, "replicasets"] {
            metrics.index_synced.with_label_values(&[name]).set(0);
        }
        Self {
            index: RwLock::new(Index::new(excluded)),
            metrics,
            missing: Mutex::new(BTreeSet::from([ALLOCATIONS.to_owned()])),
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
            ("replicasets", sizes.replica_sets),
        ] {
            let size = i64::try_from(size).unwrap_or(i64::MAX);
            self.metrics.index_size.with_label_values(&[name]).set(size);
        }
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Tells of every change of the index.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Whether everything has been listed once.
    pub fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// What has not been listed yet.
    pub fn missing(&self) -> Vec<String> {
        self.lock_missing().iter().cloned().collect()
    }

    /// All allocations have been listed; which ReplicaSets are needed is known now.
    pub fn allocations_listed(&self) {
        let mut missing = self.lock_missing();
        if missing.remove(ALLOCATIONS) {
            let namespaces = self.index().namespaces_with_deployments();
            missing.extend(namespaces.iter().map(|namespace| replica_sets_of(namespace)));
            self.metrics.index_synced.with_label_values(&[ALLOCATIONS]).set(1);
        }
        self.settle(&missing);
    }

    /// The ReplicaSets of a namespace have been listed, or are not needed any more.
    pub fn replica_sets_listed(&self, namespace: &str) {
        let mut missing = self.lock_missing();
        missing.remove(&replica_sets_of(namespace));
        self.settle(&missing);
    }

    fn settle(&self, missing: &BTreeSet<String>) {
        if missing.is_empty() && !self.complete.swap(true, Ordering::AcqRel) {
            self.metrics.index_synced.with_label_values(&["replicasets"]).set(1);
        }
        // Readiness says what is missing.
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    fn lock_missing(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn replica_sets_of(namespace: &str) -> String {
    format!("replicasets in {namespace}")
}
