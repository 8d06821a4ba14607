//! `convert`: legacy manifests become current ones, by the code that admission uses. Documents of other
//! kinds, and those that are current already, are passed on as they are, byte by byte.

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde_json::Value;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use webhook::allocation::mutate;
use webhook::registration::NAMESPACE;

/// What to convert, and where to.
#[derive(Args, Clone, Debug)]
pub struct Convert {
    /// A file to convert; may be given several times. `-`: standard input
    #[arg(short, long = "filename", value_name = "FILE", default_value = "-")]
    filenames: Vec<PathBuf>,
    /// Folder that the converted files are written to, under their own names; standard output, if not given
    #[arg(long, value_name = "FOLDER")]
    to: Option<PathBuf>,
}

/// A converted text, and what the user should know.
#[derive(Debug, Default, PartialEq, Eq)]
struct Converted {
    text: String,
    remarks: Vec<String>,
}

impl Convert {
    /// Converts everything before anything is written.
    pub fn run(&self) -> Result<()> {
        let mut converted = Vec::new();
        for file in &self.filenames {
            let place = if is_stdin(file) { "standard input".to_owned() } else { file.display().to_string() };
            let text = read(file).with_context(|| format!("{place} cannot be read"))?;
            let done = convert(&text).context(place.clone())?;
            for remark in &done.remarks {
                eprintln!("{place}: {remark}");
            }
            converted.push((file, done.text));
        }
        match &self.to {
            None => crate::cli::print(&join(converted.into_iter().map(|(_, text)| text))),
            Some(folder) => write_all(folder, &converted),
        }
    }
}

fn is_stdin(file: &Path) -> bool {
    file.as_os_str() == "-"
}

fn read(file: &Path) -> std::io::Result<String> {
    if is_stdin(file) {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        Ok(text)
    } else {
        std::fs::read_to_string(file)
    }
}

fn write_all(folder: &Path, converted: &[(&PathBuf, String)]) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("folder {}", folder.display()))?;
    for (file, text) in converted {
        let named = file.file_name().filter(|_| !is_stdin(file));
        let name = named.context("standard input has no name to write to: leave --to out")?;
        let target = folder.join(name);
        std::fs::write(&target, text).with_context(|| format!("{} cannot be written", target.display()))?;
    }
    Ok(())
}

/// Several files as one stream of documents.
fn join(texts: impl Iterator<Item = String>) -> String {
    texts.fold(String::new(), |all, text| {
        let apart = if all.is_empty() || is_separator(&text) { "" } else { "---\n" };
        let ended = if all.is_empty() || all.ends_with('\n') { "" } else { "\n" };
        format!("{all}{ended}{apart}{text}")
    })
}

fn convert(text: &str) -> Result<Converted> {
    let mut converted = Converted::default();
    for (number, document) in documents(text).into_iter().enumerate() {
        let one = convert_document(&document).with_context(|| format!("document {}", number + 1))?;
        converted.text.push_str(&one.text);
        converted.remarks.extend(one.remarks);
    }
    Ok(converted)
}

/// Documents with their separators.
fn documents(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.split_inclusive('\n') {
        if is_separator(line) {
            documents.push(String::new());
        }
        if let Some(last) = documents.last_mut() {
            last.push_str(line);
        }
    }
    documents.retain(|document| !document.is_empty());
    documents
}

fn is_separator(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

fn convert_document(document: &str) -> Result<Converted> {
    let as_is = || Converted { text: document.to_owned(), remarks: Vec::new() };
    if !document.contains("NetIPAllocation") {
        return Ok(as_is());
    }
    let separator = if is_separator(document) { "---\n" } else { "" };
    let mut object: Value = serde_saphyr::from_str(document).map_err(|error| {
        anyhow::anyhow!("no YAML that can be read: {}", error.to_string().lines().next().unwrap_or_default())
    })?;
    let mut remarks = Vec::new();
    if !convert_object(&mut object, &mut remarks)? {
        return Ok(Converted { remarks, ..as_is() });
    }
    let is_json = document.trim_start().starts_with('{');
    if !is_json && document.lines().any(|line| line.trim_start().starts_with('#')) {
        remarks.push("comments of a converted document are lost".to_owned());
    }
    let body = if is_json {
        serde_json::to_string_pretty(&object)? + "\n"
    } else {
        serde_saphyr::to_string(&object)?
    };
    Ok(Converted { text: format!("{separator}{body}"), remarks })
}

/// Whether anything changed. A List is converted item by item.
fn convert_object(object: &mut Value, remarks: &mut Vec<String>) -> Result<bool> {
    if let Some(items) = object.get_mut("items").and_then(Value::as_array_mut) {
        let mut changed = false;
        for item in items {
            changed |= convert_object(item, remarks)?;
        }
        return Ok(changed);
    }
    if !is_allocation(object) {
        return Ok(false);
    }
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("(no name)").to_owned();
    ensure!(object.get("spec").is_some(), "NetIPAllocation {name}: it has no spec");
    let excluded = crate::process::excluded_namespaces(NAMESPACE);
    let given = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let spec = object.get("spec").cloned().unwrap_or_default();
    let answer = mutate(given, spec, None, &excluded);
    if !answer.faults.is_empty() {
        let faults: Vec<String> = answer.faults.iter().map(ToString::to_string).collect();
        bail!("NetIPAllocation {name} is not valid: {}", faults.join("; "));
    }
    // That it was deprecated is no news to who converts it.
    let warnings = answer.warnings.into_iter().filter(|warning| !warning.contains("deprecated"));
    remarks.extend(warnings.map(|warning| format!("NetIPAllocation {name}: {warning}")));
    json_patch::patch(object, &answer.patch).with_context(|| format!("NetIPAllocation {name}"))?;
    Ok(!answer.patch.0.is_empty())
}

fn is_allocation(object: &Value) -> bool {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    text("kind") == "NetIPAllocation" && text("apiVersion").starts_with(&format!("{}/", crds::GROUP))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const LEGACY: &str = "\
apiVersion: netinfra.darkbrains.com/v1alpha1
kind: NetIPAllocation
metadata:
  name: voice
spec:
  reservedIPs: [\"203.0.113.10\"]
  deploymentRef:
    name: sip
  cloud:
    provider: gcp
";
    const OTHER: &str = "---   # a comment\nkind: ConfigMap   # and its oddities\ndata: {a: '1'}\n";

    #[test]
    fn a_legacy_document_is_converted_and_others_are_not_touched() {
        let current = LEGACY.replace("deploymentRef:", "workloadRef:\n    kind: Deployment");
        let text = format!("{OTHER}---\n{LEGACY}---\n{current}");
        let converted = convert(&text).unwrap();
        assert!(converted.text.starts_with(OTHER), "{}", converted.text);
        assert!(converted.text.ends_with(&format!("---\n{current}")), "{}", converted.text);
        assert!(!converted.text.contains("deploymentRef"));
        let again = convert(&converted.text).unwrap();
        assert_eq!(again, converted, "what is current stays as it is");
        let parsed: Value = serde_saphyr::from_str(&documents(&converted.text)[1]).unwrap();
        assert_eq!(parsed["spec"]["workloadRef"], serde_json::json!({ "kind": "Deployment", "name": "sip" }));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let text = format!("{OTHER}---\n{}", LEGACY.replace("203.0.113.10", "10.0.0.1"));
        let error = format!("{:#}", convert(&text).unwrap_err());
        let expected = "document 2: NetIPAllocation voice is not valid: spec.reservedIPs[0]";
        assert!(error.starts_with(expected), "{error}");
    }

    #[test]
    fn lists_and_json_are_converted_too() {
        let object: Value = serde_saphyr::from_str(LEGACY).unwrap();
        let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": [object] });
        let converted = convert(&list.to_string()).unwrap();
        let converted: Value = serde_json::from_str(&converted.text).unwrap();
        assert_eq!(converted["items"][0]["spec"]["workloadRef"]["name"], "sip");
        assert!(converted["items"][0]["spec"].get("deploymentRef").is_none());
    }

    #[test]
    fn remarks_tell_what_has_no_effect_and_what_is_lost() {
        let text = LEGACY.replace("  cloud:", "  # old\n  strategy: {maxSurge: 1}\n  cloud:");
        let remarks = convert(&text).unwrap().remarks;
        assert!(remarks[0].contains("maxSurge has no effect"), "{remarks:?}");
        assert_eq!(remarks[1], "comments of a converted document are lost");
    }

    #[test]
    fn files_are_joined_as_documents() {
        let joined = join(["a: 1".to_owned(), "b: 2\n".to_owned(), "---\nc: 3\n".to_owned()].into_iter());
        assert_eq!(joined, "a: 1\n---\nb: 2\n---\nc: 3\n");
    }
}
