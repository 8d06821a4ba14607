//! Makes requests fail by plan, and finds what must never happen.
//!
//! [`Proxy`] stands between processes of ours and what they call: the API server and the simulated clouds. It
//! numbers every request of both in one sequence, names it so that the next run has the same name for it, and
//! follows a [`Plan`]. What it saw and the plan are a [`Failure`] when a run goes wrong, and one command
//! plays it again.
//!
//! [`check`] looks at a [`History`]: what happened in the clouds, joined with what was written to the API
//! server, and names every invariant that does not hold.

mod answers;
mod check;
mod history;
mod name;
mod of_audit;
mod of_sim;
mod past;
mod plan;
mod proxy;
mod tls;
mod upstream;

pub use check::{INVARIANTS, Invariant, NOT_FROM_EVENTS, Violation, check};
pub use history::{
    Allocation, Call, Event, History, Hold, Lease, Marks, Outcome, Own, Purpose, Scope, Spec, Status, What,
    Workload,
};
pub use name::{Group, Name, Side};
pub use of_audit::{AuditLog, of_audit};
pub use of_sim::of_sim;
pub use past::Others;
pub use plan::{Act, Failure, Plan, Step, Which, answers_once, sweep};
pub use proxy::{Crash, Proxy, Seen, When};
