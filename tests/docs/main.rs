//! The documentation is true: what pages show is applied and run, on a real control plane with the real
//! controller and webhook; examples become Ready; the migration is played.

mod commands;
mod manifests;
mod migration;
mod pages;
mod stage;

use anyhow::Result;
use cluster::harness::Test;
use futures::future::LocalBoxFuture;
use stage::Shared;
use std::process::ExitCode;

type Played = LocalBoxFuture<'static, Result<()>>;

fn main() -> ExitCode {
    let shared = Shared::default();
    let reads = |name: &str, test: fn() -> Result<()>| {
        Test::new(name, move |_| async move { test() }).without_control_plane()
    };
    let on_stage = |name: &str, test: fn(Shared) -> Played| {
        let shared = shared.clone();
        Test::new(name, move |_| test(shared))
    };
    let mut tests = vec![
        reads("commands::each_is_run_or_says_why_not", commands::each_is_run_or_says_why_not),
        reads("commands::make_targets_in_sentences_exist", commands::make_targets_in_sentences_exist),
        reads("commands::names_in_capitals_are_filled_in", commands::names_in_capitals_are_filled_in),
        reads("commands::help_is_printed", commands::help_is_printed),
        reads("manifests::examples_are_listed", manifests::examples_are_listed),
        Test::new("commands::install_page", |_| commands::install_page()),
        Test::new("migration::the_page_is_played", |_| migration::the_page_is_played()),
        on_stage("commands::they_work", |shared| Box::pin(commands::they_work(shared))),
        on_stage("manifests::those_on_pages_are_accepted", |shared| {
            Box::pin(manifests::those_on_pages_are_accepted(shared))
        }),
    ];
    for name in manifests::examples().unwrap_or_default() {
        let shared = shared.clone();
        tests.push(Test::new(&format!("manifests::becomes_ready {name}"), move |_| {
            manifests::becomes_ready(shared, name)
        }));
    }
    // The last test that uses the stage ends it, while there is a runtime around it.
    drop(shared);
    cluster::harness::run_at_once(4, tests)
}
