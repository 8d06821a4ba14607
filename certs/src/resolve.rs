//! What a handshake is answered with.

use crate::consumer::Consumer;
use crate::contents::Contents;
use crate::decide::published;
use crate::material::{Certificate, Leaf};
use arc_swap::ArcSwap;
use jiff::Timestamp;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

/// A leaf that could be served, and the CA that signed it, if that is known.
pub type Candidate = (Leaf, Option<Certificate>);

/// How much is known of the API server's trust in a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Trust {
    /// Its CA is not published everywhere.
    None,
    /// It is, but a bundle was written so recently that somebody may not know it yet.
    Fresh,
    /// It has been for the margin; or somebody else sees to it.
    Settled,
}

/// Leaves from best to worst: valid before expired, then by trust. Among those that are trusted for
/// certain, the first offered is the best. Otherwise `served`, which works or is not worse: a bundle that
/// has just been written says nothing against what was served before.
pub fn choose(
    offered: Vec<Candidate>,
    served: Option<&Certificate>,
    consumers: &[Consumer],
    now: Timestamp,
    margin: Duration,
) -> Vec<Candidate> {
    let trust = |authority: &Option<Certificate>| {
        let Some(authority) = authority else { return Trust::Settled };
        match published(authority, consumers, margin) {
            Some(from) if from <= now => Trust::Settled,
            Some(_) => Trust::Fresh,
            None => Trust::None,
        }
    };
    let mut sorted = offered;
    sorted.sort_by_key(|(leaf, authority)| {
        let trust = trust(authority);
        let stays = trust < Trust::Settled && served == Some(&leaf.certificate);
        Reverse((leaf.certificate.valid_at(now), trust, stays))
    });
    sorted
}

/// Answers handshakes without a lock. What it serves is swapped as a whole.
#[derive(Debug, Default)]
pub struct Resolver {
    candidates: ArcSwap<Vec<Candidate>>,
}

impl Resolver {
    /// How many leaves are remembered: the one that is served and those before it.
    const REMEMBERED: usize = 3;

    /// Takes the leaf of a source into account. What was served before stays as long as it is valid:
    /// it is served on while the new one's CA is not trusted yet.
    pub fn offer(&self, contents: &Contents, consumers: &[Consumer], now: Timestamp, margin: Duration) {
        let offered = contents.leaf.iter().map(|leaf| (leaf.clone(), contents.issuer_of(leaf)));
        let mut all: Vec<Candidate> = offered.collect();
        for (leaf, authority) in self.candidates.load().iter() {
            if !all.iter().any(|(known, _)| known.certificate == leaf.certificate) {
                all.push((leaf.clone(), authority.clone()));
            }
        }
        let served = self.served_at(now).map(|(leaf, _)| leaf.certificate);
        let mut best = choose(all, served.as_ref(), consumers, now, margin);
        best.truncate(Self::REMEMBERED);
        self.candidates.store(Arc::new(best));
    }

    /// What a handshake gets at that time.
    pub fn served_at(&self, now: Timestamp) -> Option<Candidate> {
        let candidates = self.candidates.load();
        let valid = candidates.iter().find(|(leaf, _)| leaf.certificate.valid_at(now));
        valid.or(candidates.first()).cloned()
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let (leaf, _) = self.served_at(Timestamp::now())?;
        Some(Arc::clone(leaf.certified()))
    }
}
