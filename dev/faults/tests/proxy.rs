//! The proxy in front of a simulated cloud: numbers, names, and every kind of fault.

// Helpers of tests may fail a test, though they are no test functions themselves.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use faults::{Act, Plan, Proxy, Side, Step, When, Which};
use serde_json::json;
use sim::{Cloud, InstanceSpec, Sim, World};
use std::net::IpAddr;
use std::time::Duration;

const NODE: &str = "gce://dev-project/us-central1-a/node-1";
const FREE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 1));

struct Bed {
    sim: Sim,
    proxy: Proxy,
    url: String,
    http: reqwest::Client,
}

async fn bed(plan: Plan) -> Bed {
    let mut instance = InstanceSpec::of(NODE);
    instance.ephemeral = false;
    let mut world =
        World { instances: vec![instance], ..World::default() }.address(Cloud::Gcp, [203, 0, 113, 1]);
    world.settings.gcp.operation = sim::Pace::Seconds(0.0);
    let sim = Sim::start(world).await.expect("simulators");
    let mut proxy = Proxy::new(plan);
    let environment = proxy.clouds(&sim, "first").await.expect("a proxy");
    let url = environment.into_iter().find(|(name, _)| *name == "GCP_COMPUTE_ENDPOINT").expect("a URL").1;
    let http = reqwest::Client::builder().timeout(Duration::from_secs(5)).build().expect("a client");
    Bed { sim, proxy, url, http }
}

impl Bed {
    fn attach(&self) -> reqwest::RequestBuilder {
        let path = "compute/v1/projects/dev-project/zones/us-central1-a/instances/node-1/addAccessConfig";
        let url = format!("{}/{path}?networkInterface=nic0", self.url);
        self.http.post(url).json(&json!({ "natIP": FREE.to_string(), "name": "ours" }))
    }

    async fn list(&self) -> u16 {
        let url = format!("{}/compute/v1/projects/dev-project/aggregated/addresses", self.url);
        self.http.get(url).send().await.expect("an answer").status().as_u16()
    }

    /// Whether the address is attached, or is about to be.
    async fn is_attached(&self) -> bool {
        for _ in 0..50 {
            if self.sim.snapshot().holds.contains_key(&FREE) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        false
    }
}

fn on_attach() -> Which {
    Which::verb(Side::Gcp, "addAccessConfig", "*")
}

#[tokio::test]
async fn requests_go_through_and_are_numbered_and_named() {
    let bed = bed(Plan::default()).await;
    assert_eq!(bed.list().await, 200);
    assert_eq!(bed.attach().send().await.unwrap().status(), 200);
    assert_eq!(bed.list().await, 200);
    let seen = bed.proxy.seen();
    let told: Vec<_> = seen
        .iter()
        .map(|seen| (seen.seq, seen.name.verb.as_str(), seen.occurrence, seen.name.mutating, seen.status))
        .collect();
    let expected = [
        (1, "get", 1, false, Some(200)),
        (2, "addAccessConfig", 1, true, Some(200)),
        (3, "get", 2, false, Some(200)),
    ];
    assert_eq!(told, expected);
    assert!(seen.iter().all(|seen| seen.name.caller == "first" && seen.fault.is_none()));
    assert!(bed.is_attached().await);
    let callers: Vec<String> = bed.sim.events(0).into_iter().map(|event| event.caller).collect();
    assert!(callers.iter().any(|caller| caller == "first"), "the cloud knows the caller too: {callers:?}");
}

#[tokio::test]
async fn an_answer_has_no_effect_and_happens_once() {
    let act = Act::Answer { status: 503, retry_after: Some(7) };
    let bed = bed(Plan::one(on_attach(), act)).await;
    assert_eq!(bed.proxy.to_come().len(), 1);
    let refused = bed.attach().send().await.unwrap();
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &"7".parse().unwrap()));
    assert_eq!(bed.proxy.to_come(), []);
    assert_eq!(bed.sim.events(0).len(), 0, "it was not sent on");
    assert_eq!(bed.attach().send().await.unwrap().status(), 200);
    assert_eq!(bed.proxy.seen()[0].fault.as_deref(), Some("answer"));
}

#[tokio::test]
async fn a_lost_reply_comes_after_the_effect_and_a_cut_before_it() {
    let mut bed = bed(Plan::one(on_attach(), Act::Cut)).await;
    bed.attach().send().await.unwrap_err();
    assert_eq!(bed.sim.events(0).len(), 0);
    bed.proxy.add(Step::new(on_attach(), Act::ReplyLost));
    bed.attach().send().await.unwrap_err();
    assert!(bed.is_attached().await);
    assert_eq!(bed.proxy.seen()[1].status, Some(200), "what was answered is known here");
}

#[tokio::test]
async fn a_crash_is_told_and_the_request_is_held() {
    for (act, when, attached) in
        [(Act::CrashBefore, When::Before, false), (Act::CrashAfter, When::After, true)]
    {
        let mut bed = bed(Plan::one(on_attach(), act)).await;
        let request = bed.attach();
        let mut sent = tokio::spawn(request.send());
        let crash = bed.proxy.crash().await.unwrap();
        assert_eq!((crash.when, crash.seen.name.verb.as_str()), (when, "addAccessConfig"));
        assert_eq!(bed.is_attached().await, attached, "{when:?}");
        let held = tokio::time::timeout(Duration::from_millis(100), &mut sent).await;
        assert!(held.is_err(), "nothing is answered");
        sent.abort();
    }
}

#[tokio::test]
async fn what_hangs_is_never_sent_on_and_what_is_delayed_is() {
    let mut bed = bed(Plan::one(on_attach(), Act::Hang)).await;
    let error = bed.attach().timeout(Duration::from_millis(300)).send().await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert_eq!(bed.sim.events(0).len(), 0);
    bed.proxy.add(Step::new(on_attach(), Act::Delay { seconds: 0.2 }));
    assert_eq!(bed.attach().send().await.unwrap().status(), 200);
    assert_eq!(bed.proxy.seen()[1].fault.as_deref(), Some("delay"));
}

#[tokio::test]
async fn a_run_that_went_wrong_can_be_kept_and_played_again() {
    let bed = bed(Plan::one(on_attach(), Act::Cut)).await;
    bed.attach().send().await.unwrap_err();
    let failure = bed.proxy.failure("attach", vec!["I8".to_owned()], "FAULT_PLAN=… cargo test");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plan.json");
    failure.write(&file).unwrap();
    assert_eq!(Plan::load(&file).unwrap(), Plan::one(on_attach(), Act::Cut));
    assert_eq!(failure.requests.len(), 1);
}
