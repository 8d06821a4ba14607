//! Rules, their tests and their runbooks, without a cluster.

use crate::prometheus::{ROOT, promtool};
use crate::selectors::{self, Selector};
use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// All alerts that the predecessor had.
const PREDECESSORS: [&str; 16] = [
    "NoLeader",
    "CRDUnhealthy",
    "UnattachedIPsCritical",
    "ControllerDown",
    "UnattachedIPsWarning",
    "HighReconcileErrorRate",
    "GCPAPIErrors",
    "SlowReconciliation",
    "IPDetachFailures",
    "IPAttachFailures",
    "NodeCordonedWithIP",
    "ControllerNotReady",
    "LeaderChanged",
    "IPReallocated",
    "AvailabilitySLOBreach",
    "ReconcileLatencySLOBreach",
];

/// And the rows and panels of its dashboard.
const PANELS: [&str; 23] = [
    "Controller Overview",
    "CRD Status",
    "IP Allocation",
    "Node Status",
    "Operations & Errors",
    "Leader Status",
    "Ready Pods",
    "Healthy Pods",
    "Total CRDs",
    "Total Reserved IPs",
    "Unattached IPs",
    "Leader Election History",
    "Controller Pods Status",
    "CRD Status Overview",
    "IP Allocation Over Time",
    "IP Attachment Rate",
    "IP to Node Mapping",
    "Cordoned Nodes Over Time",
    "Reconciliation Rate",
    "Reconciliation Duration",
    "IP Operations Rate",
    "GCP API Errors",
    "Node Status",
];

/// What every runbook has to answer.
const QUESTIONS: [&str; 3] = ["## What it means", "## What to look at", "## What to do"];

/// What tests say of one alert: monitoring/tests.yaml.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    fires: Vec<Case>,
    quiet: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    when: String,
    at: String,
    #[serde(default)]
    series: BTreeMap<String, String>,
    /// The summary and the labels of each.
    #[serde(default)]
    alerts: Vec<BTreeMap<String, String>>,
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(Path::new(ROOT).join(path)).with_context(|| path.to_owned())
}

/// The rules as a file of Prometheus's own.
pub fn rules() -> Result<Value> {
    let object: Value = serde_saphyr::from_str(&read("monitoring/rules.yaml")?)?;
    Ok(object["spec"].clone())
}

/// All rules.
pub fn alerts() -> Result<Vec<Value>> {
    let groups = rules()?["groups"].as_array().cloned().context("no groups")?;
    Ok(groups.iter().flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default()).collect())
}

/// Title and expression of every query of the dashboard, and titles of rows without one.
pub fn panels() -> Result<Vec<(String, Option<String>)>> {
    let dashboard: Value = serde_json::from_str(&read("monitoring/dashboard.json")?)?;
    let mut all = Vec::new();
    for panel in dashboard["panels"].as_array().context("no panels")? {
        let title = text(&panel["title"]);
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        if targets.is_empty() {
            ensure!(panel["type"] == "row", "{title} asks for nothing");
            all.push((title.clone(), None));
        }
        all.extend(targets.iter().map(|target| (title.clone(), Some(text(&target["expr"])))));
    }
    Ok(all)
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn cases() -> Result<BTreeMap<String, Cases>> {
    Ok(serde_saphyr::from_str(&read("monitoring/tests.yaml")?)?)
}

pub async fn promtool_takes_the_rules() -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("rules.json"), rules()?.to_string())?;
    let said = promtool(folder.path(), &["check", "rules", "rules.json"])?;
    let count = alerts()?.len();
    ensure!(said.contains(&format!("{count} rules found")), "{said}");
    Ok(())
}

/// One of promtool's tests.
fn test(rule: &Value, case: &Case, fires: bool) -> Result<Value> {
    let name = text(&rule["alert"]);
    ensure!(case.alerts.is_empty() != fires, "{name}: {}: alerts are for when it fires", case.when);
    let series: Vec<Value> =
        case.series.iter().map(|(name, values)| json!({ "series": name, "values": values })).collect();
    let mut expected = Vec::new();
    for alert in &case.alerts {
        let mut labels: Map<String, Value> = rule["labels"].as_object().cloned().unwrap_or_default();
        let mut annotations = rule["annotations"].clone();
        for (key, value) in alert {
            if key == "summary" {
                annotations["summary"] = json!(value);
            } else {
                labels.insert(key.clone(), json!(value));
            }
        }
        expected.push(json!({ "exp_labels": labels, "exp_annotations": annotations }));
    }
    // It is quiet until its patience has passed, or at every minute.
    let quiet = if fires { minutes(&text(&rule["for"]))? } else { minutes(&case.at)? + 1 };
    let mut looks: Vec<Value> = (0..quiet)
        .map(|minute| json!({ "eval_time": format!("{minute}m"), "alertname": name, "exp_alerts": [] }))
        .collect();
    if fires {
        looks.push(json!({ "eval_time": case.at, "alertname": name, "exp_alerts": expected }));
    }
    Ok(json!({
        "name": format!("{name}: {}", case.when),
        "interval": "1m",
        "input_series": series,
        "alert_rule_test": looks,
    }))
}

/// `5m`; nothing is none.
fn minutes(text: &str) -> Result<u32> {
    let number = text.strip_suffix('m').unwrap_or(if text.is_empty() { "0" } else { text });
    number.parse().with_context(|| format!("{text:?} is not of whole minutes"))
}

pub async fn every_alert_fires_and_just_does_not() -> Result<()> {
    let (rules_by_name, cases) = (alerts()?, cases()?);
    let mut tests = Vec::new();
    for rule in &rules_by_name {
        let cases = cases.get(&text(&rule["alert"])).with_context(|| text(&rule["alert"]))?;
        for (case, fires) in
            cases.fires.iter().map(|c| (c, true)).chain(cases.quiet.iter().map(|c| (c, false)))
        {
            tests.push(test(rule, case, fires)?);
        }
    }
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("rules.json"), rules()?.to_string())?;
    let file = json!({ "rule_files": ["rules.json"], "evaluation_interval": "1m", "tests": tests });
    std::fs::write(folder.path().join("tests.json"), file.to_string())?;
    promtool(folder.path(), &["test", "rules", "tests.json"])?;
    Ok(())
}

pub async fn every_alert_has_a_pair_of_tests_and_a_runbook() -> Result<()> {
    let cases = cases()?;
    let alerts = alerts()?;
    let mut names = BTreeSet::new();
    for rule in &alerts {
        let name = text(&rule["alert"]);
        let cases = cases.get(&name).with_context(|| format!("{name} has no tests"))?;
        ensure!(!cases.fires.is_empty(), "{name} is never made to fire");
        ensure!(!cases.quiet.is_empty(), "{name} has no neighbouring case in which it does not fire");
        let page = format!("docs/runbooks/{name}.md");
        let url = text(&rule["annotations"]["runbook_url"]);
        ensure!(url.ends_with(&format!("/blob/main/{page}")), "{name} leads to {url}");
        let runbook = read(&page)?;
        ensure!(runbook.starts_with(&format!("# {name}\n")), "{page} has another title");
        for question in QUESTIONS {
            ensure!(runbook.contains(question), "{page} does not answer {question:?}");
        }
        for annotation in ["summary", "description"] {
            ensure!(!text(&rule["annotations"][annotation]).is_empty(), "{name} has no {annotation}");
        }
        let severity = text(&rule["labels"]["severity"]);
        ensure!(["critical", "warning", "info"].contains(&severity.as_str()), "{name} is {severity:?}");
        ensure!(names.insert(name.clone()), "{name} is there twice");
    }
    for name in cases.keys() {
        ensure!(names.contains(name), "tests.yaml tests {name}, which is no alert");
    }
    for entry in std::fs::read_dir(Path::new(ROOT).join("docs/runbooks"))? {
        let file = entry?.file_name().to_string_lossy().into_owned();
        ensure!(names.contains(file.trim_end_matches(".md")), "docs/runbooks/{file} is for no alert");
    }
    Ok(())
}

pub async fn the_predecessors_alerts_and_panels_are_there() -> Result<()> {
    let alerts: BTreeSet<String> = alerts()?.iter().map(|rule| text(&rule["alert"])).collect();
    for name in PREDECESSORS {
        ensure!(alerts.contains(&format!("NetIPAllocation{name}")), "the alert {name} is missing");
    }
    let panels: BTreeSet<String> = panels()?.into_iter().map(|(title, _)| title).collect();
    for title in PANELS {
        ensure!(panels.contains(title), "the row or panel {title:?} is missing");
    }
    Ok(())
}

/// Families with what a histogram makes of its name, and their labels.
fn families() -> BTreeMap<String, Vec<&'static str>> {
    let mut all = BTreeMap::new();
    for family in telemetry::TABLES.iter().flat_map(|(_, families)| *families) {
        let labels = family.labels.to_vec();
        if matches!(family.kind, telemetry::Kind::Histogram(_)) {
            all.insert(format!("{}_bucket", family.name), [labels.clone(), vec!["le"]].concat());
            all.insert(format!("{}_sum", family.name), labels.clone());
            all.insert(format!("{}_count", family.name), labels);
        } else {
            all.insert(family.name.to_owned(), labels);
        }
    }
    all
}

/// Metrics, labels and reasons exist, wherever they are named.
pub async fn rules_dashboard_and_runbooks_name_only_what_there_is() -> Result<()> {
    let families = families();
    let mut expressions: Vec<String> = alerts()?.iter().map(|rule| text(&rule["expr"])).collect();
    expressions.extend(panels()?.into_iter().filter_map(|(_, expression)| expression));
    for expression in &expressions {
        for Selector { name, matchers, .. } in selectors::of(expression) {
            if name == "ALERTS" {
                continue;
            }
            let labels = families.get(&name).with_context(|| format!("no metric {name}: {expression}"))?;
            for (label, value) in matchers {
                ensure!(
                    label == "cluster" || labels.contains(&label.as_str()),
                    "{name} has no label {label}: {expression}"
                );
                let has_reasons = ["netipallocation_condition", "netipallocation_ip_reason"];
                if label == "reason" && has_reasons.contains(&name.as_str()) {
                    value.split('|').try_for_each(is_reason)?;
                }
            }
        }
    }
    for entry in std::fs::read_dir(Path::new(ROOT).join("docs/runbooks"))? {
        let path = entry?.path();
        names_in_page(&std::fs::read_to_string(&path)?, &families)
            .with_context(|| path.display().to_string())?;
    }
    names_in_page(&read("docs/operations.md")?, &families).context("docs/operations.md")
}

fn is_reason(name: &str) -> Result<()> {
    ensure!(plan::Reason::from_name(name).is_some(), "there is no reason {name:?}");
    Ok(())
}

/// Metrics that a page names exist; so do the words in its tables of reasons.
fn names_in_page(page: &str, families: &BTreeMap<String, Vec<&str>>) -> Result<()> {
    for name in selectors::names(page) {
        let plain = families.contains_key(&name) || families.contains_key(&format!("{name}_count"));
        if !plain {
            bail!("no metric {name}");
        }
    }
    let rows = page.lines().skip_while(|line| !line.starts_with("| reason |")).skip(2);
    for row in rows.take_while(|line| line.starts_with("| `")) {
        let cell = row.split('|').nth(1).unwrap_or_default();
        cell.split('`').skip(1).step_by(2).try_for_each(is_reason)?;
    }
    Ok(())
}
