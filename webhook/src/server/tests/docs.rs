//! docs/security.md says which test holds which item: these tests have to exist.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All Rust sources under a folder, as one text.
fn sources(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text += &sources(&path);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text += &fs::read_to_string(path).unwrap();
        }
    }
    text
}

#[test]
fn the_tests_that_the_checklist_names_exist() {
    let page = fs::read_to_string(root().join("docs/security.md")).unwrap();
    let folders = ["webhook/src", "certs/src", "tests/certs", "tests/deploy"];
    let code: String = folders.map(|folder| sources(&root().join(folder))).concat();
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.matches(" | ").count() == 2);
    let quoted = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    // Names of tests are sentences; what else is quoted is not.
    let names: Vec<&str> = quoted.filter(|word| word.matches('_').count() > 2).collect();
    assert!(names.len() > 25, "{names:?}");
    for name in names {
        assert!(code.contains(&format!("fn {name}(")), "there is no test {name}");
    }
    for item in (1..=47).filter(|item| ![14, 15, 16, 17, 18, 19, 22, 23, 24].contains(item)) {
        let listed = page.lines().any(|line| {
            let cell = line.split('|').nth(1).unwrap_or_default();
            cell.split([',', '–', ' ']).any(|number| number.parse() == Ok(item))
        });
        assert!(listed, "item {item} is not on the page");
    }
}
