//! docs/spec.md: every field of the API, from the CRD's own schema.

use serde_json::Value;
use std::fmt::Write as _;

const HEAD: &str = "# Spec

`NetIPAllocation`, `netinfra.darkbrains.com/v1alpha1`, cluster-scoped, short name `nia`. Made from the CRD's schema by \
`make generate`; `kubectl explain nia.spec` says the same.

A spec that breaks a limit is refused by the API server itself, with or without the webhook. What else admission \
checks, such as an address in two allocations, is in [admission](admission.md). Objects that an older schema let in \
stay editable and deletable.
";

/// The page.
pub fn page() -> String {
    let manifests = crds::manifests();
    assert!(manifests.len() == 1, "one kind, one page");
    let yaml = manifests[0].to_yaml().expect("printable");
    let crd: Value = serde_saphyr::from_str(&yaml).expect("YAML");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    let mut page = HEAD.to_owned();
    page.push_str(
        "\n## Spec fields\n\n| field | type | default | limits | meaning |\n|---|---|---|---|---|\n",
    );
    fields("", &schema["spec"], &mut |path, field, required| {
        let limits = limits(field, required);
        // Of an object the fields say theirs.
        let default = field.get("default").filter(|value| !value.is_object());
        let default = default.map_or_else(String::new, |value| format!("`{}`", plain(value)));
        row(&mut page, &[&code(path), &kind(field), &default, &limits, &description(field)]);
    });
    page.push_str(
        "\n## Status fields\n\nThe controller writes them; nobody else should. Words of `reason` and `cause` are in \
         [reasons](reasons.md).\n\n| field | type | meaning |\n|---|---|---|\n",
    );
    fields("", &schema["status"], &mut |path, field, _| {
        row(&mut page, &[&code(path), &kind(field), &description(field)]);
    });
    page
}

/// Calls `found` for every field below a schema: its path, its schema, whether it is required.
fn fields(path: &str, schema: &Value, found: &mut impl FnMut(&str, &Value, bool)) {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        found(&path, field, required.contains(&Value::from(name.as_str())));
        fields(&path, field, found);
        fields(&format!("{path}[]"), &field["items"], found);
    }
}

fn kind(field: &Value) -> String {
    let named = |schema: &Value| match schema["format"].as_str() {
        Some("date-time") => "time".to_owned(),
        _ => schema["type"].as_str().expect("a type").to_owned(),
    };
    match (field["type"].as_str(), field.get("additionalProperties")) {
        (Some("array"), _) => format!("list of {}s", named(&field["items"])),
        (_, Some(values)) => format!("map of {}s", named(values)),
        _ => named(field),
    }
}

/// What the API server refuses: in the schema's words where it has some, else in ours.
fn limits(field: &Value, required: bool) -> String {
    let mut limits: Vec<String> = required.then(|| "required".to_owned()).into_iter().collect();
    limits.extend(bounds(field));
    limits.extend(field.get("items").into_iter().flat_map(bounds).map(|bound| format!("each: {bound}")));
    if field["x-kubernetes-list-type"] == "set" {
        limits.push("no value twice".to_owned());
    }
    limits.join("; ")
}

fn bounds(schema: &Value) -> Vec<String> {
    let number = |name: &str| schema[name].as_f64();
    let span = |least: Option<f64>, most: Option<f64>, of: &str| match (least, most) {
        (Some(least), Some(most)) => Some(format!("{least} to {most}{of}")),
        (Some(least), None) => Some(format!("at least {least}{of}")),
        (None, Some(most)) => Some(format!("at most {most}{of}")),
        (None, None) => None,
    };
    let choices: Vec<String> = schema["enum"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|value| !value.is_null())
        .map(|value| format!("`{}`", plain(value)))
        .collect();
    let mut bounds: Vec<String> = (!choices.is_empty()).then(|| choices.join(", ")).into_iter().collect();
    bounds.extend(span(number("minimum"), number("maximum"), ""));
    bounds.extend(span(number("minItems"), number("maxItems"), " items"));
    bounds.extend(span(number("minLength"), number("maxLength"), " characters"));
    bounds.extend(span(None, number("maxProperties"), " entries"));
    let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
    bounds.extend(rules.filter_map(|rule| rule["message"].as_str()).map(str::to_owned));
    bounds
}

/// A value as a person writes it.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn code(path: &str) -> String {
    format!("`{path}`")
}

fn description(field: &Value) -> String {
    let text = field["description"].as_str().expect("every field is described");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A row of a table.
pub fn row(page: &mut String, cells: &[&str]) {
    for cell in cells {
        write!(page, "| {} ", cell.replace('|', "\\|")).expect("a string takes everything");
    }
    page.push_str("|\n");
}
