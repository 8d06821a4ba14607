//! How far the watches of a workload are, and which workloads can be watched at all.

use super::watch::Change;
use plan::WorkloadKey;
use plan::parse::Place;

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
            // What is in the way of the watch may still be.
            Change::Listed(_) => {
                self.listed = true;
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
    let checked = Place::Namespace.check(&key.namespace).and_then(|()| Place::Name.check(&key.name));
    checked.err().map(|fault| format!("{} cannot be asked for: {fault}", name_of(key)))
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
    fn a_list_is_done_when_it_is_complete_and_trouble_when_it_works() {
        let mut progress = Progress::default();
        assert!(progress.take::<()>(&Change::Begun));
        assert!(progress.take::<()>(&Change::Failed("403".to_owned())));
        assert!(progress.take::<()>(&Change::Begun));
        assert_eq!(progress.trouble.as_deref(), Some("403"), "a new try is no success");
        assert!(progress.take::<()>(&Change::Works));
        assert!(!progress.listed && progress.trouble.is_none());
        assert!(!progress.take::<()>(&Change::Listed(std::collections::BTreeSet::new())));
        assert!(progress.listed);
        progress.take::<()>(&Change::Failed("503".to_owned()));
        assert!(progress.listed, "what was listed is known");
        progress.take::<()>(&Change::Listed(std::collections::BTreeSet::new()));
        assert_eq!(progress.trouble.as_deref(), Some("503"), "a list alone does not end it");
        progress.take::<()>(&Change::Works);
        assert_eq!(progress.trouble, None);
    }
}
