//! What is read of the Compute API's things.

use crate::ProviderId;
use google_cloud_compute_v1::model::{AccessConfig, Address, Instance, NetworkInterface};
use std::net::IpAddr;

/// The interface that addresses go to; GKE uses the first.
pub const INTERFACE: &str = "nic0";

/// An instance by where it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub project: String,
    pub zone: String,
    pub name: String,
}

impl Place {
    pub fn of(provider_id: &str) -> Option<Self> {
        match ProviderId::parse(provider_id)? {
            ProviderId::Gcp { project, zone, name } => Some(Self { project, zone, name }),
            _ => None,
        }
    }

    /// From a link to an instance, whatever host it is on.
    pub fn of_link(link: &str) -> Option<Self> {
        let (_, path) = link.split_once("/projects/")?;
        let parts: Vec<&str> = path.split('/').collect();
        match parts.as_slice() {
            [project, "zones", zone, "instances", name] => {
                Self::of(&format!("gce://{project}/{zone}/{name}"))
            }
            _ => None,
        }
    }

    pub fn provider_id(&self) -> String {
        format!("gce://{}/{}/{}", self.project, self.zone, self.name)
    }

    /// The zone without its last letter.
    pub fn region(&self) -> &str {
        self.zone.rsplit_once('-').map_or(self.zone.as_str(), |(region, _)| region)
    }
}

/// The last part of a link.
pub fn last_part(link: &str) -> &str {
    link.rsplit('/').next().unwrap_or(link)
}

/// The interface that addresses go to.
pub fn interface(instance: &Instance) -> Option<&NetworkInterface> {
    let interfaces = &instance.network_interfaces;
    let named = interfaces.iter().find(|interface| interface.name.as_deref() == Some(INTERFACE));
    named.or_else(|| interfaces.first())
}

/// Its access config: there is at most one.
pub fn access_config(instance: &Instance) -> Option<&AccessConfig> {
    interface(instance).and_then(|interface| interface.access_configs.first())
}

/// The interface and the access config that have an address.
pub fn holding(instance: &Instance, address: IpAddr) -> Option<(String, String)> {
    instance.network_interfaces.iter().find_map(|interface| {
        let config = interface.access_configs.iter().find(|config| nat_ip(config) == Some(address))?;
        Some((interface.name.clone()?, config.name.clone()?))
    })
}

/// The address of an access config; one of a stopped instance has none.
pub fn nat_ip(config: &AccessConfig) -> Option<IpAddr> {
    config.nat_ip.as_deref()?.parse().ok()
}

/// The IP of a reserved address.
pub fn ip(address: &Address) -> Option<IpAddr> {
    address.address.as_deref()?.parse().ok()
}

/// The region of a reserved address; none of a global one.
pub fn region(address: &Address) -> Option<&str> {
    address.region.as_deref().map(last_part)
}

/// Whether an instance runs, or is about to.
pub fn runs(instance: &Instance) -> bool {
    let status = instance.status.as_ref().and_then(|status| status.name());
    matches!(status, Some("PROVISIONING" | "STAGING" | "PENDING" | "RUNNING" | "REPAIRING" | "PENDING_STOP"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_both_hosts_name_one_instance() {
        let place = Place { project: "p".to_owned(), zone: "us-central1-a".to_owned(), name: "n".to_owned() };
        for host in ["https://www.googleapis.com/compute/v1", "https://compute.googleapis.com/compute/v1"] {
            let link = format!("{host}/projects/p/zones/us-central1-a/instances/n");
            assert_eq!(Place::of_link(&link).as_ref(), Some(&place));
        }
        assert_eq!(Place::of_link("https://x/projects/p/regions/r/forwardingRules/web"), None);
        assert_eq!(place.region(), "us-central1");
    }
}
