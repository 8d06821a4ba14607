//! The node affinity that makes pods run on the nodes of their allocations, and nowhere else.
//!
//! Terms of a node selector are alternatives, so the requirement goes into every one of them. A term
//! without requirements matches no node; adding one would make it match some, so it is left alone.
//!
//! What is added is a pair, `ip.ready` and then `netinfra.darkbrains.com/allocation`, at the front of a
//! term. Where the user's term asks for `ip.ready` already, only the second is added: so [`remove`] can tell
//! which `ip.ready` is the user's. An annotation beside it, [`ANNOTATION_INJECTED`], says that this is ours.
//! Anybody may write such a requirement by hand; without the annotation it is theirs, and stays.

use crds::{ANNOTATION_INJECTED, LABEL_ALLOCATION, LABEL_READY};
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const METADATA: &str = "metadata";
const ANNOTATIONS: &str = "annotations";
const SPEC: &str = "spec";
const AFFINITY: &str = "affinity";
const NODE_AFFINITY: &str = "nodeAffinity";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const TERMS: &str = "nodeSelectorTerms";
const EXPRESSIONS: &str = "matchExpressions";

/// Names of allocations.
type Names = BTreeSet<String>;

/// What is missing from a pod, or from a template of pods, to run on nodes of these allocations only. `at`
/// is where it is in the object: empty for a pod. Empty when nothing is missing, also because the user
/// wrote as much by hand.
pub fn inject(pod: &Value, at: &str, names: &Names) -> Patch {
    let marked = mark(pod);
    let mut operations = complete(pod, at, names, marked.as_ref());
    let changed = !operations.is_empty();
    if changed && marked.as_ref() != Some(names) {
        operations.push(annotate(pod, at, names));
    }
    Patch(operations)
}

/// The requirement, without the annotation.
fn complete(pod: &Value, at: &str, names: &Names, marked: Option<&Names>) -> Vec<PatchOperation> {
    let nothing = Value::Null;
    let mut path = Path::new(at).then(SPEC);
    let mut place = pod.get(SPEC).unwrap_or(&nothing);
    for key in [AFFINITY, NODE_AFFINITY, REQUIRED] {
        path.push(key);
        match place.get(key).filter(|value| value.is_object()) {
            Some(value) => place = value,
            None => return vec![path.add(wrap(key, names))],
        }
    }
    path.push(TERMS);
    let Some(terms) = place.get(TERMS).and_then(Value::as_array).filter(|terms| !terms.is_empty()) else {
        return vec![path.add(json!([{ EXPRESSIONS: pair(names) }]))];
    };
    if marked.is_none() && terms.iter().all(|term| is_empty(term) || is_narrow(term, names)) {
        return Vec::new();
    }
    let operations = terms
        .iter()
        .enumerate()
        .flat_map(|(number, term)| complete_term(term, &path.at(number), names, marked));
    operations.collect()
}

/// Everything from `key` down to the requirement, for a pod spec that has nothing there.
fn wrap(key: &str, names: &Names) -> Value {
    let required = json!({ TERMS: [{ EXPRESSIONS: pair(names) }] });
    match key {
        AFFINITY => json!({ NODE_AFFINITY: { REQUIRED: required } }),
        NODE_AFFINITY => json!({ REQUIRED: required }),
        _ => required,
    }
}

fn complete_term(term: &Value, path: &Path, names: &Names, marked: Option<&Names>) -> Vec<PatchOperation> {
    if is_empty(term) {
        return Vec::new();
    }
    let path = path.clone().then(EXPRESSIONS);
    let Some(expressions) = expressions(term) else {
        return vec![path.add(json!(pair(names)))];
    };
    if let Some(ours) = marked.and_then(|marked| find(expressions, marked)) {
        let outdated = marked != Some(names);
        return outdated.then(|| path.at(ours.at).replace(belongs_to(names))).into_iter().collect();
    }
    let front = path.at(0);
    let mut operations = vec![front.add(belongs_to(names))];
    if !expressions.iter().any(is_ready) {
        operations.push(front.add(ready()));
    }
    operations
}

/// The annotation, with what has to be there around it.
fn annotate(pod: &Value, at: &str, names: &Names) -> PatchOperation {
    let mark = names.iter().map(String::as_str).collect::<Vec<_>>().join(",");
    let path = Path::new(at).then(METADATA);
    let Some(metadata) = pod.get(METADATA).filter(|value| value.is_object()) else {
        return path.add(json!({ ANNOTATIONS: { ANNOTATION_INJECTED: mark } }));
    };
    let path = path.then(ANNOTATIONS);
    match metadata.get(ANNOTATIONS).filter(|value| value.is_object()) {
        None => path.add(json!({ ANNOTATION_INJECTED: mark })),
        Some(_) => path.then(ANNOTATION_INJECTED).add(json!(mark)),
    }
}

/// Takes exactly that out of a pod or template which [`inject`] put in; terms and parents that are empty
/// then go as well. What carries no annotation of ours stays as it is.
pub fn remove(pod: &Value, at: &str) -> Patch {
    let Some(marked) = mark(pod) else { return Patch(Vec::new()) };
    let mut operations = remove_requirement(pod, at, &marked);
    let path = Path::new(at).then(METADATA);
    let size = |value: &Value| value.as_object().map_or(0, serde_json::Map::len);
    let (metadata, annotations) = (&pod[METADATA], &pod[METADATA][ANNOTATIONS]);
    operations.push(match (size(metadata), size(annotations)) {
        (1, 1) => path.remove(),
        (_, 1) => path.then(ANNOTATIONS).remove(),
        _ => path.then(ANNOTATIONS).then(ANNOTATION_INJECTED).remove(),
    });
    Patch(operations)
}

fn remove_requirement(pod: &Value, at: &str, marked: &Names) -> Vec<PatchOperation> {
    let mut path = Path::new(at).then(SPEC);
    let mut place = pod.get(SPEC);
    for key in [AFFINITY, NODE_AFFINITY, REQUIRED, TERMS] {
        path.push(key);
        place = place.and_then(|value| value.get(key));
    }
    let Some(terms) = place.and_then(Value::as_array) else { return Vec::new() };
    let kept: Vec<Value> = terms.iter().map(|term| without_requirement(term, marked)).collect();
    if kept == *terms {
        return Vec::new();
    }
    // A term that was made for the requirement goes with it; one that the user left empty stays.
    let kept: Vec<Value> = kept
        .into_iter()
        .zip(terms)
        .filter(|(now, before)| !is_empty(now) || is_empty(before))
        .map(|(now, _)| now)
        .collect();
    if !kept.is_empty() {
        return vec![path.replace(Value::Array(kept))];
    }
    vec![Path::new(at).then(SPEC).shortest_emptied(&pod[SPEC])]
}

fn without_requirement(term: &Value, marked: &Names) -> Value {
    let mut term = term.clone();
    let Some(expressions) = term.get_mut(EXPRESSIONS).and_then(Value::as_array_mut) else { return term };
    let Some(ours) = find(expressions, marked) else { return term };
    expressions.remove(ours.at);
    if ours.with_ready {
        expressions.remove(ours.at - 1);
    }
    if expressions.is_empty()
        && let Some(object) = term.as_object_mut()
    {
        object.remove(EXPRESSIONS);
    }
    term
}

/// A term that matches no node.
fn is_empty(term: &Value) -> bool {
    let none = |key: &str| term.get(key).and_then(Value::as_array).is_none_or(Vec::is_empty);
    none(EXPRESSIONS) && none("matchFields")
}

/// The allocations whose nodes a pod with this `affinity` is limited to, whoever wrote it; `None` if it is
/// not. Says where it may run, and nothing of whose it is: see [`is_ours`].
pub fn required(affinity: &Value) -> Option<Names> {
    let names: Vec<Names> = terms(affinity).iter().filter_map(narrowed_to).collect();
    (!names.is_empty()).then(|| names.into_iter().flatten().collect())
}

/// Whether the requirement in this `affinity` is one that we wrote, by the annotation beside it. Only then
/// may it be removed, or its pod be deleted because of it.
pub fn is_ours(annotation: Option<&str>, affinity: &Value) -> bool {
    let Some(marked) = annotation.and_then(read_mark) else { return false };
    terms(affinity).iter().any(|term| expressions(term).is_some_and(|list| find(list, &marked).is_some()))
}

fn terms(affinity: &Value) -> &[Value] {
    let terms = affinity.get(NODE_AFFINITY).and_then(|value| value.get(REQUIRED)?.get(TERMS)?.as_array());
    terms.map(Vec::as_slice).unwrap_or_default()
}

fn expressions(term: &Value) -> Option<&Vec<Value>> {
    term.get(EXPRESSIONS).and_then(Value::as_array).filter(|list| !list.is_empty())
}

/// The allocations that both halves of the pair in a term ask for.
fn narrowed_to(term: &Value) -> Option<Names> {
    let expressions = expressions(term).filter(|list| list.iter().any(is_ready))?;
    let names = expressions.iter().filter_map(allocations);
    names.reduce(|all, more| all.intersection(&more).cloned().collect())
}

/// Whether a term is limited to nodes of these allocations already.
fn is_narrow(term: &Value, names: &Names) -> bool {
    narrowed_to(term).is_some_and(|required| required.is_subset(names))
}

/// Where in a term our requirement is.
struct Ours {
    at: usize,
    /// `ip.ready` before it is ours as well.
    with_ready: bool,
}

/// Finds what we wrote for these names: at the front, or, if somebody has put something before it, as far to
/// the front as can be.
fn find(expressions: &[Value], names: &Names) -> Option<Ours> {
    let wanted = belongs_to(names);
    let at = expressions.iter().position(|expression| *expression == wanted)?;
    // With an `ip.ready` of the user's, we wrote none.
    let ready = expressions.iter().filter(|expression| is_ready(expression)).count();
    let with_ready = at > 0 && is_ready(&expressions[at - 1]) && (at == 1 || ready == 1);
    Some(Ours { at, with_ready })
}

fn mark(pod: &Value) -> Option<Names> {
    read_mark(pod.get(METADATA)?.get(ANNOTATIONS)?.get(ANNOTATION_INJECTED)?.as_str()?)
}

fn read_mark(text: &str) -> Option<Names> {
    (!text.is_empty()).then(|| text.split(',').map(str::to_owned).collect())
}

fn pair(names: &Names) -> [Value; 2] {
    [ready(), belongs_to(names)]
}

fn ready() -> Value {
    json!({ "key": LABEL_READY, "operator": "In", "values": ["true"] })
}

fn belongs_to(names: &Names) -> Value {
    json!({ "key": LABEL_ALLOCATION, "operator": "In", "values": names })
}

fn is_ready(expression: &Value) -> bool {
    *expression == ready()
}

/// The allocations that an expression asks for; another operator asks for something else.
fn allocations(expression: &Value) -> Option<Names> {
    let text = |key: &str| expression.get(key).and_then(Value::as_str);
    if text("key") != Some(LABEL_ALLOCATION) || text("operator") != Some("In") {
        return None;
    }
    let values = expression.get("values")?.as_array()?;
    Some(values.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect())
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

    fn then(mut self, token: &str) -> Self {
        self.push(token);
        self
    }

    fn add(&self, value: Value) -> PatchOperation {
        PatchOperation::Add(AddOperation { path: self.0.clone(), value })
    }

    /// A place in the list that this is the path of.
    fn at(&self, number: usize) -> Self {
        self.clone().then(&number.to_string())
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
