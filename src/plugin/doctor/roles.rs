//! Whether the service accounts may do what `deploy/rbac` says that they have to.

use super::{Found, Level, cannot_tell};
use crate::plugin::connect::{Cluster, explain};
use anyhow::{Context as _, Result};
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use kube::api::ListParams;
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Debug;

const MANIFESTS: [&str; 3] = [
    include_str!("../../../deploy/rbac/controller.yaml"),
    include_str!("../../../deploy/rbac/webhook.yaml"),
    include_str!("../../../deploy/rbac/certs.yaml"),
];

/// Rules that service accounts have, or need, by the name of the account.
type Rules = BTreeMap<String, Vec<PolicyRule>>;

pub async fn check(cluster: &Cluster) -> Vec<Found> {
    let needed = match needed() {
        Ok(needed) => needed,
        Err(error) => return vec![cannot_tell(&format!("{error:#}"))],
    };
    let granted = match granted(cluster).await {
        Ok(granted) => granted,
        Err(error) => return vec![cannot_tell(&format!("{error:#}"))],
    };
    let none = Vec::new();
    let missing = needed.iter().filter_map(|(account, rules)| {
        let lacking = lacking(rules, granted.get(account).unwrap_or(&none));
        let message = format!(
            "service account {}/{account} may not: {}",
            cluster.controller_namespace,
            lacking.join(", ")
        );
        (!lacking.is_empty()).then(|| (Level::Wrong, message, "kubectl apply -f deploy/rbac/".to_owned()))
    });
    missing.collect()
}

/// What our manifests give to whom.
fn needed() -> Result<Rules> {
    let mut needed = Rules::new();
    for manifest in MANIFESTS {
        let objects: Vec<Value> = serde_saphyr::from_multiple(manifest).context("deploy/rbac")?;
        let of_kind = |ending: &'static str| {
            objects
                .iter()
                .filter(move |object| object["kind"].as_str().is_some_and(|kind| kind.ends_with(ending)))
        };
        for binding in of_kind("Binding") {
            let account = binding["subjects"][0]["name"].as_str().unwrap_or_default();
            let referred = |role: &&Value| {
                role["metadata"]["name"] == binding["roleRef"]["name"]
                    && role["kind"] == binding["roleRef"]["kind"]
            };
            for role in of_kind("Role").filter(referred) {
                let rules: Vec<PolicyRule> = serde_json::from_value(role["rules"].clone())?;
                needed.entry(account.to_owned()).or_default().extend(rules);
            }
        }
    }
    Ok(needed)
}

/// What the cluster gives to the accounts of our namespace, whatever the roles are called.
async fn granted(cluster: &Cluster) -> Result<Rules> {
    let namespace = &cluster.controller_namespace;
    let client = || cluster.client.clone();
    let everywhere = all::<ClusterRoleBinding>(Api::all(client())).await?;
    let here = all::<RoleBinding>(Api::namespaced(client(), namespace)).await?;
    let cluster_roles = all::<ClusterRole>(Api::all(client())).await?;
    let roles = all::<Role>(Api::namespaced(client(), namespace)).await?;
    let rules_of = |reference: &RoleRef| -> Vec<PolicyRule> {
        let found = if reference.kind == "ClusterRole" {
            cluster_roles
                .iter()
                .find(|role| role.name_any() == reference.name)
                .and_then(|role| role.rules.clone())
        } else {
            roles.iter().find(|role| role.name_any() == reference.name).and_then(|role| role.rules.clone())
        };
        found.unwrap_or_default()
    };
    let bindings = everywhere.into_iter().map(|binding| (binding.role_ref, binding.subjects));
    let bindings = bindings.chain(here.into_iter().map(|binding| (binding.role_ref, binding.subjects)));
    let mut granted = Rules::new();
    for (reference, subjects) in bindings {
        for account in subjects.iter().flatten().filter_map(|subject| account(subject, namespace)) {
            granted.entry(account.to_owned()).or_default().extend(rules_of(&reference));
        }
    }
    Ok(granted)
}

fn account<'s>(subject: &'s Subject, namespace: &str) -> Option<&'s str> {
    let ours = subject.kind == "ServiceAccount" && subject.namespace.as_deref() == Some(namespace);
    ours.then_some(subject.name.as_str())
}

async fn all<K>(api: Api<K>) -> Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let listed = api.list(&ListParams::default()).await;
    let what = format!("{} cannot be listed", K::plural(&()));
    listed.map(|list| list.items).map_err(|error| explain(error, &what))
}

/// `verb resource` of everything that is needed and not granted.
fn lacking(needed: &[PolicyRule], granted: &[PolicyRule]) -> Vec<String> {
    let mut lacking = Vec::new();
    for rule in needed {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                let refused = rule.verbs.iter().filter(|verb| {
                    !granted
                        .iter()
                        .any(|granted| grants(granted, group, resource, verb, rule.resource_names.as_deref()))
                });
                lacking.extend(refused.map(|verb| format!("{verb} {resource}")));
            }
        }
    }
    lacking
}

fn grants(rule: &PolicyRule, group: &str, resource: &str, verb: &str, names: Option<&[String]>) -> bool {
    let has = |list: Option<&Vec<String>>, wanted: &str| {
        list.into_iter().flatten().any(|entry| entry == "*" || entry == wanted)
    };
    let limited_to = rule.resource_names.as_deref().unwrap_or_default();
    let wanted = names.unwrap_or_default();
    let for_names =
        limited_to.is_empty() || (!wanted.is_empty() && wanted.iter().all(|name| limited_to.contains(name)));
    has(rule.api_groups.as_ref(), group)
        && has(rule.resources.as_ref(), resource)
        && has(Some(&rule.verbs), verb)
        && for_names
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn rule(resources: &[&str], verbs: &[&str], names: &[&str]) -> PolicyRule {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        PolicyRule {
            api_groups: Some(owned(&[""])),
            resources: Some(owned(resources)),
            verbs: owned(verbs),
            resource_names: (!names.is_empty()).then(|| owned(names)),
            ..PolicyRule::default()
        }
    }

    #[test]
    fn what_is_needed_and_not_granted_is_named() {
        let needed =
            [rule(&["nodes", "pods"], &["list", "patch"], &[]), rule(&["secrets"], &["get"], &["tls"])];
        assert_eq!(lacking(&needed, &[rule(&["*"], &["*"], &[])]), [""; 0]);
        let some = [
            rule(&["nodes"], &["*"], &[]),
            rule(&["pods"], &["list"], &[]),
            rule(&["secrets"], &["get"], &["x"]),
        ];
        assert_eq!(lacking(&needed, &some), ["patch pods", "get secrets"]);
        let limited =
            [rule(&["nodes", "pods"], &["list", "patch"], &["a"]), rule(&["secrets"], &["get"], &["tls"])];
        assert_eq!(lacking(&needed, &limited).len(), 4, "a rule for one name is none for all");
    }

    #[test]
    fn our_own_manifests_are_understood() {
        let needed = needed().unwrap();
        let accounts: Vec<&str> = needed.keys().map(String::as_str).collect();
        assert_eq!(accounts, ["ip-address-controller", "ip-address-controller-webhook"]);
        assert!(lacking(&needed["ip-address-controller"], &[]).contains(&"create pods/eviction".to_owned()));
    }
}
