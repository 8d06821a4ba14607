//! The clouds: what the controller asks of them, and how each one answers.

// What only a cloud needs that this build leaves out.
#![cfg_attr(not(all(feature = "gcp", feature = "aws", feature = "azure")), allow(dead_code))]

mod account;
#[cfg(feature = "aws")]
mod aws;
#[cfg(feature = "azure")]
mod azure;
mod budget;
mod clouds;
mod error;
mod forms;
mod gate;
#[cfg(feature = "gcp")]
mod gcp;
mod meter;
mod provider;
mod provider_id;
mod settings;
mod words;

pub use account::{Account, Cloud};
pub use budget::{Budget, Kind, Limits, Rate};
pub use clouds::Clouds;
pub use error::{Class, Error};
pub use meter::Meter;
pub use provider::{AddressState, Ask, Call, Connect, InstanceState, Provider, Reading, Refusal, merge};
pub use provider_id::ProviderId;
pub use settings::{AwsKeys, AwsSettings, AzureSettings, GcpSettings, Settings, SettingsError};
