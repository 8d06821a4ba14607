//! What the simulated clouds do, seen over the wire: one test per behaviour, named after it.

mod admin;
mod aws;
mod azure;
mod command;
mod docs;
mod faults;
mod gcp;
mod kit;
mod log;
mod roles;
mod world;
