//! One model of a cloud, which all three simulators share.

mod binding;
mod lifecycle;
pub mod operations;
pub mod table;
pub mod things;

use crate::clock::{Clock, minus, seconds};
use crate::exchange::Exchanges;
use crate::faults::Script;
use crate::limits::Limiter;
use crate::log::{Hold, Kind, Log};
use crate::permissions::Roles;
use crate::settings::Settings;
use jiff::Timestamp;
use operations::{Operations, Order};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use table::{Seen, Table};
use things::{Address, Cloud, Holder, Instance, Interface, Provisioning};

/// Everything that there is in one cloud.
#[derive(Debug, Default)]
pub struct Inventory {
    /// Virtual machines.
    pub instances: Table<Instance>,
    /// Network interfaces.
    pub interfaces: Table<Interface>,
    /// Reserved public addresses.
    pub addresses: Table<Address>,
    /// Keys of reserved addresses by address.
    by_ip: HashMap<IpAddr, String>,
}

/// The whole simulated world.
pub struct State {
    /// What time it is.
    pub clock: Clock,
    /// How the clouds behave where their documentation leaves it open.
    pub settings: Settings,
    /// Work that is under way.
    pub operations: Operations,
    /// What happened.
    pub log: Log,
    /// What is to go wrong.
    pub faults: Script,
    /// Who is calling too often.
    pub limiter: Limiter,
    /// Who may do what.
    pub roles: Roles,
    /// Requests and replies, when they are recorded.
    pub exchanges: Exchanges,
    /// Callers that run on an instance (by provider ID) and need its way to the internet.
    pub callers: BTreeMap<String, String>,
    clouds: [Inventory; 3],
    random: u64,
    uids: u64,
    ephemeral: [u16; 3],
    private: u32,
}

impl State {
    /// An empty world.
    pub fn new(clock: Clock, settings: Settings, seed: u64) -> Self {
        Self {
            clock,
            settings,
            operations: Operations::default(),
            log: Log::default(),
            faults: Script::default(),
            limiter: Limiter::default(),
            roles: Roles::default(),
            exchanges: Exchanges::default(),
            callers: BTreeMap::new(),
            clouds: Default::default(),
            random: seed,
            uids: 4_000_000_000_000_000_000,
            ephemeral: [0; 3],
            private: 0,
        }
    }

    /// What time it is.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// What there is in a cloud.
    pub fn cloud(&self, cloud: Cloud) -> &Inventory {
        &self.clouds[cloud as usize]
    }

    /// What there is in a cloud, to be changed.
    pub fn cloud_mut(&mut self, cloud: Cloud) -> &mut Inventory {
        &mut self.clouds[cloud as usize]
    }

    /// A number that was never given before.
    pub fn next_uid(&mut self) -> u64 {
        self.uids += 1;
        self.uids
    }

    /// A number below `bound` that nobody can foresee, the same in every run of the same world.
    pub fn random(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }

    /// When a read that lags by some seconds looks at the world; at random up to them if `jitter`.
    pub fn lagged(&mut self, lag: f64, jitter: bool) -> Seen {
        let lag = seconds(lag).min(table::LONGEST_LAG);
        let lag = if jitter {
            let millis = u64::try_from(lag.as_millis()).unwrap_or(u64::MAX);
            std::time::Duration::from_millis(self.random(millis.saturating_add(1)))
        } else {
            lag
        };
        (!lag.is_zero()).then(|| minus(self.now(), lag))
    }

    /// A public address of the cloud's choice that was never given before.
    pub fn ephemeral_ip(&mut self, cloud: Cloud) -> IpAddr {
        let count = &mut self.ephemeral[cloud as usize];
        *count = count.wrapping_add(1);
        let [high, low] = count.to_be_bytes();
        // Of the range that is set aside for tests of network devices, one half for each such cloud.
        let network = if cloud == Cloud::Gcp { 18 } else { 19 };
        IpAddr::V4(Ipv4Addr::new(198, network, high, low))
    }

    /// A private address that no other interface has.
    pub fn private_ip(&mut self) -> IpAddr {
        self.private += 1;
        let [_, high, middle, low] = self.private.to_be_bytes();
        IpAddr::V4(Ipv4Addr::new(10, high, middle, low))
    }

    /// The key of an instance, by its provider ID or its name.
    pub fn find_instance(&self, name: &str) -> Option<(Cloud, String)> {
        if let Some((cloud, key)) = crate::provider_id::parse(name).map(|id| (id.cloud(), id.key())) {
            return self.cloud(cloud).instances.get(&key).map(|_| (cloud, key));
        }
        Cloud::ALL.into_iter().find_map(|cloud| {
            let mut all = self.cloud(cloud).instances.all(None);
            let (key, _) = all.find(|(_, instance)| instance.name == name)?;
            Some((cloud, key.to_owned()))
        })
    }

    /// The key of an interface, by its key, its id or its name.
    pub fn find_interface(&self, name: &str) -> Option<(Cloud, String)> {
        Cloud::ALL.into_iter().find_map(|cloud| {
            let mut all = self.cloud(cloud).interfaces.all(None);
            let (key, _) = all.find(|(key, interface)| {
                *key == name || interface.name == name || interface.id.eq_ignore_ascii_case(name)
            })?;
            Some((cloud, key.to_owned()))
        })
    }

    /// The key of a reserved address.
    pub fn find_address(&self, ip: IpAddr) -> Option<(Cloud, String)> {
        Cloud::ALL.into_iter().find_map(|cloud| Some((cloud, self.cloud(cloud).by_ip.get(&ip)?.clone())))
    }

    /// The key of a reserved address of one cloud.
    pub fn address_key(&self, cloud: Cloud, ip: IpAddr) -> Option<&str> {
        self.cloud(cloud).by_ip.get(&ip).map(String::as_str)
    }

    /// Begins history here: whatever there is has always been.
    pub fn begin(&mut self) {
        for inventory in &mut self.clouds {
            inventory.instances.forget_past();
            inventory.interfaces.forget_past();
            inventory.addresses.forget_past();
        }
        let holds = self.holds();
        self.log.begin(holds);
    }

    /// Who holds which reserved address in all clouds, now.
    pub fn holds(&self) -> Vec<Hold> {
        let mut holds = Vec::new();
        for cloud in Cloud::ALL {
            for (_, address) in self.cloud(cloud).addresses.all(None) {
                if let Some(holder) = &address.holder {
                    holds.push(self.hold(cloud, address.ip, holder));
                }
            }
        }
        holds
    }

    /// Who holds an address.
    pub fn holds_of(&self, cloud: Cloud, address: &Address) -> Option<Hold> {
        Some(self.hold(cloud, address.ip, address.holder.as_ref()?))
    }

    fn hold(&self, cloud: Cloud, ip: IpAddr, holder: &Holder) -> Hold {
        match holder {
            Holder::Other { resource, .. } => {
                Hold { cloud, ip, holder: resource.clone(), instance_uid: None, interface: None }
            }
            Holder::Slot { interface, .. } => {
                let inventory = self.cloud(cloud);
                let instance = inventory
                    .interfaces
                    .get(interface)
                    .and_then(|interface| inventory.instances.get(interface.instance.as_deref()?));
                Hold {
                    cloud,
                    ip,
                    holder: instance.map_or_else(|| interface.clone(), |found| found.provider_id.clone()),
                    instance_uid: instance.map(|found| found.uid),
                    interface: Some(interface.clone()),
                }
            }
        }
    }

    /// Whether a caller can reach the API: one that runs on an instance needs that instance's network.
    pub fn reaches_api(&self, caller: &str) -> bool {
        let Some(provider_id) = self.callers.get(caller) else {
            return true;
        };
        let Some((cloud, key)) = self.find_instance(provider_id) else {
            return false;
        };
        let inventory = self.cloud(cloud);
        let Some(instance) = inventory.instances.get(&key) else {
            return false;
        };
        let interfaces = instance.interfaces.iter().filter_map(|key| inventory.interfaces.get(key));
        let mut bindings =
            interfaces.flat_map(|interface| &interface.slots).filter_map(|slot| slot.binding.as_ref());
        // Azure lets nodes out by their load balancer.
        let other_way = instance.private_egress || cloud == Cloud::Azure;
        other_way || bindings.any(|binding| binding.ip.is_some())
    }

    /// Unlocks what an operation that has ended had locked.
    fn unlock(&mut self, operation: &str, order: &Order, succeeded: bool) {
        let now = self.now();
        let inventory = self.cloud_mut(order.cloud);
        let locked = |busy: &Option<String>| busy.as_deref() == Some(operation);
        if inventory.interfaces.get(&order.target).is_some_and(|row| locked(&row.busy)) {
            inventory.interfaces.edit(&order.target, now, |interface| {
                interface.busy = None;
                interface.draft = None;
                interface.version += 1;
                interface.provisioning =
                    if succeeded { Provisioning::Succeeded } else { Provisioning::Failed };
            });
        }
        for key in &order.locks {
            if inventory.addresses.get(key).is_some_and(|row| locked(&row.busy)) {
                inventory.addresses.edit(key, now, |address| address.busy = None);
            }
        }
    }

    /// Writes down something that happened without a request.
    pub fn log_background(
        &mut self,
        kind: Kind,
        cloud: Cloud,
        caller: &str,
        action: &str,
        target: &str,
        code: Option<String>,
    ) {
        let now = self.now();
        let mut event = Log::event(now, kind, cloud, action, target);
        caller.clone_into(&mut event.caller);
        event.code = code;
        event.mutating = true;
        self.log.append(event);
    }
}
