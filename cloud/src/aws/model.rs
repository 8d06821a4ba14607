//! What is read of EC2's instances.

use aws_sdk_ec2::types::{Instance, InstanceNetworkInterface, InstancePrivateIpAddress};
use std::net::IpAddr;

/// The owner of addresses that instances get by themselves.
const AMAZON: &str = "amazon";

/// Where an address goes to on an instance: the first interface of the first card, whatever the order of the
/// list, and its primary private address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub interface: String,
    pub private_ip: String,
    /// The elastic address that is there.
    pub holds: Option<IpAddr>,
}

/// Where an address goes to; none if the instance has no interface, as one that is terminated.
pub fn place(instance: &Instance) -> Option<Place> {
    let first = |interface: &&InstanceNetworkInterface| {
        let attachment = interface.attachment();
        let index = attachment.and_then(aws_sdk_ec2::types::InstanceNetworkInterfaceAttachment::device_index);
        let card =
            attachment.and_then(aws_sdk_ec2::types::InstanceNetworkInterfaceAttachment::network_card_index);
        index == Some(0) && card.unwrap_or(0) == 0
    };
    let interface = instance.network_interfaces().iter().find(first)?;
    let private = interface.private_ip_addresses().iter().find(|private| private.primary() == Some(true))?;
    Some(Place {
        interface: interface.network_interface_id()?.to_owned(),
        private_ip: private.private_ip_address()?.to_owned(),
        holds: elastic(private),
    })
}

/// The elastic address of a private one. One that the instance got by itself is none.
fn elastic(private: &InstancePrivateIpAddress) -> Option<IpAddr> {
    let association = private.association()?;
    let elastic = association.ip_owner_id().is_some_and(|owner| owner != AMAZON);
    association.public_ip().filter(|_| elastic).and_then(|ip| ip.parse().ok())
}

/// Whether an instance runs, or is about to.
pub fn runs(instance: &Instance) -> bool {
    let state = instance.state().and_then(|state| state.name()).map(|name| name.as_str().to_owned());
    matches!(state.as_deref(), Some("pending" | "running"))
}

/// The provider ID of an instance in the form that the cloud provider writes.
pub fn provider_id(instance: &Instance) -> Option<String> {
    Some(format!("aws:///{}/{}", zone(instance)?, instance.instance_id()?))
}

/// The availability zone.
pub fn zone(instance: &Instance) -> Option<&str> {
    instance.placement().and_then(|placement| placement.availability_zone())
}

/// Where addresses of a zone are advertised from, if its name says it: `eu-west-1a` from `eu-west-1`,
/// `us-west-2-lax-1a` from `us-west-2-lax-1`. Wavelength zones follow no rule.
pub fn border_group(zone: &str) -> Option<&str> {
    let group = zone.strip_suffix(|last: char| last.is_ascii_lowercase())?;
    group.ends_with(|last: char| last.is_ascii_digit()).then_some(group)
}

/// A field that EC2 leaves out or empty.
pub fn filled(field: Option<&str>) -> Option<&str> {
    field.filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn border_groups_follow_from_most_zones() {
        assert_eq!(border_group("eu-west-1a"), Some("eu-west-1"));
        assert_eq!(border_group("us-west-2-lax-1a"), Some("us-west-2-lax-1"));
        assert_eq!(border_group("us-east-1-wl1-bos-wlz-1"), None);
    }
}
