//! Aggregated lists: the things of all zones or regions, by scope.

use super::links::link;
use crate::http::Reply;
use crate::pipeline::Context;
use serde_json::{Map, Value, json};

/// An aggregated list in the making. A scope that does not answer is named in `unreachables`.
pub struct Aggregated {
    /// What is listed, e.g. `addresses`.
    plural: &'static str,
    items: Map<String, Value>,
    unreachable: Vec<String>,
}

impl Aggregated {
    /// A list of nothing.
    pub fn new(plural: &'static str) -> Self {
        Self { plural, items: Map::new(), unreachable: Vec::new() }
    }

    /// Mentions a scope, once.
    pub fn scope(&mut self, context: &Context, project: &str, scope: &str) {
        if self.items.contains_key(scope) {
            return;
        }
        let left_out = context.leaves_out(&[scope]);
        if left_out {
            self.unreachable.push(link(context.state, &format!("projects/{project}/{scope}")));
        }
        self.items.insert(scope.to_owned(), empty_scope(scope, left_out));
    }

    /// Adds a thing to its scope.
    pub fn push(&mut self, scope: String, thing: Value) {
        let entry = self.items.entry(scope).or_insert_with(|| json!({}));
        if entry.get(self.plural).is_none() {
            *entry = json!({ self.plural: [] });
        }
        if let Some(list) = entry[self.plural].as_array_mut() {
            list.push(thing);
        }
    }

    /// The list as it is answered.
    pub fn reply(self, context: &Context, project: &str, kind: &str, next: Option<String>) -> Reply {
        let id = format!("projects/{project}/aggregated/{}", self.plural);
        let mut body =
            json!({ "kind": kind, "selfLink": link(context.state, &id), "id": id, "items": self.items });
        if !self.unreachable.is_empty() {
            body["unreachables"] = Value::from(self.unreachable);
        }
        if let Some(next) = next {
            body["nextPageToken"] = Value::from(next);
        }
        Reply::json(200, &body)
    }
}

/// A part of an aggregated list without items says why.
fn empty_scope(scope: &str, unreachable: bool) -> Value {
    let (code, message) = if unreachable {
        ("UNREACHABLE", format!("The scope '{scope}' could not be reached."))
    } else {
        ("NO_RESULTS_ON_PAGE", format!("There are no results for scope '{scope}' on this page."))
    };
    json!({ "warning": { "code": code, "message": message, "data": [{ "key": "scope", "value": scope }] } })
}
