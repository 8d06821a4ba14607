//! GCP, through the Compute API.
//!
//! Nothing in this API is conditional but a name: `deleteAccessConfig` takes the name of an access config and
//! no address. So every attachment of ours has a name of its own (`names`), and a stale detach names what is
//! not there any more. The API refuses an address that is in use and an interface that has one.

mod calls;
mod credentials;
mod errors;
mod grants;
mod model;
mod names;
mod read;
mod room;
mod write;

use crate::gate::Gate;
use crate::{Ask, Call, Error, GcpSettings, Provider, Reading};
use async_trait::async_trait;
use credentials::Clients;
use room::Room;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::RwLock;
use tokio::time::Instant;

/// A project.
#[derive(Debug)]
pub struct Gcp {
    gate: Gate,
    settings: GcpSettings,
    clients: RwLock<Option<Arc<Clients>>>,
    room: Room,
}

impl Gcp {
    /// Opens a project; does no call.
    pub(crate) fn new(gate: Gate, settings: GcpSettings) -> Self {
        Self { gate, settings, clients: RwLock::default(), room: Room::default() }
    }

    /// The project of the addresses.
    fn project(&self) -> &str {
        &self.gate.account.scope
    }

    async fn clients(&self) -> Result<Arc<Clients>, Error> {
        if let Some(clients) = self.clients.read().await.clone() {
            return Ok(clients);
        }
        let mut slot = self.clients.write().await;
        if let Some(clients) = slot.clone() {
            return Ok(clients);
        }
        let made = Arc::new(credentials::clients(&self.settings).await?);
        *slot = Some(made.clone());
        Ok(made)
    }

    /// Forgets the credentials, so that the next call reads the files again that they come from.
    async fn forget_credentials(&self) {
        *self.clients.write().await = None;
    }
}

#[async_trait]
impl Provider for Gcp {
    async fn read(&self, ask: &Ask, deadline: Instant) -> Reading {
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

    async fn restore(&self, provider_id: &str, token: Option<&str>, call: &Call<'_>) -> Result<(), Error> {
        write::restore(self, provider_id, token, call).await
    }
}
