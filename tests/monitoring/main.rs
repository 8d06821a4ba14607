//! Alerts, dashboard and traces: what monitoring/ says is held against promtool, and against a real
//! Prometheus that scraped controller and webhook while things went wrong.
#![allow(clippy::panic, clippy::expect_used)]

#[allow(dead_code)]
#[path = "../controller/invariants.rs"]
mod invariants;
mod live;
#[allow(dead_code)]
#[path = "../controller/memory.rs"]
mod memory;
#[allow(dead_code)]
#[path = "../controller/played.rs"]
mod played;
mod processes;
mod prometheus;
mod rules;
#[allow(dead_code)]
#[path = "../controller/scene.rs"]
mod scene;
mod selectors;
#[allow(dead_code)]
#[path = "../controller/stage.rs"]
mod stage;
mod traces;

use cluster::harness::Test;
use std::process::ExitCode;

macro_rules! on_their_own {
    ($($path:path),* $(,)?) => {
        vec![$(Test::new(stringify!($path), move |_| invariants::judged($path()))),*]
    };
}

fn main() -> ExitCode {
    let mut all: Vec<Test> = on_their_own![
        rules::promtool_takes_the_rules,
        rules::every_alert_fires_and_just_does_not,
        rules::every_alert_has_a_pair_of_tests_and_a_runbook,
        rules::the_predecessors_alerts_and_panels_are_there,
        rules::rules_dashboard_and_runbooks_name_only_what_there_is,
    ]
    .into_iter()
    .map(Test::without_control_plane)
    .collect();
    all.extend(on_their_own![
        live::alerts_fire_and_panels_fill_when_things_go_wrong,
        traces::moves_and_admission_requests_are_traced_and_told,
    ]);
    cluster::harness::run(all)
}
