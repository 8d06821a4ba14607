//! What is written for people to read.

use super::Found;
use crate::history::{History, Status, What};
use std::collections::BTreeMap;

/// I18. Ready is said only if every address of the allocation is on an instance of ours, or was a short while
/// ago; the generation that a status speaks of never goes back; reasons are words of `CamelCase`.
pub fn truthful(history: &History) -> Found {
    let mut found = Vec::new();
    let mut observed: BTreeMap<&str, i64> = BTreeMap::new();
    for (at, event) in history.events.iter().enumerate() {
        let What::Status(status) = &event.what else { continue };
        if status.by != history.scope.user {
            continue;
        }
        if let Some(of) = status.observed {
            let before = observed.insert(&status.allocation, of).unwrap_or(of);
            if of < before {
                let what = format!("{} speaks of generation {of} after {before}", status.allocation);
                found.push((event.at, what));
            }
        }
        for reason in status.reasons.iter().filter(|reason| !is_word(reason)) {
            found.push((event.at, format!("{} gives the reason '{reason}'", status.allocation)));
        }
        if status.ready {
            found.extend(missing(history, status, at).map(|what| (event.at, what)));
        }
    }
    found
}

fn is_word(reason: &str) -> bool {
    reason.starts_with(|c: char| c.is_ascii_uppercase()) && reason.chars().all(|c| c.is_ascii_alphanumeric())
}

/// An address of an allocation that is said to be Ready which is not where it should be, and has not been for a
/// while.
fn missing(history: &History, status: &Status, at: usize) -> Option<String> {
    let earliest = history.lag_before(history.events[at].at);
    // Which addresses those are, the generation says that it speaks of.
    let listed = history.listed(&status.allocation, status.observed, at);
    let ours = |holder: Option<&str>| holder.is_some_and(|holder| history.scope.instances.contains(holder));
    let lost = listed.iter().find(|address| {
        let was = history.events[..at].iter().enumerate().any(|(number, event)| {
            event.at >= earliest
                && matches!(&event.what, What::Hold(hold) if hold.address == **address)
                && ours(history.holder(**address, number))
        });
        !ours(history.holder(**address, at)) && !was
    })?;
    Some(format!("{} says Ready, and {lost} is on no node", status.allocation))
}

/// I19. Nothing that is written to the API server has a secret in it.
pub fn no_secrets(history: &History) -> Found {
    let mut found = Vec::new();
    for event in &history.events {
        let What::Write { by, text, .. } = &event.what else { continue };
        for secret in history.scope.secrets.iter().filter(|secret| text.contains(secret.as_str())) {
            let beginning: String = secret.chars().take(3).collect();
            found.push((event.at, format!("{by} writes a secret that begins with '{beginning}'")));
        }
    }
    found
}
