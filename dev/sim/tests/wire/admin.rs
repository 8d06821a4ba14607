//! The admin port.

use crate::kit::{Answer, Bed, GCP_1, small_world};
use reqwest::Method;
use serde_json::{Value, json};

async fn admin(bed: &Bed, method: Method, path: &str, body: &Value) -> Answer {
    let url = format!("{}{path}", bed.sim.admin_url());
    bed.send(bed.request(method, &url).json(body)).await
}

async fn get(bed: &Bed, path: &str) -> Answer {
    let url = format!("{}{path}", bed.sim.admin_url());
    bed.send(bed.request(Method::GET, &url)).await
}

#[tokio::test]
async fn faults_are_set_listed_and_taken_away() {
    let bed = Bed::small().await;
    let rule = json!({
        "on": { "cloud": "gcp", "action": "instances.get" },
        "times": 2,
        "fault": { "kind": "error", "code": "backendError" },
    });
    let id = admin(&bed, Method::POST, "/faults", &rule).await.json()["id"].clone();
    assert_eq!(bed.gcp_get(&Bed::gcp_path(GCP_1)).await.status, 503);
    let listed = get(&bed, "/faults").await.json();
    assert_eq!((&listed[0]["id"], &listed[0]["rule"]["times"]), (&id, &json!(1)));
    assert_eq!(admin(&bed, Method::DELETE, &format!("/faults/{id}"), &json!({})).await.status, 200);
    assert_eq!(bed.gcp_get(&Bed::gcp_path(GCP_1)).await.status, 200);
    admin(&bed, Method::POST, "/faults", &rule).await;
    admin(&bed, Method::DELETE, "/faults", &json!({})).await;
    assert_eq!(get(&bed, "/faults").await.json(), json!([]));
}

#[tokio::test]
async fn every_fault_of_the_script_can_be_set() {
    let bed = Bed::small().await;
    let faults = [
        json!({ "kind": "delay", "seconds": 0.1 }),
        json!({ "kind": "error", "code": "backendError" }),
        json!({ "kind": "lost_reply" }),
        json!({ "kind": "reset" }),
        json!({ "kind": "throttle" }),
        json!({ "kind": "lag", "seconds": 5, "jitter": true }),
        json!({ "kind": "late_failure", "code": "X" }),
        json!({ "kind": "pace", "pace": { "polls": 3 } }),
        json!({ "kind": "partial_list", "missing": ["us-east1"] }),
        json!({ "kind": "outside", "change": { "do": "stop_instance", "instance": "node-1" }, "after": true }),
        json!({ "kind": "withhold", "permission": "compute.addresses.use" }),
    ];
    for fault in &faults {
        let answer = admin(&bed, Method::POST, "/faults", &json!({ "fault": fault })).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    assert_eq!(get(&bed, "/faults").await.json().as_array().unwrap().len(), faults.len());
}

#[tokio::test]
async fn the_world_is_changed_from_outside_and_the_log_and_snapshot_show_it() {
    let bed = Bed::small().await;
    let attach = json!({ "do": "attach", "address": "203.0.1.1", "instance": "node-1" });
    let seq = admin(&bed, Method::POST, "/changes", &attach).await.json()["seq"].clone();
    let events = get(&bed, "/events?since=0").await.json();
    assert_eq!((&events[0]["seq"], &events[0]["kind"]), (&seq, &json!("outside")));
    let snapshot = get(&bed, &format!("/snapshot?seq={seq}")).await.json();
    assert_eq!(snapshot["holds"]["203.0.1.1"]["holder"], GCP_1);
    assert_eq!(get(&bed, "/snapshot?seq=0").await.json()["holds"], json!({}));
    let nothing_new = get(&bed, &format!("/events?since={seq}&wait=0")).await.json();
    assert_eq!(nothing_new, json!([]));
}

#[tokio::test]
async fn settings_roles_limits_callers_and_clock_are_set() {
    let bed = Bed::small().await;
    let late = json!({ "gcp": { "inUseFound": "late" } });
    assert_eq!(admin(&bed, Method::PATCH, "/settings", &late).await.status, 200);
    let settings = get(&bed, "/settings").await.json();
    assert_eq!(
        (&settings["gcp"]["inUseFound"], &settings["gcp"]["defaultTier"]),
        (&json!("late"), &json!("PREMIUM"))
    );
    admin(&bed, Method::PUT, "/roles", &json!({ "gcp": [] })).await;
    assert_eq!(bed.gcp_get(&Bed::gcp_path(GCP_1)).await.status, 403);
    admin(&bed, Method::PUT, "/roles", &json!({})).await;
    admin(&bed, Method::PUT, "/limits", &json!({ "gcpPerMinute": 1 })).await;
    assert_eq!(bed.gcp_get(&Bed::gcp_path(GCP_1)).await.status, 200);
    assert_eq!(bed.gcp_get(&Bed::gcp_path(GCP_1)).await.error().1, "rateLimitExceeded");
    admin(&bed, Method::POST, "/clock", &json!({ "advance": 60 })).await;
    assert_eq!(get(&bed, "/clock").await.json(), json!({ "now": "2026-01-01T00:01:00Z", "stands": true }));
    assert_eq!(bed.gcp_get(&Bed::gcp_path(GCP_1)).await.status, 200);
    assert_eq!(admin(&bed, Method::PUT, "/callers", &json!({ "me": GCP_1 })).await.status, 200);
}

#[tokio::test]
async fn another_world_can_be_put_in_place() {
    let bed = Bed::small().await;
    let url = format!("{}/world", bed.sim.admin_url());
    let yaml = "instances:\n- providerID: gce://other/europe-west1-b/vm\n";
    let answer = bed.send(bed.request(Method::PUT, &url).body(yaml)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert!(get(&bed, "/world").await.text.contains("gce://other/europe-west1-b/vm"));
    assert_eq!(bed.gcp_get(&Bed::gcp_path(GCP_1)).await.status, 404);
}

#[tokio::test]
async fn exchanges_are_recorded_on_demand() {
    let bed = Bed::start(small_world()).await;
    admin(&bed, Method::POST, "/exchanges", &json!({})).await;
    bed.gcp_get(&Bed::gcp_path(GCP_1)).await;
    let recorded = get(&bed, "/exchanges").await.json();
    assert_eq!((recorded.as_array().unwrap().len(), &recorded[0]["action"]), (1, &json!("instances.get")));
}

#[tokio::test]
async fn a_wrong_request_says_what_is_wrong_and_what_to_do() {
    let bed = Bed::small().await;
    let cases = [
        (
            Method::POST,
            "/faults",
            json!({ "fault": { "kind": "flood" } }),
            "unknown variant `flood`",
            "GET / shows",
        ),
        (Method::POST, "/faults", json!({ "on": {} }), "missing field `fault`", "GET / shows an example"),
        (Method::DELETE, "/faults/77", json!({}), "there is no fault '77'", "GET /faults lists"),
        (
            Method::POST,
            "/changes",
            json!({ "do": "stop_instance", "instance": "node-9" }),
            "there is no instance 'node-9'",
            "GET /world lists all",
        ),
        (
            Method::POST,
            "/changes",
            json!({ "do": "detach", "address": "192.0.2.1" }),
            "192.0.2.1 is not reserved",
            "add it first with add_address",
        ),
        (
            Method::POST,
            "/changes",
            json!({ "do": "recreate_instance", "instance": "i-00000000000000001" }),
            "AWS never gives the id",
            "add another instance",
        ),
        (
            Method::PATCH,
            "/settings",
            json!({ "gcp": { "inUse": 1 } }),
            "unknown field `inUse`",
            "GET / shows",
        ),
        (Method::POST, "/fault", json!({}), "there is no POST /fault here", "GET / lists what there is"),
        (
            Method::PUT,
            "/world",
            json!({ "instances": [{ "providerID": "x" }] }),
            "instances[0]: 'x'",
            "write gce://",
        ),
    ];
    for (method, path, body, what, hint) in cases {
        let answer = admin(&bed, method, path, &body).await;
        let message = answer.json()["error"].as_str().unwrap_or_default().to_owned();
        assert!((400..500).contains(&answer.status), "{path}: {}", answer.status);
        assert!(message.contains(what) && message.contains(hint), "{path}\ngave\n{message}");
    }
    let number = get(&bed, "/events?since=x").await.json();
    assert_eq!(number["error"], "since=x is not a number; write since=0 or more");
    assert!(get(&bed, "/").await.text.contains("POST   /faults"));
}
