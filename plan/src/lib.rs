//! One pure function that decides for the whole world.
//!
//! [`plan`] takes everything that is known (allocations, nodes, pods, what the clouds said, what is
//! under way, how earlier steps ended) and returns everything that is to be done now and written down.
//! It is synchronous, total and deterministic: no clock, no I/O, no randomness, no panic. The shell
//! carries out the steps, one mutating call each, looks again, and plans again.
//!
//! [`parse`] is the one definition of a valid spec; admission and controller both use it.

mod assign;
mod conditions;
mod decide;
mod decision;
mod explain;
mod finalizers;
mod index;
mod labels;
mod leave;
mod marks;
mod nodes;
mod notice;
mod output;
pub mod parse;
mod pods;
mod pools;
mod reason;
mod select;
mod slot;
mod status;
mod tally;
mod terms;
mod time;
mod waiting;
mod world;

pub use assign::retry_at;
pub use decide::plan;
pub use explain::{Candidate, Explanation, explain};
pub use index::pools;
pub use labels::Labels;
pub use output::*;
pub use reason::Reason;
pub use time::Time;
pub use world::*;
