//! Which nodes each allocation selects.

use crate::nodes::{NodeEntry, settles_at};
use crate::parse::Spec;
use crate::terms::{NodeSet, Terms};
use crate::{Node, Reason, Time, World};
use crds::{CloudProvider, NodeSelectorTerm};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Nodes that match selector, terms, cloud, region and zones.
pub struct Pool {
    /// Allocations that select alike have the same.
    pub number: usize,
    /// In order of their names.
    pub nodes: Vec<usize>,
    /// All nodes that match the terms, wherever they are; `None`: there are no terms.
    matching: Option<NodeSet>,
    /// Some of them have taints, so that tolerations matter.
    pub tainted: bool,
    /// How many of them are no newcomers, and how many of those are NotReady.
    pub settled: usize,
    pub settled_not_ready: usize,
    /// When the next newcomer is one no longer.
    pub next_settles: Option<Time>,
}

/// What an allocation selects by. Those that select alike have the same pool.
#[derive(PartialEq, Eq, Hash)]
struct Selection<'w> {
    node_selector: &'w BTreeMap<String, String>,
    terms: &'w [NodeSelectorTerm],
    provider: CloudProvider,
    region: Option<&'w str>,
    zones: &'w [String],
}

/// The pools of all allocations. Allocations that select alike share one; selectors are answered from
/// lists of nodes by label, made for the labels that selectors use.
pub struct Pools<'w> {
    world: &'w World,
    /// The first label of every selector.
    keys: Vec<&'w str>,
    by_label: FxHashMap<(&'w str, &'w str), Vec<usize>>,
    terms: Terms<'w>,
    made: FxHashMap<Selection<'w>, Rc<Pool>>,
}

impl<'w> Pools<'w> {
    pub fn new(world: &'w World) -> Self {
        let specs = || world.allocations.values().filter_map(|object| object.spec.as_deref().ok());
        let firsts = specs().filter_map(|spec| spec.node_selector.keys().next());
        let mut keys: Vec<&str> = firsts.map(String::as_str).collect();
        keys.sort_unstable();
        keys.dedup();
        let terms = Terms::new(specs().flat_map(|spec| &spec.terms));
        Self { world, keys, by_label: FxHashMap::default(), terms, made: FxHashMap::default() }
    }

    /// Takes note of a node's labels; every node comes before the first pool is asked for.
    pub fn add(&mut self, number: usize, name: &'w str, node: &'w Node) {
        self.terms.add(number, name, node);
        for key in &self.keys {
            if let Some(value) = node.labels.get(key) {
                self.by_label.entry((*key, value)).or_default().push(number);
            }
        }
    }

    pub fn of(&mut self, spec: &'w Spec, all: &[NodeEntry<'w>]) -> Rc<Pool> {
        let key = Selection {
            node_selector: &spec.node_selector,
            terms: &spec.terms,
            provider: spec.provider,
            region: spec.region.as_deref(),
            zones: &spec.zones,
        };
        if let Some(pool) = self.made.get(&key) {
            return pool.clone();
        }
        // The list by label is made by the first one.
        let matching = self.terms.of(&spec.terms);
        let fits = |i: &usize| {
            matching.as_ref().is_none_or(|matching| matching.has(*i))
                && in_place(spec, &all[*i])
                && labelled_but_first(spec, &all[*i])
        };
        let nodes: Vec<usize> = match spec.node_selector.first_key_value() {
            Some((key, value)) => {
                let listed = self.by_label.get(&(key.as_str(), value.as_str()));
                listed.into_iter().flatten().copied().filter(|i| fits(i)).collect()
            }
            None => (0..all.len()).filter(fits).collect(),
        };
        let settled = || nodes.iter().map(|i| &all[*i]).filter(|entry| entry.settled);
        let pool = Rc::new(Pool {
            number: self.made.len(),
            tainted: nodes.iter().any(|i| all[*i].tainted),
            settled: settled().count(),
            settled_not_ready: settled().filter(|entry| !entry.ready).count(),
            next_settles: nodes
                .iter()
                .map(|i| &all[*i])
                .filter(|entry| !entry.settled)
                .map(|entry| settles_at(self.world, entry))
                .min(),
            nodes,
            matching,
        });
        self.made.insert(key, pool.clone());
        pool
    }
}

fn labelled(spec: &Spec, entry: &NodeEntry) -> bool {
    let first = spec.node_selector.first_key_value();
    first.is_none_or(|(key, value)| entry.node.labels.get(key) == Some(value))
        && labelled_but_first(spec, entry)
}

fn labelled_but_first(spec: &Spec, entry: &NodeEntry) -> bool {
    spec.node_selector.iter().skip(1).all(|(key, value)| entry.node.labels.get(key) == Some(value))
}

fn in_place(spec: &Spec, entry: &NodeEntry) -> bool {
    entry.cloud == Some(spec.provider)
        && spec.region.as_ref().is_none_or(|region| entry.node.labels.region() == Some(region))
        && (spec.zones.is_empty() || spec.zones.iter().any(|zone| zone == entry.zone))
}

/// Why a node is in nobody's pool.
pub fn not_in_pool(spec: &Spec, pool: &Pool, number: usize, entry: &NodeEntry) -> Reason {
    let matches = pool.matching.as_ref().is_none_or(|matching| matching.has(number));
    if !matches || !labelled(spec, entry) {
        Reason::NodeNotSelected
    } else if entry.cloud != Some(spec.provider) {
        Reason::OtherCloud
    } else {
        Reason::OutsideZones
    }
}
