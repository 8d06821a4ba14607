//! What is to go wrong with which request.

use crate::name::{Group, Name, Side};
use crate::proxy::Seen;
use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;

/// A list of faults, each of which happens once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The faults.
    pub steps: Vec<Step>,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The request that it happens to.
    pub on: Which,
    /// What happens.
    #[serde(rename = "do")]
    pub act: Act,
}

/// Which request. What is left out fits all; the first one that fits is it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Which {
    /// Its number in the sequence of all requests; it is another one in every run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// Whom it asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side: Option<Side>,
    /// Who asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// What it asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
    /// Of what; with a `*` at its end, whatever begins so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// How many requests of that caller, verb and object there were, this one included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub occurrence: Option<u32>,
    /// Whether it changes things.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mutating: Option<bool>,
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// It is held back for ever, and whoever runs the test is told to kill its sender.
    CrashBefore,
    /// It is done, its reply is held back for ever, and whoever runs the test is told to kill its sender.
    CrashAfter,
    /// It is done, and the connection is reset instead of a reply.
    ReplyLost,
    /// It is sent on so many seconds later.
    Delay {
        /// How many.
        seconds: f64,
    },
    /// It is not sent on, and answered with this status as that side would.
    Answer {
        /// The status.
        status: u16,
        /// Seconds in the header `Retry-After`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<u64>,
    },
    /// It is not sent on, and never answered.
    Hang,
    /// It is not sent on, and the connection is reset.
    Cut,
}

impl Which {
    /// The request of that name, whenever it comes.
    pub fn of(name: &Name, occurrence: u32) -> Self {
        Self {
            side: Some(name.side),
            caller: Some(name.caller.clone()),
            verb: Some(name.verb.clone()),
            object: Some(name.object.clone()),
            occurrence: Some(occurrence),
            ..Self::default()
        }
    }

    /// Requests of that verb on objects that begin so.
    pub fn verb(side: Side, verb: &str, object: &str) -> Self {
        let (verb, object) = (Some(verb.to_owned()), Some(object.to_owned()));
        Self { side: Some(side), verb, object, ..Self::default() }
    }

    pub(crate) fn fits(&self, seq: u64, name: &Name, occurrence: u32) -> bool {
        let same = |wanted: &Option<String>, found: &str| match wanted {
            None => true,
            Some(wanted) => match wanted.strip_suffix('*') {
                Some(beginning) => found.starts_with(beginning),
                None => wanted == found,
            },
        };
        self.seq.is_none_or(|wanted| wanted == seq)
            && self.side.is_none_or(|wanted| wanted == name.side)
            && same(&self.caller, &name.caller)
            && same(&self.verb, &name.verb)
            && same(&self.object, &name.object)
            && self.occurrence.is_none_or(|wanted| wanted == occurrence)
            && self.mutating.is_none_or(|wanted| wanted == name.mutating)
    }
}

impl Act {
    /// Its name in records.
    pub fn name(&self) -> &'static str {
        match self {
            Self::CrashBefore => "crash_before",
            Self::CrashAfter => "crash_after",
            Self::ReplyLost => "reply_lost",
            Self::Delay { .. } => "delay",
            Self::Answer { .. } => "answer",
            Self::Hang => "hang",
            Self::Cut => "cut",
        }
    }
}

impl Step {
    /// One fault.
    pub fn new(on: Which, act: Act) -> Self {
        Self { on, act }
    }
}

impl Plan {
    /// A plan of one fault.
    pub fn one(on: Which, act: Act) -> Self {
        Self { steps: vec![Step::new(on, act)] }
    }

    /// Reads a plan, or the plan of a failure.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
        let failure: Result<Failure, _> = serde_json::from_str(&text);
        match failure {
            Ok(failure) => Ok(failure.plan),
            Err(_) => serde_json::from_str(&text).with_context(|| format!("{} is no plan", path.display())),
        }
    }
}

/// Everything that is needed to see a failure again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// What was being done.
    pub workload: String,
    /// What was made to go wrong.
    pub plan: Plan,
    /// What was wrong in the end.
    pub wrong: Vec<String>,
    /// The command that plays it again.
    pub replay: String,
    /// All requests, in their order.
    pub requests: Vec<Seen>,
}

impl Failure {
    /// Writes it to a file.
    pub fn write(&self, path: &Path) -> Result<()> {
        std::fs::write(path, serde_json::to_vec_pretty(self)?).with_context(|| format!("{}", path.display()))
    }
}

/// Requests of a run that went well which a sweep goes over: those that change things, leases and events apart.
/// A crash between two reads is the same crash.
fn swept(reference: &[Seen]) -> impl Iterator<Item = &Seen> {
    reference.iter().filter(|seen| seen.name.mutating && seen.name.group == Group::Work)
}

/// For each request that changes things, by its name: a plan for each of these faults.
pub fn sweep(reference: &[Seen], acts: &[Act]) -> Vec<Plan> {
    let plans = swept(reference)
        .flat_map(|seen| acts.iter().map(|act| Plan::one(Which::of(&seen.name, seen.occurrence), *act)));
    plans.collect()
}

/// For each kind of request that changes things (side and verb): a plan for each of these answers.
pub fn answers_once(reference: &[Seen], statuses: &[u16]) -> Vec<Plan> {
    let kinds: BTreeSet<(Side, &str, &str)> =
        swept(reference).map(|seen| (seen.name.side, seen.name.verb.as_str(), seen.name.kind())).collect();
    let plans = kinds.into_iter().flat_map(|(side, verb, kind)| {
        statuses.iter().map(move |status| {
            let act = Act::Answer { status: *status, retry_after: (*status == 429).then_some(1) };
            let first = swept(reference)
                .find(|seen| seen.name.side == side && seen.name.verb == verb && seen.name.kind() == kind);
            first.map(|seen| Plan::one(Which::of(&seen.name, seen.occurrence), act))
        })
    });
    plans.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(seq: u64, verb: &str, object: &str, group: Group, mutating: bool, occurrence: u32) -> Seen {
        let name = Name {
            side: Side::Api,
            caller: "first".to_owned(),
            verb: verb.to_owned(),
            object: object.to_owned(),
            group,
            mutating,
        };
        Seen { seq, at: jiff::Timestamp::UNIX_EPOCH, name, occurrence, status: Some(200), fault: None }
    }

    fn reference() -> Vec<Seen> {
        vec![
            seen(1, "list", "nodes", Group::Work, false, 1),
            seen(2, "update", "ns:leases/l", Group::Lease, true, 1),
            seen(3, "patch", "nodes/a", Group::Work, true, 1),
            seen(4, "create", "ns:events", Group::Event, true, 1),
            seen(5, "patch", "nodes/a", Group::Work, true, 2),
            seen(6, "patch", "netipallocations/x/status", Group::Work, true, 1),
        ]
    }

    #[test]
    fn a_sweep_goes_over_every_request_that_changes_things() {
        let plans = sweep(&reference(), &[Act::CrashBefore, Act::ReplyLost]);
        assert_eq!(plans.len(), 6);
        let on = &plans[2].steps[0].on;
        assert_eq!((on.object.as_deref(), on.occurrence), (Some("nodes/a"), Some(2)));
        assert!(!plans.iter().any(|plan| plan.steps[0].on.object.as_deref() == Some("ns:leases/l")));
    }

    #[test]
    fn each_kind_of_request_gets_each_answer_once() {
        let plans = answers_once(&reference(), &[409, 429]);
        assert_eq!(plans.len(), 4, "patches of nodes, and of an allocation's status: {plans:?}");
        let throttled = plans
            .iter()
            .filter(|plan| matches!(plan.steps[0].act, Act::Answer { status: 429, retry_after: Some(1) }));
        assert_eq!(throttled.count(), 2);
    }

    #[test]
    fn a_failure_is_a_plan_that_can_be_played_again() {
        let plan = sweep(&reference(), &[Act::Answer { status: 503, retry_after: None }]).remove(0);
        let failure = Failure {
            workload: "first attach".to_owned(),
            plan: plan.clone(),
            wrong: vec!["I4".to_owned()],
            replay: "FAULT_PLAN=x cargo test".to_owned(),
            requests: reference(),
        };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("failure.json");
        failure.write(&file).unwrap();
        assert_eq!(Plan::load(&file).unwrap(), plan);
        std::fs::write(&file, serde_json::to_vec(&plan).unwrap()).unwrap();
        assert_eq!(Plan::load(&file).unwrap(), plan);
        std::fs::write(&file, "{\"steps\": 3}").unwrap();
        assert!(Plan::load(&file).is_err());
    }

    #[test]
    fn what_is_left_out_fits_all() {
        let name = &seen(1, "patch", "nodes/node-1", Group::Work, true, 1).name;
        assert!(Which::default().fits(7, name, 3));
        assert!(Which::verb(Side::Api, "patch", "nodes/*").fits(7, name, 1));
        assert!(!Which::verb(Side::Api, "patch", "nodes/").fits(7, name, 1));
        assert!(!Which { occurrence: Some(2), ..Which::default() }.fits(7, name, 1));
        assert!(!Which { mutating: Some(false), ..Which::default() }.fits(7, name, 1));
    }
}
