//! Calls to clouds that change something.

use super::clock::Clock;
use super::{Message, bugs};
use crate::leader::LeaderToken;
use cloud::{Call, Class, Provider};
use plan::{Action, Failure, FailureClass, InFlight, LastWrite, Step, Time, World, WriteKind};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

/// How long one step may take: the slowest clouds take half a minute.
const STEP_TIMEOUT: Duration = Duration::from_mins(2);
/// No cloud is left alone for longer, whatever it asks for: a node may be without any address.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// How a step ended.
#[derive(Debug)]
pub struct Outcome {
    pub step: Step,
    pub result: Result<(), Failed>,
    /// When it ended.
    pub at: Time,
    pub took: Duration,
}

/// What went wrong, and on which instance.
#[derive(Debug)]
pub struct Failed {
    pub provider_id: String,
    pub error: cloud::Error,
    /// Whether anything was sent.
    pub written: bool,
}

/// The instance that a step changes, and how.
pub fn concerns(action: &Action) -> Option<(&str, WriteKind)> {
    match action {
        Action::Verify => None,
        Action::Attach { to, .. } => Some((&to.provider_id, WriteKind::Attach)),
        Action::Detach { from, .. } => Some((&from.provider_id, WriteKind::Detach)),
    }
}

/// Whether the address or the instance has a step under way already.
pub fn is_busy(world: &World, address: IpAddr, provider_id: &str) -> bool {
    world.in_flight.iter().any(|other| other.address == address || other.provider_id == provider_id)
}

/// Carries a step out and reports how it ended.
pub async fn carry_out(
    step: Step,
    provider: Arc<dyn Provider>,
    token: LeaderToken,
    mailbox: mpsc::Sender<Message>,
    clock: Clock,
) {
    let began = Instant::now();
    let deadline = began + STEP_TIMEOUT;
    let performed = timeout_at(deadline, perform(&step, &*provider, &token, deadline));
    let result = match bugs::caught(step.address, performed).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(lost(&step, format!("no answer within {STEP_TIMEOUT:?}"))),
        Err(bug) => Err(lost(&step, bug)),
    };
    log(&step, &result);
    let _ = mailbox
        .send(Message::StepEnded(Outcome { step, result, at: clock.now(), took: began.elapsed() }))
        .await;
}

fn log(step: &Step, result: &Result<(), Failed>) {
    let Step { address, operation, action, .. } = step;
    match result {
        Ok(()) => info!(%address, operation, cause = step.cause.as_str(), ?action, "done"),
        Err(Failed { error, .. }) => {
            warn!(%address, operation, ?action, class = error.class.as_str(), "{error}");
        }
    }
}

async fn perform(
    step: &Step,
    provider: &dyn Provider,
    token: &LeaderToken,
    deadline: Instant,
) -> Result<(), Failed> {
    let may_write = || token.may_write();
    let call = Call { deadline, key: &step.key, may_write: &may_write };
    match &step.action {
        Action::Verify => Ok(()),
        Action::Attach { to, token } => provider
            .attach(step.address, &to.provider_id, token, &call)
            .await
            .map_err(|error| failed(&to.provider_id, error, true)),
        Action::Detach { from, token, target } => {
            // No target, no detach: it has to be able to take the address before that leaves its node.
            if let Some(target) = target {
                provider
                    .preflight(step.address, &target.provider_id, deadline)
                    .await
                    .map_err(|error| failed(&target.provider_id, error, false))?;
            }
            provider
                .detach(step.address, &from.provider_id, token, &call)
                .await
                .map_err(|error| failed(&from.provider_id, error, true))
        }
    }
}

/// Nobody knows how far a step came: as a write that may have happened, it is read back before anything else.
fn lost(step: &Step, message: String) -> Failed {
    let provider_id = concerns(&step.action).map(|(id, _)| id).unwrap_or_default();
    failed(provider_id, cloud::Error::new(Class::Transient, message), true)
}

fn failed(provider_id: &str, error: cloud::Error, written: bool) -> Failed {
    let written = written && error.class != Class::Fenced;
    Failed { provider_id: provider_id.to_owned(), error, written }
}

/// A step has begun.
pub fn begin(world: &mut World, address: IpAddr, provider_id: &str) {
    world.in_flight.push(InFlight { address, provider_id: provider_id.to_owned() });
}

/// A step has ended: what it did and how it went is what the next plan goes by.
pub fn end(world: &mut World, outcome: &Outcome) {
    let Some((provider_id, kind)) = concerns(&outcome.step.action) else { return };
    let address = outcome.step.address;
    world.in_flight.retain(|other| other.address != address);
    let written = outcome.result.as_ref().err().is_none_or(|failed| failed.written);
    if written {
        let succeeded = outcome.result.is_ok();
        let write = LastWrite { at: outcome.at, kind, provider_id: provider_id.to_owned(), succeeded };
        world.last_write.insert(address, write);
    }
    match &outcome.result {
        Ok(()) => drop(world.failures.remove(&(address, provider_id.to_owned()))),
        Err(failed) => note_failure(world, address, failed, outcome.at),
    }
}

fn note_failure(world: &mut World, address: IpAddr, failed: &Failed, at: Time) {
    let class = match failed.error.class {
        Class::Throttled => FailureClass::Throttled,
        Class::Transient => FailureClass::Transient,
        Class::Conflict => FailureClass::Conflict,
        Class::Permanent | Class::Unsupported => FailureClass::Permanent,
        Class::Denied => FailureClass::Denied,
        Class::Fenced => return,
    };
    let key = (address, failed.provider_id.clone());
    let attempts = world.failures.get(&key).map_or(0, |before| before.attempts).saturating_add(1);
    let retry_after = failed.error.retry_after.and_then(|pause| i64::try_from(pause.as_secs()).ok());
    let message = failed.error.message.clone();
    world.failures.insert(key, Failure { at, attempts, class, message, retry_after });
}

/// An address of its own that an instance gets back after ours has left it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Restoration {
    /// The operation that ended the attachment.
    pub operation: String,
    pub provider_id: String,
    /// The token of the attachment that was ended; `None`: an attach came to nothing, and may have made room before.
    pub token: Option<String>,
}

/// Tries until it is so, ever more slowly: until then the instance may have no address at all.
pub async fn restore(restoration: Restoration, provider: Arc<dyn Provider>, token: LeaderToken) {
    let may_write = || token.may_write();
    let Restoration { operation, provider_id, token: ended } = &restoration;
    for attempt in 0u32.. {
        let deadline = Instant::now() + STEP_TIMEOUT;
        let key = format!("{operation}/restore/{attempt}");
        let call = Call { deadline, key: &key, may_write: &may_write };
        let restored =
            bugs::caught(provider_id, provider.restore(provider_id, ended.as_deref(), &call)).await;
        match restored.unwrap_or_else(|bug| Err(cloud::Error::new(Class::Transient, bug))) {
            Ok(()) => return,
            Err(error) if error.class == Class::Fenced => return,
            Err(error) => {
                warn!("{provider_id} does not have its own address back yet: {error}");
                let doubled = Duration::from_secs(1 << attempt.min(8));
                tokio::time::sleep(error.retry_after.unwrap_or(doubled).min(LONGEST_PAUSE)).await;
            }
        }
    }
}

#[cfg(test)]
#[path = "act_tests.rs"]
mod tests;
