//! What holds for every plan, whatever a scenario is about.

use crate::perform::Between;
use crate::scene::Scene;
use crate::show;
use crds::{IpStatus, NetIPAllocationStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use plan::{Action, AddressView, Plan, Reason, Step};
use std::collections::BTreeSet;

/// Every rule that the plan breaks, one line each.
pub fn broken(scene: &mut Scene, plan: &Plan) -> Vec<String> {
    let mut wrong: Vec<String> = plan.steps.iter().filter_map(|step| misread(scene, step)).collect();
    wrong.extend(plan.steps.iter().filter_map(|step| unclaimed(plan, step)));
    wrong.extend(twice(plan));
    wrong.extend(restless(scene, plan));
    wrong.extend(identities(plan));
    for (name, status) in &plan.statuses {
        wrong.extend(tokens(scene, name, status));
        wrong.extend(transitions(scene, name, status));
    }
    wrong.extend(statuses(scene, plan));
    wrong.extend(not_final(scene, plan));
    wrong
}

/// A step rests on what the cloud said last, and carries the token of it.
fn misread(scene: &Scene, step: &Step) -> Option<String> {
    let view = scene.world.addresses.get(&step.address).map(|seen| &seen.view);
    let right = match (&step.action, view) {
        (Action::Verify, _) => true,
        (Action::Attach { token, .. }, Some(AddressView::Free { token: seen })) => token == seen,
        (Action::Detach { from, token, .. }, Some(AddressView::Attached { provider_id, token: seen })) => {
            token == seen && from.provider_id == *provider_id
        }
        _ => false,
    };
    (!right).then(|| format!("always: {step:?} does not follow from {view:?}"))
}

/// What is going to be called is in the status first.
fn unclaimed(plan: &Plan, step: &Step) -> Option<String> {
    let status = plan.statuses.get(&step.allocation);
    let claimed = step.action == Action::Verify || status.is_some_and(|status| step.is_claimed_in(status));
    if !claimed {
        return Some(format!("always: {step:?} is not claimed in {status:?}"));
    }
    let overclaimed = |status: &&std::sync::Arc<NetIPAllocationStatus>| {
        step.action != Action::Verify && spoilt(status).any(|status| step.is_claimed_in(&status))
    };
    let spoilt = status.filter(overclaimed);
    spoilt.map(|status| {
        format!("always: {step:?} would be claimed without an operation of its own in {status:?}")
    })
}

/// The same status without operations, with other operations, and with operations for other places.
fn spoilt(status: &NetIPAllocationStatus) -> impl Iterator<Item = NetIPAllocationStatus> {
    let spoil: [fn(&mut IpStatus); 3] = [
        |ip| ip.operation = None,
        |ip| ip.operation.iter_mut().for_each(|operation| operation.id.push('x')),
        |ip| {
            if let Some(operation) = &mut ip.operation {
                operation.from_provider_id = Some("elsewhere".to_owned());
                operation.to_provider_id = Some("elsewhere".to_owned());
            }
        },
    ];
    spoil.into_iter().map(|spoil| {
        let mut status = status.clone();
        status.ips.iter_mut().for_each(spoil);
        status
    })
}

/// A time to wake that has come already would be a loop without a pause.
fn restless(scene: &Scene, plan: &Plan) -> Option<String> {
    let at = plan.wake_at.filter(|at| *at <= scene.now)?;
    Some(format!("always: at {:?} it wants to be woken at {at:?}", scene.now))
}

/// At most one step per address and per instance.
fn twice(plan: &Plan) -> Vec<String> {
    let (mut addresses, mut instances) = (BTreeSet::new(), BTreeSet::new());
    let mut wrong = Vec::new();
    for step in &plan.steps {
        let place = match &step.action {
            Action::Verify => None,
            Action::Attach { to: place, .. } | Action::Detach { from: place, .. } => Some(&place.provider_id),
        };
        if !addresses.insert(step.address) || place.is_some_and(|id| !instances.insert(id)) {
            wrong.push(format!("always: a second step for the same address or instance: {step:?}"));
        }
    }
    wrong
}

/// Operations and calls have identities that no other one has.
fn identities(plan: &Plan) -> Vec<String> {
    let (mut operations, mut keys) = (BTreeSet::new(), BTreeSet::new());
    let is_digest = |text: &str| text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut wrong = Vec::new();
    for step in &plan.steps {
        let new = operations.insert(&step.operation) && keys.insert(&step.key);
        if !new || !is_digest(&step.operation) || !is_digest(&step.key) || step.operation == step.key {
            wrong.push(format!("always: {step:?} has no identity of its own"));
        }
    }
    wrong
}

/// An operation that takes an address off an instance carries the token of what it ends, to its end.
fn tokens(scene: &Scene, name: &str, status: &NetIPAllocationStatus) -> Vec<String> {
    let recorded = scene.world.allocations.get(name).map(|allocation| &allocation.status.ips);
    let mut wrong = Vec::new();
    for ip in &status.ips {
        let Some(operation) = &ip.operation else { continue };
        let view = ip.address.parse().ok().and_then(|address| scene.world.addresses.get(&address));
        let seen = view.and_then(|seen| match &seen.view {
            AddressView::Attached { provider_id, token }
                if operation.from_provider_id.as_ref() == Some(provider_id) =>
            {
                Some(token)
            }
            _ => None,
        });
        let mut before = recorded.into_iter().flatten().filter_map(|ip| ip.operation.as_ref());
        let kept = before.find(|before| before.id == operation.id).and_then(|before| before.token.as_ref());
        let found = operation.token.as_ref();
        if found != seen.or(kept) && found != kept {
            wrong.push(format!("always: {operation:?} has another token than {seen:?} or {kept:?}"));
        }
        if operation.from_provider_id.is_some() != found.is_some() {
            wrong.push(format!("always: {operation:?} has a token without an origin, or none with one"));
        }
    }
    wrong
}

/// A condition's transition is when its status changed, and only then.
fn transitions(scene: &Scene, name: &str, status: &NetIPAllocationStatus) -> Vec<String> {
    let recorded = scene.world.allocations.get(name).map(|allocation| &allocation.status.conditions);
    let expected = |condition: &Condition| {
        let mut before = recorded.into_iter().flatten();
        let same = before.find(|before| before.type_ == condition.type_ && before.status == condition.status);
        same.map_or_else(|| scene.now.into(), |before| before.last_transition_time.clone())
    };
    let wrong =
        status.conditions.iter().filter(|condition| condition.last_transition_time != expected(condition));
    wrong.map(|condition| format!("always: the transition time of {condition:?} is wrong")).collect()
}

fn statuses(scene: &Scene, plan: &Plan) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, allocation) in &scene.world.allocations {
        let Some(status) = plan.statuses.get(name) else {
            wrong.push(format!("always: {name} has no status"));
            continue;
        };
        if status.observed_generation != Some(allocation.generation) {
            wrong.push(format!("always: {name} speaks of generation {:?}", status.observed_generation));
        }
        if let Ok(spec) = &allocation.spec
            && (usize::try_from(status.reserved) != Ok(spec.addresses.len())
                || status.attached + status.unattached != status.reserved)
        {
            wrong.push(format!(
                "always: {name} counts {} + {} of {}",
                status.attached, status.unattached, status.reserved
            ));
        }
        let reasons = status.ips.iter().map(|entry| entry.reason.as_deref().unwrap_or_default());
        let reasons = reasons.chain(status.conditions.iter().map(|condition| condition.reason.as_str()));
        for reason in reasons.filter(|reason| Reason::from_name(reason).is_none()) {
            wrong.push(format!("always: {name} has the unknown reason {reason:?}"));
        }
        for entry in &status.ips {
            let nowhere = |o: &crds::Operation| o.from_provider_id.is_none() && o.to_provider_id.is_none();
            if entry.operation.as_ref().is_some_and(nowhere) {
                wrong
                    .push(format!("always: the operation of {} goes from nowhere to nowhere", entry.address));
            }
        }
        for entry in status.ips.iter().filter(|entry| entry.message.as_ref().is_none_or(String::is_empty)) {
            wrong.push(format!("always: {name} has no sentence about {}", entry.address));
        }
    }
    wrong
}

/// Once the status is written and nothing else has happened, the plan says the same again: no write
/// without a change. And it goes on saying so until the time at which it wants to be asked again.
fn not_final(scene: &mut Scene, plan: &Plan) -> Vec<String> {
    let (world, now) = (scene.world.clone(), scene.now);
    Between::default().happen(scene, plan);
    let until = plan.wake_at.map_or(now.plus_seconds(86_400), |at| at.plus_millis(-1));
    let again = plan::plan(&scene.world, now);
    let later = plan::plan(&scene.world, until);
    let forgetful = not_from_memory(scene, &again, now);
    scene.world = world;
    scene.now = now;
    let changes = [
        ("the status changes again without a cause", lines(plan), lines(&again)),
        ("something changes before the time to wake", all_lines(&again), all_lines(&later)),
    ];
    let changes = changes.into_iter().filter_map(|(what, before, after)| changed(what, &before, &after));
    changes.chain(forgetful).collect()
}

/// A status that is right already is given back as it is; one that lost its words gets the same words again. So
/// what is said comes from the world, not from what was said before.
fn not_from_memory(scene: &mut Scene, plan: &Plan, now: plan::Time) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut right = Vec::new();
    for (name, allocation) in &mut scene.world.allocations {
        let Some(status) = plan.statuses.get(name).filter(|_| allocation.spec.is_ok()) else { continue };
        let same = std::sync::Arc::ptr_eq(&allocation.status, status);
        if same != (allocation.status == *status) {
            wrong.push(format!("always: {name}: the same status is made anew, or another one is not"));
        }
        if same {
            right.push((name.clone(), status.clone()));
            let status = std::sync::Arc::make_mut(&mut allocation.status);
            status.refusals.clear();
            (status.reserved, status.attached, status.unattached) = (-1, -1, -1);
            status.plan.clear();
            status.observed_generation = None;
            status.ips.iter_mut().for_each(|ip| ip.message = None);
            status.conditions.iter_mut().for_each(|condition| condition.message.clear());
        }
    }
    let again = plan::plan(&scene.world, now);
    for (name, status) in right {
        if again.statuses.get(&name) != Some(&status) {
            wrong.push(format!(
                "always: {name}: {status:?} is right, and so is {:?}",
                again.statuses.get(&name)
            ));
        }
    }
    wrong
}

fn changed(what: &str, before: &[String], after: &[String]) -> Option<String> {
    let gone = before.iter().filter(|line| !after.contains(line)).map(|line| format!("\n  first: {line}"));
    let new = after.iter().filter(|line| !before.contains(line)).map(|line| format!("\n  then: {line}"));
    let changes: String = gone.chain(new).collect();
    (!changes.is_empty()).then(|| format!("always: {what}{changes}"))
}

fn all_lines(plan: &Plan) -> Vec<String> {
    let mut all = lines(plan);
    all.extend(show::actions(plan));
    all
}

/// A line per condition, address and move.
fn lines(plan: &Plan) -> Vec<String> {
    let statuses = plan.statuses.values();
    statuses
        .flat_map(|status| {
            let conditions = status.conditions.iter();
            let conditions =
                conditions.map(|c| format!("{} {} {} {:?}", c.type_, c.status, c.reason, c.message));
            let moves = status.history.iter().enumerate().map(|(number, m)| format!("{number}: {m:?}"));
            conditions.chain(status.ips.iter().map(|ip| format!("{ip:?}"))).chain(moves).collect::<Vec<_>>()
        })
        .collect()
}
