//! What a simulated world is made of at its start, in a form that a person can write down.

mod build;
mod check;

pub(crate) use build::{association_id, interface as new_interface};
pub use check::WorldError;

use crate::clock::Clock;
use crate::limits::Limits;
use crate::model::State;
use crate::model::things::{Cloud, Holder, InstanceState};
use crate::permissions::Roles;
use crate::settings::Settings;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

/// A world: instances, reserved addresses, and how the clouds behave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct World {
    /// Virtual machines of all clouds.
    pub instances: Vec<InstanceSpec>,
    /// Reserved public addresses of all clouds.
    pub addresses: Vec<AddressSpec>,
    /// How the clouds behave.
    pub settings: Settings,
    /// How often they may be called.
    pub limits: Limits,
    /// What callers may do.
    pub roles: Roles,
    /// Callers that run on an instance and need its way to the internet: name, provider ID.
    pub callers: BTreeMap<String, String>,
    /// The clock stands at this time until it is moved; without it, it runs from now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standing_clock: Option<Timestamp>,
    /// Another number gives other random choices.
    pub seed: u64,
}

/// A virtual machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct InstanceSpec {
    /// The provider ID of its Kubernetes node, which says its cloud, zone and name.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// Its region, where the provider ID does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Whether it runs.
    #[serde(default = "running")]
    pub state: InstanceState,
    /// It has a public address of the cloud's choice (not on Azure).
    #[serde(default = "yes")]
    pub ephemeral: bool,
    /// It reaches the cloud's API even without a public address.
    #[serde(default)]
    pub private_egress: bool,
    /// How many network interfaces it has.
    #[serde(default = "one")]
    pub interfaces: usize,
    /// How many private addresses each interface has.
    #[serde(default = "one")]
    pub private_addresses: usize,
    /// AWS: where its public addresses are advertised from, if not from its region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub border_group: Option<String>,
    /// AWS: no internet gateway is attached to its network.
    #[serde(default)]
    pub no_gateway: bool,
    /// Tags or labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// A reserved public address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct AddressSpec {
    /// Its cloud.
    pub cloud: Cloud,
    /// The address.
    pub address: IpAddr,
    /// Its resource name, or its allocation id on AWS; made from the address if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its region: that of the simulated nodes if left out; `global` for GCP's global addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The project, or `subscription/resourceGroup`, that owns it; that of the nodes if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// GCP: `PREMIUM` or `STANDARD`; Azure: `Standard` or `Basic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// AWS: where it is advertised from, if not from its region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub border_group: Option<String>,
    /// Who has it: the provider ID of an instance, or another resource such as `forwardingRules/web`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
    /// GCP: the name of the access config that it is attached by, if an instance has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_config: Option<String>,
    /// Tags or labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// The id that the simulated cluster gives to the instance of a node.
fn aws_instance_id(node: &str) -> String {
    format!("i-{:017x}", crate::provider_id::fingerprint(node) & 0x0fff_ffff_ffff_ffff)
}

fn running() -> InstanceState {
    InstanceState::Running
}

fn yes() -> bool {
    true
}

fn one() -> usize {
    1
}

impl InstanceSpec {
    /// The usual instance of a node: running, one interface, an address of the cloud's choice.
    pub fn of(provider_id: &str) -> Self {
        Self {
            provider_id: provider_id.to_owned(),
            region: None,
            state: InstanceState::Running,
            ephemeral: true,
            private_egress: false,
            interfaces: 1,
            private_addresses: 1,
            border_group: None,
            no_gateway: false,
            tags: BTreeMap::new(),
        }
    }
}

impl AddressSpec {
    /// A free address in the region of the simulated nodes.
    pub fn free(cloud: Cloud, address: IpAddr) -> Self {
        Self {
            cloud,
            address,
            name: None,
            region: None,
            owner: None,
            tier: None,
            border_group: None,
            held_by: None,
            access_config: None,
            tags: BTreeMap::new(),
        }
    }
}

impl World {
    /// A world of the instances that nodes with these provider IDs run on, without reserved addresses.
    pub fn of_nodes<'a>(provider_ids: impl IntoIterator<Item = &'a str>) -> Self {
        Self { instances: provider_ids.into_iter().map(InstanceSpec::of).collect(), ..Self::default() }
    }

    /// A small world to play with: in each cloud three nodes as `cluster up` makes them, and three free
    /// addresses.
    pub fn example() -> Self {
        let mut world = Self::default();
        for (n, zone) in ["a", "b", "c"].into_iter().enumerate() {
            let name = format!("node-{}", n + 1);
            let azure = "azure:///subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/dev-nodes\
                         /providers/Microsoft.Compute/virtualMachines";
            let nodes = [
                format!("gce://dev-project/us-central1-{zone}/{name}"),
                format!("aws:///eu-west-1{zone}/{}", aws_instance_id(&name)),
                format!("{azure}/{name}"),
            ];
            for (cloud, node) in Cloud::ALL.into_iter().zip(nodes) {
                let last = u8::try_from(10 * (cloud as usize + 1) + n).unwrap_or_default();
                world =
                    world.instance(InstanceSpec::of(&node)).address(cloud, Ipv4Addr::new(203, 0, 113, last));
            }
        }
        world
    }

    /// The same world with one more instance.
    #[must_use]
    pub fn instance(mut self, instance: InstanceSpec) -> Self {
        self.instances.push(instance);
        self
    }

    /// The same world with one more free address.
    #[must_use]
    pub fn address(self, cloud: Cloud, address: impl Into<IpAddr>) -> Self {
        self.reserved(AddressSpec::free(cloud, address.into()))
    }

    /// The same world with one more reserved address.
    #[must_use]
    pub fn reserved(mut self, address: AddressSpec) -> Self {
        self.addresses.push(address);
        self
    }

    /// Reads a world from YAML.
    pub fn from_yaml(text: &str) -> Result<Self, WorldError> {
        let world: Self =
            serde_saphyr::from_str(text).map_err(|error| WorldError::Yaml(error.to_string()))?;
        world.check()?;
        Ok(world)
    }

    /// Writes it as YAML.
    pub fn to_yaml(&self) -> Result<String, WorldError> {
        serde_saphyr::to_string(self).map_err(|error| WorldError::Yaml(error.to_string()))
    }

    /// Makes the world.
    pub fn build(&self) -> Result<State, WorldError> {
        self.check()?;
        let clock = match self.standing_clock {
            Some(time) => Clock::standing_at(time),
            None => Clock::running_from(Timestamp::now()),
        };
        let mut state = State::new(clock, self.settings.clone(), self.seed);
        state.limiter.limits = self.limits.clone();
        state.roles = self.roles.clone();
        state.callers.clone_from(&self.callers);
        for instance in &self.instances {
            build::instance(&mut state, instance)?;
        }
        for address in &self.addresses {
            build::address(&mut state, address)?;
        }
        state.begin();
        Ok(state)
    }

    /// Adds an instance to a world that lives already.
    pub(crate) fn add_instance(state: &mut State, instance: &InstanceSpec) -> Result<(), WorldError> {
        build::instance(state, instance)
    }

    /// Adds a reserved address to a world that lives already.
    pub(crate) fn add_address(state: &mut State, address: &AddressSpec) -> Result<(), WorldError> {
        build::address(state, address)
    }

    /// Writes down a world as it is now. Operations that are under way are not part of it.
    pub fn of_state(state: &State) -> Self {
        let mut world = Self {
            settings: state.settings.clone(),
            limits: state.limiter.limits.clone(),
            roles: state.roles.clone(),
            callers: state.callers.clone(),
            ..Self::default()
        };
        for cloud in Cloud::ALL {
            let instances = state.cloud(cloud).instances.all(None);
            let instances = instances.filter(|(_, instance)| instance.state != InstanceState::Terminated);
            world.instances.extend(instances.map(|(_, instance)| spec_of(state, cloud, instance)));
            let addresses = state.cloud(cloud).addresses.all(None);
            world.addresses.extend(addresses.map(|(_, address)| address_spec_of(state, cloud, address)));
        }
        world
    }
}

fn spec_of(state: &State, cloud: Cloud, instance: &crate::model::things::Instance) -> InstanceSpec {
    let interfaces = &state.cloud(cloud).interfaces;
    let first = instance.interfaces.first().and_then(|key| interfaces.get(key));
    InstanceSpec {
        provider_id: instance.provider_id.clone(),
        region: Some(instance.region.clone()),
        state: instance.state,
        ephemeral: instance.wants_ephemeral,
        private_egress: instance.private_egress,
        interfaces: instance.interfaces.len(),
        private_addresses: first.map_or(1, |interface| interface.slots.len()),
        border_group: Some(instance.border_group.clone()),
        no_gateway: first.is_some_and(|interface| interface.no_gateway),
        tags: instance.tags.clone(),
    }
}

fn address_spec_of(state: &State, cloud: Cloud, address: &crate::model::things::Address) -> AddressSpec {
    let held = state.holds_of(cloud, address);
    AddressSpec {
        cloud,
        address: address.ip,
        name: Some(address.name.clone()),
        region: Some(address.region.clone()),
        owner: build::owner_of(cloud, &address.id),
        tier: Some(address.tier.clone()),
        border_group: Some(address.border_group.clone()),
        held_by: held.map(|hold| hold.holder),
        access_config: match &address.holder {
            Some(Holder::Slot { binding, .. }) if cloud == Cloud::Gcp => Some(binding.clone()),
            _ => None,
        },
        tags: address.tags.clone(),
    }
}
