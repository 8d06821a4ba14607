//! A table of things by key that remembers what it looked like a while ago.
//!
//! Clouds answer reads from replicas that lag behind. A read of this table at an earlier time is such a
//! read.

use crate::clock::minus;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

/// How long past versions are kept; no read may lag by more.
pub const LONGEST_LAG: Duration = Duration::from_mins(10);

/// When a read looks at the world: now, or as it was at an earlier time.
pub type Seen = Option<Timestamp>;

/// Things by key, each with its recent past.
#[derive(Debug)]
pub struct Table<T> {
    rows: BTreeMap<String, Row<T>>,
}

/// Versions of one thing, oldest first; a version without value says that there was none.
#[derive(Debug)]
struct Row<T> {
    past: Vec<(Timestamp, Option<T>)>,
    latest: (Timestamp, Option<T>),
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { rows: BTreeMap::new() }
    }
}

impl<T> Row<T> {
    fn at(&self, seen: Seen) -> Option<&T> {
        let Some(time) = seen else {
            return self.latest.1.as_ref();
        };
        if self.latest.0 <= time {
            return self.latest.1.as_ref();
        }
        let version = self.past.iter().rev().find(|(since, _)| *since <= time)?;
        version.1.as_ref()
    }

    fn push(&mut self, now: Timestamp, value: Option<T>) {
        let before = std::mem::replace(&mut self.latest, (now, value));
        self.past.push(before);
        let oldest = minus(now, LONGEST_LAG);
        // The newest version that is older than the longest lag is still what the slowest reader sees.
        let unseen = self.past.iter().rposition(|(since, _)| *since <= oldest);
        self.past.drain(..unseen.unwrap_or(0));
    }
}

impl<T: Clone> Table<T> {
    /// The thing of that key as it is now.
    pub fn get(&self, key: &str) -> Option<&T> {
        self.seen(key, None)
    }

    /// The thing of that key as a reader sees it.
    pub fn seen(&self, key: &str, seen: Seen) -> Option<&T> {
        self.rows.get(key)?.at(seen)
    }

    /// Puts a thing in the place of whatever had the key.
    pub fn put(&mut self, key: &str, value: T, now: Timestamp) {
        if let Some(row) = self.rows.get_mut(key) {
            return row.push(now, Some(value));
        }
        let row = Row { past: Vec::new(), latest: (now, Some(value)) };
        self.rows.insert(key.to_owned(), row);
    }

    /// Changes a thing; false when there is none.
    pub fn edit(&mut self, key: &str, now: Timestamp, change: impl FnOnce(&mut T)) -> bool {
        let Some(row) = self.rows.get_mut(key) else {
            return false;
        };
        let Some(mut value) = row.latest.1.clone() else {
            return false;
        };
        change(&mut value);
        row.push(now, Some(value));
        true
    }

    /// Forgets the past: what is now has always been.
    pub fn forget_past(&mut self) {
        for row in self.rows.values_mut() {
            row.past.clear();
            row.latest.0 = Timestamp::MIN;
        }
    }

    /// Takes a thing away.
    pub fn remove(&mut self, key: &str, now: Timestamp) -> Option<T> {
        let row = self.rows.get_mut(key)?;
        let value = row.latest.1.clone()?;
        row.push(now, None);
        Some(value)
    }

    /// All things as a reader sees them, in the order of their keys.
    pub fn all(&self, seen: Seen) -> impl Iterator<Item = (&str, &T)> {
        self.after(seen, "", None)
    }

    /// The things whose key starts with `prefix` and comes after `cursor`, in the order of their keys.
    pub fn after<'a>(
        &'a self,
        seen: Seen,
        prefix: &'a str,
        cursor: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a str, &'a T)> {
        let start = match cursor {
            Some(cursor) => Bound::Excluded(cursor),
            None => Bound::Included(prefix),
        };
        self.rows
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(prefix))
            .filter_map(move |(key, row)| Some((key.as_str(), row.at(seen)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::plus;

    fn at(seconds: u64) -> Timestamp {
        plus(Timestamp::UNIX_EPOCH, Duration::from_secs(seconds))
    }

    #[test]
    fn a_late_reader_sees_the_past() {
        let mut table = Table::default();
        table.put("a", 1, at(10));
        table.put("a", 2, at(20));
        table.remove("a", at(30));
        let seen = [5, 10, 19, 20, 30].map(|time| table.seen("a", Some(at(time))).copied());
        assert_eq!(seen, [None, Some(1), Some(1), Some(2), None]);
        assert_eq!(table.get("a"), None);
    }

    #[test]
    fn a_much_written_row_keeps_only_what_a_reader_can_still_see() {
        let mut table = Table::default();
        for second in 0..5_000 {
            table.put("a", second, at(second));
        }
        assert_eq!(table.seen("a", Some(at(4_400))), Some(&4_400));
        assert!(table.rows["a"].past.len() <= 601, "{}", table.rows["a"].past.len());
    }
}
