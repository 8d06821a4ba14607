//! The review functions, without a server around them.

#![allow(clippy::expect_used, clippy::panic)] // tests

mod affinity;
mod allocation;
#[path = "../../../fuzz/src/checks.rs"]
mod checks;
mod corpus;
mod decision;
mod envelope;
mod fake;
mod faults;
mod index;
mod shell;
mod workload;
