//! The selectors in an expression: enough of the language to find them.

use std::collections::BTreeSet;

/// A metric's name and what its labels have to be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selector {
    pub name: String,
    /// Labels and the texts that they are compared with.
    pub matchers: Vec<(String, String)>,
    /// As it is written.
    pub text: String,
}

/// Names of metrics in any text.
pub fn names(text: &str) -> BTreeSet<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_word(c));
    words.filter(|word| word.starts_with("netipallocation_")).map(str::to_owned).collect()
}

/// All selectors.
pub fn of(expression: &str) -> Vec<Selector> {
    let mut found = Vec::new();
    let starts: Vec<usize> = ["netipallocation_", "ALERTS"]
        .iter()
        .flat_map(|start| expression.match_indices(start).map(|(at, _)| at))
        .collect();
    for start in starts {
        let rest = &expression[start..];
        let length = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let (name, after) = rest.split_at(length);
        let body = after.strip_prefix('{').and_then(|body| body.split_once('}')).map(|(body, _)| body);
        let text = body.map_or_else(|| name.to_owned(), |body| format!("{name}{{{body}}}"));
        found.push(Selector { name: name.to_owned(), matchers: matchers(body.unwrap_or_default()), text });
    }
    found.sort();
    found.dedup();
    found
}

fn matchers(body: &str) -> Vec<(String, String)> {
    // Values have no quotes in them, so every second piece is a value.
    let pieces: Vec<&str> = body.split('"').collect();
    pieces
        .chunks(2)
        .filter(|pair| pair.len() == 2)
        .map(|pair| {
            let label = pair[0].trim_matches([',', ' ', '=', '~', '!', '\n']);
            (label.to_owned(), pair[1].to_owned())
        })
        .collect()
}
