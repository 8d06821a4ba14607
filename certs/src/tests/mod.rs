//! Tests of the pure parts.

mod convergence;
mod decisions;
mod model;
mod quarrel;
mod rotation;
