//! Kubernetes' syntax of labels.

use super::reader::Reader;
use serde_json::Value;
use std::collections::BTreeMap;

/// Reads a map of labels.
pub fn selector(reader: &mut Reader, path: &str, value: Option<&Value>) -> BTreeMap<String, String> {
    let Some(value) = value else {
        return BTreeMap::new();
    };
    let Some(object) = value.as_object() else {
        reader.fault(path, "must be a map of labels, e.g. {role: public-node}");
        return BTreeMap::new();
    };
    let mut labels = BTreeMap::new();
    for (key, value) in object {
        let path = format!("{path}.{key}");
        if let Err(why) = check_key(key) {
            reader.fault(&path, &format!("the key {why}"));
        }
        let Some(value) = reader.string(&path, Some(value)) else {
            continue;
        };
        if let Err(why) = check_value(&value) {
            reader.fault(&path, &format!("{value:?} {why}"));
        }
        labels.insert(key.clone(), value);
    }
    labels
}

/// `name` or `prefix/name`.
pub fn check_key(key: &str) -> Result<(), &'static str> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let prefix_ok = prefix.is_none_or(|prefix| {
        !prefix.is_empty()
            && prefix.len() <= 253
            && prefix.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b))
    });
    if prefix_ok && !name.is_empty() && is_name(name) {
        Ok(())
    } else {
        Err("is not a valid label key, e.g. role or example.com/role")
    }
}

fn check_value(value: &str) -> Result<(), &'static str> {
    if value.is_empty() || is_name(value) {
        Ok(())
    } else {
        Err(
            "is not a valid label value: up to 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
        )
    }
}

fn is_name(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}
