//! The CustomResourceDefinition.

use super::{Found, Level, cannot_tell};
use crate::plugin::connect::{Cluster, explain};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, ResourceExt as _};
use std::collections::BTreeSet;

const APPLY: &str = "ip-address-controller crds | kubectl apply --server-side -f -";

pub async fn check(cluster: &Cluster) -> Vec<Found> {
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let mut found = Vec::new();
    for manifest in crds::manifests() {
        let name = manifest.crd.name_any();
        match api.get_opt(&name).await {
            Ok(Some(installed)) => found.extend(compare(&manifest.crd, &installed)),
            Ok(None) => found.push((Level::Wrong, format!("CRD {name} is not installed"), APPLY.to_owned())),
            Err(error) => {
                found.push(cannot_tell(&format!(
                    "{:#}",
                    explain(error, &format!("CRD {name} cannot be read"))
                )));
            }
        }
    }
    found
}

/// An older CRD, or the predecessor's, lacks fields of ours: the API server would drop them.
fn compare(ours: &CustomResourceDefinition, installed: &CustomResourceDefinition) -> Option<Found> {
    let name = ours.name_any();
    let conditions = installed.status.iter().flat_map(|status| status.conditions.iter().flatten());
    if !conditions.into_iter().any(|c| c.type_ == "Established" && c.status == "True") {
        let what_to_do = format!("kubectl describe crd {name} tells why");
        return Some((Level::Wrong, format!("CRD {name} is not established"), what_to_do));
    }
    let (ours, theirs) = (fields(ours), fields(installed));
    let missing: Vec<&str> = ours.difference(&theirs).map(String::as_str).collect();
    let message = format!("CRD {name} is an older one: it lacks {}", missing.join(", "));
    (!missing.is_empty()).then(|| (Level::Wrong, message, APPLY.to_owned()))
}

/// Fields of spec and status.
fn fields(crd: &CustomResourceDefinition) -> BTreeSet<String> {
    let schemas =
        crd.spec.versions.iter().filter_map(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
    let parts = schemas.flat_map(|schema| schema.properties.iter().flatten());
    let named = parts.filter(|(part, _)| matches!(part.as_str(), "spec" | "status"));
    named
        .flat_map(|(part, schema)| {
            schema.properties.iter().flatten().map(move |(field, _)| format!("{part}.{field}"))
        })
        .collect()
}
