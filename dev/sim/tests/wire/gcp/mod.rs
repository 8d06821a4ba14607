//! GCP's Compute API. Numbers are those of the list of behaviours in docs/simulators.md.

mod access_configs;
mod reads;
