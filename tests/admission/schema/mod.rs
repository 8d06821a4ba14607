//! The schema and its CEL rules, with no webhook anywhere.

pub mod accepted;
pub mod agreement;
pub mod kubectl;
pub mod refused;
pub mod stored_before;
pub mod subresources;
