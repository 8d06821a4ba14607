//! What happened, in one order: in the clouds and in the API server.

use crate::of_audit::of_audit;
use crate::of_sim::of_sim;
use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use sim::Sim;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// Everything that happened, and what it is judged by.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// What is ours to touch, and how long things may take.
    pub scope: Scope,
    /// What happened, oldest first.
    pub events: Vec<Event>,
}

/// What is ours, and what is expected.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The names of our processes, as clouds and leases know them; a user of the API server is ours if its
    /// name ends like the service account's.
    pub callers: BTreeSet<String>,
    /// The user that the controller has at the API server.
    pub user: String,
    /// What each allocation lists, by its name.
    pub allocations: BTreeMap<String, Allocation>,
    /// Instances that addresses may go to, by provider ID.
    pub instances: BTreeSet<String>,
    /// Texts that nobody may ever read anywhere.
    pub secrets: Vec<String>,
    /// How long a mark or a status may speak of what is not so any more: the time between two audits, and a
    /// little more.
    pub lag: Duration,
    /// Calls that change things: so many at once, and so many more each second.
    pub calls: (f64, f64),
    /// How many moves there was cause for, by address; none: nobody counts.
    pub moves: Option<BTreeMap<IpAddr, usize>>,
    /// At the end: instances that could take an address. None: nobody knows.
    pub eligible: Option<BTreeSet<String>>,
    /// At the end nothing has been written for so long.
    pub quiet: Duration,
    /// From one time to the other nothing of ours changes anything in a cloud, but for an instance that gets its
    /// own address back.
    pub still: Vec<(Timestamp, Timestamp)>,
    /// It came to the end that it was meant to have: what has to be so in the end is looked at.
    pub ended: bool,
    /// When the history ends.
    pub until: Option<Timestamp>,
}

/// What an allocation lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// Its addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// They stay where they are when it goes.
    pub retain: bool,
}

impl Default for Scope {
    fn default() -> Self {
        Self {
            callers: BTreeSet::new(),
            user: "system:serviceaccount:ip-address-controller:ip-address-controller".to_owned(),
            allocations: BTreeMap::new(),
            instances: BTreeSet::new(),
            secrets: Vec::new(),
            lag: Duration::from_secs(15),
            calls: (100.0, 12.5),
            moves: None,
            eligible: None,
            quiet: Duration::ZERO,
            still: Vec::new(),
            ended: false,
            until: None,
        }
    }
}

impl Scope {
    /// One more process of ours, by the name that clouds and leases know it by.
    #[must_use]
    pub fn caller(mut self, name: &str) -> Self {
        self.callers.insert(name.to_owned());
        self
    }

    /// One more allocation with its addresses.
    #[must_use]
    pub fn allocation(mut self, name: &str, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        let addresses = addresses.into_iter().collect();
        self.allocations.insert(name.to_owned(), Allocation { addresses, retain: false });
        self
    }

    /// One more instance that addresses may go to.
    #[must_use]
    pub fn instance(mut self, provider_id: &str) -> Self {
        self.instances.insert(provider_id.to_owned());
        self
    }

    /// All addresses of all allocations.
    pub fn addresses(&self) -> BTreeSet<IpAddr> {
        self.allocations.values().flat_map(|allocation| allocation.addresses.iter().copied()).collect()
    }

    /// Whether a caller of a cloud is ours.
    pub fn is_ours(&self, caller: &str) -> bool {
        self.callers.contains(caller)
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// What.
    pub what: What,
}

impl Event {
    /// How long after another time it happened.
    pub fn since(&self, earlier: Timestamp) -> SignedDuration {
        self.at.duration_since(earlier)
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// Somebody called a cloud.
    Call(Call),
    /// Something that a cloud had accepted came to nothing.
    OperationFailed {
        /// The cloud's code.
        code: String,
    },
    /// A reserved address changed hands.
    Hold(Hold),
    /// An instance lost or got an address of its own.
    Own(Own),
    /// A node was made: its name, its UID and its instance.
    Node {
        /// Its name.
        name: String,
        /// The UID that the API server gave it.
        uid: String,
        /// Its instance.
        provider_id: String,
    },
    /// A node was deleted.
    NodeGone {
        /// Its name.
        name: String,
    },
    /// Somebody cordoned a node, or lifted that.
    Cordon {
        /// The node.
        node: String,
        /// It takes no pods.
        cordoned: bool,
    },
    /// How many pods of the workload of an allocation there are on a node that have not ended.
    Pods {
        /// The node.
        node: String,
        /// The allocation.
        allocation: String,
        /// How many.
        running: usize,
    },
    /// The drain of a node has lasted as long as the allocation lets it.
    DrainOver {
        /// The node.
        node: String,
    },
    /// A pod was made.
    Pod {
        /// Its namespace and name.
        pod: String,
        /// What it belongs to.
        workload: Option<Workload>,
        /// How many seconds it has to end when it is told to.
        grace: i64,
    },
    /// A pod came to a node.
    Bound {
        /// Its namespace and name.
        pod: String,
        /// The node.
        node: String,
    },
    /// A pod was told to end, or has ended.
    PodEnds {
        /// Its namespace and name.
        pod: String,
        /// It is gone; false: it is gone if it takes no time to end.
        gone: bool,
    },
    /// Somebody wrote what an allocation asks for, and was let.
    Spec(Spec),
    /// Somebody deleted an allocation.
    Going {
        /// The allocation.
        allocation: String,
    },
    /// Somebody wrote marks of a node, and was let.
    Marks(Marks),
    /// Somebody wrote the status of an allocation, and was let.
    Status(Status),
    /// Somebody took our finalizer off an allocation, and was let.
    FinalizerGone {
        /// The user.
        by: String,
        /// The allocation.
        allocation: String,
    },
    /// Somebody wrote the Lease, and was let.
    Lease(Lease),
    /// Somebody wrote anything at all.
    Write {
        /// The user.
        by: String,
        /// The name of the object.
        object: String,
        /// What was written, as text.
        text: String,
    },
}

/// What a call to a cloud is meant to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It reads addresses. With what it shows as it was a while ago, it says so.
    Read {
        /// What it shows may be old.
        lags: bool,
    },
    /// It puts a reserved address on an instance.
    Attach,
    /// It takes a reserved address off an instance.
    Detach,
    /// It gives an instance an address of the cloud's choice.
    GiveOwn,
    /// It takes that away.
    TakeOwn,
    /// It reserves an address.
    Reserve,
    /// It gives a reserved address back for good.
    Release,
    /// It changes something else.
    Other,
}

impl Purpose {
    /// Whether it changes things.
    pub fn changes(self) -> bool {
        !matches!(self, Self::Read { .. })
    }
}

/// How a call to a cloud was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was accepted.
    Accepted,
    /// It was refused, with the cloud's code.
    Refused(String),
    /// There was no answer: it may or may not have been done.
    Unanswered,
}

/// A call to a cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Who called.
    pub caller: String,
    /// What it was meant to do.
    pub purpose: Purpose,
    /// The reserved address.
    pub address: Option<IpAddr>,
    /// The instance, by provider ID.
    pub instance: Option<String>,
    /// How it was answered.
    pub outcome: Outcome,
}

/// A reserved address changed hands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The address.
    pub address: IpAddr,
    /// Who had it.
    pub before: Option<String>,
    /// Who has it.
    pub after: Option<String>,
    /// By a call of this caller; none: the cloud itself, or somebody else.
    pub by: Option<String>,
}

/// An instance lost or got an address of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// The instance.
    pub instance: String,
    /// It has one now.
    pub has: bool,
    /// By a call of this caller; none: the cloud itself, or somebody else.
    pub by: Option<String>,
}

/// A workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// Such as Deployment.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What an allocation asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    /// The allocation.
    pub allocation: String,
    /// The generation of it that asks for this.
    pub generation: Option<i64>,
    /// The addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// They stay where they are when it goes.
    pub retain: bool,
    /// How long an address waits for pods to leave a cordoned node; none: for ever.
    pub drain: Option<Duration>,
    /// Whose pods follow the addresses.
    pub workload: Option<Workload>,
}

/// Marks of a node that were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The user.
    pub by: String,
    /// The node.
    pub node: String,
    /// The UID that the write was for, if it said so.
    pub uid: Option<String>,
    /// The address that it is marked with; none: the marks were taken away.
    pub address: Option<IpAddr>,
    /// The allocation that it is marked with.
    pub allocation: Option<String>,
    /// It touched our marks; otherwise it says nothing of them.
    pub own: bool,
    /// Labels and annotations that the write touched besides our marks.
    pub others: Vec<String>,
}

/// A status of an allocation that was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The user.
    pub by: String,
    /// The allocation.
    pub allocation: String,
    /// It says that all is well.
    pub ready: bool,
    /// The generation that it speaks of.
    pub observed: Option<i64>,
    /// Reasons of its conditions.
    pub reasons: Vec<String>,
}

/// A Lease that was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Who leads now; none: it was given up.
    pub holder: Option<String>,
    /// How long it is valid.
    pub seconds: i64,
    /// The number of the term.
    pub transitions: i64,
}

impl History {
    /// All that happened in a simulator and was written to an API server, whose audit log has the bodies of what
    /// matters (`cluster::Cluster::audit_log`). Where several scenes share both, the scope has to name what belongs
    /// to all of them.
    pub fn of(scope: Scope, sim: &Sim, audit_log: &Path) -> Result<Self> {
        let text = std::fs::read(audit_log).with_context(|| format!("{}", audit_log.display()))?;
        let written = of_audit(&String::from_utf8_lossy(&text), &scope);
        let happened = of_sim(&sim.snapshot_at(0), &sim.events(0));
        let now = Timestamp::now();
        let scope = Scope { until: Some(scope.until.unwrap_or(now)), ..scope };
        Ok(Self { scope, events: Vec::new() }.joined(written.into_iter().chain(happened)))
    }

    /// Joins what happened elsewhere. What happened at one and the same time stays in the order in which it
    /// was given.
    #[must_use]
    pub fn joined(mut self, events: impl IntoIterator<Item = Event>) -> Self {
        self.events.extend(events);
        self.events.sort_by_key(|event| event.at);
        self
    }
}
