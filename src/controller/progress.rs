//! How far the watches of a workload are, and which workloads can be watched at all.

use super::watch::Change;
use plan::WorkloadKey;

/// How far a watch is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    pub listed: bool,
    /// What is in its way, in words.
    pub trouble: Option<String>,
}

impl Progress {
    pub fn done() -> Self {
        Self { listed: true, trouble: None }
    }

    /// Takes what a watch says of itself; whether that was all it said.
    pub fn take<K>(&mut self, change: &Change<K>) -> bool {
        match change {
            Change::Applied(_) | Change::Gone(_) => return false,
            Change::Begun => {}
            Change::Listed(_) => {
                *self = Self::done();
                return false;
            }
            Change::Failed(why) => self.trouble = Some(why.clone()),
            Change::Works => self.trouble = None,
        }
        true
    }
}

/// As people write it.
pub fn name_of(key: &WorkloadKey) -> String {
    format!("{:?} {}/{}", key.kind, key.namespace, key.name)
}

/// What is wrong with a name that no request can be made of; objects that were stored under an older schema
/// may have any.
pub fn cannot_be_asked_for(key: &WorkloadKey) -> Option<String> {
    let fault = if key.namespace.len() > 63 || !is_label(&key.namespace) {
        format!("{:?} is no valid name of a namespace", key.namespace)
    } else if key.name.len() > 253 || !key.name.split('.').all(is_label) {
        format!("{:?} is no valid name of a {:?}", key.name, key.kind)
    } else {
        return None;
    };
    Some(format!("{} cannot be asked for: {fault}", name_of(key)))
}

/// Letters, digits and hyphens as in DNS-1123; how long it may be depends on where it stands.
fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| *byte != b'-');
    let bytes = text.as_bytes();
    bytes.iter().all(|byte| inner(*byte)) && edge(bytes.first()) && edge(bytes.last())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crds::WorkloadKind;

    fn key(namespace: &str, name: &str) -> WorkloadKey {
        WorkloadKey { kind: WorkloadKind::Deployment, namespace: namespace.into(), name: name.into() }
    }

    #[test]
    fn what_makes_no_request_is_not_asked_for() {
        for (namespace, name) in [
            ("prod ", "web"),
            ("prod/web", "web"),
            ("{{ .Values.ns }}", "web"),
            ("", "web"),
            ("-prod", "web"),
            ("pro.d", "web"),
            ("Prod", "web"),
            (&"p".repeat(64), "web"),
            ("prod", "web,x=y"),
            ("prod", "web="),
            ("prod", ""),
            ("prod", "web..a"),
            ("prod", "../../nodes"),
            ("prod", &"w".repeat(254)),
        ] {
            let fault = cannot_be_asked_for(&key(namespace, name));
            assert!(fault.is_some(), "{namespace:?} {name:?}");
        }
        for (namespace, name) in [("prod", "web"), ("p1", "web.v-1.a"), ("prod", &"w".repeat(253))] {
            assert_eq!(cannot_be_asked_for(&key(namespace, name)), None, "{namespace:?} {name:?}");
        }
    }

    #[test]
    fn a_list_is_done_when_it_is_complete_and_trouble_ends_with_it() {
        let mut progress = Progress::default();
        assert!(progress.take::<()>(&Change::Begun));
        assert!(progress.take::<()>(&Change::Failed("403".to_owned())));
        assert!(progress.take::<()>(&Change::Begun));
        assert_eq!(progress.trouble.as_deref(), Some("403"), "a new try is no success");
        assert!(!progress.take::<()>(&Change::Listed(std::collections::BTreeSet::new())));
        assert!(progress.listed && progress.trouble.is_none());
        progress.take::<()>(&Change::Failed("503".to_owned()));
        assert!(progress.listed, "what was listed is known");
        progress.take::<()>(&Change::Works);
        assert_eq!(progress.trouble, None);
    }
}
