//! Who we are: the SDK's own chain, which has key files, federated identities and the metadata server of
//! Workload Identity, and refreshes tokens by itself.

use super::grants::Subnets;
use crate::words::with_sources;
use crate::{Class, Error, GcpSettings};
use google_cloud_auth::credentials::{Builder, Credentials, anonymous};
use google_cloud_compute_v1::client::{Addresses, Instances, ZoneOperations};
use google_cloud_gax::retry_policy::NeverRetry;

const SCOPE: &str = "https://www.googleapis.com/auth/compute";
const HELP: &str = "give the pod a Workload Identity, or GOOGLE_APPLICATION_CREDENTIALS; docs/clouds/gcp.md";

/// The parts of the API that are used.
#[derive(Debug)]
pub struct Clients {
    pub addresses: Addresses,
    pub instances: Instances,
    pub operations: ZoneOperations,
    pub subnets: Subnets,
}

/// Clients with the identity of the environment. Retries are the caller's: one that nobody decided on would
/// not be fenced.
pub async fn clients(settings: &GcpSettings) -> Result<Clients, Error> {
    let credentials = credentials(settings)?;
    macro_rules! client {
        ($kind:ident) => {{
            let builder =
                $kind::builder().with_credentials(credentials.clone()).with_retry_policy(NeverRetry);
            let builder = match &settings.endpoint {
                Some(endpoint) => builder.with_endpoint(endpoint.trim_end_matches('/')),
                None => builder,
            };
            builder.build().await.map_err(|error| refused(&error))?
        }};
    }
    Ok(Clients {
        addresses: client!(Addresses),
        instances: client!(Instances),
        operations: client!(ZoneOperations),
        subnets: Subnets::new(settings.endpoint.as_deref(), credentials.clone())
            .map_err(|error| refused(&error))?,
    })
}

fn credentials(settings: &GcpSettings) -> Result<Credentials, Error> {
    if settings.anonymous {
        return Ok(anonymous::Builder::new().build());
    }
    Builder::default().with_scopes([SCOPE]).build().map_err(|error| refused(&error))
}

/// No credentials, and what to do about it.
pub fn refused(error: &dyn std::error::Error) -> Error {
    Error::new(Class::Denied, format!("no token for GCP: {}; {HELP}", with_sources(error)))
}
