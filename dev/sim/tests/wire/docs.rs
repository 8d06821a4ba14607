//! The page about the simulators says what is so.

// Helpers of tests may fail a test, though they are no test functions themselves.
#![allow(clippy::expect_used)]

use sim::World;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    std::fs::read_to_string(root().join("docs/simulators.md")).expect("docs/simulators.md")
}

#[test]
fn the_world_file_of_the_page_can_be_started_from() {
    let page = page();
    let yaml = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next());
    let world = World::from_yaml(yaml.expect("a world file")).unwrap();
    assert_eq!((world.instances.len(), world.addresses.len()), (2, 1));
}

#[test]
fn the_page_counts_the_tests_of_each_cloud() {
    let page = page();
    for (title, folder) in [("GCP", "gcp"), ("AWS", "aws"), ("Azure", "azure")] {
        let files = std::fs::read_dir(root().join("dev/sim/tests/wire").join(folder)).unwrap();
        let sources = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
        let tests: usize = sources.map(|text| text.matches("#[tokio::test]").count()).sum();
        let heading = format!("### {title} (25 behaviours, {tests} tests)");
        assert!(page.contains(&heading), "docs/simulators.md lacks '{heading}'");
    }
}

#[test]
fn the_page_names_every_fault_and_every_change() {
    let page = page();
    let source = |file: &str| std::fs::read_to_string(root().join("dev/sim/src").join(file)).unwrap();
    let faults = source("faults.rs");
    let faults = faults.split("=> \"").skip(1).filter_map(|rest| rest.split('"').next());
    let changes = source("changes.rs");
    let changes: Vec<String> = changes
        .split("Change::")
        .skip(1)
        .map(|rest| rest.chars().take_while(char::is_ascii_alphabetic).collect())
        .collect();
    for fault in faults {
        assert!(page.contains(&format!("| `{fault}")), "docs/simulators.md lacks the fault {fault}");
    }
    for change in changes {
        let name = change.chars().fold(String::new(), |name, c| match c {
            c if c.is_ascii_uppercase() && !name.is_empty() => format!("{name}_{}", c.to_ascii_lowercase()),
            c => format!("{name}{}", c.to_ascii_lowercase()),
        });
        assert!(page.contains(&format!("`{name}`")), "docs/simulators.md lacks the change {name}");
    }
}
