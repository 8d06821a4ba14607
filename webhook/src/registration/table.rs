//! The table.

use super::{CONFIGURATION, NAMESPACE, PODS, SERVICE};
use crate::decide::Question;
use serde_json::{Value, json};

/// Where the API server finds us.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// The Service of `deploy/`.
    Service,
    /// A URL without a path.
    Url(String),
}

struct Webhook {
    name: &'static str,
    question: Question,
    rules: &'static [Rule],
    /// `Fail` or `Ignore`.
    failure_policy: &'static str,
    timeout_seconds: u8,
    match_conditions: &'static [(&'static str, &'static str)],
}

struct Rule {
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    operations: &'static [&'static str],
    scope: &'static str,
}

const ALLOCATIONS: &[Rule] = &[Rule {
    group: crds::GROUP,
    version: "v1alpha1",
    resource: "netipallocations",
    operations: &["CREATE", "UPDATE"],
    scope: "Cluster",
}];

/// Metadata, finalizers and status never depend on us: those can be written with the webhook dead.
const SPEC_CHANGED: (&str, &str) = (
    "spec-changed",
    "request.operation == 'CREATE' || !has(object.spec) || !has(oldObject.spec) || object.spec != oldObject.spec",
);

const MUTATING: &[Webhook] = &[
    Webhook {
        name: "allocations.netinfra.darkbrains.com",
        question: Question::MutateAllocation,
        rules: ALLOCATIONS,
        failure_policy: "Fail",
        timeout_seconds: 5,
        match_conditions: &[SPEC_CHANGED],
    },
    Webhook {
        name: PODS,
        question: Question::MutateWorkload,
        rules: &[
            Rule { group: "", version: "v1", resource: "pods", operations: &["CREATE"], scope: "Namespaced" },
            Rule {
                group: "apps",
                version: "v1",
                resource: "daemonsets",
                operations: &["CREATE", "UPDATE"],
                scope: "Namespaced",
            },
        ],
        // What slips by is healed by the controller. The API server tries again after a second when we
        // are not complete yet, so it has to be longer than that.
        failure_policy: "Ignore",
        timeout_seconds: 3,
        match_conditions: &[
            (
                "unbound-pod-of-a-workload",
                "request.resource.resource != 'pods' || \
                 ((!has(object.spec.nodeName) || object.spec.nodeName == '') && \
                 has(object.metadata.ownerReferences) && \
                 object.metadata.ownerReferences.exists(owner, has(owner.controller) && owner.controller && \
                 owner.apiVersion.startsWith('apps/') && owner.kind in ['ReplicaSet', 'StatefulSet']))",
            ),
            (
                "template-changed",
                "request.resource.resource != 'daemonsets' || request.operation == 'CREATE' || \
                 object.spec.template != oldObject.spec.template",
            ),
            // What the controller takes out, a replica whose index lags would put back in. (Of the field
            // manager, because it is the same wherever the controller runs; who borrows the name gains no
            // more than a DaemonSet that the controller changes a moment later.)
            (
                "not-the-controllers-own-write",
                "request.resource.resource != 'daemonsets' || !has(request.options) || \
                 !has(request.options.fieldManager) || request.options.fieldManager != 'ip-address-controller'",
            ),
        ],
    },
];

const VALIDATING: &[Webhook] = &[Webhook {
    name: "allocations.netinfra.darkbrains.com",
    question: Question::ValidateAllocation,
    rules: ALLOCATIONS,
    failure_policy: "Fail",
    timeout_seconds: 5,
    match_conditions: &[SPEC_CHANGED],
}];

/// The mutating and the validating configuration.
pub fn configurations(endpoint: &Endpoint) -> [Value; 2] {
    let mutating = MUTATING.iter().map(|webhook| {
        let mut entry = webhook.entry(endpoint);
        // Others may change the affinity after us; a second pass of ours changes nothing by itself.
        entry["reinvocationPolicy"] = json!("IfNeeded");
        entry
    });
    let validating = VALIDATING.iter().map(|webhook| webhook.entry(endpoint));
    [
        configuration("MutatingWebhookConfiguration", &mutating.collect::<Vec<_>>()),
        configuration("ValidatingWebhookConfiguration", &validating.collect::<Vec<_>>()),
    ]
}

fn configuration(kind: &str, webhooks: &[Value]) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": { "name": CONFIGURATION, "labels": { "app.kubernetes.io/name": "ip-address-controller" } },
        "webhooks": webhooks,
    })
}

impl Webhook {
    fn entry(&self, endpoint: &Endpoint) -> Value {
        let path = self.question.path();
        let client_config = match endpoint {
            Endpoint::Service => json!({
                "service": { "name": SERVICE, "namespace": NAMESPACE, "path": path, "port": 443 },
            }),
            Endpoint::Url(base) => json!({ "url": format!("{base}{path}") }),
        };
        let conditions = self.match_conditions.iter();
        json!({
            "name": self.name,
            "clientConfig": client_config,
            "rules": self.rules.iter().map(Rule::entry).collect::<Vec<_>>(),
            "failurePolicy": self.failure_policy,
            "matchPolicy": "Equivalent",
            "matchConditions": conditions
                .map(|(name, expression)| json!({ "name": name, "expression": expression }))
                .collect::<Vec<_>>(),
            "sideEffects": "None",
            "timeoutSeconds": self.timeout_seconds,
            "admissionReviewVersions": ["v1"],
        })
    }
}

impl Rule {
    fn entry(&self) -> Value {
        json!({
            "apiGroups": [self.group],
            "apiVersions": [self.version],
            "resources": [self.resource],
            "operations": self.operations,
            "scope": self.scope,
        })
    }
}
