//! AWS, through the EC2 API.
//!
//! An association id is new for every association, so a stale detach hits nothing; an attach never takes an
//! address from anybody, because `AllowReassociation=false` is always sent.

mod credentials;
mod errors;
mod model;
mod read;
mod write;

use crate::gate::Gate;
use crate::{Ask, AwsSettings, Call, Error, Provider, Reading};
use async_trait::async_trait;
use aws_sdk_ec2::Client;
use std::net::IpAddr;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// A region.
#[derive(Debug)]
pub struct Aws {
    gate: Gate,
    settings: AwsSettings,
    client: OnceCell<Client>,
}

impl Aws {
    /// Opens a region; does no call.
    pub(crate) fn new(gate: Gate, settings: AwsSettings) -> Self {
        Self { gate, settings, client: OnceCell::new() }
    }

    async fn client(&self) -> &Client {
        self.client.get_or_init(|| credentials::client(&self.settings, &self.gate.account.scope)).await
    }
}

#[async_trait]
impl Provider for Aws {
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

    async fn detach(&self, address: IpAddr, _: &str, token: &str, call: &Call<'_>) -> Result<(), Error> {
        write::detach(self, address, token, call).await
    }

    async fn restore(&self, _: &str, _: Option<&str>, _: &Call<'_>) -> Result<(), Error> {
        // AWS gives an instance with one interface an address again by itself; nobody can ask for it.
        Ok(())
    }
}
