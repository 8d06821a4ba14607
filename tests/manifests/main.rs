//! Generated files are what their sources make of them.

#![allow(clippy::expect_used)] // tests

mod chart;
mod monitoring;
mod roles;
mod settings;
mod spec;

use std::fmt::Write as _;
use std::path::Path;
use webhook::registration::Endpoint;

/// Every generated file, by its path in the repository.
fn generated() -> Vec<(String, String)> {
    let crds = crds::manifests();
    let mut files: Vec<_> =
        crds.iter().map(|m| (format!("crds/{}", m.file), m.to_yaml().expect("printable"))).collect();
    files.push(("docs/reasons.md".to_owned(), reasons()));
    files.push(("docs/metrics.md".to_owned(), metrics()));
    files.push(("docs/spec.md".to_owned(), spec::page()));
    files.push(("docs/settings.md".to_owned(), settings::page()));
    files.push(("docs/roles.md".to_owned(), roles::page(Path::new(env!("CARGO_MANIFEST_DIR")))));
    files.extend(configurations());
    files.extend(monitoring::generated());
    let chart = chart::files(Path::new(env!("CARGO_MANIFEST_DIR")), &files);
    files.extend(chart);
    files
}

/// The webhook configurations, as they are applied where the webhook runs behind its Service.
fn configurations() -> Vec<(String, String)> {
    let [mutating, validating] = webhook::registration::configurations(&Endpoint::Service);
    [("mutating", mutating), ("validating", validating)]
        .map(|(name, configuration)| {
            let body = serde_saphyr::to_string(&configuration).expect("printable");
            let header = "# Made from the table in webhook/src/registration by `make generate`. caBundle and the pod webhook's\n\
                          # namespaceSelector are not here: the webhook process alone owns both.\n";
            (format!("deploy/webhook/{name}.yaml"), format!("{header}{body}"))
        })
        .to_vec()
}

fn reasons() -> String {
    let mut page = String::from(
        "# Reasons\n\n\
         One closed list, used by conditions, `status.ips`, events, metrics and `kubectl netip why`. \
         Made from `plan/src/reason.rs` by `make generate`.\n\n| reason | meaning |\n|---|---|\n",
    );
    for reason in plan::Reason::ALL {
        writeln!(page, "| `{}` | {} |", reason.as_str(), reason.meaning())
            .expect("a string takes everything");
    }
    page
}

fn metrics() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         On `/metrics` of port 9999. With `CLUSTER_NAME` set, every series has the label `cluster`. \
         Made from `telemetry/src` by `make generate`.\n",
    );
    for (title, families) in telemetry::TABLES {
        write!(page, "\n## {title}\n\n| name | type | labels | meaning |\n|---|---|---|---|\n")
            .expect("a string takes everything");
        for family in *families {
            let kind = match family.kind {
                telemetry::Kind::Counter => "counter",
                telemetry::Kind::Gauge => "gauge",
                telemetry::Kind::Histogram(_) => "histogram",
            };
            let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
            writeln!(page, "| `{}` | {kind} | {} | {} |", family.name, labels.join(", "), family.help)
                .expect("a string takes everything");
        }
    }
    page
}

/// `GENERATE=1` writes them (`make generate`); otherwise a difference is a failure.
#[test]
fn generated_files_are_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (path, content) in generated() {
        let file = root.join(&path);
        if std::env::var_os("GENERATE").is_some() {
            std::fs::write(&file, &content).expect("writable");
        }
        let committed = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(committed == content, "{path} is not what its source makes of it: run `make generate`");
    }
}

#[test]
fn the_crds_command_prints_every_manifest() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_ip-address-controller"))
        .arg("crds")
        .output()
        .expect("runs");
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).expect("text");
    let manifests = crds::manifests();
    let expected: Vec<_> = manifests.iter().map(|m| m.to_yaml().expect("printable")).collect();
    let expected = format!("---\n{}", expected.join("---\n"));
    assert_eq!(printed, expected);
}

#[test]
fn the_version_command_prints_the_version() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_ip-address-controller"))
        .arg("version")
        .output()
        .expect("runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), env!("CARGO_PKG_VERSION"));
}

/// What the process alone owns is in no manifest; nothing of others is matched; nothing hangs for long.
#[test]
fn webhook_configurations_are_narrow() {
    for configuration in webhook::registration::configurations(&Endpoint::Service) {
        for webhook in configuration["webhooks"].as_array().expect("a list") {
            let name = webhook["name"].as_str().expect("a name");
            assert!(webhook["clientConfig"].get("caBundle").is_none(), "{name}");
            assert!(webhook.get("namespaceSelector").is_none(), "{name}");
            assert_eq!(webhook["sideEffects"], "None", "{name}");
            assert_eq!(webhook["matchPolicy"], "Equivalent", "{name}");
            assert_eq!(webhook["admissionReviewVersions"], serde_json::json!(["v1"]), "{name}");
            assert!(webhook["timeoutSeconds"].as_u64().expect("a number") <= 5, "{name}");
            let ours = name.starts_with("allocations.");
            assert_eq!(webhook["failurePolicy"], if ours { "Fail" } else { "Ignore" }, "{name}");
            for rule in webhook["rules"].as_array().expect("a list") {
                let text = rule.to_string();
                assert!(
                    !text.contains('*') && !text.contains('/'),
                    "{name}: no wildcards, no subresources: {text}"
                );
                assert!(!text.contains("DELETE") && !text.contains("CONNECT"), "{name}: {text}");
                assert_eq!(rule["scope"], if ours { "Cluster" } else { "Namespaced" }, "{name}");
            }
        }
    }
}

/// docs/superseded.md says which test holds which mistake of the past: these tests have to exist.
#[test]
fn tests_that_the_documentation_names_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/superseded.md")).expect("readable");
    let sources = tests_in(&root.join("tests"));
    let named: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| A"))
        .filter_map(|line| line.rsplit('|').nth(1))
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect();
    assert!(named.len() > 20, "the table has changed its form");
    for name in named {
        assert!(sources.contains(&format!("pub async fn {name}(")), "there is no test {name}");
    }
}

/// The text of every source file below a folder.
fn tests_in(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).expect("readable").map(|entry| entry.expect("readable").path());
    entries
        .map(
            |path| {
                if path.is_dir() { tests_in(&path) } else { std::fs::read_to_string(&path).expect("text") }
            },
        )
        .collect()
}
