//! Worlds that are written down, and what is said about those that are written down wrong.

use crate::kit::{AWS_1, Bed, GCP_1, azure_node, ip, small_world};
use sim::{Cloud, Sim, World};

#[tokio::test]
async fn a_world_survives_being_written_down() {
    let bed = Bed::small().await;
    bed.sim.attach(ip("203.0.1.1"), GCP_1).unwrap();
    bed.sim.attach(ip("203.0.3.1"), &azure_node("node-1")).unwrap();
    bed.sim.stop_instance(AWS_1).unwrap();
    let yaml = bed.sim.world().to_yaml().unwrap();
    let again = Sim::start(World::from_yaml(&yaml).unwrap()).await.unwrap();
    assert_eq!(again.world(), bed.sim.world());
    let holders = |sim: &Sim| {
        let holds = sim.snapshot().holds.into_values();
        holds.map(|hold| (hold.ip, hold.holder)).collect::<Vec<_>>()
    };
    assert_eq!(holders(&again), holders(&bed.sim));
}

#[tokio::test]
async fn a_node_of_the_simulated_cluster_has_its_instance() {
    let nodes = ["gce://dev-project/us-central1-a/node-1", "aws:///eu-west-1a/i-00696ecc2207879c3"];
    let world = World::of_nodes(nodes);
    let sim = Sim::start(world).await.unwrap();
    let found: Vec<String> = sim.world().instances.into_iter().map(|instance| instance.provider_id).collect();
    assert_eq!(found, nodes);
}

#[tokio::test]
async fn instances_and_addresses_come_while_the_clouds_run() {
    let bed = Bed::small().await;
    bed.sim.add_instance("gce://dev-project/us-central1-c/node-3").unwrap();
    bed.sim.add_address(Cloud::Gcp, ip("203.0.9.9")).unwrap();
    bed.sim.attach(ip("203.0.9.9"), "node-3").unwrap();
    let node = bed.gcp_get("zones/us-central1-c/instances/node-3").await.json();
    assert_eq!(node["networkInterfaces"][0]["accessConfigs"][0]["natIP"], "203.0.9.9");
    let again = bed.sim.add_instance("gce://dev-project/us-central1-c/node-3").unwrap_err();
    assert!(again.to_string().contains("is there already; give it another name"), "{again}");
}

#[test]
fn the_example_world_is_that_of_the_simulated_cluster() {
    let example = World::example();
    assert_eq!((example.instances.len(), example.addresses.len()), (9, 9));
    assert!(
        example
            .instances
            .iter()
            .any(|instance| instance.provider_id == "aws:///eu-west-1a/i-00696ecc2207879c3")
    );
    assert!(World::from_yaml(&example.to_yaml().unwrap()).is_ok());
}

#[test]
fn a_wrong_world_says_what_is_wrong_and_where_and_what_to_do() {
    let cases = [
        (
            "instances:\n- providerID: k3s://node",
            "instances[0]: 'k3s://node' is no provider ID",
            "write gce://",
        ),
        (
            "instances:\n- providerID: gce://p/z-a/n\n- providerID: gce://p/z-a/n",
            "instances[1]: the instance 'gce://p/z-a/n' is there already",
            "give it another name",
        ),
        (
            "addresses:\n- {cloud: gcp, address: 203.0.113.1}\n- {cloud: aws, address: 203.0.113.1}",
            "addresses[1]: the address 203.0.113.1 is reserved already",
            "reserve each address once",
        ),
        (
            "addresses:\n- {cloud: gcp, address: 203.0.113.1, heldBy: gce://p/z-a/n}",
            "addresses[0]: 203.0.113.1 is held by 'gce://p/z-a/n', but there is no such instance",
            "add it to instances",
        ),
        (
            "instances: [{providerID: 'gce://p/z-a/n'}]\naddresses:\n- {cloud: aws, address: 203.0.113.1, heldBy: 'gce://p/z-a/n'}",
            "addresses[0]: 203.0.113.1 is of aws, but its holder 'gce://p/z-a/n' is not",
            "use an instance of aws",
        ),
        (
            "instances: [{providerID: 'gce://p/z-a/n', interfaces: 0}]",
            "instances[0]: an instance has at least one interface",
            "at least one private address",
        ),
        ("callers: {me: nobody}", "callers.me: 'nobody' is no provider ID", "write gce://"),
        ("instances:\n- providerId: gce://p/z-a/n", "line 2", "docs/simulators.md"),
        ("addresses:\n- {cloud: gcp, address: 1.2.3}", "line 2", "docs/simulators.md"),
    ];
    for (yaml, what, hint) in cases {
        let message = World::from_yaml(yaml).expect_err(yaml).to_string();
        assert!(message.contains(what) && message.contains(hint), "{yaml}\ngave\n{message}");
    }
}

#[tokio::test]
async fn equal_worlds_behave_equally() {
    let run = async || {
        let bed = Bed::start(small_world()).await;
        bed.sim.set(|settings| settings.aws.read_lag = 60.0);
        bed.associate("203.0.2.1", "i-00000000000000001", "false").await;
        bed.sim.advance(std::time::Duration::from_secs(30));
        let mut seen = Vec::new();
        for _ in 0..10 {
            seen.push(bed.aws_address("203.0.2.1").await.text);
        }
        (seen, bed.sim.events(0))
    };
    assert_eq!(run().await, run().await);
}
