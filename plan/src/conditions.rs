//! The conditions of an allocation.

use crate::decide::Planner;
use crate::decision::Decision;
use crate::leave;
use crate::slot::{Lost, Slot};
use crate::status::sentence;
use crate::{Reason, Time};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use std::collections::BTreeMap;

/// Type, status, reason and message of a condition.
pub type Verdict = (&'static str, bool, Reason, String);

/// What the conditions of one allocation are made from.
struct Summary<'p, 'w> {
    slots: Vec<(&'p Slot<'w>, &'p Decision<'w>)>,
    lost: Vec<&'p Lost<'w>>,
    notes: BTreeMap<Reason, &'p str>,
    acting: bool,
    paused: bool,
    reserved: usize,
    attached: usize,
    moving: usize,
}

impl Summary<'_, '_> {
    fn ready(&self) -> (bool, Reason) {
        let troubled = self.slots.iter().find(|(_, decision)| decision.degraded);
        if !self.acting {
            (false, Reason::PlanOnly)
        } else if let Some((_, decision)) = troubled {
            (false, decision.reason)
        } else if self.moving > 0 {
            (false, Reason::Moving)
        } else if !self.lost.is_empty() {
            (false, Reason::HeldByAllocation)
        } else if self.slots.iter().any(|(_, decision)| is_on_lost_node(decision)) {
            (false, Reason::WaitingForTarget)
        } else if self.attached == self.reserved {
            let worth_a_look = [Reason::WorkloadNotFound, Reason::MorePodsThanAddresses];
            let note = worth_a_look.into_iter().find(|note| self.notes.contains_key(note));
            (true, note.unwrap_or(Reason::AllAttached))
        } else if self.paused {
            (false, Reason::Paused)
        } else if self.attached > 0 {
            (false, Reason::MoreAddressesThanNodes)
        } else {
            (false, Reason::NoEligibleNode)
        }
    }

    /// What is the matter, if anything is.
    fn trouble(&self, planner: &Planner<'_, '_>) -> Option<(Reason, String)> {
        let of_an_address =
            self.slots.iter().find(|(_, decision)| decision.degraded).map(|(slot, decision)| {
                (decision.reason, format!("{}: {}", slot.address, sentence(planner, slot, decision)))
            });
        of_an_address.or_else(|| {
            let troubles = [Reason::WorkloadUnknown, Reason::EvictionStopped, Reason::EvictionRefused];
            let found = troubles.into_iter().find_map(|reason| Some((reason, self.notes.get(&reason)?)))?;
            Some((found.0, format!("{} ({}).", found.0.meaning(), found.1)))
        })
    }

    /// How far it has come, and what is worth knowing besides.
    fn progress(&self) -> String {
        let tally = self.slots.iter().find_map(|(_, decision)| decision.tally.as_ref());
        let tally = tally.map(|tally| format!(" {}.", tally.sentence())).unwrap_or_default();
        let notes: Vec<String> = self.notes.values().map(|note| format!(" {note}.")).collect();
        let notes = notes.concat();
        format!("{} of {} addresses are attached.{tally}{notes}", self.attached, self.reserved)
    }

    /// The addresses that other allocations have, and which ones.
    fn conflict(&self) -> Option<String> {
        let mut by_winner: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for lost in &self.lost {
            by_winner.entry(lost.winner).or_default().push(lost.address.to_string());
        }
        let of_one = |(winner, addresses): (&str, Vec<String>)| {
            format!("NetIPAllocation {winner}, which comes first, has {}", addresses.join(", "))
        };
        let all: Vec<String> = by_winner.into_iter().map(of_one).collect();
        (!all.is_empty()).then(|| format!("{}.", all.join("; ")))
    }
}

pub fn conditions(planner: &Planner<'_, '_>, claim: usize, slots: &[usize], attached: usize) -> Vec<Verdict> {
    let spec = planner.index.claims[claim].spec;
    let acting = planner.index.claims[claim].enforces();
    let slots: Vec<_> = slots.iter().map(|n| (&planner.slots.all[*n], &planner.decisions[*n])).collect();
    let summary = Summary {
        moving: slots.iter().filter(|(_, decision)| acting && decision.moving.is_some()).count(),
        slots,
        lost: planner.slots.lost_by(claim).iter().collect(),
        notes: planner
            .notes
            .range((claim, Reason::AllAttached)..(claim + 1, Reason::AllAttached))
            .map(|((_, reason), message)| (*reason, message.as_str()))
            .collect(),
        acting,
        paused: spec.paused,
        reserved: spec.addresses.len(),
        attached,
    };
    let (ready, why) = summary.ready();
    let hanging = planner.hanging.get(&claim).map(|pods| hanging_pods(pods)).unwrap_or_default();
    let ready_message = format!("{}{hanging}", summary.progress());
    let degraded = match summary.trouble(planner) {
        Some((reason, message)) => (true, reason, message),
        None => (false, Reason::AllAttached, String::new()),
    };
    let conflict = summary.conflict();
    let or_fine = |so: bool, reason| if so { reason } else { Reason::AllAttached };
    let on_the_move = format!("{} addresses are on the move.", summary.moving);
    vec![
        ("Ready", ready, why, ready_message),
        ("Progressing", summary.moving > 0, or_fine(summary.moving > 0, Reason::Moving), on_the_move),
        ("Degraded", degraded.0, degraded.1, degraded.2),
        (
            "Conflict",
            conflict.is_some(),
            or_fine(conflict.is_some(), Reason::HeldByAllocation),
            conflict.unwrap_or_default(),
        ),
    ]
}

/// It has to leave a node that does not work, and cannot.
fn is_on_lost_node(decision: &Decision<'_>) -> bool {
    decision.reason == Reason::WaitingForTarget
        && matches!(decision.verdict, leave::Verdict::Leave { forced: true, .. })
}

/// Kubernetes makes no second pod of a StatefulSet while it cannot be sure that the first is gone, and
/// neither do we.
fn hanging_pods(pods: &[String]) -> String {
    format!(
        " Pods {} hang on lost nodes, and their StatefulSet waits for them: once the machines are surely \
         down, end them with `kubectl delete pod --force`, or put the taint \
         node.kubernetes.io/out-of-service on the nodes.",
        pods.join(", ")
    )
}

/// Whether conditions say already what they should.
pub fn are_set(conditions: &[Condition], verdicts: &[Verdict], generation: i64) -> bool {
    verdicts.iter().all(|(type_, status, reason, message)| {
        conditions.iter().find(|condition| condition.type_ == *type_).is_some_and(|condition| {
            condition.status == if *status { "True" } else { "False" }
                && condition.reason == reason.as_str()
                && condition.message == *message
                && condition.observed_generation == Some(generation)
        })
    })
}

/// Keeps the transition time of a condition whose status does not change.
pub fn set_conditions(conditions: &mut Vec<Condition>, verdicts: &[Verdict], generation: i64, now: Time) {
    for (type_, status, reason, message) in verdicts {
        let status = if *status { "True" } else { "False" };
        let before = conditions.iter().position(|condition| condition.type_ == *type_);
        let since = before
            .map(|i| &conditions[i])
            .filter(|c| c.status == status)
            .map(|c| c.last_transition_time.clone());
        let condition = Condition {
            type_: (*type_).to_owned(),
            status: status.to_owned(),
            reason: reason.as_str().to_owned(),
            message: message.clone(),
            observed_generation: Some(generation),
            last_transition_time: since.unwrap_or_else(|| now.into()),
        };
        match before {
            Some(i) => conditions[i] = condition,
            None => conditions.push(condition),
        }
    }
}
