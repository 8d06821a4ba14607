//! The real binary on a real control plane, with a proxy in between that makes requests fail by plan.
//!
//! `FAULT_PLAN=file cargo test --workspace --test faults -- by_plan` plays the plan of a failure again.

// Helpers of tests may fail a test, though they are no test functions themselves.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod attach;
mod run;

use std::process::ExitCode;

fn main() -> ExitCode {
    cluster::harness::run(cluster::tests![
        attach::through_the_proxy_ends_as_without_it,
        attach::a_503_on_the_label_patch_is_healed,
        attach::by_plan,
        attach::what_a_broken_controller_does_is_found,
    ])
}
