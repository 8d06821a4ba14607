//! What we are allowed to do, by the API's own word. Organisation policies are no part of it.

use super::model::{self, Place};
use super::{Gcp, errors};
use crate::words::with_sources;
use crate::{Class, Error};
use google_cloud_auth::credentials::{CacheableResource, Credentials};
use google_cloud_compute_v1::model::{Address, Instance, TestPermissionsRequest};
use tokio::time::Instant;

const ADD: &str = "compute.instances.addAccessConfig";
const DELETE: &str = "compute.instances.deleteAccessConfig";
const USE: &str = "compute.addresses.use";
const EXTERNAL: &str = "compute.subnetworks.useExternalIp";
const PUBLIC_ENDPOINT: &str = "https://compute.googleapis.com";

/// Asks whether everything is granted that the exchange of a node's own address for one of ours needs.
pub async fn ask(
    gcp: &Gcp,
    place: &Place,
    instance: &Instance,
    address: &Address,
    deadline: Instant,
) -> Result<(), Error> {
    let wanted = [ADD, DELETE];
    let granted = gcp.granted_on_instance(place, &wanted, deadline).await;
    check(&wanted, granted, &place.provider_id())?;
    if let (Some(name), Some(region)) = (&address.name, model::region(address)) {
        let granted = gcp.granted_on_address(region, name, USE, deadline).await;
        check(&[USE], granted, &format!("projects/{}/regions/{region}/addresses/{name}", gcp.project()))?;
    }
    let subnet = subnet(instance);
    if !subnet.is_empty() {
        let granted = gcp.granted_on_subnet(&subnet, EXTERNAL, deadline).await;
        // A subnet that we may not see is one that we may not use.
        let granted = granted.or_else(|error| match error.class {
            Class::Conflict => Ok(Vec::new()),
            _ => Err(error),
        });
        check(&[EXTERNAL], granted, &subnet)?;
    }
    Ok(())
}

/// The subnet of the interface that addresses go to, as a path from `projects/` on.
pub fn subnet(instance: &Instance) -> String {
    let link = model::interface(instance).and_then(|interface| interface.subnetwork.as_deref());
    let path = link.and_then(|link| link.split_once("/projects/")).map(|(_, path)| path);
    path.map(|path| format!("projects/{path}")).unwrap_or_default()
}

fn check(wanted: &[&str], granted: Result<Vec<String>, Error>, on: &str) -> Result<(), Error> {
    let granted = match granted {
        Ok(granted) => granted,
        // Not a question that it answers: then the attach itself has to show it.
        Err(error) if error.class == Class::Permanent => {
            tracing::warn!("what is granted on {on} cannot be asked for: {error}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let missing: Vec<&str> =
        wanted.iter().copied().filter(|one| !granted.iter().any(|granted| granted == one)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let where_to = if missing.contains(&EXTERNAL) {
        "; with Shared VPC it has to be granted on the subnet in the host project"
    } else {
        ""
    };
    let message = format!(
        "nothing was sent: the node would lose its own address and get none, the permission {} is missing on {on} \
         (the role in docs/clouds/gcp.md has all permissions{where_to})",
        missing.join(" and "),
    );
    Err(Error::new(Class::Denied, message))
}

fn question(permissions: &[&str]) -> TestPermissionsRequest {
    TestPermissionsRequest::new().set_permissions(permissions.iter().copied())
}

impl Gcp {
    async fn granted_on_instance(
        &self,
        place: &Place,
        permissions: &[&str],
        deadline: Instant,
    ) -> Result<Vec<String>, Error> {
        let answer = self.get("instances.testIamPermissions", deadline, |clients| {
            let request = clients.instances.test_iam_permissions().set_project(&place.project);
            let request = request.set_zone(&place.zone).set_resource(&place.name);
            request.set_body(question(permissions)).send()
        });
        answer.await.map(|answer| answer.permissions)
    }

    async fn granted_on_address(
        &self,
        region: &str,
        name: &str,
        permission: &str,
        deadline: Instant,
    ) -> Result<Vec<String>, Error> {
        let answer = self.get("addresses.testIamPermissions", deadline, |clients| {
            let request = clients.addresses.test_iam_permissions().set_project(self.project());
            let request = request.set_region(region).set_resource(name);
            request.set_body(question(&[permission])).send()
        });
        answer.await.map(|answer| answer.permissions)
    }

    async fn granted_on_subnet(
        &self,
        subnet: &str,
        permission: &str,
        deadline: Instant,
    ) -> Result<Vec<String>, Error> {
        let asked = async {
            let clients = self.clients().await?;
            clients.subnets.granted(subnet, permission).await
        };
        self.gate.read("subnetworks.testIamPermissions", deadline, asked).await
    }
}

/// One question to the subnetworks' part of the API. The SDK's client for that part takes minutes to compile.
#[derive(Debug)]
pub struct Subnets {
    http: reqwest::Client,
    endpoint: String,
    credentials: Credentials,
}

impl Subnets {
    pub fn new(endpoint: Option<&str>, credentials: Credentials) -> Result<Self, reqwest::Error> {
        let endpoint = endpoint.unwrap_or(PUBLIC_ENDPOINT).trim_end_matches('/').to_owned();
        Ok(Self { http: reqwest::Client::builder().build()?, endpoint, credentials })
    }

    /// The permission, if we have it.
    async fn granted(&self, subnet: &str, permission: &str) -> Result<Vec<String>, Error> {
        let action = "subnetworks.testIamPermissions";
        let headers = self.credentials.headers(http::Extensions::new()).await;
        let headers = match headers.map_err(|error| super::credentials::refused(&error))? {
            CacheableResource::New { data, .. } => data,
            CacheableResource::NotModified => http::HeaderMap::new(),
        };
        let url = format!("{}/compute/v1/{subnet}/testIamPermissions", self.endpoint);
        let request = self.http.post(url).headers(headers).header("content-type", "application/json");
        let request = request.body(format!("{{\"permissions\":[\"{permission}\"]}}"));
        let unanswered = |error: reqwest::Error| {
            let why = with_sources(&error.without_url());
            Error::new(Class::Transient, format!("{action}: GCP did not answer: {why}"))
        };
        let reply = request.send().await.map_err(unanswered)?;
        let status = reply.status().as_u16();
        let body = reply.text().await.map_err(unanswered)?;
        if status != 200 {
            return Err(errors::of_text(action, status, &body));
        }
        // The answer repeats what is granted of the one thing that was asked for.
        let granted = body.contains(&format!("\"{permission}\""));
        Ok(if granted { vec![permission.to_owned()] } else { Vec::new() })
    }
}
