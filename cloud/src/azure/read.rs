//! Reads all addresses and machines of a subscription in three lists.

use super::model::{self, Interface, Machine, Page, PublicAddress};
use super::{Azure, COMPUTE, NETWORK, machine_path};
use crate::{AddressState, Ask, Class, Error, InstanceState, ProviderId, Reading, Refusal};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use tokio::time::Instant;

/// More pages than any subscription has: a list that goes round in circles ends.
const MOST_PAGES: usize = 1000;
const UNIFORM: &str = "instances of a scale set in uniform orchestration have no interface that an address could be \
                       attached to; use Flexible orchestration, an AKS pool of type VirtualMachines, or \
                       standalone machines";

/// Everything that was asked for.
pub async fn read(azure: &Azure, ask: &Ask, deadline: Instant) -> Reading {
    let lists = Lists::read(azure, ask, deadline).await;
    let mut reading = Reading::default();
    for address in &ask.addresses {
        let state = lists.address(azure, *address, deadline).await;
        reading.addresses.insert(*address, state);
    }
    for id in &ask.instances {
        let state = lists.instance(azure, id, ask, deadline).await;
        reading.instances.insert(id.clone(), state);
    }
    reading
}

/// What was listed, by ids in lower case.
struct Lists {
    addresses: Result<Vec<PublicAddress>, Error>,
    interfaces: Result<HashMap<String, Interface>, Error>,
    machines: Result<HashMap<String, Machine>, Error>,
}

impl Lists {
    /// Reads the lists that anything that was asked for depends on.
    async fn read(azure: &Azure, ask: &Ask, deadline: Instant) -> Self {
        let is_machine = |id: &String| ProviderId::parse(id).is_some_and(|id| machine_path(&id).is_some());
        let any_machine = ask.instances.iter().any(is_machine);
        if !any_machine && ask.addresses.is_empty() {
            return Self {
                addresses: Ok(Vec::new()),
                interfaces: Ok(HashMap::new()),
                machines: Ok(HashMap::new()),
            };
        }
        let of_machines =
            async { if any_machine { machines(azure, deadline).await } else { Ok(HashMap::new()) } };
        let (addresses, interfaces, machines) =
            tokio::join!(addresses(azure, deadline), interfaces(azure, deadline), of_machines);
        Self { addresses, interfaces, machines }
    }

    async fn address(&self, azure: &Azure, address: IpAddr, deadline: Instant) -> AddressState {
        let all = match &self.addresses {
            Ok(all) => all,
            Err(error) => return AddressState::Unknown(error.clone()),
        };
        let Some(found) = all.iter().find(|found| found.properties.ip_address == Some(address)) else {
            return AddressState::NotFound;
        };
        let (config, gateway) = (&found.properties.ip_configuration, &found.properties.nat_gateway);
        let Some(config) = config else {
            return match gateway {
                // One that a NAT gateway has shows no configuration: it only looks free.
                Some(gateway) => AddressState::HeldByOther { holder: gateway.id.clone() },
                None => AddressState::Free { token: found.id.clone() },
            };
        };
        self.holder(azure, &config.id, deadline).await
    }

    /// Who has an address, by the id of the configuration that refers to it.
    async fn holder(&self, azure: &Azure, config: &str, deadline: Instant) -> AddressState {
        let other = || AddressState::HeldByOther { holder: config.to_owned() };
        let lower = config.to_ascii_lowercase();
        let Some((interface, _)) = lower.split_once("/ipconfigurations/") else {
            return other();
        };
        if !interface.contains("/microsoft.network/networkinterfaces/") {
            return other();
        }
        let listed = match &self.interfaces {
            Ok(listed) => listed.get(interface).cloned(),
            Err(error) => return AddressState::Unknown(error.clone()),
        };
        // An interface that a reference names and a list lacks: the list may be behind.
        let interface = match listed {
            Some(interface) => interface,
            None => match interface_at(azure, interface, deadline).await {
                Ok(interface) => interface,
                Err(error) => return AddressState::Unknown(error),
            },
        };
        let machine =
            interface.properties.virtual_machine.as_ref().and_then(|machine| provider_id(azure, &machine.id));
        match machine {
            Some(provider_id) => AddressState::Attached { provider_id, token: interface.etag },
            // The machine is gone and has left its interface behind.
            None => AddressState::HeldByOther { holder: interface.id },
        }
    }

    async fn instance(&self, azure: &Azure, id: &str, ask: &Ask, deadline: Instant) -> InstanceState {
        let parsed = match ProviderId::parse(id) {
            Some(parsed @ ProviderId::Azure { .. }) => parsed,
            Some(ProviderId::AzureUniform { .. }) => {
                return InstanceState::Running { refuses: Some(Refusal::Unsupported(UNIFORM.to_owned())) };
            }
            _ => return InstanceState::NotFound,
        };
        let machines = match &self.machines {
            Ok(machines) => machines,
            Err(error) => return InstanceState::Unknown(error.clone()),
        };
        let machine = match machines.get(&parsed.key()) {
            Some(machine) => machine.clone(),
            // That one is gone has consequences: it is asked for by name before it is believed.
            None => match machine_of(azure, &parsed, true, deadline).await {
                Ok(Some(machine)) => machine,
                Ok(None) => return InstanceState::NotFound,
                Err(error) => return InstanceState::Unknown(error),
            },
        };
        match machine.runs() {
            Some(true) => self.refusal(&parsed, ask),
            Some(false) => InstanceState::Stopped,
            None => {
                let message = "Azure does not say whether the machine runs";
                InstanceState::Unknown(Error::new(Class::Transient, message))
            }
        }
    }

    /// Whether a running machine's primary interface holds an address of somebody else's.
    fn refusal(&self, id: &ProviderId, ask: &Ask) -> InstanceState {
        let (addresses, interfaces) = match (&self.addresses, &self.interfaces) {
            (Ok(addresses), Ok(interfaces)) => (addresses, interfaces),
            (Err(error), _) | (_, Err(error)) => return InstanceState::Unknown(error.clone()),
        };
        let refuses = primary_of(interfaces, id).and_then(|interface| {
            let config = interface.config_for(IpAddr::from([0, 0, 0, 0]))?;
            let held = interface.public_address(config)?;
            let address = addresses.iter().find(|address| address.id.eq_ignore_ascii_case(held));
            match address.and_then(|address| address.properties.ip_address) {
                Some(ip) if ask.addresses.contains(&ip) => None,
                Some(ip) => Some(Refusal::HoldsForeignAddress(ip)),
                None => Some(Refusal::Unsupported(format!("its interface has {held}, which we cannot read"))),
            }
        });
        InstanceState::Running { refuses }
    }
}

fn primary_of<'a>(interfaces: &'a HashMap<String, Interface>, id: &ProviderId) -> Option<&'a Interface> {
    let key = id.key();
    let of_machine = |interface: &&Interface| {
        let machine = interface.properties.virtual_machine.as_ref();
        machine.and_then(|machine| machine_key(&machine.id)).as_ref() == Some(&key)
    };
    let mut own: Vec<&Interface> = interfaces.values().filter(of_machine).collect();
    own.sort_by(|a, b| a.id.cmp(&b.id));
    own.iter().find(|interface| interface.properties.primary == Some(true)).or(own.first()).copied()
}

/// The provider ID of a machine: as the node has it, else as the cloud provider writes it, which has the
/// subscription and the group in lower case.
fn provider_id(azure: &Azure, machine: &str) -> Option<String> {
    let id = ProviderId::parse(&format!("azure://{machine}"))?;
    let ProviderId::Azure { subscription, group, name } = id else {
        return None;
    };
    let (subscription, group) = (subscription.to_ascii_lowercase(), group.to_ascii_lowercase());
    let written = ProviderId::Azure { subscription, group, name };
    Some(azure.gate.forms.of(&format!("azure://{}", machine_path(&written)?)))
}

fn machine_key(id: &str) -> Option<String> {
    ProviderId::parse(&format!("azure://{id}")).map(|id| id.key())
}

/// All public addresses of the subscription: the API has no filter.
pub async fn addresses(azure: &Azure, deadline: Instant) -> Result<Vec<PublicAddress>, Error> {
    let path =
        format!("/subscriptions/{}/providers/Microsoft.Network/publicIPAddresses", azure.subscription());
    list(azure, "publicIPAddresses.list", azure.arm.url(&path, NETWORK), deadline).await
}

async fn interfaces(azure: &Azure, deadline: Instant) -> Result<HashMap<String, Interface>, Error> {
    let path =
        format!("/subscriptions/{}/providers/Microsoft.Network/networkInterfaces", azure.subscription());
    let all: Vec<Interface> =
        list(azure, "networkInterfaces.list", azure.arm.url(&path, NETWORK), deadline).await?;
    Ok(all.into_iter().map(|interface| (interface.id.to_ascii_lowercase(), interface)).collect())
}

/// Whether the machines of the subscription run, and nothing else about them.
async fn machines(azure: &Azure, deadline: Instant) -> Result<HashMap<String, Machine>, Error> {
    let subscription = azure.subscription();
    let path =
        format!("/subscriptions/{subscription}/providers/Microsoft.Compute/virtualMachines?statusOnly=true");
    let all: Vec<Machine> =
        list(azure, "virtualMachines.list", azure.arm.url(&path, COMPUTE), deadline).await?;
    Ok(all.into_iter().filter_map(|machine| Some((machine_key(&machine.id)?, machine))).collect())
}

async fn list<T: DeserializeOwned>(
    azure: &Azure,
    operation: &'static str,
    first: String,
    deadline: Instant,
) -> Result<Vec<T>, Error> {
    let mut found = Vec::new();
    let mut next = Some(first);
    for _ in 0..MOST_PAGES {
        let Some(url) = next.take() else { return Ok(found) };
        let answer = azure.gate.read(operation, deadline, azure.arm.get(&url)).await?;
        let page: Page<T> = model::read(&answer.body)?;
        found.extend(page.value);
        next = page.next_link.filter(|link| !link.is_empty());
    }
    Err(Error::new(Class::Transient, format!("{operation}: the list has no end")))
}

/// A machine; none if there is none.
pub async fn machine_of(
    azure: &Azure,
    id: &ProviderId,
    with_state: bool,
    deadline: Instant,
) -> Result<Option<Machine>, Error> {
    let Some(path) = machine_path(id) else {
        return Ok(None);
    };
    let path = if with_state { format!("{path}?$expand=instanceView") } else { path };
    let url = azure.arm.url(&path, COMPUTE);
    let found = azure.gate.read("virtualMachines.get", deadline, azure.arm.find(&url)).await?;
    found.map(|answer| model::read(&answer.body)).transpose()
}

async fn interface_at(azure: &Azure, id: &str, deadline: Instant) -> Result<Interface, Error> {
    let url = azure.arm.url(id, NETWORK);
    let answer = azure.gate.read("networkInterfaces.get", deadline, azure.arm.get(&url)).await?;
    model::read(&answer.body)
}

/// The addresses by their IP, for those who want one of many.
pub fn by_ip(addresses: &[PublicAddress]) -> BTreeMap<IpAddr, &PublicAddress> {
    addresses.iter().filter_map(|address| Some((address.properties.ip_address?, address))).collect()
}
