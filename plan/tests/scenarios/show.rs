//! Writes a plan down in the words of the notation.

use crate::notation::short;
use crate::vocabulary::workload_word;
use plan::{Action, Place, Plan, Step};

/// All that a plan wants to be done, one line each.
pub fn actions(plan: &Plan) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for change in &plan.labels {
        lines.push(match &change.marks {
            Some((allocation, address)) => format!("mark {} {allocation} {}", change.node, short(*address)),
            None => format!("unmark {}", change.node),
        });
    }
    lines.extend(plan.steps.iter().map(step));
    for eviction in &plan.evictions {
        lines.push(format!("evict {} because {}", eviction.name, eviction.cause.as_str()));
    }
    for change in &plan.daemon_sets {
        let names: Vec<&str> = change.names.iter().map(String::as_str).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(",") };
        lines.push(format!("template {} {names}", workload_word(&change.workload)));
    }
    for change in &plan.finalizers {
        let word = if change.present { "on" } else { "off" };
        lines.push(format!("finalizer {} {word}", change.allocation));
    }
    if plan.yield_lease {
        lines.push("yield lease".to_owned());
    }
    lines.sort();
    lines
}

fn step(step: &Step) -> String {
    let address = short(step.address);
    let cause = step.cause.as_str();
    match &step.action {
        Action::Verify => format!("verify {address}"),
        Action::Attach { to, .. } => format!("attach {address} to {} because {cause}", place(to)),
        Action::Detach { from, target, .. } => {
            let target = target.as_ref().map_or(String::new(), |to| format!(" to {}", place(to)));
            format!("detach {address} from {}{target} because {cause}", place(from))
        }
    }
}

/// The node, or the instance whose node is gone.
fn place(place: &Place) -> String {
    place.node.clone().unwrap_or_else(|| {
        let id = &place.provider_id;
        format!("vm/{}", id.strip_prefix("gce://project/zone/").unwrap_or(id))
    })
}

/// What `status.plan` says.
pub fn planned(plan: &Plan) -> Vec<String> {
    let actions = plan.statuses.values().flat_map(|status| &status.plan);
    let mut lines: Vec<String> = actions
        .map(|action| {
            let part = |word: &str, value: &Option<String>| {
                value.as_ref().map_or(String::new(), |value| format!(" {word} {value}"))
            };
            let address = action.address.as_ref().map_or(String::new(), |address| {
                format!(" {}", address.parse().map_or(address.clone(), short))
            });
            let (from, to) = (part("from", &action.from), part("to", &action.to));
            format!("would {}{address}{from}{to} because {}", action.action, action.cause)
        })
        .collect();
    lines.sort();
    lines
}
