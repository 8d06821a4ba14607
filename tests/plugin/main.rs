//! `kubectl netip` on a real control plane, with the real controller and webhook. What it prints is compared
//! with docs/plugin.md, which shows it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod convert;
mod doctor;
mod misconfigured;
mod rights;
mod stage;
mod story;
mod top;

use cluster::harness::Test;
use std::process::ExitCode;

fn main() -> ExitCode {
    cluster::harness::run_at_once(
        3,
        vec![
            Test::new("story::what_is_shown_is_what_is_and_what_is_planned_is_done", |_| story::play()),
            Test::new("doctor::each_fault_is_found_with_what_to_do", |_| doctor::each_fault_is_found()),
            Test::new("doctor::an_empty_cluster_lacks_everything", |_| doctor::an_empty_cluster()),
            Test::new("rights::it_only_reads_and_takes_the_rights_that_are_documented", |_| {
                rights::it_only_reads()
            }),
            Test::new("top::what_happens_is_seen_as_it_happens", |_| {
                top::top_shows_what_happens_as_it_happens()
            }),
            Test::new("misconfigured::ten_mistakes_are_explained", |_| {
                misconfigured::ten_mistakes_are_explained()
            }),
            Test::new("convert::legacy_files_become_files_that_apply", |_| convert::files()),
            Test::new("convert::completions_are_scripts_of_their_shells", |_| convert::completions()),
        ],
    )
}
