//! The review functions, without a server around them.

#![allow(clippy::expect_used)] // tests

mod affinity;
mod allocation;
mod envelope;
mod index;
mod shell;
mod workload;
