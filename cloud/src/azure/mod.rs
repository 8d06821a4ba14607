//! Azure, through the Resource Manager.
//!
//! There is no kept SDK for its network part, so documents are read as far as they are needed and written
//! back byte for byte; `docs/adr/0013` says why. Every write of an interface is conditional on its `ETag`.

mod client;
mod credentials;
mod edit;
mod errors;
mod model;
mod operations;
mod read;
mod write;

use crate::gate::Gate;
use crate::{Ask, AzureSettings, Call, Error, Provider, ProviderId, Reading};
use async_trait::async_trait;
use client::Arm;
use std::net::IpAddr;
use tokio::time::Instant;

/// Versions of the APIs. What is written must be of the version that was read.
const NETWORK: &str = "2024-05-01";
const COMPUTE: &str = "2024-07-01";

/// A subscription.
#[derive(Debug)]
pub struct Azure {
    gate: Gate,
    arm: Arm,
}

impl Azure {
    /// Opens a subscription; does no call.
    pub(crate) fn new(gate: Gate, settings: &AzureSettings) -> Self {
        Self { gate, arm: Arm::new(settings) }
    }

    fn subscription(&self) -> &str {
        &self.gate.account.scope
    }
}

#[async_trait]
impl Provider for Azure {
    async fn read(&self, ask: &Ask, deadline: Instant) -> Reading {
        self.gate.forms.learn(&ask.instances);
        read::read(self, ask, deadline).await
    }

    async fn preflight(&self, address: IpAddr, provider_id: &str, deadline: Instant) -> Result<(), Error> {
        write::preflight(self, address, provider_id, deadline).await
    }

    async fn attach(
        &self,
        address: IpAddr,
        provider_id: &str,
        token: &str,
        call: &Call<'_>,
    ) -> Result<(), Error> {
        write::attach(self, address, provider_id, token, call).await
    }

    async fn detach(
        &self,
        address: IpAddr,
        provider_id: &str,
        token: &str,
        call: &Call<'_>,
    ) -> Result<(), Error> {
        write::detach(self, address, provider_id, token, call).await
    }

    async fn restore(&self, _: &str, _: Option<&str>, _: &Call<'_>) -> Result<(), Error> {
        // No machine has an address of its own here: without one it goes out through the load balancer.
        Ok(())
    }
}

/// The path of a machine; none of an instance that has no resource of its own.
fn machine_path(id: &ProviderId) -> Option<String> {
    let ProviderId::Azure { subscription, group, name } = id else {
        return None;
    };
    let compute = format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Compute");
    Some(format!("{compute}/virtualMachines/{name}"))
}
