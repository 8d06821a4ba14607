//! The chart's copies of what has its source elsewhere, and its README.
//!
//! A chart cannot reach out of its folder, so CRD, roles, webhook configurations and monitoring are copied
//! into it, with the release's namespace in place of ours.

use std::fmt::Write as _;
use std::path::Path;

/// A template that is a manifest from elsewhere.
struct Copy {
    source: &'static str,
    name: &'static str,
    /// When it is rendered.
    condition: &'static str,
    /// What goes under `metadata` of each of its objects.
    metadata: &'static str,
}

const KEEP: &str = "  annotations:\n    helm.sh/resource-policy: keep\n";
const HOOK: &str = "  annotations:\n    {{- include \"hookRights\" \"pre-delete\" | nindent 4 }}\n";
const INJECTED: &str = "  {{- if .Values.certManager.enabled }}\n  annotations:\n    cert-manager.io/inject-ca-from: \
                        {{ .Release.Namespace }}/ip-address-controller-webhook\n  {{- end }}\n";

const COPIES: &[Copy] = &[
    Copy {
        source: "crds/netipallocation.yaml",
        name: "crd",
        condition: ".Values.crds.install",
        metadata: KEEP,
    },
    Copy { source: "deploy/rbac/controller.yaml", name: "controller-rbac", condition: "true", metadata: "" },
    Copy {
        source: "deploy/rbac/webhook.yaml",
        name: "webhook-rbac",
        condition: ".Values.webhook.enabled",
        metadata: "",
    },
    Copy {
        source: "deploy/rbac/certs.yaml",
        name: "certs-rbac",
        condition: "and .Values.webhook.enabled (not .Values.certManager.enabled)",
        metadata: "",
    },
    Copy {
        source: "deploy/rbac/users.yaml",
        name: "users-rbac",
        condition: ".Values.rbac.aggregate",
        metadata: "",
    },
    Copy {
        source: "deploy/rbac/uninstall/role.yaml",
        name: "uninstall-rbac",
        condition: ".Values.uninstall.enabled",
        metadata: HOOK,
    },
    Copy {
        source: "deploy/rbac/uninstall/release.yaml",
        name: "uninstall-release-rbac",
        condition: "and .Values.uninstall.enabled .Values.uninstall.release",
        metadata: HOOK,
    },
    Copy {
        source: "deploy/webhook/mutating.yaml",
        name: "mutating",
        condition: ".Values.webhook.enabled",
        metadata: INJECTED,
    },
    Copy {
        source: "deploy/webhook/validating.yaml",
        name: "validating",
        condition: ".Values.webhook.enabled",
        metadata: INJECTED,
    },
];

/// Files that the chart reads as they are.
const MONITORING: &[&str] = &["podmonitor.yaml", "rules.yaml", "dashboard-configmap.yaml"];

/// Every generated file of the chart, by its path in the repository. `newest` are generated files that may
/// not be written yet, so that one run is enough.
pub fn files(root: &Path, newest: &[(String, String)]) -> Vec<(String, String)> {
    let read = |path: &str| match newest.iter().find(|(name, _)| name == path) {
        Some((_, content)) => content.clone(),
        None => std::fs::read_to_string(root.join(path)).expect(path),
    };
    let template = |copy: &Copy| {
        (format!("deploy/chart/templates/generated/{}.yaml", copy.name), template(copy, &read(copy.source)))
    };
    let mut files: Vec<_> = COPIES.iter().map(template).collect();
    files.extend(
        MONITORING.iter().map(|name| {
            (format!("deploy/chart/files/monitoring/{name}"), read(&format!("monitoring/{name}")))
        }),
    );
    files.push(("deploy/chart/README.md".to_owned(), readme(&read("deploy/chart/values.yaml"))));
    files
}

fn template(copy: &Copy, source: &str) -> String {
    assert!(!source.contains("{{"), "{} would be taken for a template", copy.source);
    // Service accounts of pods have templates of their own: they carry the cloud's identity.
    let of_a_pod = |object: &&str| {
        object.contains("kind: ServiceAccount\nmetadata:\n") && !copy.name.starts_with("uninstall")
    };
    let objects: Vec<String> = source
        .split("---\n")
        .filter(|object| !of_a_pod(object))
        .map(|object| {
            object
                .replace("namespace: ip-address-controller\n", "namespace: {{ .Release.Namespace }}\n")
                .replacen("\nmetadata:\n", &format!("\nmetadata:\n{}", copy.metadata), 1)
        })
        .collect();
    format!(
        "{{{{- /* Copied from {} by `make generate`. */}}}}\n{{{{- if {} }}}}\n{}{{{{- end }}}}\n",
        copy.source,
        copy.condition,
        objects.join("---\n")
    )
}

fn readme(values: &str) -> String {
    let mut page = String::from(
        "# Helm chart\n\n\
         ```console\n\
         $ helm install ip-address-controller deploy/chart --namespace ip-address-controller --create-namespace\n\
         ```\n\n\
         Requirements, identities of the clouds, upgrading and uninstalling: [docs/install.md](../../docs/install.md). \
         Names of objects are fixed: there is one release in a cluster.\n\n\
         ## Values\n\n\
         Made from `values.yaml` by `make generate`; `values.schema.json` refuses what is not here.\n\n\
         | value | default | meaning |\n|---|---|---|\n",
    );
    for Value { path, default, meaning } in described(values) {
        writeln!(page, "| `{path}` | `{default}` | {meaning} |").expect("a string takes everything");
    }
    page
}

/// A value with a comment above it.
struct Value {
    path: String,
    default: String,
    meaning: String,
}

/// The values of a file that have a comment right above them, in order.
fn described(values: &str) -> Vec<Value> {
    let parsed: serde_json::Value = serde_saphyr::from_str(values).expect("YAML");
    let mut found = Vec::new();
    let mut parents: Vec<&str> = Vec::new();
    let mut comment = String::new();
    for line in values.lines() {
        let (text, depth) = (line.trim_start(), (line.len() - line.trim_start().len()) / 2);
        if let Some(words) = text.strip_prefix("# ") {
            words.clone_into(&mut comment);
            continue;
        }
        if let Some((key, _)) = text.split_once(':').filter(|_| !text.starts_with('-')) {
            parents.truncate(depth);
            parents.push(key);
            if !comment.is_empty() {
                let value = parsed.pointer(&format!("/{}", parents.join("/"))).expect("it was parsed");
                found.push(Value {
                    path: parents.join("."),
                    default: value.to_string(),
                    meaning: std::mem::take(&mut comment),
                });
            }
        }
        comment.clear();
    }
    found
}

/// A typing mistake in a user's values must be refused, so the schema knows every value, and no other.
#[test]
fn the_schema_of_values_knows_exactly_the_values() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/chart");
    let read = |name: &str| std::fs::read_to_string(root.join(name)).expect(name);
    let schema: serde_json::Value = serde_json::from_str(&read("values.schema.json")).expect("JSON");
    let values: serde_json::Value = serde_saphyr::from_str(&read("values.yaml")).expect("YAML");
    compare("", &values, &schema);
    let described = described(&read("values.yaml")).len();
    assert!(described > 40, "only {described} values have a comment");
}

fn compare(path: &str, values: &serde_json::Value, schema: &serde_json::Value) {
    let Some(known) = schema.get("properties").and_then(serde_json::Value::as_object) else { return };
    let values = values.as_object().expect("an object");
    assert_eq!(schema["additionalProperties"], false, "{path} takes anything");
    assert_eq!(known.keys().collect::<Vec<_>>(), values.keys().collect::<Vec<_>>(), "below {path:?}");
    for (key, value) in values {
        compare(&format!("{path}.{key}"), value, &known[key]);
    }
}

/// The version is written down in places that no build looks at.
#[test]
fn chart_and_manifests_have_the_programs_version() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    let version = env!("CARGO_PKG_VERSION");
    let image = format!("ghcr.io/darkbrains/ip-address-controller:{version}\n");
    for (file, text) in [
        ("chart/Chart.yaml", format!("\nversion: {version}\n")),
        ("chart/Chart.yaml", format!("\nappVersion: {version}\n")),
        ("kustomize/base/controller.yaml", image.clone()),
        ("kustomize/base/webhook.yaml", image.clone()),
        ("kustomize/uninstall/job.yaml", image),
    ] {
        let content = std::fs::read_to_string(root.join(file)).expect(file);
        assert!(content.contains(&text), "{file} has no {text:?}");
    }
}
