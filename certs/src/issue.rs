//! The Secret's next contents.

use crate::contents::Contents;
use crate::decide::Step;
use crate::material::{Authority, Certificate, Leaf, Unusable};
use crate::settings::{Settings, after, before};
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _,
};
use std::collections::BTreeSet;
use std::time::SystemTime;

/// At most so many CAs are taken over from bundles that are already published.
const TAKEN_OVER: usize = 8;

/// Makes a step. `trusted` is what the API server trusts already: CAs of ours in it stay trusted when the
/// Secret has been lost, because replicas may still be serving what they signed.
pub fn carry_out(
    step: Step,
    contents: &Contents,
    trusted: &[Certificate],
    now: Timestamp,
    settings: &Settings,
) -> Result<Contents, Unusable> {
    let mut next = contents.clone();
    match step {
        Step::Bootstrap => next = bootstrap(contents, trusted, now, settings)?,
        Step::StageCa => next.next = Some(authority(now, settings)?),
        Step::RenewLeaf => renew(&mut next, now, settings)?,
        Step::Promote => promote(&mut next, now, settings)?,
        // What is retired goes in `tidy`.
        Step::Retire | Step::Keep => {}
    }
    tidy(&mut next, now, settings);
    Ok(next)
}

fn bootstrap(
    contents: &Contents,
    trusted: &[Certificate],
    now: Timestamp,
    settings: &Settings,
) -> Result<Contents, Unusable> {
    let current = authority(now, settings)?;
    let ours = trusted.iter().filter(|ca| ca.subject.contains(COMMON_NAME)).take(TAKEN_OVER).cloned();
    let mut old = contents.authorities();
    old.extend(ours);
    let mut old_leaves = contents.old_leaves.clone();
    old_leaves.extend(contents.leaf.iter().map(|leaf| leaf.certificate.clone()));
    let leaf = Some(sign(&current, settings.spelled(), now, settings)?);
    Ok(Contents { current: Some(current), next: None, old, old_leaves, leaf })
}

fn renew(next: &mut Contents, now: Timestamp, settings: &Settings) -> Result<(), Unusable> {
    let Some(current) = &next.current else { return Err(Unusable::Missing("CA")) };
    let mut names = settings.spelled();
    if let Some(leaf) = &next.leaf {
        // During a rollout that changes the names, replicas want different ones; a leaf with both ends it.
        if leaf.certificate.valid_at(now) && !names.is_subset(&leaf.certificate.names) {
            names.extend(leaf.certificate.names.iter().cloned());
        }
        next.old_leaves.push(leaf.certificate.clone());
    }
    next.leaf = Some(sign(current, names, now, settings)?);
    Ok(())
}

fn promote(next: &mut Contents, now: Timestamp, settings: &Settings) -> Result<(), Unusable> {
    let Some(staged) = next.next.take() else { return Err(Unusable::Missing("staged CA")) };
    next.old.extend(next.current.take().map(|current| current.certificate));
    next.old_leaves.extend(next.leaf.take().map(|leaf| leaf.certificate));
    next.leaf = Some(sign(&staged, settings.spelled(), now, settings)?);
    next.current = Some(staged);
    Ok(())
}

/// Leaves out what is of no use any more, above all old CAs whose last leaf has expired.
fn tidy(contents: &mut Contents, now: Timestamp, settings: &Settings) {
    let margin = settings.lifetimes.margin;
    let in_use = |leaf: &Certificate| now < after(leaf.not_after, margin);
    let current = contents.current.as_ref().map(|ca| ca.certificate.clone());
    let leaves = std::mem::take(&mut contents.old_leaves);
    let mut old = Vec::new();
    for authority in std::mem::take(&mut contents.old) {
        let mut signed = leaves.iter().filter(|leaf| leaf.signed_by(&authority)).peekable();
        let needed = signed.peek().is_none() || signed.any(in_use);
        if needed
            && now < authority.not_after
            && Some(&authority) != current.as_ref()
            && !old.contains(&authority)
        {
            old.push(authority);
        }
    }
    let known: Vec<Certificate> = old.iter().chain(&current).cloned().collect();
    contents.old = old;
    for leaf in leaves {
        if in_use(&leaf) && known.iter().any(|ca| leaf.signed_by(ca)) && !contents.old_leaves.contains(&leaf)
        {
            contents.old_leaves.push(leaf);
        }
    }
}

/// By this, CAs of ours are known in a bundle.
const COMMON_NAME: &str = "ip-address-controller webhook CA";

fn authority(now: Timestamp, settings: &Settings) -> Result<Authority, Unusable> {
    let key = key()?;
    let mut params = params(now, after(now, settings.lifetimes.authority), settings, &[])?;
    // Each CA has a name of its own, by which a verifier tells them apart in a bundle.
    let number =
        key.der_bytes().iter().rev().take(4).fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
    params.distinguished_name.push(DnType::CommonName, format!("{COMMON_NAME} {number:08x}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key).map_err(malformed)?;
    Authority::from_pem(certificate.pem().as_bytes(), key.serialize_pem().as_bytes())
}

fn sign(
    authority: &Authority,
    names: BTreeSet<String>,
    now: Timestamp,
    settings: &Settings,
) -> Result<Leaf, Unusable> {
    let key = key()?;
    let end = after(now, settings.lifetimes.leaf).min(authority.certificate.not_after);
    let mut params = params(now, end, settings, &names.into_iter().collect::<Vec<_>>())?;
    params.distinguished_name.push(DnType::CommonName, "ip-address-controller webhook");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let issuer =
        Issuer::from_ca_cert_der(authority.certificate.der(), authority.key()?).map_err(malformed)?;
    let certificate = params.signed_by(&key, &issuer).map_err(malformed)?;
    Leaf::from_pem(certificate.pem().as_bytes(), key.serialize_pem().as_bytes())
}

fn params(
    now: Timestamp,
    end: Timestamp,
    settings: &Settings,
    names: &[String],
) -> Result<CertificateParams, Unusable> {
    let mut params = CertificateParams::new(names).map_err(malformed)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.not_before = SystemTime::from(before(now, settings.lifetimes.back_dated)).into();
    params.not_after = SystemTime::from(end).into();
    Ok(params)
}

fn key() -> Result<KeyPair, Unusable> {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(malformed)
}

// By value, as `map_err` hands it over.
#[allow(clippy::needless_pass_by_value)]
fn malformed(error: rcgen::Error) -> Unusable {
    Unusable::Malformed(error.to_string())
}
