//! The review functions, without a server around them.

#![allow(clippy::expect_used)] // tests

mod affinity;
mod allocation;
