//! The webhooks and their certificates.

use super::{Found, Level, cannot_tell};
use crate::certs_status::Found as Certificates;
use crate::plugin::connect::{Cluster, explain};
use certs::{Kind, Target};
use jiff::Timestamp;
use kube::Api;
use kube::api::DynamicObject;
use serde_json::Value;
use webhook::registration::{CONFIGURATION, Endpoint, configurations};

const APPLY: &str = "kubectl apply -f deploy/webhook/";
const SECRET: &str = "ip-address-controller-webhook-tls";

/// Each webhook of our table has to be there as the table has it.
pub async fn webhooks(cluster: &Cluster) -> Vec<Found> {
    let mut found = Vec::new();
    for (kind, expected) in
        [Kind::Mutating, Kind::Validating].into_iter().zip(configurations(&Endpoint::Service))
    {
        let target = Target { kind, name: CONFIGURATION.to_owned() };
        let api: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &target.resource());
        match api.get_opt(CONFIGURATION).await {
            Ok(Some(object)) => found.extend(compare(&target, &expected, &object.data)),
            Ok(None) => found.push((Level::Wrong, format!("{target} is not registered"), APPLY.to_owned())),
            Err(error) => {
                found
                    .push(cannot_tell(&format!("{:#}", explain(error, &format!("{target} cannot be read")))));
            }
        }
    }
    found
}

fn compare(target: &Target, expected: &Value, installed: &Value) -> Vec<Found> {
    let mut found = Vec::new();
    for webhook in list(expected) {
        let name = text(webhook, "/name");
        let Some(there) = list(installed).iter().find(|there| text(there, "/name") == name) else {
            found.push((Level::Wrong, format!("{target} has no webhook {name}"), APPLY.to_owned()));
            continue;
        };
        let (policy, right) = (text(there, "/failurePolicy"), text(webhook, "/failurePolicy"));
        if policy != right {
            let message =
                format!("{target}: webhook {name} has failurePolicy {policy}, and should have {right}");
            found.push((Level::Wrong, message, APPLY.to_owned()));
        }
        if text(there, "/clientConfig/caBundle").is_empty() {
            let message = format!("{target}: webhook {name} has no caBundle, so no call of it can succeed");
            let what_to_do = "the webhook process writes it: look at its pods and logs".to_owned();
            found.push((Level::Wrong, message, what_to_do));
        }
    }
    found
}

fn list(configuration: &Value) -> &[Value] {
    configuration.get("webhooks").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// As `ip-address-controller certs status` sees it.
pub async fn certificates(cluster: &Cluster) -> Vec<Found> {
    let namespace = &cluster.controller_namespace;
    match Certificates::read(&cluster.client, namespace, SECRET, CONFIGURATION).await {
        Ok(certificates) => {
            let what_to_do = "the webhook process mends it: look at its pods and logs; `ip-address-controller certs status` tells more";
            let problems = certificates.problems(Timestamp::now());
            problems.into_iter().map(|problem| (Level::Wrong, problem, what_to_do.to_owned())).collect()
        }
        Err(error) => {
            let what_to_do =
                "to have them checked, run doctor as somebody who may read that Secret".to_owned();
            let line = format!("{error:#}").lines().next().unwrap_or_default().to_owned();
            vec![(Level::Warning, line, what_to_do)]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_the_table_is_found() {
        let [mutating, _] = configurations(&Endpoint::Service);
        let target = Target { kind: Kind::Mutating, name: CONFIGURATION.to_owned() };
        let mut installed = mutating.clone();
        for webhook in installed["webhooks"].as_array_mut().into_iter().flatten() {
            webhook["clientConfig"]["caBundle"] = "Q0E=".into();
        }
        assert_eq!(compare(&target, &mutating, &installed), []);
        installed["webhooks"][0]["failurePolicy"] = "Ignore".into();
        installed["webhooks"][1]["clientConfig"]["caBundle"] = "".into();
        let messages: Vec<String> =
            compare(&target, &mutating, &installed).into_iter().map(|(_, message, _)| message).collect();
        assert!(messages[0].ends_with("has failurePolicy Ignore, and should have Fail"), "{messages:?}");
        assert!(messages[1].contains("pods.netinfra.darkbrains.com has no caBundle"), "{messages:?}");
    }
}
