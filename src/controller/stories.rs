//! What is told of a move when it has ended: one line in the log that has the whole story, a span with those
//! of its steps, and two metrics.

use super::act::{Outcome, concerns};
use crds::{Move, NetIPAllocationStatus, Operation};
use plan::{Action, WriteKind};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use telemetry::controller::Metrics;
use telemetry::traces::{self, Context, Span};
use tracing::info;

/// Steps of the moves that are under way, by allocation and operation. Only for telling: a successor of this
/// replica tells what it has seen itself.
#[derive(Clone, Default)]
pub struct Stories(Arc<Mutex<Steps>>);

/// Steps of an allocation that is deleted before its move has ended are never told; they must not add up.
const MOST: usize = 4096;

type Steps = BTreeMap<String, BTreeMap<String, Vec<Told>>>;

/// A step that has ended.
struct Told {
    what: &'static str,
    took: Duration,
    /// What went wrong, in one word.
    wrong: Option<&'static str>,
}

impl Stories {
    /// A step has ended.
    pub fn step(&self, outcome: &Outcome) {
        let (step, wrong) = (&outcome.step, outcome.result.as_ref().err());
        let what = match concerns(&step.action) {
            Some((_, WriteKind::Attach)) => "attach",
            Some((_, WriteKind::Detach)) => "detach",
            None => return,
        };
        let told = Told { what, took: outcome.took, wrong: wrong.map(|failed| failed.error.class.as_str()) };
        let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if steps.len() > MOST {
            steps.clear();
        }
        let of_allocation = steps.entry(step.allocation.clone()).or_default();
        of_allocation.entry(step.operation.clone()).or_default().push(told);
        traces::record(|| step_span(outcome, what));
    }

    /// A status was written: tells of the moves that it says have ended.
    pub fn written(
        &self,
        metrics: &Metrics,
        allocation: &str,
        before: &NetIPAllocationStatus,
        after: &NetIPAllocationStatus,
    ) {
        let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut of_allocation = steps.remove(allocation).unwrap_or_default();
        for ended in after.history.iter().filter(|ended| !before.history.contains(ended)) {
            let ip = before.ips.iter().find(|ip| ip.address == ended.address);
            let operation = ip.and_then(|ip| ip.operation.as_ref());
            let steps = operation.and_then(|operation| of_allocation.remove(&operation.id));
            tell(metrics, allocation, ended, operation, &steps.unwrap_or_default());
        }
        let under_way = after.ips.iter().filter_map(|ip| ip.operation.as_ref());
        let under_way: BTreeSet<&str> = under_way.map(|operation| operation.id.as_str()).collect();
        of_allocation.retain(|operation, _| under_way.contains(operation.as_str()));
        if !of_allocation.is_empty() {
            steps.insert(allocation.to_owned(), of_allocation);
        }
    }
}

fn tell(metrics: &Metrics, allocation: &str, ended: &Move, operation: Option<&Operation>, steps: &[Told]) {
    metrics.moves.with_label_values(&[allocation, &ended.cause]).inc();
    if let Ok(seconds) = ended.duration.trim_end_matches('s').parse::<f64>() {
        metrics.move_duration.with_label_values(&[&ended.cause]).observe(seconds);
    }
    let nowhere = || "(free)".to_owned();
    info!(
        allocation,
        address = ended.address,
        from = ended.from.clone().unwrap_or_else(nowhere),
        to = ended.to.clone().unwrap_or_else(nowhere),
        cause = ended.cause,
        duration = ended.duration,
        steps = sentence(steps),
        operation = operation.map(|operation| operation.id.as_str()).unwrap_or_default(),
        "moved"
    );
    if let Some(operation) = operation {
        traces::record(|| move_span(allocation, ended, operation));
    }
}

/// For example: `detach 0.412s, attach throttled after 0.020s, attach 1.300s`.
fn sentence(steps: &[Told]) -> String {
    let mut text = String::new();
    for Told { what, took, wrong } in steps {
        let comma = if text.is_empty() { "" } else { ", " };
        let wrong = wrong.map(|class| format!(" {class} after")).unwrap_or_default();
        let _ = write!(text, "{comma}{what}{wrong} {:.3}s", took.as_secs_f64());
    }
    text
}

/// The operation's id is of the form that a trace's id has, and the span of the whole move has its first half:
/// so the steps that two leaders took one after the other are parts of one trace.
fn root_of(operation: &str) -> String {
    operation.get(..16).unwrap_or(operation).to_owned()
}

fn move_span(allocation: &str, ended: &Move, operation: &Operation) -> Span {
    Span {
        context: Context { trace: operation.id.clone(), parent: None },
        id: root_of(&operation.id),
        name: "move",
        is_server: false,
        start: u64::try_from(operation.started_at.0.as_nanosecond()).unwrap_or_default(),
        end: traces::now(),
        attributes: vec![
            ("netip.allocation", allocation.to_owned()),
            ("netip.address", ended.address.clone()),
            ("netip.from", ended.from.clone().unwrap_or_default()),
            ("netip.to", ended.to.clone().unwrap_or_default()),
            ("netip.cause", ended.cause.clone()),
        ],
        error: None,
    }
}

fn step_span(outcome: &Outcome, name: &'static str) -> Span {
    let (step, end) = (&outcome.step, traces::now());
    let place = match &step.action {
        Action::Attach { to, .. } => Some(to),
        Action::Detach { from, .. } => Some(from),
        Action::Verify => None,
    };
    let took = u64::try_from(outcome.took.as_nanos()).unwrap_or_default();
    Span {
        context: Context { trace: step.operation.clone(), parent: Some(root_of(&step.operation)) },
        id: traces::span_id(),
        name,
        is_server: false,
        start: end.saturating_sub(took),
        end,
        attributes: vec![
            ("netip.address", step.address.to_string()),
            ("netip.node", place.and_then(|place| place.node.clone()).unwrap_or_default()),
            ("netip.provider_id", place.map(|place| place.provider_id.clone()).unwrap_or_default()),
        ],
        error: outcome.result.as_ref().err().map(|failed| failed.error.to_string()),
    }
}
