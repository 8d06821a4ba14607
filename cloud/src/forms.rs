//! The forms that provider IDs have in the cluster.
//!
//! A cloud's own word on who has an address is in another form than the node's `spec.providerID`: another case,
//! another number of slashes. Whoever asks gets the form back that he last asked with.

use crate::ProviderId;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// More than the nodes of any account: forms of nodes that are gone are forgotten some day.
const MOST: usize = 100_000;

/// Forms by instance.
#[derive(Debug, Default)]
pub(crate) struct Forms(Mutex<HashMap<String, String>>);

impl Forms {
    /// Learns the forms of provider IDs.
    pub fn learn<'a>(&self, provider_ids: impl IntoIterator<Item = &'a String>) {
        let mut forms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if forms.len() > MOST {
            forms.clear();
        }
        for id in provider_ids {
            if let Some(parsed) = ProviderId::parse(id) {
                forms.insert(parsed.key(), id.clone());
            }
        }
    }

    /// A provider ID in the form that it was asked with; as it is, if nobody has.
    pub fn of(&self, provider_id: &str) -> String {
        let forms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = ProviderId::parse(provider_id).and_then(|id| forms.get(&id.key()).cloned());
        known.unwrap_or_else(|| provider_id.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_the_node_comes_back() {
        let forms = Forms::default();
        assert_eq!(forms.of("aws:///eu-west-1a/i-1"), "aws:///eu-west-1a/i-1");
        forms.learn([&"i-1".to_owned(), &"nonsense".to_owned()]);
        assert_eq!(forms.of("aws:///eu-west-1a/i-1"), "i-1");
        assert_eq!(forms.of("nonsense"), "nonsense");
    }
}
