//! Keeps the pod webhook down to the namespaces that allocations refer to: pods elsewhere never pay.

use super::{CONFIGURATION, PODS, call};
use crate::state::State;
use futures::StreamExt as _;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::api::{Patch, PatchParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use serde_json::json;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

const FIELD_MANAGER: &str = "ip-address-controller-namespaces";
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// How long a selector may be too wide. Another replica may know of a namespace a moment before us;
/// without this, the two would undo each other's work.
const QUIET: Duration = Duration::from_secs(2);
/// The pause after a write that failed.
const RETRY: Duration = Duration::from_secs(2);
/// How often a configuration is looked for that the watch does not show.
const LOOK: Duration = Duration::from_secs(30);

/// When the selector is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// It is right.
    Never,
    /// Too wide: that costs time, but nothing is missed.
    Soon,
    /// Pods of a referenced namespace would not be seen.
    Now,
}

/// Writes the selector whenever it is not what the index asks for, for ever. A configuration that does
/// not exist is left to whoever makes it.
pub async fn keep_narrow(client: Client, state: &State) -> Infallible {
    let api: Api<MutatingWebhookConfiguration> = Api::all(client);
    let mut configurations = pin!(watch_object(api.clone(), CONFIGURATION).default_backoff());
    let mut changes = state.changes();
    let mut current: Option<Current> = None;
    let (mut due_at, mut not_before) = (None, Instant::now());
    loop {
        let wanted = state.index().namespaces();
        due_at = match current.as_ref().map_or(Due::Never, |current| due(&current.selector, &wanted)) {
            _ if !state.knows_allocations() => None,
            Due::Never => None,
            Due::Now => Some(not_before.max(Instant::now())),
            Due::Soon => due_at.or(Some(not_before.max(Instant::now() + QUIET))),
        };
        tokio::select! {
            () = sleep_until(due_at.unwrap_or(not_before)), if due_at.is_some() => {
                due_at = None;
                if let Some(known) = &current {
                    match write(&api, &known.uid, &wanted).await {
                        Ok(written) => current = read(&written),
                        Err(error) => {
                            tracing::warn!(%error, "cannot narrow the pod webhook's namespaceSelector");
                            not_before = Instant::now() + RETRY;
                            look(&api, &mut current).await;
                        }
                    }
                }
            }
            Some(event) = configurations.next() => match event {
                Ok(object) => current = object.as_ref().and_then(read),
                Err(error) => tracing::warn!(%error, "watch of the webhook configuration interrupted"),
            },
            // The sender lives in `state`.
            _ = changes.changed() => {}
            () = sleep(LOOK), if current.is_none() => look(&api, &mut current).await,
        }
    }
}

/// Reads the configuration. What cannot be read stays what it was: to forget it would be never to write again.
async fn look(api: &Api<MutatingWebhookConfiguration>, current: &mut Option<Current>) {
    match call(api.get_opt(CONFIGURATION)).await {
        Ok(found) => *current = found.as_ref().and_then(read),
        Err(error) => tracing::warn!(%error, "cannot read the webhook configuration"),
    }
}

/// The configuration as it was last seen.
struct Current {
    uid: String,
    selector: LabelSelector,
}

/// `None`: there is no such webhook.
fn read(configuration: &MutatingWebhookConfiguration) -> Option<Current> {
    let webhooks = configuration.webhooks.as_deref().unwrap_or_default();
    let pods = webhooks.iter().find(|webhook| webhook.name == PODS)?;
    let selector = pods.namespace_selector.clone().unwrap_or_default();
    Some(Current { uid: configuration.metadata.uid.clone()?, selector })
}

fn due(current: &LabelSelector, namespaces: &BTreeSet<String>) -> Due {
    if *current == wanted(namespaces) {
        return Due::Never;
    }
    let everything = *current == LabelSelector::default();
    let wider = match current.match_expressions.as_deref() {
        Some([only])
            if current.match_labels.is_none() && only.key == NAMESPACE_LABEL && only.operator == "In" =>
        {
            let values = only.values.as_deref().unwrap_or_default();
            namespaces.iter().all(|namespace| values.contains(namespace))
        }
        _ => namespaces.is_empty(),
    };
    if everything || wider { Due::Soon } else { Due::Now }
}

/// Exactly these namespaces; for none, what no namespace can match.
fn wanted(namespaces: &BTreeSet<String>) -> LabelSelector {
    let (operator, values) = if namespaces.is_empty() {
        ("DoesNotExist", None)
    } else {
        ("In", Some(namespaces.iter().cloned().collect()))
    };
    let requirement =
        LabelSelectorRequirement { key: NAMESPACE_LABEL.to_owned(), operator: operator.to_owned(), values };
    LabelSelector { match_expressions: Some(vec![requirement]), ..LabelSelector::default() }
}

/// The UID keeps a configuration that has gone meanwhile from being made anew.
async fn write(
    api: &Api<MutatingWebhookConfiguration>,
    uid: &str,
    namespaces: &BTreeSet<String>,
) -> kube::Result<MutatingWebhookConfiguration> {
    tracing::info!(?namespaces, "narrowing the pod webhook");
    let patch = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": CONFIGURATION, "uid": uid },
        "webhooks": [{ "name": PODS, "namespaceSelector": wanted(namespaces) }],
    });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    call(api.patch(CONFIGURATION, &params, &Patch::Apply(patch))).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &[&str]) -> BTreeSet<String> {
        of.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn too_narrow_is_urgent_and_too_wide_is_not() {
        let everything = LabelSelector::default();
        for (current, namespaces, expected) in [
            (everything.clone(), names(&[]), Due::Soon),
            (everything, names(&["a"]), Due::Soon),
            (wanted(&names(&[])), names(&[]), Due::Never),
            (wanted(&names(&[])), names(&["a"]), Due::Now),
            (wanted(&names(&["a"])), names(&["a"]), Due::Never),
            (wanted(&names(&["a"])), names(&["a", "b"]), Due::Now),
            (wanted(&names(&["a", "b"])), names(&["a"]), Due::Soon),
            (wanted(&names(&["a", "b"])), names(&["a", "c"]), Due::Now),
            (wanted(&names(&["a"])), names(&[]), Due::Soon),
        ] {
            assert_eq!(due(&current, &namespaces), expected, "{current:?} {namespaces:?}");
        }
        let labels = [("team".to_owned(), "x".to_owned())].into();
        let foreign = LabelSelector { match_labels: Some(labels), ..LabelSelector::default() };
        assert_eq!(due(&foreign, &names(&["a"])), Due::Now);
    }
}
