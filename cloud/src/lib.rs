//! The clouds: what the controller asks of them, and how each one answers.

mod account;
mod error;
mod provider;

pub use account::{Account, Cloud};
pub use error::{Class, Error};
pub use provider::{AddressState, Ask, Call, Connect, InstanceState, Provider, Reading, Refusal, merge};
