//! The round trip of an interface, on a full real-world document and on made-up ones.

use super::super::model;
use super::with_public_address;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A node's interface as the Resource Manager writes it, with everything that a typed model tends to lose:
/// unknown members, numbers that no float holds, escapes, odd spaces, empty things and members twice.
const FULL: &str = include_str!("../../tests/data/azure-nic.json");
const ADDRESS: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/publicIPAddresses/pip-1";

fn reference(document: &Value, number: usize) -> Value {
    document["properties"]["ipConfigurations"][number]["properties"]["publicIPAddress"].clone()
}

/// What two texts share at the start and at the end, and what is different in between.
fn difference<'a>(a: &'a str, b: &'a str) -> (&'a str, &'a str) {
    let start = a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
    let end = a[start..].bytes().rev().zip(b[start..].bytes().rev()).take_while(|(x, y)| x == y).count();
    (&a[start..a.len() - end], &b[start..b.len() - end])
}

#[test]
fn a_full_interface_keeps_every_byte_but_the_reference() {
    let with = with_public_address(FULL, 0, Some(ADDRESS)).unwrap();
    let inserted = format!("\"publicIPAddress\":{{\"id\":\"{ADDRESS}\"}},");
    let (gone, come) = difference(FULL, &with);
    assert_eq!(gone, "", "nothing was lost");
    assert_eq!(come.len(), inserted.len());
    assert_eq!(with.len(), FULL.len() + inserted.len());
    assert!(with.contains(&inserted));
    let without = with_public_address(&with, 0, None).unwrap();
    assert_eq!(without, with.replace(&format!("{{\"id\":\"{ADDRESS}\"}}"), "null"));
    for kept in ["90071992547409931234", "1.0000000000000000001", "\\u00e9\\/", "futureProperty", "1e400"] {
        assert!(FULL.contains(kept) && without.contains(kept), "{kept}");
    }
}

#[test]
fn a_typed_model_would_have_lost_something() {
    // Proof of why the text is edited: reading into values and writing them again is not the same document.
    let read: Result<Value, _> = serde_json::from_str(FULL);
    let written = read.map(|value| value.to_string()).unwrap_or_default();
    assert!(!written.contains("90071992547409931234") || !written.contains("1e400"));
}

#[test]
fn the_second_configuration_is_its_own() {
    let with = with_public_address(FULL, 1, Some(ADDRESS)).unwrap();
    let part = with.find("\"name\": \"ipconfig2\"").unwrap();
    assert!(with.find(ADDRESS).unwrap() > part, "not in the first one");
}

#[test]
fn what_is_no_interface_is_refused() {
    let no_config = json!({ "properties": { "ipConfigurations": [] } }).to_string();
    for bad in
        ["", "[]", "{}", "{\"properties\":3}", "{\"properties\":{\"ipConfigurations\":{}}}", &no_config]
    {
        assert!(with_public_address(bad, 0, Some(ADDRESS)).is_err(), "{bad}");
    }
}

/// Any JSON, with names that could be mistaken for the one that is looked for.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    let name =
        prop_oneof!["[a-zA-Z\"\\\\]{0,8}", Just("publicIPAddress".to_owned()), Just("properties".to_owned())];
    leaf.prop_recursive(3, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name.clone(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// An interface with anything around what is looked for, with or without a reference, written in two ways.
fn any_interface() -> impl Strategy<Value = (String, usize)> {
    let config = (any_json(), prop_oneof![Just(None), Just(Some(Value::Null)), any_json().prop_map(Some)]);
    let configs = prop::collection::vec(config, 1..4);
    (configs, any_json(), any_json(), any::<prop::sample::Index>(), any::<bool>()).prop_map(
        |(configs, other, more, index, pretty)| {
            let number = index.index(configs.len());
            let configs: Vec<Value> = configs
                .into_iter()
                .map(|(around, reference)| {
                    let mut properties = json!({ "subnet": around.clone() });
                    if let Some(reference) = reference {
                        properties["publicIPAddress"] = reference;
                    }
                    json!({ "name": "c", "properties": properties, "zone": around })
                })
                .collect();
            let properties = json!({ "a": more, "ipConfigurations": configs, "z": other.clone() });
            let document = json!({ "id": "x", "other": other, "properties": properties });
            let text = if pretty {
                serde_json::to_string_pretty(&document)
            } else {
                serde_json::to_string(&document)
            };
            (text.unwrap(), number)
        },
    )
}

proptest! {
    #[test]
    fn no_document_breaks_the_readers(value in any_json(), text in "\\PC{0,80}", number in 0_usize..4) {
        for document in [value.to_string(), text] {
            let _ = with_public_address(&document, number, Some(ADDRESS));
            let _ = model::read::<model::Page<model::PublicAddress>>(&document);
            let _ = model::read::<model::Interface>(&document).map(|nic| nic.config_for([1, 2, 3, 4].into()));
            let _ = model::read::<model::Machine>(&document).map(|machine| machine.runs());
            let _ = super::super::errors::of_reply(400, &document);
        }
    }

    #[test]
    fn nothing_but_the_reference_changes((document, number) in any_interface()) {
        let before: Value = serde_json::from_str(&document).unwrap();
        let with = with_public_address(&document, number, Some(ADDRESS)).unwrap();
        let mut after: Value = serde_json::from_str(&with).unwrap();
        prop_assert_eq!(&reference(&after, number)["id"], ADDRESS);
        // With the reference as it was, it is the same document.
        let place = &mut after["properties"]["ipConfigurations"][number]["properties"];
        match before["properties"]["ipConfigurations"][number]["properties"].get("publicIPAddress") {
            Some(old) => place["publicIPAddress"] = old.clone(),
            None => { place.as_object_mut().unwrap().remove("publicIPAddress"); }
        }
        prop_assert_eq!(&after, &before);
        // And the bytes around the one place are the same bytes.
        let (gone, come) = difference(&document, &with);
        prop_assert!(with.len() + gone.len() == document.len() + come.len());
        let without = with_public_address(&with, number, None).unwrap();
        let parsed: Value = serde_json::from_str(&without).unwrap();
        prop_assert!(reference(&parsed, number).is_null());
        prop_assert_eq!(with_public_address(&without, number, Some(ADDRESS)).unwrap(), with);
    }
}
