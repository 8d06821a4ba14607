//! What a text may be where it ends up: in a URL, a selector, a label. The rules are Kubernetes' own.

use std::fmt;

/// The longest DNS-1123 label, and the longest label value.
const LABEL: usize = 63;
/// The longest DNS-1123 subdomain.
const SUBDOMAIN: usize = 253;

/// A place that a text ends up in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A namespace: part of a URL, and a value of the pod webhook's namespaceSelector.
    Namespace,
    /// The name of an object: part of a URL and of a field selector.
    Name,
    /// The name of a node.
    Node,
    /// The key of a label or of a taint.
    Key,
    /// The value of a label or of a taint.
    Value,
    /// A zone or a region, which nodes carry as a label.
    Location,
}

/// What is wrong with a text, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong(String);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Place {
    /// Whether a text fits here; if not, why, in a sentence that begins with the text.
    pub fn check(self, text: &str) -> Result<(), Wrong> {
        if self.fits(text) {
            return Ok(());
        }
        Err(Wrong(format!("{} is not {}; {}", quoted(text), self.what(), self.hint(text))))
    }

    /// Whether a text fits here.
    pub fn fits(self, text: &str) -> bool {
        match self {
            Self::Namespace => is_label(text),
            Self::Name | Self::Node => is_subdomain(text),
            Self::Key => {
                let (prefix, name) = text.rsplit_once('/').map_or((None, text), |(p, n)| (Some(p), n));
                prefix.is_none_or(is_subdomain) && is_value(name)
            }
            Self::Value => text.is_empty() || is_value(text),
            Self::Location => is_value(text),
        }
    }

    fn what(self) -> &'static str {
        match self {
            Self::Namespace => "a valid namespace",
            Self::Name => "a valid name",
            Self::Node => "a valid name of a node",
            Self::Key => "a valid label key",
            Self::Value => "a valid label value",
            Self::Location => "a valid label value, which a zone or region is on nodes",
        }
    }

    /// What would be right: what people really write first, the rule last.
    fn hint(self, text: &str) -> String {
        let lower_case = matches!(self, Self::Namespace | Self::Name | Self::Node);
        let slash = match self {
            Self::Namespace => {
                "leave out the slash and what follows: the workload's name is a field of its own"
            }
            Self::Name => {
                "leave out what stands before the slash: kind and namespace are fields of their own"
            }
            _ => "leave out the slash",
        };
        let hint = if text.contains("{{") || text.contains("${") || text.contains("$(") {
            "this is a template that was not rendered"
        } else if text.chars().any(char::is_whitespace) {
            "remove the white space"
        } else if text.contains('/') && self != Self::Key {
            slash
        } else if lower_case && text.chars().any(char::is_uppercase) {
            "write it in lower case"
        } else if lower_case && text.contains('_') {
            "write '-' in place of '_'"
        } else if self == Self::Namespace && text.contains('.') {
            "a namespace has no dots"
        } else if text.contains(',') {
            "only one can be named here"
        } else {
            return self.rule(text);
        };
        hint.to_owned()
    }

    fn rule(self, text: &str) -> String {
        let edges = "with a letter or digit at both ends";
        match self {
            Self::Namespace => {
                format!("it has up to {LABEL} lower-case letters, digits and '-', {edges}")
            }
            Self::Name | Self::Node if text.contains("..") || text.contains(".-") || text.contains("-.") => {
                "letters or digits have to be on both sides of every dot".to_owned()
            }
            Self::Name | Self::Node => {
                format!("it has up to {SUBDOMAIN} lower-case letters, digits, '-' and '.', {edges}")
            }
            Self::Key => format!(
                "write e.g. role or example.com/role: a lower-case domain if there is a slash, \
                 and up to {LABEL} letters, digits, '-', '_' and '.', {edges}"
            ),
            Self::Value | Self::Location => {
                format!("it has up to {LABEL} letters, digits, '-', '_' and '.', {edges}")
            }
        }
    }
}

/// A text as a message shows it: the beginning, if it is long.
pub fn quoted(text: &str) -> String {
    const SHOWN: usize = 80;
    match text.char_indices().nth(SHOWN) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}…", &text[..end]),
    }
}

/// A DNS-1123 label.
fn is_label(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.len() <= LABEL && text.bytes().all(inside) && ends_well(text)
}

/// A DNS-1123 subdomain: labels with dots between them, of which only the whole is limited in length.
fn is_subdomain(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let part = |part: &str| part.bytes().all(inside) && ends_well(part);
    text.len() <= SUBDOMAIN && text.split('.').all(part)
}

/// A label value that is not empty; also the second part of a label key.
fn is_value(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.len() <= LABEL && text.bytes().all(inside) && ends_well(text)
}

fn ends_well(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    edge(text.as_bytes().first()) && edge(text.as_bytes().last())
}
