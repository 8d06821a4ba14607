//! What can be set.

use jiff::Timestamp;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// How long things last.
#[derive(Clone, Debug)]
pub struct Lifetimes {
    /// A CA's life.
    pub authority: Duration,
    /// A leaf's life.
    pub leaf: Duration,
    /// How far `NotBefore` lies in the past, for clocks that are behind.
    pub back_dated: Duration,
    /// How long a CA is published before a leaf that it signed is served: the API server's cache of
    /// webhook configurations, and the clients it keeps for them, lag behind a write (a second or so), and
    /// its clock, by which the write is dated, may be behind ours.
    pub margin: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            authority: Duration::from_hours(365 * 24),
            leaf: Duration::from_hours(30 * 24),
            back_dated: Duration::from_hours(1),
            margin: Duration::from_mins(1),
        }
    }
}

impl Lifetimes {
    /// What does not fit together, if anything: the last third of a CA's life has to have room for the
    /// margin, and a leaf has to be renewable before its CA is.
    pub fn fault(&self) -> Option<String> {
        let Self { authority, leaf, margin, .. } = self;
        if *leaf < Duration::from_secs(3) {
            Some(format!("a leaf's life of {leaf:?} is too short"))
        } else if *authority < *leaf * 2 {
            Some(format!("a CA's life of {authority:?} is less than twice a leaf's, {leaf:?}"))
        } else if *margin * 6 > *authority || *margin * 3 > *leaf {
            Some(format!("a margin of {margin:?} is too long for lives of {authority:?} and {leaf:?}"))
        } else {
            None
        }
    }
}

/// What is to be served, and for how long.
#[derive(Clone, Debug)]
pub struct Settings {
    /// DNS names and IP addresses of the leaf.
    pub names: Vec<String>,
    /// Lifetimes.
    pub lifetimes: Lifetimes,
}

impl Settings {
    /// The names as a certificate spells them: addresses have many spellings, and one that is never found
    /// in the leaf would have it renewed for ever.
    pub(crate) fn spelled(&self) -> BTreeSet<String> {
        let spell = |name: &String| name.parse::<IpAddr>().map_or_else(|_| name.clone(), |ip| ip.to_string());
        self.names.iter().map(spell).collect()
    }
}

/// A time so much later; never past the end of time.
pub(crate) fn after(time: Timestamp, duration: Duration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}

/// A time so much earlier.
pub(crate) fn before(time: Timestamp, duration: Duration) -> Timestamp {
    time.checked_sub(duration).unwrap_or(Timestamp::MIN)
}
