//! Generated files are what their sources make of them.

#![allow(clippy::expect_used)] // tests

use std::fmt::Write as _;
use std::path::Path;

/// Every generated file, by its path in the repository.
fn generated() -> Vec<(String, String)> {
    let crds = crds::manifests();
    let mut files: Vec<_> =
        crds.iter().map(|m| (format!("crds/{}", m.file), m.to_yaml().expect("printable"))).collect();
    files.push(("docs/reasons.md".to_owned(), reasons()));
    files
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
