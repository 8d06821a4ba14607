//! Which nodes match the terms of a selector, for all nodes at once.
//!
//! Terms may list thousands of values. Looking each up for each node would let one allocation slow down every
//! plan; so nodes are looked up by value instead.

use crate::{Node, select};
use crds::{NodeSelectorRequirement, NodeSelectorTerm, SelectorOperator};
use rustc_hash::FxHashMap;

/// The nodes that have a value.
type ByValue<'w> = FxHashMap<&'w str, Vec<usize>>;

/// Nodes by the labels and fields that terms ask for.
#[derive(Default)]
pub struct Terms<'w> {
    by_label: FxHashMap<&'w str, ByValue<'w>>,
    by_name: ByValue<'w>,
    any: bool,
    asks_for_names: bool,
    nodes: usize,
}

impl<'w> Terms<'w> {
    /// For these terms, and no others.
    pub fn new(terms: impl Iterator<Item = &'w NodeSelectorTerm>) -> Self {
        let mut all = Self::default();
        for term in terms {
            all.any = true;
            all.asks_for_names |= !term.match_fields.is_empty();
            for requirement in &term.match_expressions {
                all.by_label.entry(&requirement.key).or_default();
            }
        }
        all
    }

    /// Takes note of a node; all of them come before the first question, in order.
    pub fn add(&mut self, number: usize, name: &'w str, node: &'w Node) {
        self.nodes = number + 1;
        if !self.any {
            return;
        }
        for (key, value) in node.labels.iter() {
            if let Some(by_value) = self.by_label.get_mut(key) {
                by_value.entry(value).or_default().push(number);
            }
        }
        if self.asks_for_names {
            self.by_name.entry(name).or_default().push(number);
        }
    }

    /// The nodes that match one of the terms; `None`: there are no terms, so all do.
    pub fn of(&self, terms: &[NodeSelectorTerm]) -> Option<NodeSet> {
        if terms.is_empty() {
            return None;
        }
        let mut all = NodeSet::none(self.nodes);
        for term in terms {
            all.add_all(&self.of_term(term));
        }
        Some(all)
    }

    /// An empty term matches nothing.
    fn of_term(&self, term: &NodeSelectorTerm) -> NodeSet {
        if term.match_expressions.is_empty() && term.match_fields.is_empty() {
            return NodeSet::none(self.nodes);
        }
        let mut matching = NodeSet::none(self.nodes).inverted(self.nodes);
        for requirement in &term.match_expressions {
            matching.keep(&self.of_requirement(requirement, self.by_label.get(requirement.key.as_str())));
        }
        for requirement in &term.match_fields {
            let known = requirement.key == "metadata.name";
            matching.keep(&self.of_requirement(requirement, known.then_some(&self.by_name)));
        }
        matching
    }

    fn of_requirement(&self, requirement: &NodeSelectorRequirement, values: Option<&ByValue<'_>>) -> NodeSet {
        let mut nodes = NodeSet::none(self.nodes);
        let Some(values) = values else { return nodes };
        let listed = || requirement.values.iter().filter_map(|value| values.get(value.as_str())).flatten();
        let compared = || values.iter().filter(|(value, _)| select::satisfies(requirement, Some(value)));
        match requirement.operator {
            SelectorOperator::In | SelectorOperator::NotIn => listed().for_each(|node| nodes.add(*node)),
            SelectorOperator::Exists | SelectorOperator::DoesNotExist => {
                values.values().flatten().for_each(|node| nodes.add(*node));
            }
            SelectorOperator::Gt | SelectorOperator::Lt => {
                compared().flat_map(|(_, nodes)| nodes).for_each(|node| nodes.add(*node));
            }
        }
        match requirement.operator {
            SelectorOperator::NotIn | SelectorOperator::DoesNotExist => nodes.inverted(self.nodes),
            _ => nodes,
        }
    }
}

/// A set of nodes by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSet(Vec<u64>);

impl NodeSet {
    fn none(nodes: usize) -> Self {
        Self(vec![0; nodes.div_ceil(64)])
    }

    fn add(&mut self, node: usize) {
        if let Some(word) = self.0.get_mut(node / 64) {
            *word |= 1 << (node % 64);
        }
    }

    pub fn has(&self, node: usize) -> bool {
        self.0.get(node / 64).is_some_and(|word| word >> (node % 64) & 1 == 1)
    }

    fn add_all(&mut self, others: &Self) {
        self.0.iter_mut().zip(&others.0).for_each(|(word, other)| *word |= other);
    }

    fn keep(&mut self, others: &Self) {
        self.0.iter_mut().zip(&others.0).for_each(|(word, other)| *word &= other);
    }

    fn inverted(mut self, nodes: usize) -> Self {
        self.0.iter_mut().for_each(|word| *word = !*word);
        // Nothing beyond the last node, so that equal sets are equal.
        if let Some(last) = self.0.last_mut().filter(|_| !nodes.is_multiple_of(64)) {
            *last &= (1 << (nodes % 64)) - 1;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Small numbers that look random and are the same each time.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % limit
        }
    }

    fn requirement(numbers: &mut Numbers, field: bool) -> NodeSelectorRequirement {
        let operators = [
            SelectorOperator::In,
            SelectorOperator::NotIn,
            SelectorOperator::Exists,
            SelectorOperator::DoesNotExist,
            SelectorOperator::Gt,
            SelectorOperator::Lt,
        ];
        let key = match (field, numbers.below(8)) {
            (true, 0) => "metadata.uid".to_owned(),
            (true, _) => "metadata.name".to_owned(),
            (false, key) => format!("key-{key}"),
        };
        let value = |numbers: &mut Numbers| {
            if field { format!("n{:03}", numbers.below(200)) } else { numbers.below(6).to_string() }
        };
        NodeSelectorRequirement {
            key,
            operator: operators[usize::try_from(numbers.below(6)).unwrap_or(0)],
            values: (0..numbers.below(4)).map(|_| value(numbers)).collect(),
        }
    }

    #[test]
    fn all_at_once_is_the_same_as_one_by_one() {
        let mut numbers = Numbers(7);
        let (mut matched, mut refused) = (0, 0);
        for round in 0..400 {
            let nodes: Vec<(String, Node)> = (0..numbers.below(130))
                .map(|number| {
                    let labels: BTreeMap<String, String> = (0..numbers.below(6))
                        .map(|_| (format!("key-{}", numbers.below(8)), numbers.below(6).to_string()))
                        .collect();
                    (format!("n{number:03}"), Node { labels: labels.into(), ..Node::default() })
                })
                .collect();
            let terms: Vec<NodeSelectorTerm> = (0..=numbers.below(3))
                .map(|_| NodeSelectorTerm {
                    match_expressions: (0..numbers.below(3))
                        .map(|_| requirement(&mut numbers, false))
                        .collect(),
                    match_fields: (0..numbers.below(2)).map(|_| requirement(&mut numbers, true)).collect(),
                })
                .collect();
            let mut index = Terms::new(terms.iter());
            for (number, (name, node)) in nodes.iter().enumerate() {
                index.add(number, name, node);
            }
            let selected = index.of(&terms).unwrap_or_else(|| panic!("there are terms"));
            for (number, (name, node)) in nodes.iter().enumerate() {
                let expected = select::matches_any_term(&terms, name, node);
                assert_eq!(
                    selected.has(number),
                    expected,
                    "round {round}: {terms:?} {name} {:?}",
                    node.labels
                );
                *(if expected { &mut matched } else { &mut refused }) += 1;
            }
            assert!(!selected.has(nodes.len()), "there is no such node");
        }
        assert!(matched > 1_000 && refused > 1_000, "{matched} {refused}");
    }
}
