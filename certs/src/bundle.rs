//! The bundle that the API server is to trust.

use crate::contents::Contents;
use crate::material::Certificate;
use jiff::Timestamp;

/// The CAs to publish, as PEM, in an order that every replica arrives at. Expired ones are left out.
pub fn bundle(contents: &Contents, now: Timestamp) -> String {
    pem(contents.authorities().into_iter().filter(|authority| now < authority.not_after).collect())
}

/// Certificates as one PEM text without repetitions.
pub(crate) fn pem(mut certificates: Vec<Certificate>) -> String {
    certificates.sort_by(|a, b| (a.not_before, a.der().as_ref()).cmp(&(b.not_before, b.der().as_ref())));
    certificates.dedup();
    certificates.iter().map(Certificate::pem).collect()
}
