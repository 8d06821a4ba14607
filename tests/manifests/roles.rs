//! docs/roles.md: what each role may do, from deploy/rbac.

use crate::spec::row;
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;

const HEAD: &str = "# Roles

What each part may do in the cluster. Made from `deploy/rbac/` by `make generate`; tests run every process under \
exactly these rights. What the controller may do in a cloud is on the \
page of [that cloud](clouds/README.md).
";

/// The files, with what to say about them.
const FILES: &[(&str, &str, &str)] = &[
    ("controller", "Controller", "Service account `ip-address-controller`."),
    (
        "webhook",
        "Webhook",
        "Service account `ip-address-controller-webhook`. It has no cloud credentials and reads no pods.",
    ),
    ("certs", "Webhook's certificates", "The same service account. Not installed with cert-manager."),
    (
        "webhook-self-registration",
        "Webhook outside the cluster",
        "The same service account, with `WEBHOOK_URL` only; not part of an installation.",
    ),
    ("uninstall/role", "Uninstall", "Service account `ip-address-controller-uninstall`, while the Job runs."),
    ("uninstall/release", "Uninstall with --release", "The same service account, on top."),
    (
        "users",
        "People",
        "Added to the cluster's own `view` and `admin`. Allocations are cluster-scoped: who has these in one namespace \
         only cannot see them.",
    ),
];

/// The page.
pub fn page(root: &Path) -> String {
    let mut page = HEAD.to_owned();
    for (file, title, about) in FILES {
        write!(page, "\n## {title}\n\n{about} `deploy/rbac/{file}.yaml`\n\n")
            .expect("a string takes everything");
        page.push_str("| role | resources | names | verbs | why |\n|---|---|---|---|---|\n");
        let text = std::fs::read_to_string(root.join(format!("deploy/rbac/{file}.yaml"))).expect("readable");
        for document in text.split("\n---\n") {
            rules(document, &mut page);
        }
    }
    page
}

fn rules(document: &str, page: &mut String) {
    let object: Value = serde_saphyr::from_str(document).expect("YAML");
    let role = format!("{} `{}`", plain(&object["kind"]), plain(&object["metadata"]["name"]));
    let rules = object["rules"].as_array().into_iter().flatten();
    for (rule, why) in rules.zip(reasons(document)) {
        let group = match plain(&rule["apiGroups"][0]) {
            core if core.is_empty() => String::new(),
            group => format!(" ({group})"),
        };
        let resources = format!("{}{group}", list(&rule["resources"]));
        row(page, &[&role, &resources, &list(&rule["resourceNames"]), &list(&rule["verbs"]), &why]);
    }
}

/// The comment above each rule.
fn reasons(document: &str) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in document.lines().map(str::trim) {
        match line.strip_prefix('#') {
            Some(text) => comment.push(text.trim()),
            None if line.starts_with("- apiGroups:") => reasons.push(std::mem::take(&mut comment).join(" ")),
            None => comment.clear(),
        }
    }
    reasons
}

fn list(values: &Value) -> String {
    let values: Vec<_> =
        values.as_array().into_iter().flatten().map(|value| format!("`{}`", plain(value))).collect();
    values.join(", ")
}

fn plain(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A role that is in the folder is on the page.
#[test]
fn every_role_is_shown() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = page(root);
    for line in crate::tests_in(&root.join("deploy/rbac")).lines() {
        if let Some(name) = line.strip_prefix("  name: ip-address-controller") {
            assert!(page.contains(&format!("`ip-address-controller{name}`")), "docs/roles.md lacks {name}");
        }
    }
}
