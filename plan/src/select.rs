//! Node selectors and tolerations, as Kubernetes reads them.

use crate::{Node, Taint};
#[cfg(test)]
use crds::NodeSelectorTerm;
use crds::{NodeSelectorRequirement, SelectorOperator, TaintEffect, Toleration, TolerationOperator};

/// Whether a node matches one of the terms. An empty term matches nothing.
#[cfg(test)]
pub fn matches_any_term(terms: &[NodeSelectorTerm], name: &str, node: &Node) -> bool {
    terms.iter().any(|term| {
        let empty = term.match_expressions.is_empty() && term.match_fields.is_empty();
        !empty
            && term.match_expressions.iter().all(|r| satisfies(r, node.labels.get(&r.key)))
            && term.match_fields.iter().all(|r| r.key == "metadata.name" && satisfies(r, Some(name)))
    })
}

/// Whether the value of a label, or its absence, is what is required.
pub fn satisfies(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let listed = |value: &str| requirement.values.iter().any(|v| v == value);
    let compared = |check: fn(i64, i64) -> bool| {
        let limit = requirement.values.first().and_then(|v| v.parse().ok());
        let (Some(value), Some(limit)) = (value.and_then(|v| v.parse().ok()), limit) else {
            return false;
        };
        check(value, limit)
    };
    match requirement.operator {
        SelectorOperator::In => value.is_some_and(listed),
        SelectorOperator::NotIn => !value.is_some_and(listed),
        SelectorOperator::Exists => value.is_some(),
        SelectorOperator::DoesNotExist => value.is_none(),
        SelectorOperator::Gt => compared(|value, limit| value > limit),
        SelectorOperator::Lt => compared(|value, limit| value < limit),
    }
}

/// Taints with which autoscalers announce that they will remove a node.
const AUTOSCALER_TAINTS: [&str; 3] =
    ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption"];

/// Taints that Kubernetes puts on every node that is not Ready; the grace period decides those.
const READINESS_TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Whether an autoscaler is about to remove the node.
pub fn scaled_down(node: &Node) -> bool {
    node.taints.iter().any(|taint| AUTOSCALER_TAINTS.contains(&taint.key.as_str()))
}

/// Whether somebody declared the node out of service.
pub fn out_of_service(node: &Node) -> bool {
    node.taints.iter().any(|taint| taint.key == "node.kubernetes.io/out-of-service")
}

/// The taints that an allocation accepts.
#[derive(Clone, Copy, Debug)]
pub enum Tolerated<'w> {
    /// These.
    Listed(&'w [Toleration]),
    /// All but those of Kubernetes itself and of the autoscalers: the predecessor ignored taints, and
    /// tainted pools must go on working.
    AllButSystem,
}

impl Tolerated<'_> {
    fn tolerates(self, taint: &Taint) -> bool {
        match self {
            Self::Listed(tolerations) => tolerations.iter().any(|toleration| tolerates(toleration, taint)),
            Self::AllButSystem => {
                !taint.key.starts_with("node.kubernetes.io/")
                    && !taint.key.starts_with("node.cloudprovider.kubernetes.io/")
                    && !AUTOSCALER_TAINTS.contains(&taint.key.as_str())
            }
        }
    }

    /// The first taint that keeps addresses (and pods) from coming to the node.
    pub fn keeps_away(self, node: &Node) -> Option<&Taint> {
        let hard = |taint: &&Taint| taint.effect == "NoSchedule" || taint.effect == "NoExecute";
        node.taints.iter().filter(hard).find(|taint| !self.tolerates(taint))
    }

    /// The first taint that drives addresses (and pods) off the node.
    pub fn drives_off(self, node: &Node) -> Option<&Taint> {
        let hard =
            |taint: &&Taint| taint.effect == "NoExecute" && !READINESS_TAINTS.contains(&taint.key.as_str());
        node.taints.iter().filter(hard).find(|taint| !self.tolerates(taint))
    }
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = match toleration.effect {
        None => true,
        Some(TaintEffect::NoSchedule) => taint.effect == "NoSchedule",
        Some(TaintEffect::PreferNoSchedule) => taint.effect == "PreferNoSchedule",
        Some(TaintEffect::NoExecute) => taint.effect == "NoExecute",
    };
    let key = toleration.key.as_deref().unwrap_or_default();
    let value = match toleration.operator {
        TolerationOperator::Exists => true,
        TolerationOperator::Equal => toleration.value.as_deref().unwrap_or_default() == taint.value,
    };
    effect && (key.is_empty() || key == taint.key) && value
}
