//! One change in a network interface, with every other byte of it as the cloud wrote it.
//!
//! A write of an interface replaces it whole, and what is left out is reset. A typed model would lose every
//! property that it does not know. So the document is never written anew: the place of one value is found in
//! its text, and the text is cut there.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

const PUBLIC_ADDRESS: &str = "publicIPAddress";

/// The document is not one of an interface.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a network interface: {0}")]
pub struct NotAnInterface(String);

/// The document with another public address at its `number`-th IP configuration: a reference to the id, or
/// `null`.
pub fn with_public_address(
    document: &str,
    number: usize,
    id: Option<&str>,
) -> Result<String, NotAnInterface> {
    let wanted = match id {
        Some(id) => format!("{{\"id\":{}}}", serde_json::Value::from(id)),
        None => "null".to_owned(),
    };
    let interface = members(document)?;
    let properties = members(last(&interface, "properties")?)?;
    let configs: Items = parse(last(&properties, "ipConfigurations")?)?;
    let config = configs.0.get(number).ok_or_else(|| missing("the IP configuration"))?;
    let config = members(config.get())?;
    let properties = last(&config, "properties")?;
    let inside = members(properties)?;
    let old = inside.0.iter().rev().find(|(name, _)| name == PUBLIC_ADDRESS).map(|(_, value)| value.get());
    match (old, id) {
        (Some(old), _) => Ok(replaced(document, old, &wanted)),
        (None, None) => Ok(document.to_owned()),
        (None, Some(_)) => {
            // In front of what is there, right behind the brace.
            let comma = if inside.0.is_empty() { "" } else { "," };
            let brace = &properties[..1];
            Ok(replaced(document, brace, &format!("{{\"{PUBLIC_ADDRESS}\":{wanted}{comma}")))
        }
    }
}

/// The document with another text in the place of a part of it. The part is a slice of the document.
fn replaced(document: &str, part: &str, text: &str) -> String {
    let start = part.as_ptr() as usize - document.as_ptr() as usize;
    let (before, rest) = document.split_at(start);
    format!("{before}{text}{}", &rest[part.len()..])
}

fn members(text: &str) -> Result<Members<'_>, NotAnInterface> {
    parse(text)
}

fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, NotAnInterface> {
    serde_json::from_str(text).map_err(|error| NotAnInterface(error.to_string()))
}

/// The value of a member; of two with one name the last counts, as everywhere.
fn last<'a>(members: &Members<'a>, name: &str) -> Result<&'a str, NotAnInterface> {
    let found = members.0.iter().rev().find(|(known, _)| known == name);
    found.map(|(_, value)| value.get()).ok_or_else(|| missing(name))
}

fn missing(name: &str) -> NotAnInterface {
    NotAnInterface(format!("{name} is missing"))
}

/// The members of an object, with the text of each value in its place.
struct Members<'a>(Vec<(String, &'a RawValue)>);

/// The items of a list, with the text of each in its place.
struct Items<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Of;
        impl<'de> Visitor<'de> for Of {
            type Value = Vec<(String, &'de RawValue)>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut found = Vec::new();
                while let Some(member) = map.next_entry()? {
                    found.push(member);
                }
                Ok(found)
            }
        }
        deserializer.deserialize_map(Of).map(Self)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Items<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Of;
        impl<'de> Visitor<'de> for Of {
            type Value = Vec<&'de RawValue>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut found = Vec::new();
                while let Some(item) = list.next_element()? {
                    found.push(item);
                }
                Ok(found)
            }
        }
        deserializer.deserialize_seq(Of).map(Self)
    }
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
