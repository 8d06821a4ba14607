//! What is read of the Resource Manager's documents. Ids are compared in lower case: its parts write them
//! differently.

use crate::Error;
use crate::error::Class;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::net::IpAddr;

/// A page of a list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    pub value: Vec<T>,
    pub next_link: Option<String>,
}

/// A reference.
#[derive(Clone, Debug, Deserialize)]
pub struct Link {
    pub id: String,
}

/// A public address.
#[derive(Clone, Debug, Deserialize)]
pub struct PublicAddress {
    pub id: String,
    #[serde(default)]
    pub location: String,
    pub sku: Option<Sku>,
    #[serde(default)]
    pub properties: PublicAddressProperties,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Sku {
    #[serde(default)]
    pub name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PublicAddressProperties {
    pub ip_address: Option<IpAddr>,
    pub ip_configuration: Option<Link>,
    pub nat_gateway: Option<Link>,
}

/// A network interface.
#[derive(Clone, Debug, Deserialize)]
pub struct Interface {
    pub id: String,
    #[serde(default)]
    pub etag: String,
    #[serde(default)]
    pub location: String,
    #[serde(default)]
    pub properties: InterfaceProperties,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InterfaceProperties {
    pub provisioning_state: String,
    pub primary: Option<bool>,
    pub virtual_machine: Option<Link>,
    pub ip_configurations: Vec<Config>,
}

/// An IP configuration.
#[derive(Clone, Debug, Deserialize)]
pub struct Config {
    #[serde(default)]
    pub properties: ConfigProperties,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigProperties {
    pub primary: Option<bool>,
    #[serde(rename = "privateIPAddressVersion")]
    pub version: Option<String>,
    #[serde(rename = "publicIPAddress")]
    pub public_address: Option<Link>,
    pub load_balancer_backend_address_pools: Option<Vec<Link>>,
}

/// A virtual machine.
#[derive(Clone, Debug, Deserialize)]
pub struct Machine {
    pub id: String,
    #[serde(default)]
    pub properties: MachineProperties,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineProperties {
    pub network_profile: NetworkProfile,
    pub instance_view: Option<InstanceView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkProfile {
    pub network_interfaces: Vec<InterfaceLink>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct InterfaceLink {
    pub id: String,
    #[serde(default)]
    pub properties: InterfaceLinkProperties,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct InterfaceLinkProperties {
    pub primary: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct InstanceView {
    pub statuses: Vec<Status>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Status {
    #[serde(default)]
    pub code: String,
}

/// An operation.
#[derive(Debug, Deserialize)]
pub struct Operation {
    #[serde(default)]
    pub status: String,
    pub error: Option<super::errors::Fault>,
}

/// Reads a document. One that cannot be read may be whole the next time.
pub fn read<T: DeserializeOwned>(body: &str) -> Result<T, Error> {
    serde_json::from_str(body)
        .map_err(|error| Error::new(Class::Transient, format!("Azure's answer cannot be read: {error}")))
}

impl Machine {
    /// The id of its primary interface. One that does not say it is the only one, or the first.
    pub fn primary_interface(&self) -> Option<&str> {
        let interfaces = &self.properties.network_profile.network_interfaces;
        let primary = interfaces.iter().find(|interface| interface.properties.primary == Some(true));
        primary.or_else(|| interfaces.first()).map(|interface| interface.id.as_str())
    }

    /// Whether it runs, or is about to; none if the cloud does not say.
    pub fn runs(&self) -> Option<bool> {
        let view = self.properties.instance_view.as_ref()?;
        let power = view.statuses.iter().find_map(|status| status.code.strip_prefix("PowerState/"))?;
        Some(matches!(power, "running" | "starting"))
    }
}

impl Interface {
    /// The number of the IP configuration that takes an address of this kind: the primary one for IPv4, the
    /// first of its own version for IPv6, which cannot be primary.
    pub fn config_for(&self, address: IpAddr) -> Option<usize> {
        let configs = &self.properties.ip_configurations;
        let is_v6 = |config: &Config| config.properties.version.as_deref() == Some("IPv6");
        if address.is_ipv6() {
            return configs.iter().position(is_v6);
        }
        let primary = configs.iter().position(|config| config.properties.primary == Some(true));
        primary.or_else(|| configs.iter().position(|config| !is_v6(config)))
    }

    /// The id of the public address of an IP configuration.
    pub fn public_address(&self, config: usize) -> Option<&str> {
        let config = self.properties.ip_configurations.get(config)?;
        config.properties.public_address.as_ref().map(|link| link.id.as_str())
    }
}
