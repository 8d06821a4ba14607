//! A world in which the real decisions are played: an API server with its conflict answers and its
//! lagging caches, and replicas that see late, crash between any two steps and have clocks of their own.

use crate::bundle::bundle;
use crate::consumer::Consumer;
use crate::contents::{Contents, Data};
use crate::decide::Step;
use crate::material::Certificate;
use crate::resolve::Resolver;
use crate::settings::{Lifetimes, Settings, after, before};
use crate::turn::turn;
use jiff::Timestamp;
use std::time::Duration;

pub const HOUR: Duration = Duration::from_hours(1);

/// How many histories a property is tried on; `CERTS_CASES` asks for so many times more.
pub fn cases(usual: u32) -> proptest::test_runner::Config {
    let times = std::env::var("CERTS_CASES").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    let cases = usual.saturating_mul(times);
    proptest::test_runner::Config { cases, failure_persistence: None, ..Default::default() }
}

pub fn settings() -> Settings {
    Settings { names: vec!["webhook.test.svc".to_owned()], lifetimes: Lifetimes::default() }
}

pub fn start_of_time() -> Timestamp {
    "2026-11-15T00:00:00Z".parse().unwrap()
}

/// A webhook configuration and what it was before, by when it was written.
#[derive(Clone)]
pub struct Configuration {
    pub versions: Vec<(Timestamp, String, bool)>,
}

impl Configuration {
    /// As a watch shows it.
    pub fn consumer(&self) -> Consumer {
        let (at, bundle, ours) = self.versions.last().unwrap();
        Consumer::new("configuration".to_owned(), vec![bundle.clone()], ours.then_some(*at))
    }

    pub fn write(&mut self, now: Timestamp, bundle: String, ours: bool) {
        self.versions.push((now, bundle, ours));
    }

    /// All bundles that some API server may be using: the newest, and those that it has replaced less
    /// than the lag ago.
    fn in_use(&self, now: Timestamp, lag: Duration) -> Vec<String> {
        let mut bundles = vec![self.versions.last().unwrap().1.clone()];
        for pair in self.versions.windows(2) {
            if pair[1].0 > before(now, lag) {
                bundles.push(pair[0].1.clone());
            }
        }
        bundles
    }
}

/// The API server.
pub struct World {
    pub now: Timestamp,
    pub secret: Option<(Data, u64)>,
    pub version: u64,
    pub configurations: Vec<Configuration>,
    pub settings: Settings,
}

/// What a replica last saw: the Secret with its version, and the configurations.
type View = (Option<(Data, u64)>, Vec<Consumer>);

/// One process.
#[derive(Default)]
pub struct Replica {
    pub memory: Option<Contents>,
    pub resolver: Resolver,
    /// Its clock against the world's, in seconds.
    pub skew: i64,
    pub seen: Option<View>,
}

impl World {
    pub fn new() -> Self {
        let now = start_of_time();
        let empty = Configuration { versions: vec![(now, String::new(), false)] };
        Self { now, secret: None, version: 0, configurations: vec![empty; 2], settings: settings() }
    }

    pub fn pass(&mut self, time: Duration) {
        self.now = after(self.now, time);
    }

    /// What the API server's clients use lags by half the margin. The other half is for clocks.
    fn lag(&self) -> Duration {
        self.settings.lifetimes.margin / 2
    }

    pub fn contents(&self) -> Contents {
        self.secret.as_ref().map(|(data, _)| Contents::read(data).0).unwrap_or_default()
    }

    /// Whether a call to that replica would get through, whichever API server makes it.
    pub fn trusts(&self, replica: &Replica) -> bool {
        let Some((leaf, _)) = replica.resolver.served_at(replica.clock(self)) else { return false };
        let trusted = |bundle: &String| {
            let authorities = Certificate::all_from_pem(bundle.as_bytes()).unwrap_or_default();
            authorities.iter().any(|ca| ca.valid_at(self.now) && leaf.certificate.signed_by(ca))
        };
        let lag = self.lag();
        leaf.certificate.valid_at(self.now)
            && self.configurations.iter().all(|c| c.in_use(self.now, lag).iter().all(trusted))
    }

    fn put(&mut self, contents: &Contents, read_version: Option<u64>) -> bool {
        if self.secret.as_ref().map(|(_, version)| *version) != read_version {
            return false;
        }
        self.version += 1;
        self.secret = Some((contents.data(), self.version));
        true
    }
}

impl Replica {
    fn clock(&self, world: &World) -> Timestamp {
        let skew = Duration::from_secs(self.skew.unsigned_abs());
        if self.skew < 0 { before(world.now, skew) } else { after(world.now, skew) }
    }

    /// Its watches catch up.
    pub fn look(&mut self, world: &World) {
        let consumers = world.configurations.iter().map(Configuration::consumer).collect();
        self.seen = Some((world.secret.clone(), consumers));
    }

    /// One turn of the loop on what was last seen, cut off after so many writes, as a crash would.
    pub fn act(&mut self, world: &mut World, writes: usize) -> Option<Step> {
        let (secret, consumers) = self.seen.clone()?;
        let now = self.clock(world);
        let (stored, faults) = secret.as_ref().map(|(data, _)| Contents::read(data)).unwrap_or_default();
        let turn =
            turn(&stored, !faults.is_empty(), &mut self.memory, &consumers, now, &world.settings).unwrap();
        let mut left = writes;
        let mut contents = stored;
        if let Some(write) = turn.write {
            if left == 0 || !world.put(&write, secret.map(|(_, version)| version)) {
                return Some(turn.decision.step);
            }
            left -= 1;
            contents = write;
        }
        self.resolver.offer(&contents, &consumers, now, world.settings.lifetimes.margin);
        let bundle = bundle(&contents, now);
        let at = world.now;
        for configuration in &mut world.configurations {
            if configuration.consumer().differs(&bundle) {
                if left == 0 {
                    return Some(turn.decision.step);
                }
                left -= 1;
                configuration.write(at, bundle.clone(), true);
            }
        }
        Some(turn.decision.step)
    }

    /// Ends and starts again: nothing is remembered.
    pub fn restart(&mut self) {
        *self = Self { skew: self.skew, ..Self::default() };
    }
}

/// Everybody looks and acts until nobody has anything to do; how many turns that took.
pub fn settle(world: &mut World, replicas: &mut [Replica]) -> usize {
    for turns in 0..40 {
        let mut quiet = true;
        for replica in replicas.iter_mut() {
            replica.look(world);
            quiet &= replica.act(world, usize::MAX) == Some(Step::Keep);
        }
        if quiet {
            return turns;
        }
    }
    panic!("they do not come to rest");
}
