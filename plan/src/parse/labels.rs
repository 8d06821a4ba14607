//! Maps of labels.

use super::names::Place;
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
        if let Err(why) = Place::Key.check(key) {
            reader.fault(&path, &format!("the key {why}"));
        }
        let Some(value) = reader.string(&path, Some(value)) else {
            continue;
        };
        reader.fits(&path, Place::Value, &value);
        labels.insert(key.clone(), value);
    }
    labels
}
