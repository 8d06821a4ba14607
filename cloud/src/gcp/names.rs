//! Names that carry what must survive everything.
//!
//! The name of an access config is ours to choose, and it lives exactly as long as the attachment. Ours say
//! which address it is, whether the instance had one of its own before, and by which attempt it was made:
//! `netip-203-0-113-10-ephemeral-1f0c9a7e`.

use std::net::IpAddr;
use uuid::Uuid;

/// All UUIDs of ours are made in this namespace.
const NAMESPACE: Uuid = Uuid::from_u128(0x1f5d_8a30_6f0c_4b7e_9a51_c0de_0c10_0d1e);
/// Request ids of deletions begin with this if the instance has, or had before ours, an address of its own:
/// such an operation says so to whoever finds it.
const HAD_OWN: [u8; 4] = [0x0c, 0x1e, 0xa4, 0xed];

/// The name of an attachment.
pub fn access_config(address: IpAddr, had_own: bool, key: &str) -> String {
    let address = address.to_string().replace(['.', ':'], "-");
    let had = if had_own { "ephemeral" } else { "private" };
    let attempt = Uuid::new_v5(&NAMESPACE, key.as_bytes()).simple().to_string();
    format!("netip-{address}-{had}-{}", &attempt[..8])
}

/// Whether an attachment is one of ours, by its name.
pub fn is_ours(name: &str) -> bool {
    name.starts_with("netip-")
}

/// Whether a name says that the instance had an address of its own before. Names of others do not say it.
pub fn had_own(name: &str) -> bool {
    is_ours(name) && name.contains("-ephemeral-")
}

/// The request id of a call: the same for the same step after a crash.
pub fn request_id(key: &str, call: &str) -> String {
    Uuid::new_v5(&NAMESPACE, format!("{key}/{call}").as_bytes()).to_string()
}

/// The request id of a deletion on an instance that has, or had before ours, an address of its own.
pub fn marked_request_id(key: &str, call: &str) -> String {
    let mut bytes = Uuid::new_v5(&NAMESPACE, format!("{key}/{call}").as_bytes()).into_bytes();
    bytes[..4].copy_from_slice(&HAD_OWN);
    Uuid::from_bytes(bytes).to_string()
}

/// Whether a request id is one of these.
pub fn is_marked(request_id: &str) -> bool {
    Uuid::parse_str(request_id).is_ok_and(|id| id.as_bytes().starts_with(&HAD_OWN))
}

/// What fences a detach: the instance behind its name, the interface, and the access config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub instance: u64,
    pub interface: String,
    pub name: String,
}

impl Token {
    /// As text.
    pub fn write(&self) -> String {
        format!("{}/{}/{}", self.instance, self.interface, self.name)
    }

    /// From text; names of others may contain anything.
    pub fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '/');
        let (instance, interface, name) = (parts.next()?, parts.next()?, parts.next()?);
        let token =
            Self { instance: instance.parse().ok()?, interface: interface.to_owned(), name: name.to_owned() };
        Some(token).filter(|token| !token.name.is_empty() && !token.interface.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_say_what_was() {
        let ip = "203.0.113.10".parse().unwrap();
        let name = access_config(ip, true, "key");
        assert!(name.starts_with("netip-203-0-113-10-ephemeral-") && had_own(&name), "{name}");
        assert!(!had_own(&access_config(ip, false, "key")));
        assert_eq!(name, access_config(ip, true, "key"), "the same after a crash");
        assert_ne!(name, access_config(ip, true, "next"), "another for the next attempt");
        for other in ["External NAT", "external-nat", "my-ephemeral-one", ""] {
            assert!(!had_own(other), "{other}");
        }
    }

    #[test]
    fn request_ids_differ_by_call_and_key() {
        let ids = [
            request_id("a", "attach"),
            request_id("a", "detach"),
            request_id("b", "attach"),
            marked_request_id("a", "make room"),
        ];
        let different: std::collections::BTreeSet<&String> = ids.iter().collect();
        assert_eq!(different.len(), ids.len());
        assert!(is_marked(&ids[3]) && !ids[..3].iter().any(|id| is_marked(id)));
        assert!(!is_marked("not a uuid"));
    }

    proptest! {
        #[test]
        fn tokens_survive_any_name(instance: u64, name in "\\PC{1,40}") {
            let token = Token { instance, interface: "nic0".to_owned(), name };
            prop_assert_eq!(Token::read(&token.write()), Some(token));
        }

        #[test]
        fn no_text_breaks_the_reader(text in "\\PC{0,40}") {
            let _ = Token::read(&text);
            let _ = is_marked(&text);
        }
    }
}
