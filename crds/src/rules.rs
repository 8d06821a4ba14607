//! CEL rules of the schema: what the API server refuses on its own, with the webhook down.
//!
//! Two things to know before adding one. The API server estimates a rule's cost from `maxLength` and
//! `maxItems`, so both are needed on everything that a rule touches. And rules on fields are ratcheted
//! (an unchanged bad value blocks nothing) while rules at the root are not: those must let every
//! UPDATE pass, or objects stored before the rule could get no finalizer or status any more.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{JSONSchemaProps, ValidationRule};
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

/// A DNS-1123 label, as the API server has it for namespaces.
const LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// A DNS-1123 subdomain, as the API server has it for names.
const SUBDOMAIN: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// A label value that is not empty.
const VALUE: &str = "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$";
/// A label value, or what Gt and Lt compare with.
const VALUE_OR_INTEGER: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?|[-+][0-9]+)?$";
/// A label key: a name, with a domain before a slash or without.
const KEY: &str = "^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";

const A_NAMESPACE: &str = "must be a namespace: lower-case letters, digits and '-', with a letter or digit at both ends; no blanks, no slash, no template";
const A_NAME: &str = "must be a name: lower-case letters, digits, '-' and '.', with a letter or digit at both ends of every part; no blanks, no slash, no comma, no template";
const A_LOCATION: &str = "must be a label value, which it is on nodes: letters, digits, '-', '_' and '.', with a letter or digit at both ends";
const A_KEY: &str = "must be a label key such as role or example.com/role";
const A_VALUE: &str =
    "must be a label value: letters, digits, '-', '_' and '.', with a letter or digit at both ends";

/// A text, where it is, how long it may be, and what it has to be for the place where it ends up: a URL, a
/// selector, a label. `*` is each item of a list.
pub struct Text {
    pub path: &'static str,
    pub max_length: i64,
    rule: Rule,
    message: &'static str,
}

enum Rule {
    Matches(&'static str),
    /// Or it is empty.
    MatchesIfAny(&'static str),
    Is(&'static str),
    /// Without a message of its own: lists of lists of rules would be more than the API server's budget.
    Pattern(&'static str),
}

impl Text {
    /// Puts the rule into the schema of the field.
    pub fn demand(&self, field: &mut JSONSchemaProps) {
        field.max_length = Some(self.max_length);
        let rule = match self.rule {
            Rule::Pattern(pattern) => {
                field.pattern = Some(pattern.to_owned());
                return;
            }
            Rule::Matches(pattern) => format!("self.matches('{pattern}')"),
            Rule::MatchesIfAny(pattern) => format!("self == '' || self.matches('{pattern}')"),
            Rule::Is(text) => format!("self == '{text}'"),
        };
        let rule = ValidationRule { rule, message: Some(self.message.into()), ..ValidationRule::default() };
        field.x_kubernetes_validations.get_or_insert_default().push(rule);
    }
}

const fn text(path: &'static str, max_length: i64, rule: Rule, message: &'static str) -> Text {
    Text { path, max_length, rule, message }
}

/// The parser has the same rules (plan/src/parse/names.rs), and says more about what is wrong.
pub const TEXTS: &[Text] = &[
    text("spec/workloadRef/name", 253, Rule::Matches(SUBDOMAIN), A_NAME),
    text("spec/workloadRef/namespace", 63, Rule::Matches(LABEL), A_NAMESPACE),
    text("spec/deploymentRef/name", 253, Rule::Matches(SUBDOMAIN), A_NAME),
    text("spec/deploymentRef/namespace", 63, Rule::Matches(LABEL), A_NAMESPACE),
    text("spec/cloud/region", 63, Rule::Matches(VALUE), A_LOCATION),
    text("spec/cloud/zones/*", 63, Rule::Matches(VALUE), A_LOCATION),
    text("spec/nodeSelectorTerms/*/matchExpressions/*/key", 317, Rule::Pattern(KEY), A_KEY),
    text(
        "spec/nodeSelectorTerms/*/matchExpressions/*/values/*",
        63,
        Rule::Pattern(VALUE_OR_INTEGER),
        A_VALUE,
    ),
    text(
        "spec/nodeSelectorTerms/*/matchFields/*/key",
        317,
        Rule::Is("metadata.name"),
        "must be metadata.name, the only field that Kubernetes can select nodes by",
    ),
    text("spec/nodeSelectorTerms/*/matchFields/*/values/*", 253, Rule::Pattern(SUBDOMAIN), A_NAME),
    text("spec/tolerations/*/key", 317, Rule::MatchesIfAny(KEY), A_KEY),
    text("spec/tolerations/*/value", 63, Rule::MatchesIfAny(VALUE), A_VALUE),
];

/// The keys of `nodeSelector`.
pub fn label_keys() -> ValidationRule {
    ValidationRule {
        rule: format!("self.all(key, size(key) <= 317 && key.matches('{KEY}'))"),
        message: Some("every key must be a label key such as role or example.com/role".into()),
        ..ValidationRule::default()
    }
}
