//! Who we are: Workload Identity if the pod has one, else the managed identity of the node.

use crate::{Class, Error};
use azure_core::credentials::TokenCredential;
use azure_identity::{
    ClientSecretCredential, ManagedIdentityCredential, ManagedIdentityCredentialOptions, UserAssignedId,
    WorkloadIdentityCredential,
};
use std::sync::Arc;

const HELP: &str = "give the pod a Workload Identity (AZURE_CLIENT_ID, AZURE_TENANT_ID, AZURE_FEDERATED_TOKEN_FILE) \
                    or the node a managed identity; docs/clouds/azure.md";

/// The credential that the environment describes. Nothing is asked for yet.
pub fn credential() -> Result<Arc<dyn TokenCredential>, Error> {
    let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let made: azure_core::Result<Arc<dyn TokenCredential>> = if var("AZURE_FEDERATED_TOKEN_FILE").is_some() {
        WorkloadIdentityCredential::new(None).map(|made| made as Arc<dyn TokenCredential>)
    } else if let (Some(tenant), Some(client), Some(secret)) =
        (var("AZURE_TENANT_ID"), var("AZURE_CLIENT_ID"), var("AZURE_CLIENT_SECRET"))
    {
        ClientSecretCredential::new(&tenant, client, secret.into(), None)
            .map(|made| made as Arc<dyn TokenCredential>)
    } else {
        let options = ManagedIdentityCredentialOptions {
            user_assigned_id: var("AZURE_CLIENT_ID").map(UserAssignedId::ClientId),
            ..ManagedIdentityCredentialOptions::default()
        };
        ManagedIdentityCredential::new(Some(options)).map(|made| made as Arc<dyn TokenCredential>)
    };
    made.map_err(|error| refused(&error))
}

/// No token, and what to do about it. Errors of the SDK name the way that was tried, no secret.
pub fn refused(error: &azure_core::Error) -> Error {
    Error::new(Class::Denied, format!("no token for Azure: {error}; {HELP}"))
}
