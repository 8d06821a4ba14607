//! What is made from monitoring/: the dashboard from its table of panels, and the page on alerts from the
//! rules.

use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// What is above all panels of a row.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    row: String,
    panels: Vec<Panel>,
}

/// See monitoring/panels.yaml.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Panel {
    title: String,
    kind: String,
    width: u32,
    says: String,
    unit: Option<String>,
    max: Option<f64>,
    #[serde(default)]
    bars: bool,
    #[serde(default)]
    words: BTreeMap<String, String>,
    #[serde(default)]
    colours: BTreeMap<String, f64>,
    #[serde(default)]
    columns: Vec<String>,
    queries: BTreeMap<String, String>,
}

/// All generated files, by their paths.
pub fn generated() -> Vec<(String, String)> {
    let dashboard = dashboard(&read("monitoring/panels.yaml"));
    vec![
        ("monitoring/dashboard-configmap.yaml".to_owned(), config_map(&dashboard)),
        ("monitoring/dashboard.json".to_owned(), dashboard),
        ("docs/alerts.md".to_owned(), alerts()),
    ]
}

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("readable")
}

/// One panel on each line: a change of one is one line.
fn dashboard(table: &str) -> String {
    let rows: Vec<Row> = serde_saphyr::from_str(table).expect("a table of panels");
    let mut panels = Vec::new();
    let mut y = 0;
    for Row { row, panels: of_row } in rows {
        panels.push(json!({
            "id": panels.len() + 1, "type": "row", "title": row, "collapsed": false, "panels": [],
            "gridPos": { "x": 0, "y": y, "w": 24, "h": 1 },
        }));
        y += 1;
        let (mut x, mut lowest) = (0, y);
        for panel in &of_row {
            if x + panel.width > 24 {
                (x, y) = (0, lowest);
            }
            let height = if panel.kind == "stat" { 4 } else { 8 };
            let place = json!({ "x": x, "y": y, "w": panel.width, "h": height });
            panels.push(panel_json(panel, panels.len() + 1, &place));
            x += panel.width;
            lowest = lowest.max(y + height);
        }
        y = lowest;
    }
    let panels: Vec<String> = panels.iter().map(Value::to_string).collect();
    let head = head().to_string();
    let head = head.strip_suffix('}').expect("an object");
    format!("{head},\"panels\":[\n{}\n]}}\n", panels.join(",\n"))
}

/// Everything but the panels.
fn head() -> Value {
    let cluster = json!({
        "name": "cluster", "label": "Cluster", "type": "query", "datasource": source(),
        "query": "label_values(netipallocation_controller_info, cluster)", "refresh": 2,
        "includeAll": true, "allValue": ".*", "multi": true, "current": { "text": "All", "value": "$__all" },
    });
    json!({
        "uid": "ip-address-controller", "title": "IP Address Controller", "tags": ["ip-address-controller"],
        "schemaVersion": 39, "editable": false, "graphTooltip": 1, "refresh": "30s",
        "time": { "from": "now-3h", "to": "now" }, "timezone": "",
        "templating": { "list": [
            { "name": "datasource", "label": "Datasource", "type": "datasource", "query": "prometheus" },
            cluster,
        ] },
    })
}

fn source() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

fn panel_json(panel: &Panel, id: usize, place: &Value) -> Value {
    let instant = matches!(panel.kind.as_str(), "stat" | "gauge" | "table");
    let format = match panel.kind.as_str() {
        "table" => "table",
        "heatmap" => "heatmap",
        _ => "time_series",
    };
    let letters = (b'A'..).map(|letter| char::from(letter).to_string());
    let targets: Vec<Value> = panel
        .queries
        .iter()
        .zip(letters)
        .map(|((legend, expr), letter)| {
            json!({
                "refId": letter, "expr": expr, "legendFormat": legend, "format": format,
                "instant": instant, "range": !instant, "datasource": source(),
            })
        })
        .collect();
    let mut value = json!({
        "id": id, "type": panel.kind, "title": panel.title, "description": panel.says, "gridPos": place,
        "datasource": source(), "targets": targets, "options": {},
        "fieldConfig": { "defaults": defaults(panel), "overrides": [] },
    });
    if panel.kind == "table" {
        value["transformations"] = transformations(panel);
    }
    value
}

fn defaults(panel: &Panel) -> Value {
    let mut steps: Vec<(&String, &f64)> = panel.colours.iter().collect();
    steps.sort_by(|one, other| one.1.total_cmp(other.1));
    // The lowest step is for everything below the next one.
    let steps: Vec<Value> = steps
        .iter()
        .enumerate()
        .map(|(i, (colour, from))| {
            json!({ "color": colour, "value": if i == 0 { Value::Null } else { json!(from) } })
        })
        .collect();
    let mut defaults = json!({ "unit": panel.unit.as_deref().unwrap_or("short"), "min": 0 });
    if let Some(max) = panel.max {
        defaults["max"] = json!(max);
    }
    if !steps.is_empty() {
        defaults["thresholds"] = json!({ "mode": "absolute", "steps": steps });
    }
    if !panel.words.is_empty() {
        let options: BTreeMap<_, _> =
            panel.words.iter().map(|(value, text)| (value, json!({ "text": text }))).collect();
        defaults["mappings"] = json!([{ "type": "value", "options": options }]);
    }
    if panel.kind == "timeseries" {
        let style = if panel.bars { "bars" } else { "line" };
        let line = if steps.is_empty() { "off" } else { "line" };
        defaults["custom"] =
            json!({ "drawStyle": style, "fillOpacity": 10, "thresholdsStyle": { "mode": line } });
    }
    defaults
}

/// All queries of a table side by side, by the columns that name its lines.
fn transformations(panel: &Panel) -> Value {
    let mut names = BTreeMap::new();
    let mut order = BTreeMap::new();
    for (place, column) in panel.columns.iter().enumerate() {
        order.insert(column.clone(), place);
    }
    for ((legend, _), letter) in panel.queries.iter().zip(b'A'..) {
        let value = if panel.queries.len() == 1 {
            "Value".to_owned()
        } else {
            format!("Value #{}", char::from(letter))
        };
        names.insert(value, legend.clone());
    }
    json!([
        { "id": "merge", "options": {} },
        { "id": "organize", "options": {
            "excludeByName": { "Time": true }, "indexByName": order, "renameByName": names,
        } },
    ])
}

fn config_map(dashboard: &str) -> String {
    let mut text = String::from(
        "# Made from monitoring/panels.yaml by `make generate`. Grafana's sidecar finds it by the label.\n\
         apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ip-address-controller-dashboard\n  \
         namespace: ip-address-controller\n  labels:\n    app.kubernetes.io/name: ip-address-controller\n    \
         grafana_dashboard: \"1\"\n  annotations:\n    grafana_folder: Networking\ndata:\n  \
         ip-address-controller.json: |\n",
    );
    for line in dashboard.lines() {
        writeln!(text, "    {line}").expect("a string takes everything");
    }
    text
}

/// The page on alerts.
fn alerts() -> String {
    let rules: Value = serde_saphyr::from_str(&read("monitoring/rules.yaml")).expect("YAML");
    let mut page = String::from(
        "# Alerts\n\n\
         What `monitoring/rules.yaml` watches for. Made from it by `make generate`. Each alert was made to \
         fire, and not to, by promtool (`monitoring/tests.yaml`); its name leads to what to do.\n",
    );
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for group in rules["spec"]["groups"].as_array().expect("groups") {
        let title = text(&group["name"]).replace("ip-address-controller-", "");
        write!(page, "\n## {title}\n\n| alert | severity | after | meaning |\n|---|---|---|---|\n")
            .expect("a string takes everything");
        for rule in group["rules"].as_array().expect("rules") {
            let (name, after) = (text(&rule["alert"]), text(&rule["for"]));
            let after = if after.is_empty() { "at once".to_owned() } else { after };
            let (severity, meaning) =
                (text(&rule["labels"]["severity"]), text(&rule["annotations"]["description"]));
            writeln!(page, "| [{name}](runbooks/{name}.md) | {severity} | {after} | {meaning} |")
                .expect("a string takes everything");
        }
    }
    page
}
