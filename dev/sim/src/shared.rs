//! The state that all servers and all handles share.

use crate::model::State;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// The world, and a bell that rings when something happened in it.
#[derive(Clone)]
pub struct Shared {
    state: Arc<Mutex<State>>,
    last_event: Arc<watch::Sender<u64>>,
}

impl Shared {
    /// Shares a world.
    pub fn new(state: State) -> Self {
        Self { state: Arc::new(Mutex::new(state)), last_event: Arc::new(watch::Sender::new(0)) }
    }

    /// The world, for as long as the guard lives. A panic elsewhere does not take it away: tests that
    /// fail still want to read the log.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells everybody who waits that there may be new events.
    pub fn notify(&self) {
        let last = self.lock().log.last();
        self.last_event.send_if_modified(|seen| {
            let newer = last > *seen;
            *seen = last.max(*seen);
            newer
        });
    }

    /// The number of the last event, to be waited on.
    pub fn events(&self) -> watch::Receiver<u64> {
        self.last_event.subscribe()
    }
}
