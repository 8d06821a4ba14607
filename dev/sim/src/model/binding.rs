//! Public addresses come to interfaces and leave them. Both sides of a binding change here and only here,
//! and every change is noted for the log.

use super::State;
use super::things::{Address, Binding, Cloud, Holder, Slot};
use crate::log::{HoldChange, OwnChange};
use std::net::IpAddr;

impl State {
    /// Adds a reserved address that nobody holds yet.
    pub fn add_address(&mut self, cloud: Cloud, key: &str, address: Address) {
        let now = self.now();
        let inventory = self.cloud_mut(cloud);
        inventory.by_ip.insert(address.ip, key.to_owned());
        inventory.addresses.put(key, address, now);
    }

    /// Gives a reserved address back to the cloud. Whoever shows it goes on showing it.
    pub fn remove_address(&mut self, cloud: Cloud, key: &str) -> Option<Address> {
        let now = self.now();
        let inventory = self.cloud_mut(cloud);
        let address = inventory.addresses.remove(key, now)?;
        inventory.by_ip.remove(&address.ip);
        if let Some(holder) = &address.holder {
            let before = Some(self.hold(cloud, address.ip, holder));
            self.log.note(HoldChange { ip: address.ip, before, after: None });
        }
        Some(address)
    }

    /// Puts a public address on a slot that has none.
    pub fn bind(&mut self, cloud: Cloud, interface: &str, slot: usize, binding: Binding) {
        let now = self.now();
        let reserved = binding.reserved.clone();
        let id = binding.id.clone();
        if reserved.is_none() {
            self.note_own(cloud, interface, None, binding.ip);
        }
        self.cloud_mut(cloud).interfaces.edit(interface, now, |row| {
            row.version += 1;
            if let Some(slot) = row.slots.get_mut(slot) {
                slot.binding = Some(binding);
            }
        });
        if let Some(address) = reserved {
            let holder = Holder::Slot { interface: interface.to_owned(), slot, binding: id };
            self.set_holder(cloud, &address, Some(holder));
        }
    }

    /// Takes the public address off a slot.
    pub fn unbind(&mut self, cloud: Cloud, interface: &str, slot: usize) -> Option<Binding> {
        let now = self.now();
        let binding = self.slot(cloud, interface, slot)?.binding.clone()?;
        if let Some(address) = &binding.reserved {
            self.set_holder(cloud, address, None);
        } else {
            self.note_own(cloud, interface, binding.ip, None);
        }
        self.cloud_mut(cloud).interfaces.edit(interface, now, |row| {
            row.version += 1;
            if let Some(slot) = row.slots.get_mut(slot) {
                slot.binding = None;
            }
        });
        Some(binding)
    }

    fn note_own(&mut self, cloud: Cloud, interface: &str, before: Option<IpAddr>, after: Option<IpAddr>) {
        if let Some(instance) = self.provider_id_of(cloud, interface) {
            self.log.note_own(OwnChange { instance, before, after });
        }
    }

    /// The provider ID of the instance that an interface belongs to.
    pub fn provider_id_of(&self, cloud: Cloud, interface: &str) -> Option<String> {
        let inventory = self.cloud(cloud);
        let instance = inventory.interfaces.get(interface)?.instance.as_deref()?;
        inventory.instances.get(instance).map(|instance| instance.provider_id.clone())
    }

    /// Says who holds a reserved address.
    pub fn set_holder(&mut self, cloud: Cloud, address: &str, holder: Option<Holder>) {
        let now = self.now();
        let Some(row) = self.cloud(cloud).addresses.get(address) else {
            return;
        };
        let ip = row.ip;
        let held = |holder: Option<&Holder>| holder.map(|holder| self.hold(cloud, ip, holder));
        let change = HoldChange { ip, before: held(row.holder.as_ref()), after: held(holder.as_ref()) };
        self.log.note(change);
        self.cloud_mut(cloud).addresses.edit(address, now, |row| {
            row.version += 1;
            row.holder = holder;
        });
    }

    /// A slot as it is now.
    pub fn slot(&self, cloud: Cloud, interface: &str, slot: usize) -> Option<&Slot> {
        self.cloud(cloud).interfaces.get(interface)?.slots.get(slot)
    }

    /// The interface of an instance that an address goes to when nobody says which.
    pub fn first_interface(&self, cloud: Cloud, instance: &str) -> Option<String> {
        self.cloud(cloud).instances.get(instance)?.interfaces.first().cloned()
    }

    /// Gives the first slot of an instance a public address of the cloud's choice.
    pub fn bind_ephemeral(&mut self, cloud: Cloud, interface: &str, name: &str) {
        let ip = self.ephemeral_ip(cloud);
        let binding = Binding {
            id: name.to_owned(),
            ip: Some(ip),
            reserved: None,
            tier: self.settings.gcp.default_tier.clone(),
        };
        self.bind(cloud, interface, 0, binding);
    }
}
