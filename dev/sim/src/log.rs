//! What happened in all clouds, in one order, and who held what at any moment of it.

use crate::model::things::Cloud;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

/// Events kept; older ones are forgotten, but never the changes of holders in them.
const KEPT: usize = 200_000;

/// What an event was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A request was answered, or got no answer on purpose.
    Call,
    /// An operation ended that a request had started.
    Operation,
    /// The cloud did something by itself.
    Cloud,
    /// Somebody who is not under test changed the world.
    Outside,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its place in the order of all events of all clouds, from 1.
    pub seq: u64,
    /// When it happened, by the simulated clock.
    pub at: Timestamp,
    /// When the request came; when it happened, of what was no request.
    pub received: Timestamp,
    /// In which cloud.
    pub cloud: Cloud,
    /// What kind of event.
    pub kind: Kind,
    /// Who called: the bearer token, the access key id, the name in the endpoint, or `anonymous`.
    pub caller: String,
    /// The program that called.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user_agent: String,
    /// What was called, such as `instances.addAccessConfig` or `AssociateAddress`.
    pub action: String,
    /// On what: an id, a path, an address.
    pub target: String,
    /// The call changes things, or would if it succeeded.
    pub mutating: bool,
    /// The HTTP status that was answered; none if there was no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The vendor's error code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The faults of the script that played a part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
    /// What a mutating call was meant to do, whether it was refused or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<About>,
    /// Reserved addresses that changed hands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<HoldChange>,
    /// Instances that lost or got a public address of the cloud's choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<OwnChange>,
}

/// What a mutating call is meant to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Puts a reserved address on an instance.
    Attach,
    /// Takes a reserved address off an instance.
    Detach,
    /// Gives an instance a public address of the cloud's choice.
    GiveOwn,
    /// Takes that address away.
    TakeOwn,
    /// Reserves an address.
    Reserve,
    /// Gives a reserved address back to the cloud, for good.
    Release,
    /// Anything else, or nothing at all.
    Other,
}

/// A mutating call by what it is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// What it is meant to do.
    pub purpose: Purpose,
    /// The reserved address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Provider ID of the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
}

impl About {
    /// A call about an address and an instance, as far as there are such.
    pub fn new(purpose: Purpose, address: Option<IpAddr>, instance: Option<String>) -> Self {
        Self { purpose, address, instance }
    }
}

/// An instance's address of the cloud's choice changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnChange {
    /// Provider ID of the instance.
    pub instance: String,
    /// The one that it had.
    pub before: Option<IpAddr>,
    /// The one that it has.
    pub after: Option<IpAddr>,
}

/// A reserved address in somebody's hands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The cloud of both.
    pub cloud: Cloud,
    /// The address.
    pub ip: IpAddr,
    /// Provider ID of the instance; or the interface that was left behind; or another kind of resource.
    pub holder: String,
    /// The number of the instance, which tells it from another one of the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_uid: Option<u64>,
    /// The interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

/// A reserved address changes hands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldChange {
    /// The address.
    pub ip: IpAddr,
    /// Who had it.
    pub before: Option<Hold>,
    /// Who has it now.
    pub after: Option<Hold>,
}

/// Who holds what right after an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The event.
    pub seq: u64,
    /// Reserved addresses in somebody's hands.
    pub holds: BTreeMap<IpAddr, Hold>,
}

/// All that happened.
#[derive(Debug, Default)]
pub struct Log {
    events: VecDeque<Event>,
    last: u64,
    /// Who held what before the first event.
    start: BTreeMap<IpAddr, Hold>,
    changes: Vec<(u64, HoldChange)>,
    /// Changes that belong to the event that is being made.
    noted: Vec<HoldChange>,
    noted_own: Vec<OwnChange>,
}

impl Log {
    /// Begins the log: who holds what now is what everybody started with.
    pub fn begin(&mut self, holds: Vec<Hold>) {
        self.start = holds.into_iter().map(|hold| (hold.ip, hold)).collect();
        self.noted.clear();
        self.noted_own.clear();
    }

    /// Numbers events on from those of another log, so that nobody who counts is confused.
    pub fn continue_from(&mut self, last: u64) {
        self.last = self.last.max(last);
    }

    /// Notes that an address changes hands in the event that comes next.
    pub fn note(&mut self, change: HoldChange) {
        if change.before != change.after {
            self.noted.push(change);
        }
    }

    /// Notes that an instance's address of the cloud's choice changes in the event that comes next.
    pub fn note_own(&mut self, change: OwnChange) {
        self.noted_own.push(change);
    }

    /// An event with nothing but the plain facts in it.
    pub fn event(at: Timestamp, kind: Kind, cloud: Cloud, action: &str, target: &str) -> Event {
        Event {
            seq: 0,
            at,
            received: at,
            cloud,
            kind,
            caller: String::new(),
            user_agent: String::new(),
            action: action.to_owned(),
            target: target.to_owned(),
            mutating: false,
            status: None,
            code: None,
            faults: Vec::new(),
            about: None,
            changes: Vec::new(),
            own: Vec::new(),
        }
    }

    /// Appends an event with all changes noted since the last one, and gives its number.
    pub fn append(&mut self, mut event: Event) -> u64 {
        self.last += 1;
        event.seq = self.last;
        event.changes = std::mem::take(&mut self.noted);
        event.own = std::mem::take(&mut self.noted_own);
        let changes = event.changes.iter().cloned();
        self.changes.extend(changes.map(|change| (self.last, change)));
        if self.events.len() == KEPT {
            self.events.pop_front();
        }
        self.events.push_back(event);
        self.last
    }

    /// The number of the last event.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The events after a number.
    pub fn since(&self, seq: u64) -> Vec<Event> {
        let first = self.events.front().map_or(1, |event| event.seq);
        let skip = usize::try_from((seq + 1).saturating_sub(first)).unwrap_or(usize::MAX);
        self.events.iter().skip(skip).cloned().collect()
    }

    /// Who held what right after an event; after number 0 it is what everybody started with.
    pub fn snapshot(&self, seq: u64) -> Snapshot {
        let mut holds = self.start.clone();
        for (_, change) in self.changes.iter().take_while(|(at, _)| *at <= seq) {
            match &change.after {
                Some(hold) => holds.insert(change.ip, hold.clone()),
                None => holds.remove(&change.ip),
            };
        }
        Snapshot { seq: seq.min(self.last), holds }
    }
}
