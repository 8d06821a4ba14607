//! The port by which the simulators are controlled from outside: faults, changes, log, clock.

use crate::changes::Change;
use crate::faults::Rule;
use crate::http::{HttpRequest, Reply};
use crate::limits::Limits;
use crate::permissions::Roles;
use crate::pipeline::Outcome;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::world::World;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const HELP: &str = "\
GET    /events?since=N&wait=SECONDS   what happened after event N; waits for something if nothing did
GET    /snapshot?seq=N                who held what right after event N (now, if left out)
GET    /faults                        faults that are still to come
POST   /faults                        add one: {\"on\":{\"cloud\":\"gcp\",\"action\":\"…\"},\"times\":1,\"fault\":{\"kind\":\"lost_reply\"}}
DELETE /faults  /faults/ID            take all, or one, away
POST   /changes                       change the world: {\"do\":\"stop_instance\",\"instance\":\"node-1\"}
GET    /world                         the world as YAML
PUT    /world                         start anew with another world (YAML)
GET    /settings  PATCH /settings     how the clouds behave: {\"gcp\":{\"inUseFound\":\"late\"}}
PUT    /roles                         what callers may do: {\"aws\":[\"ec2:Describe*\"]}
PUT    /limits                        how often they may call: {\"gcpPerMinute\":10}
PUT    /callers                       who runs on which instance: {\"NAME\":\"gce://…\"}
GET    /clock  POST /clock            {\"stop\":true} {\"run\":true} {\"advance\":SECONDS}
POST   /exchanges  GET /exchanges     start to record requests and replies; read them
";

/// What a request to this port was answered with if it went wrong.
struct Refusal(u16, String);

/// A movement of the clock.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClockOrder {
    #[serde(default)]
    stop: bool,
    #[serde(default)]
    run: bool,
    advance: Option<f64>,
}

/// Answers a request to the admin port.
pub async fn handle(shared: &Shared, request: &HttpRequest) -> Outcome {
    let segments = request.segments();
    let answer = match (request.method.as_str(), segments.as_slice()) {
        ("GET", ["events"]) => events(shared, request).await,
        ("GET", _) => read(shared, request, &segments),
        _ => write(shared, request, &segments),
    };
    shared.notify();
    Outcome::Reply(
        answer.unwrap_or_else(|Refusal(status, why)| Reply::json(status, &json!({ "error": why }))),
    )
}

async fn events(shared: &Shared, request: &HttpRequest) -> Result<Reply, Refusal> {
    let since = number(request, "since")?.unwrap_or(0);
    if let Some(wait) = number(request, "wait")? {
        let mut last = shared.events();
        let news = last.wait_for(|last| *last > since);
        // No news in time is an answer too: an empty list.
        let _ = tokio::time::timeout(Duration::from_secs(wait.min(60)), news).await;
    }
    let mut state = shared.lock();
    state.settle();
    Ok(Reply::json(200, &json!(state.log.since(since))))
}

fn read(shared: &Shared, request: &HttpRequest, segments: &[&str]) -> Result<Reply, Refusal> {
    let mut state = shared.lock();
    state.settle();
    let body = match segments {
        [""] => {
            return Ok(text(HELP.to_owned()));
        }
        ["snapshot"] => json!(state.log.snapshot(number(request, "seq")?.unwrap_or(u64::MAX))),
        ["faults"] => {
            let rules = state.faults.rules().iter();
            rules.map(|(id, rule)| json!({ "id": id, "rule": rule })).collect()
        }
        ["world"] => {
            let yaml = World::of_state(&state).to_yaml();
            return yaml.map(text).map_err(|error| Refusal(500, error.to_string()));
        }
        ["settings"] => json!(state.settings),
        ["clock"] => json!({ "now": state.now(), "stands": state.clock.stands() }),
        ["exchanges"] => json!(state.exchanges.all()),
        _ => return Err(unknown(request)),
    };
    Ok(Reply::json(200, &body))
}

fn write(shared: &Shared, request: &HttpRequest, segments: &[&str]) -> Result<Reply, Refusal> {
    let mut state = shared.lock();
    state.settle();
    let mut answer = json!({});
    match (request.method.as_str(), segments) {
        ("POST", ["faults"]) => answer = json!({ "id": state.faults.add(parse::<Rule>(request)?) }),
        ("DELETE", ["faults"]) => state.faults.clear(),
        ("DELETE", ["faults", id]) => {
            if !id.parse().is_ok_and(|id| state.faults.remove(id)) {
                return Err(Refusal(
                    404,
                    format!("there is no fault '{id}'; GET /faults lists those that are left"),
                ));
            }
        }
        ("POST", ["changes"]) => {
            let change = parse::<Change>(request)?;
            let seq = state.change(&change).map_err(|error| Refusal(400, error.to_string()))?;
            answer = json!({ "seq": seq });
        }
        ("PUT", ["world"]) => {
            let world = World::from_yaml(&String::from_utf8_lossy(&request.body));
            let world = world.and_then(|world| world.build());
            let last = state.log.last();
            *state = world.map_err(|error| Refusal(400, error.to_string()))?;
            state.log.continue_from(last);
        }
        ("PATCH", ["settings"]) => {
            let mut merged = json!(state.settings);
            merge(&mut merged, &parse::<Value>(request)?);
            let settings: Result<Settings, _> = serde_json::from_value(merged);
            state.settings = settings.map_err(|error| wrong(&error))?;
        }
        ("PUT", ["roles"]) => state.roles = parse::<Roles>(request)?,
        ("PUT", ["limits"]) => state.limiter.limits = parse::<Limits>(request)?,
        ("PUT", ["callers"]) => state.callers = parse::<BTreeMap<String, String>>(request)?,
        ("POST", ["clock"]) => move_clock(&mut state, &parse(request)?),
        ("POST", ["exchanges"]) => state.exchanges.record(),
        _ => return Err(unknown(request)),
    }
    Ok(Reply::json(200, &answer))
}

fn move_clock(state: &mut crate::model::State, order: &ClockOrder) {
    if order.stop {
        state.clock.stop();
    }
    if let Some(by) = order.advance {
        state.clock.advance(crate::clock::seconds(by));
    }
    if order.run {
        state.clock.run();
    }
    state.settle();
}

fn text(body: String) -> Reply {
    Reply { status: 200, headers: Vec::new(), content_type: "text/plain; charset=utf-8", body }
}

fn unknown(request: &HttpRequest) -> Refusal {
    let (method, path) = (&request.method, &request.path);
    Refusal(404, format!("there is no {method} {path} here; GET / lists what there is"))
}

fn number(request: &HttpRequest, name: &str) -> Result<Option<u64>, Refusal> {
    match request.param(name) {
        None => Ok(None),
        Some(text) => match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(Refusal(400, format!("{name}={text} is not a number; write {name}=0 or more"))),
        },
    }
}

fn parse<T: DeserializeOwned>(request: &HttpRequest) -> Result<T, Refusal> {
    serde_json::from_slice(&request.body).map_err(|error| wrong(&error))
}

fn wrong(error: &serde_json::Error) -> Refusal {
    Refusal(400, format!("the body does not fit: {error}; GET / shows an example"))
}

/// Puts the members of one object into another, at any depth.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}
