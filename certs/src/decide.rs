//! What has to happen next. Pure: everything that matters is an argument.

use crate::consumer::Consumer;
use crate::contents::Contents;
use crate::material::{Authority, Certificate};
use crate::settings::{Settings, after, before};
use jiff::Timestamp;
use std::time::Duration;

/// A change of the Secret. Each is one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing has to be written.
    Keep,
    /// There is no CA that can sign: make one, and a leaf.
    Bootstrap,
    /// The CA gets old: make the next one, which does not sign yet, so that it is published.
    StageCa,
    /// The next CA is published everywhere: it signs from now on, and the old one stays trusted.
    Promote,
    /// Nothing that an old CA signed can be in use any more: it goes out of the bundle.
    Retire,
    /// A new leaf by the same CA.
    RenewLeaf,
}

impl Step {
    /// The metric's word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Bootstrap => "bootstrap",
            Self::StageCa => "stage_ca",
            Self::Promote => "promote",
            Self::Retire => "retire",
            Self::RenewLeaf => "renew_leaf",
        }
    }
}

/// A step, why, and when to ask again if nothing else changes.
#[derive(Clone, Debug)]
pub struct Decision {
    /// What to do.
    pub step: Step,
    /// Why, for people.
    pub reason: String,
    /// When the answer may be another one.
    pub ask_again: Timestamp,
}

/// Decides.
pub fn decide(contents: &Contents, consumers: &[Consumer], now: Timestamp, settings: &Settings) -> Decision {
    let times = Times { contents, consumers, now, settings };
    let (step, reason) = times.step();
    Decision { step, reason, ask_again: times.ask_again() }
}

/// When a CA will have been published by all consumers for the margin; none, while one does not carry it.
pub fn published(authority: &Certificate, consumers: &[Consumer], margin: Duration) -> Option<Timestamp> {
    consumers.iter().try_fold(Timestamp::MIN, |latest, consumer| {
        let since = consumer.carries(authority).then_some(consumer.since).flatten()?;
        Some(latest.max(after(since, margin)))
    })
}

struct Times<'a> {
    contents: &'a Contents,
    consumers: &'a [Consumer],
    now: Timestamp,
    settings: &'a Settings,
}

impl Times<'_> {
    fn step(&self) -> (Step, String) {
        let Some(current) = self.usable(self.contents.current.as_ref()) else {
            return match self.usable(self.contents.next.as_ref()) {
                Some(next) => (Step::Promote, format!("only the staged CA can sign: {:?}", next.certificate)),
                None => (Step::Bootstrap, "there is no CA that can sign".to_owned()),
            };
        };
        if let Some(reason) = self.leaf_fault(current) {
            return (Step::RenewLeaf, reason);
        }
        if let Some(reason) = self.promotion(current) {
            return (Step::Promote, reason);
        }
        if self.now >= self.authority_due(current) && self.usable(self.contents.next.as_ref()).is_none() {
            return (Step::StageCa, format!("two thirds of its life are over: {:?}", current.certificate));
        }
        match self.contents.old.iter().find(|old| self.now >= self.old_until(old)) {
            Some(old) => (Step::Retire, format!("nothing that it signed is valid any more: {old:?}")),
            None => (Step::Keep, "everything is as it should be".to_owned()),
        }
    }

    fn usable<'c>(&self, authority: Option<&'c Authority>) -> Option<&'c Authority> {
        authority.filter(|authority| authority.certificate.valid_at(self.now))
    }

    /// Why the leaf has to be replaced, if it has to.
    fn leaf_fault(&self, current: &Authority) -> Option<String> {
        let Some(leaf) = &self.contents.leaf else { return Some("there is no usable leaf".to_owned()) };
        let leaf = &leaf.certificate;
        if !leaf.valid_at(self.now) {
            Some(format!("the leaf is not valid now: {leaf:?}"))
        } else if !leaf.signed_by(&current.certificate) {
            Some(format!("the leaf was not signed by the CA: {leaf:?}"))
        } else if let Some(name) = self.settings.spelled().difference(&leaf.names).next() {
            Some(format!("the leaf lacks the name {name}"))
        } else if self.now >= self.leaf_due(leaf) && self.gains(leaf, current) {
            Some(format!("two thirds of its life are over: {leaf:?}"))
        } else {
            None
        }
    }

    /// A leaf ends with its CA at the latest. When a new one would not last noticeably longer, it would
    /// be made for nothing, again and again.
    fn gains(&self, leaf: &Certificate, current: &Authority) -> bool {
        let life = self.settings.lifetimes.leaf;
        let new_end = after(self.now, life).min(current.certificate.not_after);
        new_end > after(leaf.not_after, life / 10)
    }

    /// Why the staged CA may sign now, if it may.
    fn promotion(&self, current: &Authority) -> Option<String> {
        let next = self.usable(self.contents.next.as_ref())?;
        let lifetimes = &self.settings.lifetimes;
        let published_at = published(&next.certificate, self.consumers, lifetimes.margin)?;
        if self.now >= published_at {
            return Some("the staged CA is published everywhere, and has been for the margin".to_owned());
        }
        // A clock that was set back must not keep us from rotating until the old CA is dead.
        let last_tenth = before(current.certificate.not_after, lifetimes.authority / 10);
        (self.now >= last_tenth)
            .then(|| "the CA ends soon, and the staged one is published everywhere".to_owned())
    }

    fn authority_due(&self, authority: &Authority) -> Timestamp {
        due(&authority.certificate, self.settings.lifetimes.authority)
    }

    fn leaf_due(&self, leaf: &Certificate) -> Timestamp {
        due(leaf, self.settings.lifetimes.leaf)
    }

    /// Until when an old CA has to be trusted. If it is not known what it signed: to its end.
    fn old_until(&self, old: &Certificate) -> Timestamp {
        let ends =
            self.contents.old_leaves.iter().filter(|leaf| leaf.signed_by(old)).map(|leaf| leaf.not_after);
        let last = ends.max().map(|end| after(end, self.settings.lifetimes.margin));
        last.map_or(old.not_after, |end| end.min(old.not_after))
    }

    /// The first moment after now at which something becomes due.
    fn ask_again(&self) -> Timestamp {
        let contents = self.contents;
        let current =
            contents.current.iter().flat_map(|ca| [self.authority_due(ca), ca.certificate.not_after]);
        let leaf = contents.leaf.iter().flat_map(|leaf| {
            [self.leaf_due(&leaf.certificate), leaf.certificate.not_before, leaf.certificate.not_after]
        });
        let margin = self.settings.lifetimes.margin;
        let next = contents.next.iter().filter_map(|ca| published(&ca.certificate, self.consumers, margin));
        let old = contents.old.iter().map(|old| self.old_until(old));
        current
            .chain(leaf)
            .chain(next)
            .chain(old)
            .filter(|time| *time > self.now)
            .min()
            .unwrap_or(Timestamp::MAX)
    }
}

/// After two thirds of its life and a little: how little depends on the certificate alone, so that the
/// replicas agree and the clusters of the world do not all renew at once.
fn due(certificate: &Certificate, life: Duration) -> Timestamp {
    let jitter = (life / 20).mul_f64(certificate.fraction());
    after(before(certificate.not_after, life / 3), jitter)
}
