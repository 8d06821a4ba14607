//! Instances come, stop, start, are re-created and go, and take along what their cloud says they do.

use super::State;
use super::things::{Binding, Cloud, Instance, InstanceState, Interface};

/// The name that GCP's tools give to an access config.
pub const USUAL_ACCESS_CONFIG: &str = "external-nat";

impl State {
    /// Adds an instance with its interfaces, and the public address of the cloud's choice if it wants one.
    pub fn add_instance(
        &mut self,
        cloud: Cloud,
        key: &str,
        instance: Instance,
        interfaces: Vec<(String, Interface)>,
    ) {
        let now = self.now();
        let first = instance.interfaces.first().cloned();
        let ephemeral = instance.wants_ephemeral && cloud != Cloud::Azure;
        let inventory = self.cloud_mut(cloud);
        inventory.instances.put(key, instance, now);
        for (key, interface) in interfaces {
            inventory.interfaces.put(&key, interface, now);
        }
        if let (true, Some(interface)) = (ephemeral, first) {
            self.bind_ephemeral(cloud, &interface, USUAL_ACCESS_CONFIG);
        }
    }

    /// Stops an instance. Reserved addresses stay, those of the cloud's choice go.
    pub fn stop_instance(&mut self, cloud: Cloud, key: &str) {
        self.set_instance_state(cloud, key, InstanceState::Stopped);
        for (interface, slot, binding) in self.bindings_of(cloud, key) {
            if binding.reserved.is_some() {
                continue;
            }
            self.unbind(cloud, &interface, slot);
            if cloud == Cloud::Gcp {
                // The access config stays, without an address in it.
                let empty = Binding { ip: None, ..binding };
                self.bind(cloud, &interface, slot, empty);
            }
        }
    }

    /// Starts an instance again.
    pub fn start_instance(&mut self, cloud: Cloud, key: &str) {
        self.set_instance_state(cloud, key, InstanceState::Running);
        for (interface, slot, binding) in self.bindings_of(cloud, key) {
            if binding.ip.is_none() {
                self.unbind(cloud, &interface, slot);
                self.bind_ephemeral(cloud, &interface, &binding.id);
            }
        }
        let wants = self.cloud(cloud).instances.get(key).is_some_and(|found| found.wants_ephemeral);
        if cloud == Cloud::Aws && wants {
            self.aws_auto_assign(key);
        }
    }

    /// Ends an instance for good. `keep_interfaces` leaves them behind, holding what they hold.
    pub fn terminate_instance(&mut self, cloud: Cloud, key: &str, keep_interfaces: bool) {
        let now = self.now();
        let Some(instance) = self.cloud(cloud).instances.get(key).cloned() else {
            return;
        };
        if cloud == Cloud::Aws {
            self.set_instance_state(cloud, key, InstanceState::Terminated);
            let after = self.settings.aws.free_after_terminate;
            let key = key.to_owned();
            let target = key.clone();
            let free = move |state: &mut State| {
                state.drop_interfaces(Cloud::Aws, &key);
                Ok(())
            };
            self.later(cloud, after, "interfaces deleted", &target, Box::new(free));
            return;
        }
        if keep_interfaces {
            for interface in &instance.interfaces {
                self.cloud_mut(cloud).interfaces.edit(interface, now, |row| row.instance = None);
            }
        } else {
            self.drop_interfaces(cloud, key);
        }
        self.cloud_mut(cloud).instances.remove(key, now);
    }

    /// Puts a new instance of the same name in the place of one, as a managed group does.
    pub fn recreate_instance(&mut self, cloud: Cloud, key: &str) {
        let now = self.now();
        let inventory = self.cloud(cloud);
        let Some(mut instance) = inventory.instances.get(key).cloned() else {
            return;
        };
        let of_instance = |id: &String| Some((id.clone(), inventory.interfaces.get(id)?.clone()));
        let mut interfaces: Vec<(String, Interface)> =
            instance.interfaces.iter().filter_map(of_instance).collect();
        self.terminate_instance(cloud, key, false);
        instance.uid = self.next_uid();
        instance.created = now;
        instance.state = InstanceState::Running;
        instance.state_since = now;
        for (_, interface) in &mut interfaces {
            interface.version += 1;
            interface.busy = None;
            interface.draft = None;
            for slot in &mut interface.slots {
                slot.binding = None;
            }
        }
        self.add_instance(cloud, key, instance, interfaces);
    }

    /// Changes whether an instance runs.
    pub fn set_instance_state(&mut self, cloud: Cloud, key: &str, state: InstanceState) {
        let now = self.now();
        self.cloud_mut(cloud).instances.edit(key, now, |instance| {
            instance.state = state;
            instance.state_since = now;
        });
    }

    /// AWS gives a running instance a new public address when it has none, a while after it lost the last
    /// one, but only if it has one interface.
    pub fn aws_auto_assign(&mut self, key: &str) {
        let after = self.settings.aws.ephemeral_after;
        let instance = key.to_owned();
        let assign = move |state: &mut State| {
            let inventory = state.cloud(Cloud::Aws);
            let Some(found) = inventory.instances.get(&instance) else {
                return Ok(());
            };
            let fits =
                found.wants_ephemeral && found.state == InstanceState::Running && found.interfaces.len() == 1;
            let Some(interface) = found.interfaces.first().cloned() else {
                return Ok(());
            };
            if fits && state.bindings_of(Cloud::Aws, &instance).is_empty() {
                state.bind_ephemeral(Cloud::Aws, &interface, "");
            }
            Ok(())
        };
        self.later(Cloud::Aws, after, "public address assigned", key, Box::new(assign));
    }

    /// The public addresses of an instance: interface, slot and binding.
    pub fn bindings_of(&self, cloud: Cloud, instance: &str) -> Vec<(String, usize, Binding)> {
        let inventory = self.cloud(cloud);
        let Some(instance) = inventory.instances.get(instance) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for key in &instance.interfaces {
            for (n, slot) in inventory.interfaces.get(key).iter().flat_map(|row| row.slots.iter().enumerate())
            {
                found.extend(slot.binding.clone().map(|binding| (key.clone(), n, binding)));
            }
        }
        found
    }

    fn drop_interfaces(&mut self, cloud: Cloud, key: &str) {
        let now = self.now();
        for (interface, slot, _) in self.bindings_of(cloud, key) {
            self.unbind(cloud, &interface, slot);
        }
        let Some(instance) = self.cloud(cloud).instances.get(key).cloned() else {
            return;
        };
        for interface in &instance.interfaces {
            self.cloud_mut(cloud).interfaces.remove(interface, now);
        }
        self.cloud_mut(cloud).instances.edit(key, now, |row| row.interfaces.clear());
    }
}
