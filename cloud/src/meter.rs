//! What is told about every request to a cloud, for metrics.

use crate::{Account, Class};
use std::fmt::Debug;
use std::time::Duration;

/// Is told about every request that was sent, or not sent because the budget refused it.
pub trait Meter: Send + Sync + Debug {
    /// A request ended. `operation` is the cloud's name of it, `outcome` the class of the failure if it
    /// failed, `took` the time from sending to the answer.
    fn called(&self, account: &Account, operation: &'static str, outcome: Result<(), Class>, took: Duration);
}

/// Nobody wants to know.
impl Meter for () {
    fn called(&self, _: &Account, _: &'static str, _: Result<(), Class>, _: Duration) {}
}
