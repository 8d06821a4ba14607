//! Certificates and keys, read once and checked for what they are used for.

use jiff::Timestamp;
use rcgen::{KeyPair, PublicKeyData as _};
use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

static PROVIDER: LazyLock<CryptoProvider> = LazyLock::new(aws_lc_rs::default_provider);

/// Why a certificate or key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// There is none in the text.
    #[error("there is no {0} in it")]
    Missing(&'static str),
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Malformed(String),
    /// Certificate and key are not a pair.
    #[error("certificate and key do not belong together")]
    Mismatched,
    /// A CA was expected.
    #[error("it is not a CA")]
    NotAnAuthority,
    /// The leaf was signed by somebody else.
    #[error("it was not signed by the CA that is beside it")]
    Untrusted,
}

/// A certificate and what it says of itself. Two are equal if every byte is.
#[derive(Clone)]
pub struct Certificate {
    der: CertificateDer<'static>,
    /// Serial number, in hexadecimal.
    pub serial: String,
    /// Who it is, for people.
    pub subject: String,
    /// Valid from.
    pub not_before: Timestamp,
    /// Valid until.
    pub not_after: Timestamp,
    /// Its DNS names and IP addresses.
    pub names: BTreeSet<String>,
    is_ca: bool,
    public_key: Vec<u8>,
}

impl Certificate {
    /// Reads a certificate.
    pub fn from_der(der: CertificateDer<'static>) -> Result<Self, Unusable> {
        let malformed = |error: &dyn fmt::Display| Unusable::Malformed(error.to_string());
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|error| malformed(&error))?;
        let names = parsed.subject_alternative_name().map_err(|error| malformed(&error))?;
        let names = names.map(|extension| name_texts(&extension.value.general_names)).unwrap_or_default();
        Ok(Self {
            serial: parsed.raw_serial_as_string(),
            subject: parsed.subject().to_string(),
            not_before: timestamp(parsed.validity().not_before.timestamp()),
            not_after: timestamp(parsed.validity().not_after.timestamp()),
            names,
            is_ca: parsed.is_ca(),
            public_key: parsed.public_key().raw.to_vec(),
            der,
        })
    }

    /// All certificates in a PEM text.
    pub fn all_from_pem(pem: &[u8]) -> Result<Vec<Self>, Unusable> {
        CertificateDer::pem_slice_iter(pem)
            .map(|der| Self::from_der(der.map_err(|error| Unusable::Malformed(error.to_string()))?))
            .collect()
    }

    /// As PEM.
    pub fn pem(&self) -> String {
        use base64::Engine as _;
        let text = base64::engine::general_purpose::STANDARD.encode(&self.der);
        let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
        for line in text.as_bytes().chunks(64) {
            pem.extend(line.iter().map(|byte| char::from(*byte)));
            pem.push('\n');
        }
        pem.push_str("-----END CERTIFICATE-----\n");
        pem
    }

    /// Whether the time is within its life.
    pub fn valid_at(&self, now: Timestamp) -> bool {
        self.not_before <= now && now < self.not_after
    }

    /// Whether that CA signed it, by checking the signature.
    pub fn signed_by(&self, authority: &Certificate) -> bool {
        self.signed_through(&[], authority)
    }

    fn signed_through(&self, intermediates: &[CertificateDer<'static>], authority: &Certificate) -> bool {
        let mut roots = RootCertStore::empty();
        if roots.add(authority.der.clone()).is_err() {
            return false;
        }
        let Ok(parsed) = ParsedCertificate::try_from(&self.der) else { return false };
        // Whether it is in date is another question; so both are asked at a time when both were.
        let Ok(since_epoch) = Duration::try_from(self.not_before.max(authority.not_before).as_duration())
        else {
            return false;
        };
        let time = UnixTime::since_unix_epoch(since_epoch);
        let algorithms = PROVIDER.signature_verification_algorithms.all;
        rustls::client::verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &roots,
            intermediates,
            time,
            algorithms,
        )
        .is_ok()
    }

    /// A number between 0 and 1 that is the same for everybody who looks at this certificate, and
    /// another for every other one.
    pub fn fraction(&self) -> f64 {
        let hash = self
            .der
            .iter()
            .fold(0xcbf2_9ce4_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
        f64::from(hash) / f64::from(u32::MAX)
    }

    pub(crate) fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }
}

impl PartialEq for Certificate {
    fn eq(&self, other: &Self) -> bool {
        self.der == other.der
    }
}

impl Eq for Certificate {}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, until {})", self.subject, self.serial, self.not_after)
    }
}

fn name_texts(names: &[GeneralName<'_>]) -> BTreeSet<String> {
    names
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => address(bytes).map(|address| address.to_string()),
            _ => None,
        })
        .collect()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    v4.or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))
}

/// X.509 knows the last second of the year 9999; our calendar ends a little earlier.
fn timestamp(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap_or(if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

/// A CA that can sign.
#[derive(Clone)]
pub struct Authority {
    /// Its certificate.
    pub certificate: Certificate,
    key_pem: Arc<str>,
}

impl Authority {
    /// Reads a CA and its key.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, Unusable> {
        let certificate = Certificate::all_from_pem(certificate)?
            .into_iter()
            .next()
            .ok_or(Unusable::Missing("certificate"))?;
        if !certificate.is_ca {
            return Err(Unusable::NotAnAuthority);
        }
        let key_pem = std::str::from_utf8(key).map_err(|error| Unusable::Malformed(error.to_string()))?;
        let authority = Self { certificate, key_pem: key_pem.into() };
        if authority.key()?.subject_public_key_info() == authority.certificate.public_key {
            Ok(authority)
        } else {
            Err(Unusable::Mismatched)
        }
    }

    /// Its key.
    pub(crate) fn key(&self) -> Result<KeyPair, Unusable> {
        KeyPair::from_pem(&self.key_pem).map_err(|error| Unusable::Malformed(error.to_string()))
    }

    pub(crate) fn key_pem(&self) -> &str {
        &self.key_pem
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CA {:?}", self.certificate)
    }
}

/// What is served: a certificate (with its chain, if it has one) and the key to it.
#[derive(Clone)]
pub struct Leaf {
    /// The certificate.
    pub certificate: Certificate,
    chain_pem: Arc<[u8]>,
    key_pem: Arc<[u8]>,
    certified: Arc<CertifiedKey>,
}

impl Leaf {
    /// Reads a certificate chain, leaf first, and the leaf's key, and checks that they are a pair.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, Unusable> {
        let certificates = Certificate::all_from_pem(chain)?;
        let certificate = certificates.first().cloned().ok_or(Unusable::Missing("certificate"))?;
        let der = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
            rustls::pki_types::pem::Error::NoItemsFound => Unusable::Missing("key"),
            other => Unusable::Malformed(other.to_string()),
        })?;
        let chain_der = certificates.iter().map(|certificate| certificate.der.clone()).collect();
        let certified = CertifiedKey::from_der(chain_der, der, &PROVIDER).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => Unusable::Mismatched,
            other => Unusable::Malformed(other.to_string()),
        })?;
        Ok(Self { certificate, chain_pem: chain.into(), key_pem: key.into(), certified: Arc::new(certified) })
    }

    /// Whether that CA signed it, or an intermediate that comes along.
    pub fn signed_by(&self, authority: &Certificate) -> bool {
        let intermediates = self.certified.cert.get(1..).unwrap_or_default();
        self.certificate.signed_through(intermediates, authority)
    }

    /// As rustls serves it.
    pub fn certified(&self) -> &Arc<CertifiedKey> {
        &self.certified
    }

    pub(crate) fn chain_pem(&self) -> &[u8] {
        &self.chain_pem
    }

    pub(crate) fn key_pem(&self) -> &[u8] {
        &self.key_pem
    }
}

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "leaf {:?}", self.certificate)
    }
}
