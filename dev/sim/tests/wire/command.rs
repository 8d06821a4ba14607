//! The command.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

fn sim() -> Command {
    Command::new(env!("CARGO_BIN_EXE_sim"))
}

#[tokio::test]
async fn it_says_where_it_listens_and_saves_the_world_when_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("world.yaml");
    let mut child = sim()
        .args(["--gcp", "0", "--save"])
        .arg(&saved)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(4);
    let urls: Vec<(String, String)> = lines
        .map(|line| {
            let line = line.unwrap();
            let (name, url) = line.split_once(' ').unwrap();
            (name.to_owned(), url.trim().to_owned())
        })
        .collect();
    assert_eq!(
        urls.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["gcp", "aws", "azure", "admin"]
    );
    let project = format!("{}/compute/v1/projects/dev-project", urls[0].1);
    assert_eq!(reqwest::get(project).await.unwrap().status(), 200);
    let ended = Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(ended.success());
    assert!(child.wait().unwrap().success());
    // What it saved can be started from.
    let yaml = std::fs::read_to_string(saved).unwrap();
    assert_eq!(sim::World::from_yaml(&yaml).unwrap().instances.len(), 9);
}

#[test]
fn a_wrong_state_file_is_refused_with_its_name_and_the_fault() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("world.yaml");
    std::fs::write(&path, "instances:\n- providerID: k3s://node\n").unwrap();
    let output = sim().arg("--state").arg(&path).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(message.contains("world.yaml: instances[0]: 'k3s://node' is no provider ID"), "{message}");
    let output = sim().args(["--state", "nowhere.yaml"]).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("cannot read nowhere.yaml; leave --state out"), "{message}");
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = sim().args(["--aws", &port]).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.contains(&format!("cannot listen on 127.0.0.1:{port} for aws; choose another port")),
        "{message}"
    );
}
