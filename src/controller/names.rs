//! Node names, each held once however many pods are there.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Shared strings.
#[derive(Default)]
pub struct Names {
    all: BTreeSet<Arc<str>>,
    /// How many there may be before those that nobody uses any more are let go.
    limit: usize,
}

impl Names {
    /// The one copy of a name.
    pub fn shared(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.all.get(name) {
            return known.clone();
        }
        if self.all.len() >= self.limit {
            self.all.retain(|name| Arc::strong_count(name) > 1);
            self.limit = 2 * self.all.len() + 64;
        }
        let shared: Arc<str> = name.into();
        self.all.insert(shared.clone());
        shared
    }
}
