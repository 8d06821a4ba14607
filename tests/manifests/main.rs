//! Generated files are what their sources make of them.

#[test]
fn crds_are_printed_from_the_types() {
    for manifest in crds::manifests() {
        let path = format!("{}/crds/{}", env!("CARGO_MANIFEST_DIR"), manifest.file);
        let committed = std::fs::read_to_string(&path).expect("readable");
        let printed = manifest.to_yaml().expect("printable");
        assert!(committed == printed, "{path} differs from the types: run `make generate`");
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
