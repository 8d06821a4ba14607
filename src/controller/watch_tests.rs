//! Watches of an API server that answers by a script.
#![allow(clippy::expect_used, clippy::panic)]

use super::super::{Observed, lean};
use super::*;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

type Body = BoxBody<Bytes, Infallible>;
type Request = http::Request<kube::client::Body>;

/// A client of a function in place of an API server.
fn client<F: Future<Output = http::Response<Body>> + Send + 'static>(
    serve: impl Fn(Request) -> F + Send + 'static,
) -> Client {
    let service = tower::service_fn(move |request| {
        let answer = serve(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    Client::new(service, "default")
}

fn metrics() -> Metrics {
    Metrics::new(&telemetry::Telemetry::new(None).expect("telemetry")).expect("metrics")
}

fn answer(code: u16, text: &str) -> http::Response<Body> {
    let body = Full::from(text.to_owned()).boxed();
    http::Response::builder().status(code).body(body).expect("a response")
}

/// A watch that says this and stays open.
fn open(events: &str) -> http::Response<Body> {
    let said = futures::stream::iter([Ok(Frame::data(Bytes::from(events.to_owned())))]);
    let body = StreamBody::new(said.chain(futures::stream::pending()));
    http::Response::new(BodyExt::boxed(body))
}

fn list(version: u32) -> http::Response<Body> {
    let list = json!({
        "kind": "NodeList", "apiVersion": "v1", "metadata": { "resourceVersion": version.to_string() },
        "items": [node("n1", version)],
    });
    answer(200, &list.to_string())
}

fn node(name: &str, version: u32) -> Value {
    let metadata = json!({ "name": name, "uid": name, "resourceVersion": version.to_string() });
    json!({ "kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": {} })
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": reason, "message": message,
    })
}

fn event(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({ "type": kind, "object": object }))
}

fn bookmark(version: u32) -> String {
    event("BOOKMARK", &node("", version))
}

/// What was asked for, as "list", "list from TOKEN" or "watch VERSION".
fn asked_for(request: &Request) -> String {
    let query = request.uri().query().unwrap_or_default();
    let value = |key: &str| query.split('&').find_map(|part| part.strip_prefix(key));
    match (value("resourceVersion="), value("continue=")) {
        (Some(version), _) => format!("watch {version}"),
        (None, Some(token)) => format!("list from {token}"),
        (None, None) => "list".to_owned(),
    }
}

/// Watches nodes until all answers were given and one more was asked for; what was asked for, and what the
/// watch told.
async fn play(answers: Vec<http::Response<Body>>) -> (Vec<String>, Vec<String>) {
    let count = answers.len();
    let (asked, answers) = (Arc::new(Mutex::new(Vec::new())), Mutex::new(VecDeque::from(answers)));
    let log = asked.clone();
    let client = client(move |request| {
        log.lock().expect("a lock").push(asked_for(&request));
        let next = answers.lock().expect("a lock").pop_front();
        async move {
            match next {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        }
    });
    let (send, mut mailbox) = mpsc::channel(1024);
    let wrap = |change| Message::Observed(Observed::Node(change));
    let _watching = watch(Subject::all(&client, "nodes"), send, metrics(), wrap);
    let all = || asked.lock().expect("a lock").clone();
    let played = async {
        while all().len() <= count {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), played).await.unwrap_or_else(|_| panic!("only {:?}", all()));
    let mut told = Vec::new();
    while let Ok(message) = mailbox.try_recv() {
        told.push(words(&message));
    }
    (all(), told)
}

fn words(message: &Message) -> String {
    let of = |node: &lean::Node| format!("{} {}", node.name_any(), lean::version(&node.metadata));
    match message {
        Message::Observed(Observed::Node(change)) => match change {
            Change::Applied(node) => format!("applied {}", of(node)),
            Change::Gone(node) => format!("gone {}", of(node)),
            Change::Begun => "begun".to_owned(),
            Change::Listed(uids) => {
                let uids: Vec<&str> = uids.iter().map(String::as_str).collect();
                format!("listed {}", uids.join(" "))
            }
            Change::Failed(why) => format!("failed: {why}"),
            Change::Works => "works".to_owned(),
        },
        Message::Broken(what) => what.clone(),
        _ => "something else".to_owned(),
    }
}

/// Who is not on the last page is there all the same: whatever is forgotten here is a node lost.
#[tokio::test]
async fn a_list_of_several_pages_is_one_list() {
    let page = |name: &str, token: Option<&str>| {
        let metadata = json!({ "resourceVersion": "100", "continue": token });
        let list = json!({
            "kind": "NodeList", "apiVersion": "v1", "metadata": metadata, "items": [node(name, 7)],
        });
        answer(200, &list.to_string())
    };
    let (asked, told) = play(vec![page("n1", Some("t1")), page("n2", Some("t2")), page("n3", None)]).await;
    assert_eq!(asked, ["list", "list from t1", "list from t2", "watch 100"]);
    assert_eq!(told, ["begun", "applied n1 7", "applied n2 7", "applied n3 7", "listed n1 n2 n3"]);
}

/// It would fail from there for ever.
#[tokio::test]
async fn a_watch_that_fails_twice_from_the_same_version_lists_anew() {
    for failure in [
        status(500, "InternalError", "an error on the server"),
        status(504, "Timeout", "etcdserver: request timed out"),
        status(504, "Timeout", "Too large resource version: 100, current: 5"),
    ] {
        let event = event("ERROR", &failure);
        let (asked, told) = play(vec![list(100), answer(200, &event), answer(200, &event), list(5)]).await;
        assert_eq!(asked, ["list", "watch 100", "watch 100", "list", "watch 5"], "{failure}");
        assert!(
            !told.iter().any(|told| told.starts_with("failed")),
            "what was listed is good enough: {told:?}"
        );

        let refused = || {
            answer(u16::try_from(failure["code"].as_u64().unwrap_or(0)).unwrap_or(0), &failure.to_string())
        };
        let (asked, _) = play(vec![list(100), refused(), refused(), list(5)]).await;
        assert_eq!(asked, ["list", "watch 100", "watch 100", "list", "watch 5"], "{failure}");
        // One failure each way is two in a row, too.
        let (asked, _) = play(vec![list(100), refused(), answer(200, &event), list(5)]).await;
        assert_eq!(asked, ["list", "watch 100", "watch 100", "list", "watch 5"], "{failure}");
    }
}

#[tokio::test]
async fn a_watch_that_came_further_in_between_goes_on() {
    let failure = event("ERROR", &status(500, "InternalError", "an error on the server"));
    let further = format!("{}{failure}", bookmark(150));
    let answers = vec![list(100), answer(200, &failure), answer(200, &further), answer(200, &further)];
    let (asked, _) = play(answers).await;
    assert_eq!(asked, ["list", "watch 100", "watch 100", "watch 150", "watch 150"]);
}

#[tokio::test]
async fn a_version_that_is_too_old_is_listed_anew_at_once() {
    let expired = status(410, "Expired", "too old resource version: 100 (2000)");
    let in_other_words = status(500, "InternalError", "too old resource version: 100 (2000)");
    for gone in [
        answer(200, &event("ERROR", &expired)),
        answer(410, &expired.to_string()),
        answer(200, &event("ERROR", &in_other_words)),
        // Without the frame of an event.
        answer(200, &format!("{expired}\n")),
    ] {
        let (asked, _) = play(vec![list(100), gone, list(2000)]).await;
        assert_eq!(asked, ["list", "watch 100", "list", "watch 2000"]);
    }
}

/// etcd was restored from a snapshot: what happens from then on has versions that were there before.
#[tokio::test]
async fn a_watch_that_goes_back_in_time_lists_anew() {
    for back in [bookmark(50), event("MODIFIED", &node("n1", 50)), event("DELETED", &node("n1", 50))] {
        let (asked, told) = play(vec![list(100), open(&back), list(50)]).await;
        assert_eq!(asked, ["list", "watch 100", "list", "watch 50"], "{back}");
        let expected = ["begun", "applied n1 100", "listed n1", "begun", "applied n1 50", "listed n1"];
        assert_eq!(told, expected, "the list tells of it, not the watch");
    }
}

#[tokio::test]
async fn what_is_told_in_order_is_passed_on() {
    let events = format!("{}{}", event("ADDED", &node("n2", 101)), event("DELETED", &node("n2", 102)));
    let (asked, told) = play(vec![list(100), answer(200, &events)]).await;
    assert_eq!(asked, ["list", "watch 100", "watch 102"]);
    assert_eq!(told, ["begun", "applied n1 100", "listed n1", "applied n2 101", "gone n2 102"]);
}

/// Whoever may list and not watch would list without a pause.
#[tokio::test]
async fn a_watch_that_fails_after_every_list_lists_ever_more_slowly() {
    let forbidden = || answer(403, &status(403, "Forbidden", "no").to_string());
    let mut answers = vec![list(100), forbidden(), forbidden()];
    for _ in 0..3 {
        answers.extend([list(100), forbidden()]);
    }
    let began = Instant::now();
    let (asked, _) = play(answers).await;
    let (l, w) = ("list", "watch 100");
    assert_eq!(asked, [l, w, w, l, w, l, w, l, w, l]);
    // At least half of 0.1, 0.2, 0.4, 0.8 and 1.6 s after failures, and half of 0.1 to 0.8 s before lists.
    assert!(began.elapsed() >= Duration::from_millis(2300), "{:?}", began.elapsed());
}

/// Five of them in 0.1 s would be 50 requests a second from one watch.
#[tokio::test]
async fn watches_that_end_at_once_count_as_failures() {
    let (asked, _) = play(vec![list(100), answer(200, ""), answer(200, ""), list(100)]).await;
    assert_eq!(asked, ["list", "watch 100", "watch 100", "list", "watch 100"]);
}

#[tokio::test]
async fn a_throttled_watch_waits_as_long_as_it_is_told_and_does_not_list_anew() {
    let throttled = || {
        let mut answer = answer(429, "Too many requests, please try again later.");
        answer.headers_mut().insert("retry-after", http::HeaderValue::from_static("1"));
        answer
    };
    let began = Instant::now();
    let (asked, _) = play(vec![throttled(), list(100), throttled(), throttled()]).await;
    assert_eq!(asked, ["list", "list", "watch 100", "watch 100", "watch 100"]);
    assert!(began.elapsed() >= Duration::from_secs(3), "a second each");
}

/// Begins to watch the pods of so many workloads, and leaves what they tell in the mailbox.
fn watch_pods(client: &Client, count: usize) -> (Vec<Watching>, mpsc::Receiver<Message>) {
    let (lists, (send, mailbox)) = (Lists::default(), mpsc::channel(count * 8));
    let watches = (0..count).map(|number| {
        let namespace = format!("ns-{number}");
        let subject = Subject::<lean::Pod>::of_workload(client, &namespace, "pods", &lists);
        watch(subject, send.clone(), metrics(), |change| Message::Observed(Observed::Unscheduled(change)))
    });
    (watches.collect(), mailbox)
}

#[tokio::test]
async fn few_lists_of_workloads_are_in_flight_at_once() {
    const WORKLOADS: usize = 60;
    let (now, most, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let counts = Arc::new((now, most, done));
    let counted = counts.clone();
    let client = client(move |request| {
        let counts = counted.clone();
        async move {
            if asked_for(&request) != "list" {
                return std::future::pending().await;
            }
            let (now, most, done) = &*counts;
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(Duration::from_millis(20)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            done.fetch_add(1, Ordering::SeqCst);
            let list = json!({ "kind": "PodList", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": [] });
            answer(200, &list.to_string())
        }
    });
    let (_watches, _mailbox) = watch_pods(&client, WORKLOADS);
    let all = async {
        while counts.2.load(Ordering::SeqCst) < WORKLOADS {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), all).await.expect("every list to be made");
    let most = counts.1.load(Ordering::SeqCst);
    assert!((2..=8).contains(&most), "{most} lists were in flight at once");
}

#[tokio::test]
async fn lists_of_workloads_that_hang_hold_up_no_list_of_nodes() {
    let client = client(|request| async move {
        let of_nodes = request.uri().path().ends_with("/nodes") && asked_for(&request) == "list";
        if of_nodes { list(100) } else { std::future::pending().await }
    });
    let (_watches, _mailbox) = watch_pods(&client, 1000);
    // All of them wait in line.
    sleep(Duration::from_millis(100)).await;
    let (send, mut mailbox) = mpsc::channel(1024);
    let wrap = |change| Message::Observed(Observed::Node(change));
    let _watching = watch(Subject::all(&client, "nodes"), send, metrics(), wrap);
    let listed = async {
        while let Some(message) = mailbox.recv().await {
            if words(&message) == "listed n1" {
                return;
            }
        }
    };
    timeout(Duration::from_secs(20), listed).await.expect("nodes to be listed");
}

/// What it was to tell would never be heard of.
#[tokio::test]
async fn a_watch_that_panics_ends_the_controller() {
    let client = client(|_| std::future::pending());
    let (send, mut mailbox) = mpsc::channel(1);
    let subject = Subject::<lean::Node>::all(&client, "nodes");
    let _watching = watch(subject, send, metrics(), |_| panic!("a bug of ours"));
    let message = mailbox.recv().await;
    assert!(matches!(message, Some(Message::Broken(what)) if what.contains("nodes")));
}

#[test]
fn versions_are_numbers() {
    assert!(older("99", "100"));
    assert!(!older("100", "100"));
    assert!(!older("", "100"), "what is no number is not compared");
}
