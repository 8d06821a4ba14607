//! AWS's EC2 API. Numbers are those of the list of behaviours in docs/simulators.md.

mod associations;
mod reads;
