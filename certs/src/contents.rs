//! What the Secret holds.

use crate::material::{Authority, Certificate, Leaf, Unusable};
use k8s_openapi::ByteString;
use std::collections::BTreeMap;

/// Everything that the next decision needs, so that it survives restarts.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// The CA that signs.
    pub current: Option<Authority>,
    /// The CA that is being published and will sign.
    pub next: Option<Authority>,
    /// CAs that sign no more. They stay published for the leaves that they signed.
    pub old: Vec<Certificate>,
    /// The last leaves of the old ones: when these have expired, nobody can be serving anything older.
    pub old_leaves: Vec<Certificate>,
    /// What is served.
    pub leaf: Option<Leaf>,
}

/// Something in the Secret that cannot be used, and why.
#[derive(Debug)]
pub struct Fault {
    /// Which entry.
    pub entry: &'static str,
    /// What is wrong with it.
    pub problem: Unusable,
}

/// The Secret's data.
pub type Data = BTreeMap<String, ByteString>;

impl Contents {
    /// Reads what can be read; the rest is named.
    pub fn read(data: &Data) -> (Self, Vec<Fault>) {
        let mut reader = Reader { data, faults: Vec::new() };
        let contents = Self {
            current: reader.pair("ca.crt", "ca.key", Authority::from_pem),
            next: reader.pair("next-ca.crt", "next-ca.key", Authority::from_pem),
            old: reader.certificates("old-ca.crt"),
            old_leaves: reader.certificates("old-leaf.crt"),
            leaf: reader.pair("tls.crt", "tls.key", Leaf::from_pem),
        };
        (contents, reader.faults)
    }

    /// As the Secret stores it.
    pub fn data(&self) -> Data {
        let mut data = Data::new();
        let mut put =
            |entry: &str, bytes: &[u8]| drop(data.insert(entry.to_owned(), ByteString(bytes.to_vec())));
        for (prefix, authority) in [("ca", &self.current), ("next-ca", &self.next)] {
            if let Some(authority) = authority {
                put(&format!("{prefix}.crt"), authority.certificate.pem().as_bytes());
                put(&format!("{prefix}.key"), authority.key_pem().as_bytes());
            }
        }
        for (entry, certificates) in [("old-ca.crt", &self.old), ("old-leaf.crt", &self.old_leaves)] {
            if !certificates.is_empty() {
                put(entry, certificates.iter().map(Certificate::pem).collect::<String>().as_bytes());
            }
        }
        if let Some(leaf) = &self.leaf {
            put("tls.crt", leaf.chain_pem());
            put("tls.key", leaf.key_pem());
        }
        data
    }

    /// All CAs, the signing one first.
    pub fn authorities(&self) -> Vec<Certificate> {
        let own = [&self.current, &self.next].into_iter().flatten().map(|authority| &authority.certificate);
        own.chain(&self.old).cloned().collect()
    }

    /// The CA that signed a leaf, if it is one of these.
    pub fn issuer_of(&self, leaf: &Leaf) -> Option<Certificate> {
        self.authorities().into_iter().find(|authority| leaf.signed_by(authority))
    }
}

struct Reader<'d> {
    data: &'d Data,
    faults: Vec<Fault>,
}

impl Reader<'_> {
    fn pair<T>(
        &mut self,
        certificate: &'static str,
        key: &str,
        read: impl Fn(&[u8], &[u8]) -> Result<T, Unusable>,
    ) -> Option<T> {
        let entry = |name: &str| self.data.get(name).map(|bytes| bytes.0.as_slice());
        let read = match (entry(certificate), entry(key)) {
            (None, None) => return None,
            (Some(certificate), Some(key)) => read(certificate, key),
            (None, Some(_)) => Err(Unusable::Missing("certificate")),
            (Some(_), None) => Err(Unusable::Missing("key")),
        };
        self.note(certificate, read)
    }

    fn certificates(&mut self, entry: &'static str) -> Vec<Certificate> {
        let Some(bytes) = self.data.get(entry) else { return Vec::new() };
        self.note(entry, Certificate::all_from_pem(&bytes.0)).unwrap_or_default()
    }

    fn note<T>(&mut self, entry: &'static str, read: Result<T, Unusable>) -> Option<T> {
        read.map_err(|problem| self.faults.push(Fault { entry, problem })).ok()
    }
}
