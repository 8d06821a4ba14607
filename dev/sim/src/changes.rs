//! Changes of the world that do not come over the wire: what a person, an autoscaler, another controller
//! or the cloud itself does.

use crate::clock::{minus, seconds};
use crate::log::Kind;
use crate::model::State;
use crate::model::things::{Binding, Cloud, Holder, InstanceState, Interface};
use crate::provider_id;
use crate::world::{AddressSpec, InstanceSpec, World, WorldError, association_id};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// What somebody does. Instances are named by provider ID or name, interfaces by id or name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
#[allow(missing_docs)]
pub enum Change {
    AddInstance {
        instance: InstanceSpec,
    },
    AddAddress {
        address: AddressSpec,
    },
    /// The address is given back to the cloud. An instance that shows it goes on showing it.
    ReleaseAddress {
        address: IpAddr,
    },
    StopInstance {
        instance: String,
    },
    StartInstance {
        instance: String,
    },
    SetState {
        instance: String,
        state: InstanceState,
    },
    /// `keep_interfaces` leaves them behind, holding what they hold.
    TerminateInstance {
        instance: String,
        #[serde(default)]
        keep_interfaces: bool,
    },
    /// A new instance of the same name takes the place of one.
    RecreateInstance {
        instance: String,
    },
    /// AWS: a network plugin attaches one more interface.
    AddInterface {
        instance: String,
    },
    /// Takes the address from whoever has it and puts it on the instance, in the place of what is there.
    Attach {
        address: IpAddr,
        instance: String,
        /// GCP: the name of the access config.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    Detach {
        address: IpAddr,
    },
    /// Something that is not an instance takes the address, such as `forwardingRules/web`.
    Hold {
        address: IpAddr,
        resource: String,
    },
    /// Somebody writes an interface without changing anything: its fingerprint or `ETag` is another one.
    TouchInterface {
        interface: String,
    },
    /// Somebody writes back an interface as he read it a while ago, over all that happened since.
    OverwriteInterface {
        interface: String,
        seconds_ago: f64,
    },
}

/// Why a change cannot be made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ChangeError {
    #[error("there is no instance '{0}'; name it by its provider ID or its name, GET /world lists all")]
    NoInstance(String),
    #[error("there is no interface '{0}'; name it by its id or its name")]
    NoInterface(String),
    #[error("{0} is not reserved; add it first with add_address")]
    NoAddress(IpAddr),
    #[error("{address} and '{instance}' are in two clouds; use an address of the cloud of the instance")]
    OtherCloud { address: IpAddr, instance: String },
    #[error("AWS never gives the id of an instance to another one; terminate '{0}' and add another instance")]
    NeverRecreated(String),
    #[error(transparent)]
    World(#[from] WorldError),
}

impl State {
    /// Makes a change and writes it down.
    pub fn change(&mut self, change: &Change) -> Result<u64, ChangeError> {
        self.settle();
        let (cloud, target) = self.make(change)?;
        self.log_background(Kind::Outside, cloud, "outside", &name_of(change), &target, None);
        self.settle();
        Ok(self.log.last())
    }

    fn make(&mut self, change: &Change) -> Result<(Cloud, String), ChangeError> {
        match change {
            Change::AddInstance { instance } => {
                World::add_instance(self, instance)?;
                self.instance(&instance.provider_id)
            }
            Change::AddAddress { address } => {
                World::add_address(self, address)?;
                Ok((address.cloud, address.address.to_string()))
            }
            Change::ReleaseAddress { address } => {
                let (cloud, key) = self.address(*address)?;
                self.remove_address(cloud, &key);
                Ok((cloud, address.to_string()))
            }
            Change::Attach { address, instance, name } => self.attach(*address, instance, name.as_deref()),
            Change::Detach { address } => {
                let (cloud, key) = self.address(*address)?;
                self.take_from_holder(cloud, &key);
                Ok((cloud, address.to_string()))
            }
            Change::Hold { address, resource } => {
                let (cloud, key) = self.address(*address)?;
                self.take_from_holder(cloud, &key);
                let binding = association_id(self.next_uid());
                let resource = resource.clone();
                self.set_holder(cloud, &key, Some(Holder::Other { resource, binding }));
                Ok((cloud, address.to_string()))
            }
            Change::TouchInterface { interface } => {
                let (cloud, key) = self.interface(interface)?;
                let now = self.now();
                self.cloud_mut(cloud).interfaces.edit(&key, now, |row| row.version += 1);
                Ok((cloud, key))
            }
            Change::OverwriteInterface { interface, seconds_ago } => self.overwrite(interface, *seconds_ago),
            other => self.make_of_instance(other),
        }
    }

    fn make_of_instance(&mut self, change: &Change) -> Result<(Cloud, String), ChangeError> {
        let (Change::StopInstance { instance: name }
        | Change::StartInstance { instance: name }
        | Change::SetState { instance: name, .. }
        | Change::TerminateInstance { instance: name, .. }
        | Change::RecreateInstance { instance: name }
        | Change::AddInterface { instance: name }) = change
        else {
            return Err(ChangeError::NoInstance(name_of(change)));
        };
        let (cloud, key) = self.instance(name)?;
        match change {
            Change::StopInstance { .. } => self.stop_instance(cloud, &key),
            Change::StartInstance { .. } => self.start_instance(cloud, &key),
            Change::SetState { state, .. } => self.set_instance_state(cloud, &key, *state),
            Change::TerminateInstance { keep_interfaces, .. } => {
                self.terminate_instance(cloud, &key, *keep_interfaces);
            }
            Change::RecreateInstance { .. } if cloud == Cloud::Aws => {
                return Err(ChangeError::NeverRecreated(name.clone()));
            }
            Change::RecreateInstance { .. } => self.recreate_instance(cloud, &key),
            _ => self.add_interface(cloud, &key),
        }
        Ok((cloud, key))
    }

    fn instance(&self, name: &str) -> Result<(Cloud, String), ChangeError> {
        self.find_instance(name).ok_or_else(|| ChangeError::NoInstance(name.to_owned()))
    }

    fn interface(&self, name: &str) -> Result<(Cloud, String), ChangeError> {
        self.find_interface(name).ok_or_else(|| ChangeError::NoInterface(name.to_owned()))
    }

    fn address(&self, ip: IpAddr) -> Result<(Cloud, String), ChangeError> {
        self.find_address(ip).ok_or(ChangeError::NoAddress(ip))
    }

    fn attach(
        &mut self,
        ip: IpAddr,
        instance: &str,
        name: Option<&str>,
    ) -> Result<(Cloud, String), ChangeError> {
        let (cloud, address) = self.address(ip)?;
        let (of_instance, key) = self.instance(instance)?;
        if cloud != of_instance {
            let instance = instance.to_owned();
            return Err(ChangeError::OtherCloud { address: ip, instance });
        }
        self.take_from_holder(cloud, &address);
        self.put_on_instance(cloud, &address, &key, name)
            .ok_or_else(|| ChangeError::NoInterface(instance.to_owned()))?;
        Ok((cloud, ip.to_string()))
    }

    /// Takes a reserved address from whoever has it.
    pub(crate) fn take_from_holder(&mut self, cloud: Cloud, address: &str) {
        match self.cloud(cloud).addresses.get(address).and_then(|row| row.holder.clone()) {
            Some(Holder::Slot { interface, slot, .. }) => drop(self.unbind(cloud, &interface, slot)),
            Some(Holder::Other { .. }) => self.set_holder(cloud, address, None),
            None => {}
        }
    }

    /// Puts a free reserved address on the first slot of an instance, in the place of what is there.
    pub(crate) fn put_on_instance(
        &mut self,
        cloud: Cloud,
        address: &str,
        instance: &str,
        name: Option<&str>,
    ) -> Option<()> {
        let interface = self.first_interface(cloud, instance)?;
        let row = self.cloud(cloud).addresses.get(address)?.clone();
        self.unbind(cloud, &interface, 0);
        let id = match (cloud, name) {
            (_, Some(name)) => name.to_owned(),
            (Cloud::Gcp, None) => "External NAT".to_owned(),
            (Cloud::Aws | Cloud::Azure, None) => association_id(self.next_uid()),
        };
        let binding = Binding { id, ip: Some(row.ip), reserved: Some(address.to_owned()), tier: row.tier };
        self.bind(cloud, &interface, 0, binding);
        Some(())
    }

    fn add_interface(&mut self, cloud: Cloud, key: &str) {
        let Some(instance) = self.cloud(cloud).instances.get(key).cloned() else {
            return;
        };
        let Some(parsed) = provider_id::parse(&instance.provider_id) else {
            return;
        };
        let spec = InstanceSpec::of(&instance.provider_id);
        let n = instance.interfaces.len();
        let made =
            crate::world::new_interface(self, &parsed, &spec, n, &instance.region, &instance.border_group);
        let now = self.now();
        let inventory = self.cloud_mut(cloud);
        inventory.interfaces.put(&made.0, made.1, now);
        inventory.instances.edit(key, now, |row| row.interfaces.push(made.0));
    }

    fn overwrite(&mut self, interface: &str, seconds_ago: f64) -> Result<(Cloud, String), ChangeError> {
        let (cloud, key) = self.interface(interface)?;
        let then = minus(self.now(), seconds(seconds_ago));
        let old = self.cloud(cloud).interfaces.seen(&key, Some(then)).cloned();
        let Some(old) = old else {
            return Err(ChangeError::NoInterface(format!("{interface}, {seconds_ago} s ago")));
        };
        self.write_back(cloud, &key, &old);
        Ok((cloud, key))
    }

    /// Writes an interface as it once was. An address that somebody else has now stays where it is.
    fn write_back(&mut self, cloud: Cloud, key: &str, old: &Interface) {
        for (n, slot) in old.slots.iter().enumerate() {
            let now_there = self.slot(cloud, key, n).and_then(|slot| slot.binding.clone());
            if now_there == slot.binding {
                continue;
            }
            self.unbind(cloud, key, n);
            let Some(binding) = &slot.binding else { continue };
            let taken = binding.reserved.as_ref().is_some_and(|address| {
                let row = self.cloud(cloud).addresses.get(address);
                row.is_none_or(|row| row.holder.is_some())
            });
            if !taken {
                self.bind(cloud, key, n, binding.clone());
            }
        }
        let now = self.now();
        self.cloud_mut(cloud).interfaces.edit(key, now, |row| {
            row.version += 1;
            row.document.clone_from(&old.document);
        });
    }
}

/// The name of a change in the log.
fn name_of(change: &Change) -> String {
    let value = serde_json::to_value(change).unwrap_or_default();
    value["do"].as_str().unwrap_or("change").to_owned()
}
