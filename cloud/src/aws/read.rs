//! Reads addresses and instances of a region: two calls for up to two hundred of each.

use super::model::{self, filled};
use super::{Aws, errors};
use crate::forms::Forms;
use crate::{AddressState, Ask, Class, Error, InstanceState, ProviderId, Reading, Refusal};
use aws_sdk_ec2::types::{Address, Filter, Instance};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use tokio::time::Instant;

/// Values of one filter.
const MOST_VALUES: usize = 200;
const PAGE: i32 = 1000;
const IPV4_ONLY: &str = "elastic IP addresses are IPv4: AWS cannot move an IPv6 address between instances";
const FARGATE: &str = "a Fargate node has no instance that an address could be attached to";

/// Instances by id.
type Instances = HashMap<String, Instance>;

/// Everything that was asked for.
pub async fn read(aws: &Aws, ask: &Ask, deadline: Instant) -> Reading {
    let ids = ask.instances.iter().filter_map(|id| instance_id(id)).collect();
    let wanted = ask.addresses.iter().copied().filter(IpAddr::is_ipv4).collect();
    let (instances, addresses) =
        tokio::join!(instances_by(aws, "instance-id", &ids, deadline), addresses(aws, &wanted, deadline));
    let mut reading = Reading::default();
    for id in &ask.instances {
        reading.instances.insert(id.clone(), instance_state(id, &instances, ask));
    }
    let holders = match (&instances, &addresses) {
        (Ok(instances), Ok(addresses)) => holders(aws, instances, addresses, deadline).await,
        (Err(error), _) | (_, Err(error)) => Err(error.clone()),
    };
    for address in &ask.addresses {
        let state = match &addresses {
            _ if address.is_ipv6() => AddressState::Unknown(Error::new(Class::Unsupported, IPV4_ONLY)),
            Ok(addresses) => address_state(addresses.get(address), &holders, &aws.gate.forms),
            Err(error) => AddressState::Unknown(error.clone()),
        };
        reading.addresses.insert(*address, state);
    }
    reading
}

fn instance_id(provider_id: &str) -> Option<String> {
    match ProviderId::parse(provider_id)? {
        ProviderId::Aws { id, .. } => Some(id),
        _ => None,
    }
}

fn instance_state(provider_id: &str, instances: &Result<Instances, Error>, ask: &Ask) -> InstanceState {
    let Some(id) = instance_id(provider_id) else {
        return match ProviderId::parse(provider_id) {
            Some(ProviderId::Fargate { .. }) => {
                InstanceState::Running { refuses: Some(Refusal::Unsupported(FARGATE.to_owned())) }
            }
            _ => InstanceState::NotFound,
        };
    };
    let instance = match instances {
        Err(error) => return InstanceState::Unknown(error.clone()),
        Ok(instances) => match instances.get(&id) {
            None => return InstanceState::NotFound,
            Some(instance) if !model::runs(instance) => return InstanceState::Stopped,
            Some(instance) => instance,
        },
    };
    let refuses = match model::place(instance) {
        None => Some(Refusal::Unsupported("it has no interface with index 0".to_owned())),
        Some(place) => place.holds.filter(|ip| !ask.addresses.contains(ip)).map(Refusal::HoldsForeignAddress),
    };
    InstanceState::Running { refuses }
}

/// Who has what: provider IDs by interface, and by instance id for interfaces that a list behind lacks.
struct Holders {
    by_interface: HashMap<String, String>,
    by_instance: HashMap<String, String>,
}

/// Finds the instances of all interfaces that have an address: those that were asked for, and others.
async fn holders(
    aws: &Aws,
    asked: &Instances,
    addresses: &BTreeMap<IpAddr, Address>,
    deadline: Instant,
) -> Result<Holders, Error> {
    let mut holders = Holders { by_interface: HashMap::new(), by_instance: HashMap::new() };
    holders.add(asked);
    let held = addresses.values().filter_map(|address| filled(address.network_interface_id()));
    let unknown = held.filter(|interface| !holders.by_interface.contains_key(*interface));
    let unknown: BTreeSet<String> = unknown.map(str::to_owned).collect();
    let others = instances_by(aws, "network-interface.network-interface-id", &unknown, deadline).await?;
    holders.add(&others);
    Ok(holders)
}

impl Holders {
    fn add(&mut self, instances: &Instances) {
        for (id, instance) in instances {
            let Some(provider_id) = model::provider_id(instance) else { continue };
            for interface in instance.network_interfaces() {
                if let Some(interface) = interface.network_interface_id() {
                    self.by_interface.insert(interface.to_owned(), provider_id.clone());
                }
            }
            self.by_instance.insert(id.clone(), provider_id);
        }
    }

    fn of(&self, address: &Address) -> Option<&String> {
        let by_interface = filled(address.network_interface_id()).and_then(|id| self.by_interface.get(id));
        by_interface.or_else(|| filled(address.instance_id()).and_then(|id| self.by_instance.get(id)))
    }
}

fn address_state(address: Option<&Address>, holders: &Result<Holders, Error>, forms: &Forms) -> AddressState {
    let Some(address) = address else {
        return AddressState::NotFound;
    };
    let Some(token) = filled(address.association_id()).map(str::to_owned) else {
        return match filled(address.allocation_id()) {
            Some(token) => AddressState::Free { token: token.to_owned() },
            None => AddressState::Unknown(Error::new(Class::Unsupported, "it is no address of a VPC")),
        };
    };
    let holders = match holders {
        Ok(holders) => holders,
        Err(error) => return AddressState::Unknown(error.clone()),
    };
    if let Some(provider_id) = holders.of(address) {
        return AddressState::Attached { provider_id: forms.of(provider_id), token };
    }
    let interface = filled(address.network_interface_id()).unwrap_or("an interface without id");
    let owner = filled(address.network_interface_owner_id()).unwrap_or("nobody known");
    AddressState::HeldByOther { holder: format!("{interface} of {owner}, which is no instance's") }
}

/// Addresses by filter: as a parameter, one that is not there would fail them all.
pub async fn addresses(
    aws: &Aws,
    wanted: &BTreeSet<IpAddr>,
    deadline: Instant,
) -> Result<BTreeMap<IpAddr, Address>, Error> {
    let values: Vec<String> = wanted.iter().map(ToString::to_string).collect();
    let mut found = BTreeMap::new();
    for values in values.chunks(MOST_VALUES) {
        let filter = Filter::builder().name("public-ip").set_values(Some(values.to_vec())).build();
        let request = async {
            let request = aws.client().await.describe_addresses().filters(filter);
            request.send().await.map_err(|error| errors::of("ec2:DescribeAddresses", &error))
        };
        let answer = aws.gate.read("DescribeAddresses", deadline, request).await?;
        let addresses = answer.addresses.unwrap_or_default().into_iter();
        found.extend(addresses.filter_map(|address| Some((address.public_ip()?.parse().ok()?, address))));
    }
    Ok(found)
}

/// Instances by a filter, over all pages. An instance that is not there is not in the answer.
pub async fn instances_by(
    aws: &Aws,
    name: &str,
    wanted: &BTreeSet<String>,
    deadline: Instant,
) -> Result<Instances, Error> {
    let values: Vec<String> = wanted.iter().cloned().collect();
    let mut found = HashMap::new();
    for values in values.chunks(MOST_VALUES) {
        let mut token: Option<String> = None;
        loop {
            let filter = Filter::builder().name(name).set_values(Some(values.to_vec())).build();
            let request = async {
                let client = aws.client().await;
                let request =
                    client.describe_instances().filters(filter).max_results(PAGE).set_next_token(token);
                request.send().await.map_err(|error| errors::of("ec2:DescribeInstances", &error))
            };
            let answer = aws.gate.read("DescribeInstances", deadline, request).await?;
            token = answer.next_token.clone().filter(|token| !token.is_empty());
            let instances = answer.reservations.unwrap_or_default().into_iter();
            let instances = instances.flat_map(|reservation| reservation.instances.unwrap_or_default());
            found.extend(
                instances.filter_map(|instance| Some((instance.instance_id()?.to_owned(), instance))),
            );
            if token.is_none() {
                break;
            }
        }
    }
    Ok(found)
}

/// One instance by its provider ID; none if there is none.
pub async fn instance(aws: &Aws, provider_id: &str, deadline: Instant) -> Result<Option<Instance>, Error> {
    let Some(id) = instance_id(provider_id) else {
        return Err(Error::new(Class::Unsupported, format!("{provider_id} is no instance of EC2")));
    };
    let found = instances_by(aws, "instance-id", &BTreeSet::from([id.clone()]), deadline).await?;
    Ok(found.get(&id).cloned())
}

/// One address; none if the account has none such.
pub async fn address(aws: &Aws, address: IpAddr, deadline: Instant) -> Result<Option<Address>, Error> {
    check_version(address)?;
    Ok(addresses(aws, &BTreeSet::from([address]), deadline).await?.remove(&address))
}

/// That it is an address of a kind that AWS can move.
pub fn check_version(address: IpAddr) -> Result<(), Error> {
    if address.is_ipv6() { Err(Error::new(Class::Unsupported, IPV4_ONLY)) } else { Ok(()) }
}
