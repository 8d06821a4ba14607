//! Work that a cloud has accepted and does later.

use super::State;
use super::things::Cloud;
use crate::clock::{plus, seconds};
use crate::log::Kind;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// What an operation does to the world when its time has come.
pub type Effect = Box<dyn FnOnce(&mut State) -> Result<(), Failure> + Send>;

/// Why an operation that was accepted has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The vendor's code.
    pub code: String,
    /// The vendor's words.
    pub message: String,
}

impl Failure {
    /// A failure with that code and those words.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into() }
    }
}

/// When an operation is done.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pace {
    /// When somebody has asked for its state so often.
    Polls(u32),
    /// So many seconds after it was accepted.
    Seconds(f64),
}

/// Where an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Status {
    Pending,
    Running,
    Done,
    /// Given up because of a later one.
    Canceled,
}

/// Who asked for an operation, and on what.
#[derive(Clone, Debug)]
pub struct Order {
    /// The cloud that does it.
    pub cloud: Cloud,
    /// The call that started it.
    pub action: String,
    /// Who called.
    pub caller: String,
    /// Key of the instance or interface that it changes.
    pub target: String,
    /// The number of that thing.
    pub target_uid: u64,
    /// Azure: keys of the addresses that nobody else may change meanwhile; so is the target.
    pub locks: Vec<String>,
    /// Where it runs: the key of a zone, or a location.
    pub place: String,
    /// The caller's idempotency token.
    pub request_id: Option<String>,
    /// When it is done.
    pub pace: Pace,
    /// It fails with this instead of having its effect.
    pub fails_with: Option<Failure>,
}

/// An operation.
pub struct Operation {
    /// Who asked for it, and on what.
    pub order: Order,
    /// Its name.
    pub name: String,
    /// Its number.
    pub uid: u64,
    /// When it was accepted.
    pub accepted: Timestamp,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// Where it is.
    pub status: Status,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
    polls: u32,
    effect: Option<Effect>,
}

/// All operations, and what else will happen later.
#[derive(Default)]
pub struct Operations {
    by_name: BTreeMap<String, Operation>,
    by_request: HashMap<(Cloud, String), String>,
    /// Names of those that are under way, oldest first.
    active: Vec<String>,
    later: Vec<Later>,
}

/// Something that the cloud does by itself after a while.
struct Later {
    due: Timestamp,
    cloud: Cloud,
    what: String,
    target: String,
    effect: Effect,
}

enum Due {
    Operation(String),
    Later(usize),
}

impl Operation {
    /// When it is done, if it is time that decides.
    pub fn due(&self) -> Option<Timestamp> {
        match self.order.pace {
            Pace::Seconds(after) => Some(plus(self.accepted, seconds(after))),
            Pace::Polls(_) => None,
        }
    }

    /// Where it is at a time: half of its way it is only queued.
    fn progress(&self, now: Timestamp) -> Status {
        let begun = match self.order.pace {
            Pace::Seconds(after) => now >= plus(self.accepted, seconds(after / 2.0)),
            Pace::Polls(polls) => self.polls * 2 >= polls,
        };
        if begun { Status::Running } else { Status::Pending }
    }
}

impl Operations {
    /// All operations of a cloud, by name.
    pub fn all(&self, cloud: Cloud) -> impl Iterator<Item = &Operation> {
        self.by_name.values().filter(move |operation| operation.order.cloud == cloud)
    }

    /// The operation of that name.
    pub fn get(&self, name: &str) -> Option<&Operation> {
        self.by_name.get(name)
    }

    /// The operation that an earlier request with the same token started.
    pub fn of_request(&self, cloud: Cloud, request_id: &str) -> Option<&Operation> {
        let name = self.by_request.get(&(cloud, request_id.to_owned()))?;
        self.by_name.get(name)
    }

    /// The operation that is under way on a target.
    pub fn active_on(&self, cloud: Cloud, target: &str) -> Option<&Operation> {
        self.active
            .iter()
            .filter_map(|name| self.by_name.get(name))
            .find(|operation| operation.order.cloud == cloud && operation.order.target == target)
    }

    /// The next thing that is due at a time.
    fn next_due(&self, now: Timestamp) -> Option<(Timestamp, Due)> {
        let operations = self.active.iter().filter_map(|name| {
            let due = self.by_name.get(name)?.due()?;
            Some((due, Due::Operation(name.clone())))
        });
        let later = self.later.iter().enumerate().map(|(n, later)| (later.due, Due::Later(n)));
        operations.chain(later).filter(|(due, _)| *due <= now).min_by_key(|(due, _)| *due)
    }
}

impl State {
    /// Accepts an operation; its effect comes when it is done.
    pub fn start(&mut self, order: Order, effect: Effect) -> String {
        let name = self.accept(order, effect);
        self.settle();
        name
    }

    /// The same, but even an operation that takes no time is not done before the next [`State::settle`].
    pub fn accept(&mut self, order: Order, effect: Effect) -> String {
        let uid = self.next_uid();
        let now = self.now();
        let name = match order.cloud {
            Cloud::Gcp => format!("operation-{}-{uid:x}", now.as_millisecond()),
            Cloud::Aws | Cloud::Azure => guid(uid),
        };
        if let Some(request_id) = &order.request_id {
            let key = (order.cloud, request_id.clone());
            self.operations.by_request.insert(key, name.clone());
        }
        let operation = Operation {
            order,
            name: name.clone(),
            uid,
            accepted: now,
            ended: None,
            status: Status::Pending,
            failure: None,
            polls: 0,
            effect: Some(effect),
        };
        self.operations.by_name.insert(name.clone(), operation);
        self.operations.active.push(name.clone());
        name
    }

    /// Counts that somebody asked for the state of an operation, and moves it on.
    pub fn poll(&mut self, name: &str) {
        let now = self.now();
        let Some(operation) = self.operations.by_name.get_mut(name) else {
            return;
        };
        if !matches!(operation.status, Status::Pending | Status::Running) {
            return;
        }
        operation.polls += 1;
        operation.status = operation.progress(now);
        if matches!(operation.order.pace, Pace::Polls(polls) if operation.polls >= polls) {
            self.finish(name, now);
        }
    }

    /// Gives an operation up because of a later one.
    pub fn cancel(&mut self, name: &str, failure: Failure) {
        let now = self.now();
        self.operations.active.retain(|active| active != name);
        if let Some(operation) = self.operations.by_name.get_mut(name) {
            operation.status = Status::Canceled;
            operation.ended = Some(now);
            operation.effect = None;
            operation.failure = Some(failure);
        }
    }

    /// Has the cloud do something by itself after a while.
    pub fn later(&mut self, cloud: Cloud, after: f64, what: &str, target: &str, effect: Effect) {
        let due = plus(self.now(), seconds(after));
        self.operations.later.push(Later {
            due,
            cloud,
            what: what.to_owned(),
            target: target.to_owned(),
            effect,
        });
        self.settle();
    }

    /// Lets everything happen that is due, in the order in which it is due.
    pub fn settle(&mut self) {
        let now = self.now();
        while let Some((due, what)) = self.operations.next_due(now) {
            match what {
                Due::Operation(name) => self.finish(&name, due),
                Due::Later(n) => {
                    let later = self.operations.later.remove(n);
                    // What the cloud does by itself has nobody to report a failure to.
                    let _ = (later.effect)(self);
                    self.log_background(Kind::Cloud, later.cloud, "", &later.what, &later.target, None);
                }
            }
        }
        self.show_progress(now);
    }

    fn show_progress(&mut self, now: Timestamp) {
        for name in &self.operations.active {
            if let Some(operation) = self.operations.by_name.get_mut(name) {
                operation.status = operation.progress(now);
            }
        }
    }

    fn finish(&mut self, name: &str, when: Timestamp) {
        self.operations.active.retain(|active| active != name);
        let Some(operation) = self.operations.by_name.get_mut(name) else {
            return;
        };
        let effect = operation.effect.take();
        let order = operation.order.clone();
        let result = match (order.fails_with.clone(), effect) {
            (Some(failure), _) => Err(failure),
            (None, Some(effect)) => effect(self),
            (None, None) => Ok(()),
        };
        if let Some(operation) = self.operations.by_name.get_mut(name) {
            operation.status = Status::Done;
            operation.ended = Some(when);
            operation.failure = result.as_ref().err().cloned();
        }
        self.unlock(name, &order, result.is_ok());
        let code = result.err().map(|failure| failure.code);
        let (caller, action, target) = (&order.caller, &order.action, &order.target);
        self.log_background(Kind::Operation, order.cloud, caller, action, target, code);
    }
}

/// A number in the form of a GUID.
pub fn guid(number: u64) -> String {
    let hex = format!("{:016x}{number:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
