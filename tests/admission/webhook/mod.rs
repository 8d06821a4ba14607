//! The webhook process on a real control plane: the real binary, under exactly its role, over real TLS.

pub mod all;
pub mod allocations;
pub mod bytes;
pub mod down;
pub mod duplicates;
pub mod isolation;
pub mod kit;
pub mod legacy;
pub mod manifests;
pub mod ownership;
pub mod pods;
pub mod rollouts;
