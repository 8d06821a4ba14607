//! One look at the world: the decision, and what a running replica remembers against a damaged Secret.

use crate::consumer::Consumer;
use crate::contents::Contents;
use crate::decide::{Decision, Step, decide};
use crate::issue::carry_out;
use crate::material::{Certificate, Unusable};
use crate::settings::{Settings, after};
use jiff::Timestamp;

/// What a look at the world asks for.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The decision.
    pub decision: Decision,
    /// What the Secret is to hold, if that is not what it holds.
    pub write: Option<Contents>,
    /// Whether that comes from memory.
    pub restored: bool,
}

/// Looks at what the Secret holds (nothing, if there is none), whether anything in it was damaged, and
/// what this replica remembers of it.
pub fn turn(
    stored: &Contents,
    damaged: bool,
    memory: &mut Option<Contents>,
    consumers: &[Consumer],
    now: Timestamp,
    settings: &Settings,
) -> Result<Turn, Unusable> {
    let remembered = memory.as_ref().filter(|contents| can_sign(contents, now));
    let restored = remembered.and_then(|kept| {
        let lost = damaged || !can_sign(stored, now);
        if lost { Some(merge(kept, stored)) } else { with_forgotten(stored, kept, now, settings) }
    });
    if let Some(contents) = restored {
        *memory = Some(contents.clone());
        let reason = "the Secret has lost what this replica remembers".to_owned();
        let decision = Decision { step: Step::Bootstrap, reason, ask_again: now };
        return Ok(Turn { decision, write: Some(contents), restored: true });
    }
    if !damaged && can_sign(stored, now) {
        *memory = Some(stored.clone());
    }
    let decision = decide(stored, consumers, now, settings);
    let write = match decision.step {
        Step::Keep => None,
        step => {
            let trusted: Vec<Certificate> = consumers.iter().flat_map(Consumer::trusted).cloned().collect();
            Some(carry_out(step, stored, &trusted, now, settings)?)
        }
    };
    Ok(Turn { decision, write, restored: false })
}

fn can_sign(contents: &Contents, now: Timestamp) -> bool {
    contents.current.as_ref().is_some_and(|authority| authority.certificate.valid_at(now))
}

/// What is remembered, and of the Secret whatever else was trusted.
fn merge(kept: &Contents, stored: &Contents) -> Contents {
    let mut merged = kept.clone();
    add_old(&mut merged, stored.authorities());
    merged.old_leaves.extend(stored.leaf.iter().map(|leaf| leaf.certificate.clone()));
    merged
}

/// The Secret, and the CAs that it should not have forgotten; none, if there are no such. A CA that is
/// needed only a little longer may have been retired by a replica whose clock is ahead: putting it back
/// would start a quarrel.
fn with_forgotten(
    stored: &Contents,
    kept: &Contents,
    now: Timestamp,
    settings: &Settings,
) -> Option<Contents> {
    let soon = after(now, settings.lifetimes.leaf / 4);
    let leaf = kept.leaf.iter().map(|leaf| leaf.certificate.clone());
    let leaves: Vec<Certificate> =
        kept.old_leaves.iter().cloned().chain(leaf).filter(|leaf| leaf.not_after > soon).collect();
    let known = stored.authorities();
    let needed = |authority: &Certificate| leaves.iter().any(|leaf| leaf.signed_by(authority));
    let forgotten: Vec<Certificate> =
        kept.authorities().into_iter().filter(|ca| !known.contains(ca) && needed(ca)).collect();
    if forgotten.is_empty() {
        return None;
    }
    let mut mended = stored.clone();
    add_old(&mut mended, forgotten);
    mended.old_leaves.extend(leaves.into_iter().filter(|leaf| !stored.old_leaves.contains(leaf)));
    Some(mended)
}

fn add_old(contents: &mut Contents, authorities: Vec<Certificate>) {
    let known = contents.authorities();
    contents.old.extend(authorities.into_iter().filter(|authority| !known.contains(authority)));
}
