//! Since when something has been so, and when to look again.

use crate::{Notice, Time};
use std::collections::BTreeMap;

/// Carries notices from one plan to the next. What is not noticed again is forgotten.
pub struct Notices<'w> {
    now: Time,
    before: &'w BTreeMap<Notice, Time>,
    pub current: BTreeMap<Notice, Time>,
    pub wake_at: Option<Time>,
}

impl<'w> Notices<'w> {
    pub fn new(before: &'w BTreeMap<Notice, Time>, now: Time) -> Self {
        Self { now, before, current: BTreeMap::new(), wake_at: None }
    }

    /// It is so now; since when?
    pub fn since(&mut self, notice: Notice) -> Time {
        // A clock that was set back must not make a waiting time endless.
        let since = self.before.get(&notice).copied().unwrap_or(self.now).min(self.now);
        self.current.insert(notice, since);
        since
    }

    /// Something may change at that time without any event.
    pub fn wake(&mut self, at: Time) {
        if at > self.now {
            self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
        }
    }
}
