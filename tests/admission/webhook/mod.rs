//! The webhook process on a real control plane: the real binary, under exactly its role, over real TLS.

pub mod allocations;
pub mod bytes;
pub mod down;
pub mod duplicates;
pub mod kit;
pub mod legacy;
pub mod manifests;
pub mod pods;
pub mod rollouts;
