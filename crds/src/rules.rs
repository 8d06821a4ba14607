//! CEL rules of the schema: what the API server refuses on its own, with the webhook down.
//!
//! Two things to know before adding one. The API server estimates a rule's cost from `maxLength` and
//! `maxItems`, so both are needed on everything that a rule touches. And rules on fields are ratcheted
//! (an unchanged bad value blocks nothing) while rules at the root are not: those must let every
//! UPDATE pass, or objects stored before the rule could get no finalizer or status any more.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::ValidationRule;
use serde_json::{Value, json};

/// Rules of one entry of `reservedIPs`. The first says what an address is; the others speak only when
/// it is one, so that a person reads one sentence per mistake.
pub fn reserved_ip() -> Value {
    json!([
        {
            "rule": "isIP(self)",
            "message": "must be one IPv4 or IPv6 address such as 203.0.113.10 or 2001:db8::10: no host name, no prefix length, no port, no leading zeros, no IPv4-mapped IPv6",
        },
        {
            "rule": "!isIP(self) || ip.isCanonical(self)",
            "message": "must be written in canonical form: lower case, zeros compressed, e.g. 2001:db8::1",
        },
        {
            "rule": "!isIP(self) || ip(self).isGlobalUnicast()",
            "message": "must be a public unicast address: loopback, link-local, multicast, unspecified and broadcast addresses cannot be reserved in a cloud",
        },
        {
            "rule": "!isIP(self) || !['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', '100.64.0.0/10', 'fc00::/7'].exists(c, cidr(c).containsIP(ip(self)))",
            "message": "must be a public address: 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10 and fc00::/7 are private",
        },
    ])
}

/// `deploymentRef` and `workloadRef` may both be there only if they name the same Deployment. On
/// UPDATE that is refused only when both were changed: otherwise it is clear which one the user meant.
pub fn one_workload() -> Value {
    json!([{
        "rule": "!has(self.deploymentRef) || !has(self.workloadRef) \
            || (self.workloadRef.kind == 'Deployment' \
                && self.workloadRef.name == self.deploymentRef.name \
                && self.workloadRef.__namespace__ == self.deploymentRef.__namespace__) \
            || (oldSelf.hasValue() \
                && ((has(oldSelf.value().workloadRef) && oldSelf.value().workloadRef == self.workloadRef) \
                    || (has(oldSelf.value().deploymentRef) && oldSelf.value().deploymentRef == self.deploymentRef)))",
        "message": "deploymentRef and workloadRef name different workloads: keep workloadRef, deploymentRef is its deprecated form",
        "fieldPath": ".deploymentRef",
        "reason": "FieldValueForbidden",
        "optionalOldSelf": true,
    }])
}

/// The name becomes the value of a node label. At the root, so on CREATE only.
pub fn name_fits_a_label() -> ValidationRule {
    ValidationRule {
        rule: "oldSelf.hasValue() || size(self.metadata.name) <= 63".into(),
        message: Some(
            "metadata.name may have at most 63 characters: \
             it becomes the value of the node label netinfra.darkbrains.com/allocation"
                .into(),
        ),
        optional_old_self: Some(true),
        ..ValidationRule::default()
    }
}

/// `Exists` takes no value, and the empty key (every taint) goes with `Exists` alone.
pub fn toleration() -> Value {
    json!([
        {
            "rule": "self.operator != 'Exists' || !has(self.value) || self.value == ''",
            "message": "operator Exists takes no value",
        },
        {
            "rule": "(has(self.key) && self.key != '') || self.operator == 'Exists'",
            "message": "without a key the operator must be Exists (which tolerates every taint)",
        },
    ])
}
