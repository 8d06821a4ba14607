//! The node affinity that makes pods run on the nodes of their allocations, and nowhere else.
//!
//! Terms of a node selector are alternatives, so the requirement goes into every one of them. A term
//! without requirements matches no node; adding one would make it match some, so it is left alone.
//!
//! What is added is a pair, `ip.ready` and then `netinfra.darkbrains.com/allocation`, at the end of a
//! term. Where the user's term asks for `ip.ready` already, only the second is added, at the front: so
//! [`remove`] can tell which `ip.ready` is the user's.

use crds::{LABEL_ALLOCATION, LABEL_READY};
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const AFFINITY: &str = "affinity";
const NODE_AFFINITY: &str = "nodeAffinity";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const TERMS: &str = "nodeSelectorTerms";
const EXPRESSIONS: &str = "matchExpressions";

/// What is missing from a pod spec for its pods to run on nodes of these allocations only. `at` is where
/// the pod spec is in the object, e.g. `/spec`. Empty when nothing is missing.
pub fn inject(pod_spec: &Value, at: &str, names: &BTreeSet<String>) -> Patch {
    let mut path = Path::new(at);
    let mut place = pod_spec;
    for key in [AFFINITY, NODE_AFFINITY, REQUIRED] {
        path.push(key);
        match place.get(key).filter(|value| value.is_object()) {
            Some(value) => place = value,
            None => return Patch(vec![path.add(wrap(key, names))]),
        }
    }
    path.push(TERMS);
    let Some(terms) = place.get(TERMS).and_then(Value::as_array).filter(|terms| !terms.is_empty()) else {
        return Patch(vec![path.add(json!([{ EXPRESSIONS: pair(names) }]))]);
    };
    let operations = terms.iter().enumerate().flat_map(|(number, term)| {
        let mut path = path.clone();
        path.push(&number.to_string());
        complete_term(term, &path, names)
    });
    Patch(operations.collect())
}

/// Everything from `key` down to the requirement, for a pod spec that has nothing there.
fn wrap(key: &str, names: &BTreeSet<String>) -> Value {
    let required = json!({ TERMS: [{ EXPRESSIONS: pair(names) }] });
    match key {
        AFFINITY => json!({ NODE_AFFINITY: { REQUIRED: required } }),
        NODE_AFFINITY => json!({ REQUIRED: required }),
        _ => required,
    }
}

fn complete_term(term: &Value, path: &Path, names: &BTreeSet<String>) -> Vec<PatchOperation> {
    let expressions = term.get(EXPRESSIONS).and_then(Value::as_array).filter(|list| !list.is_empty());
    let fields = term.get("matchFields").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    let mut path = path.clone();
    path.push(EXPRESSIONS);
    let Some(expressions) = expressions else {
        return if fields { vec![path.add(json!(pair(names)))] } else { Vec::new() };
    };
    let wanted = belongs_to(names);
    let ours: Vec<usize> = (0..expressions.len()).filter(|at| is_allocation(&expressions[*at])).collect();
    if let Some((first, others)) = ours.split_first() {
        // One is enough; the last goes first, so that the places of the others stay what they are.
        let superfluous = others.iter().rev().map(|at| path.at(*at).remove());
        let outdated = (expressions[*first] != wanted).then(|| path.at(*first).replace(wanted));
        return superfluous.chain(outdated).collect();
    }
    if expressions.iter().any(is_ready) {
        path.push("0");
        return vec![path.add(wanted)];
    }
    path.push("-");
    vec![path.add(ready()), path.add(wanted)]
}

/// Takes exactly that out of a pod spec which [`inject`] put in; terms and parents that are empty then go
/// as well.
pub fn remove(pod_spec: &Value, at: &str) -> Patch {
    let mut path = Path::new(at);
    let mut place = Some(pod_spec);
    for key in [AFFINITY, NODE_AFFINITY, REQUIRED, TERMS] {
        path.push(key);
        place = place.and_then(|value| value.get(key));
    }
    let Some(terms) = place.and_then(Value::as_array) else { return Patch(Vec::new()) };
    let kept: Vec<Value> = terms.iter().map(without_requirement).collect();
    if kept == *terms {
        return Patch(Vec::new());
    }
    // A term that was made for the requirement goes with it; one that the user left empty stays.
    let kept: Vec<Value> = kept
        .into_iter()
        .zip(terms)
        .filter(|(now, before)| !is_empty(now) || is_empty(before))
        .map(|(now, _)| now)
        .collect();
    if !kept.is_empty() {
        return Patch(vec![path.replace(Value::Array(kept))]);
    }
    Patch(vec![Path::new(at).shortest_emptied(pod_spec)])
}

fn without_requirement(term: &Value) -> Value {
    let mut term = term.clone();
    let Some(expressions) = term.get_mut(EXPRESSIONS).and_then(Value::as_array_mut) else { return term };
    let Some(number) = expressions.iter().position(is_allocation) else { return term };
    expressions.retain(|expression| !is_allocation(expression));
    if number > 0 && is_ready(&expressions[number - 1]) {
        expressions.remove(number - 1);
    }
    if expressions.is_empty()
        && let Some(object) = term.as_object_mut()
    {
        object.remove(EXPRESSIONS);
    }
    term
}

fn is_empty(term: &Value) -> bool {
    term.as_object()
        .is_none_or(|object| object.values().all(|value| value.as_array().is_some_and(Vec::is_empty)))
}

/// The allocations that a pod spec's injected requirement names; `None` if it has none.
pub fn injected(pod_spec: &Value) -> Option<BTreeSet<String>> {
    let terms = pod_spec.get(AFFINITY)?.get(NODE_AFFINITY)?.get(REQUIRED)?.get(TERMS)?.as_array()?;
    let requirement =
        terms.iter().filter_map(|term| term.get(EXPRESSIONS)?.as_array()?.iter().find(|e| is_allocation(e)));
    let values: Vec<&Value> = requirement.filter_map(|requirement| requirement.get("values")).collect();
    let names = values.iter().filter_map(|values| values.as_array()).flatten();
    (!values.is_empty()).then(|| names.filter_map(|name| name.as_str().map(str::to_owned)).collect())
}

fn pair(names: &BTreeSet<String>) -> [Value; 2] {
    [ready(), belongs_to(names)]
}

fn ready() -> Value {
    json!({ "key": LABEL_READY, "operator": "In", "values": ["true"] })
}

fn belongs_to(names: &BTreeSet<String>) -> Value {
    json!({ "key": LABEL_ALLOCATION, "operator": "In", "values": names })
}

fn is_ready(expression: &Value) -> bool {
    *expression == ready()
}

/// Our prefix: whoever writes a requirement with this key means ours.
fn is_allocation(expression: &Value) -> bool {
    expression.get("key").and_then(Value::as_str) == Some(LABEL_ALLOCATION)
}

/// A JSON pointer in the making.
#[derive(Clone)]
struct Path(PointerBuf);

impl Path {
    fn new(at: &str) -> Self {
        Self(PointerBuf::from_tokens(at.split('/').filter(|token| !token.is_empty())))
    }

    fn push(&mut self, token: &str) {
        self.0.push_back(token);
    }

    fn add(&self, value: Value) -> PatchOperation {
        PatchOperation::Add(AddOperation { path: self.0.clone(), value })
    }

    /// A place in the list that this is the path of.
    fn at(&self, number: usize) -> Self {
        let mut path = self.clone();
        path.push(&number.to_string());
        path
    }

    fn remove(&self) -> PatchOperation {
        PatchOperation::Remove(RemoveOperation { path: self.0.clone() })
    }

    fn replace(&self, value: Value) -> PatchOperation {
        PatchOperation::Replace(ReplaceOperation { path: self.0.clone(), value })
    }

    /// Removes the outermost parent that holds nothing but the requirement.
    fn shortest_emptied(mut self, pod_spec: &Value) -> PatchOperation {
        let mut place = pod_spec;
        for key in [AFFINITY, NODE_AFFINITY, REQUIRED] {
            self.push(key);
            let Some(value) = place.get(key) else { break };
            place = value;
            if only_leads_to_terms(value) {
                break;
            }
        }
        PatchOperation::Remove(RemoveOperation { path: self.0 })
    }
}

/// Whether there is nothing beside the way down to the terms.
fn only_leads_to_terms(value: &Value) -> bool {
    let Some(object) = value.as_object() else { return true };
    object.len() == 1
        && object.iter().all(|(key, value)| {
            key == TERMS || only_leads_to_terms(value) && [NODE_AFFINITY, REQUIRED].contains(&key.as_str())
        })
}
