//! The fuzzers' corpus: what was found once is looked at for ever, without a fuzzer.

use crate::checks;
use std::path::Path;

fn each(target: &str, check: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let files: Vec<_> =
        std::fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file")).collect();
    assert!(files.len() >= 10, "the corpus of {target} is missing");
    for file in files {
        check(&std::fs::read(file.path()).expect("readable"));
    }
}

#[test]
fn reviews() {
    each("review", checks::review);
}

#[test]
fn affinities() {
    each("affinity", checks::affinity);
}
