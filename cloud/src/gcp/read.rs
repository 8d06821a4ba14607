//! Reads addresses and instances of a project: two lists, and a third if somebody unexpected has an address.

use super::Gcp;
use super::calls::Addresses;
use super::model::{self, Place};
use super::names::{self, Token};
use crate::{AddressState, Ask, Class, Error, InstanceState, Reading, Refusal};
use google_cloud_compute_v1::model::{Address, Instance};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use tokio::time::Instant;

/// So many questions about single instances are under way at once.
const AT_ONCE: usize = 4;
const GLOBAL: &str = "nothing, but it is a global address, which only load balancers can have";
pub const IPV4_ONLY: &str =
    "external IPv6 addresses of instances cannot be moved here: GCP ties them to the subnet";

/// Everything that was asked for.
pub async fn read(gcp: &Gcp, ask: &Ask, deadline: Instant) -> Reading {
    let mut world = World::default();
    let asked: BTreeSet<Place> = ask.instances.iter().filter_map(|id| Place::of(id)).collect();
    world.read_instances(gcp, &asked, deadline).await;
    let addresses = read_addresses(gcp, ask, &world, deadline).await;
    if let Ok(addresses) = &addresses {
        let holders = addresses.found.iter().filter(|address| asks_for(ask, address));
        let holders = holders.filter_map(|address| Place::of_link(address.users.first()?));
        let others: BTreeSet<Place> = holders.filter(|place| !asked.contains(place)).collect();
        world.read_instances(gcp, &others, deadline).await;
    }
    world.confirm_missing(gcp, &asked, deadline).await;
    let mut reading = Reading::default();
    for address in &ask.addresses {
        reading.addresses.insert(*address, address_state(*address, &addresses, &world));
    }
    if reading.addresses.values().any(is_ours) {
        gcp.room.works();
    }
    for id in &ask.instances {
        let place = Place::of(id);
        let state =
            place.map_or(InstanceState::NotFound, |place| instance_state(&place, &addresses, &world, ask));
        reading.instances.insert(id.clone(), state);
    }
    reading
}

/// Whether an address is attached by a name of ours: then attaching has worked in this project.
fn is_ours(state: &AddressState) -> bool {
    let AddressState::Attached { token, .. } = state else { return false };
    Token::read(token).is_some_and(|token| names::is_ours(&token.name))
}

fn asks_for(ask: &Ask, address: &Address) -> bool {
    model::ip(address).is_some_and(|ip| ask.addresses.contains(&ip))
}

/// The instances as far as they were read.
#[derive(Default)]
struct World {
    instances: HashMap<Place, Result<Option<Instance>, Error>>,
}

impl World {
    /// Reads instances by name, one list per project.
    async fn read_instances(&mut self, gcp: &Gcp, places: &BTreeSet<Place>, deadline: Instant) {
        let mut by_project: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for place in places {
            by_project.entry(&place.project).or_default().insert(place.name.clone());
        }
        for (project, named) in by_project {
            let named: Vec<String> = named.into_iter().collect();
            match gcp.instances(project, &named, deadline).await {
                Ok(found) => self.add(project, places, found),
                Err(error) => {
                    let of_project = places.iter().filter(|place| place.project == project);
                    self.instances.extend(of_project.map(|place| (place.clone(), Err(error.clone()))));
                }
            }
        }
    }

    fn add(&mut self, project: &str, wanted: &BTreeSet<Place>, found: Vec<Instance>) {
        for instance in found {
            let (Some(zone), Some(name)) = (&instance.zone, &instance.name) else { continue };
            let zone = model::last_part(zone).to_owned();
            let place = Place { project: project.to_owned(), zone, name: name.clone() };
            if wanted.contains(&place) {
                self.instances.insert(place, Ok(Some(instance)));
            }
        }
    }

    /// That one is gone has consequences: one that a list lacks is asked for by name before it is believed.
    async fn confirm_missing(&mut self, gcp: &Gcp, asked: &BTreeSet<Place>, deadline: Instant) {
        let missing: Vec<&Place> =
            asked.iter().filter(|place| !self.instances.contains_key(*place)).collect();
        let found = Box::pin(few_at_once(missing, |place| gcp.instance(place, deadline))).await;
        self.instances.extend(found.into_iter().map(|(place, found)| (place.clone(), found)));
    }

    /// The addresses that instances show.
    fn shown(&self) -> impl Iterator<Item = IpAddr> {
        let instances = self.instances.values().filter_map(|found| found.as_ref().ok()?.as_ref());
        instances.filter_map(|instance| model::nat_ip(model::access_config(instance)?))
    }
}

/// Asks for each of several things, a few at once: one by one, many that are gone at the same time would take longer
/// than a reading may.
async fn few_at_once<K: Copy, T, F>(keys: Vec<K>, ask: impl Fn(K) -> F) -> Vec<(K, T)>
where
    F: Future<Output = T>,
{
    let left = Mutex::new(keys.into_iter());
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let lane = async || {
        let mut answers = Vec::new();
        while let Some(key) = next() {
            answers.push((key, ask(key).await));
        }
        answers
    };
    let lanes: [Vec<(K, T)>; AT_ONCE] = tokio::join!(lane(), lane(), lane(), lane()).into();
    lanes.into_iter().flatten().collect()
}

/// The addresses that were asked for and those that instances show: which of these are reserved decides
/// whether they are somebody's.
async fn read_addresses(gcp: &Gcp, ask: &Ask, world: &World, deadline: Instant) -> Result<Addresses, Error> {
    let asked = ask.addresses.iter().copied().filter(IpAddr::is_ipv4);
    let ips: BTreeSet<IpAddr> = asked.chain(world.shown()).collect();
    if ips.is_empty() {
        return Ok(Addresses::default());
    }
    let ips: Vec<String> = ips.iter().map(ToString::to_string).collect();
    gcp.addresses(&ips, deadline).await
}

/// The reserved external address of an IP.
pub fn find(addresses: &Addresses, ip: IpAddr) -> Option<&Address> {
    addresses.found.iter().find(|address| {
        let internal = address.address_type.as_ref().and_then(|kind| kind.name()) == Some("INTERNAL");
        !internal && model::ip(address) == Some(ip)
    })
}

fn address_state(ip: IpAddr, addresses: &Result<Addresses, Error>, world: &World) -> AddressState {
    let unknown = |words: String| AddressState::Unknown(Error::new(Class::Transient, words));
    if ip.is_ipv6() {
        return AddressState::Unknown(Error::new(Class::Unsupported, IPV4_ONLY));
    }
    let addresses = match addresses {
        Ok(addresses) => addresses,
        Err(error) => return AddressState::Unknown(error.clone()),
    };
    let Some(address) = find(addresses, ip) else {
        return match addresses.unreachable.first() {
            Some(region) => unknown(format!("{region} did not answer; {ip} may be there")),
            None => AddressState::NotFound,
        };
    };
    let Some(region) = model::region(address) else {
        return AddressState::HeldByOther { holder: GLOBAL.to_owned() };
    };
    let tier = address.network_tier.as_ref().and_then(|tier| tier.name()).unwrap_or("PREMIUM");
    match (address.users.first(), address.status.as_ref().and_then(|status| status.name())) {
        (None, Some("RESERVED")) => AddressState::Free { token: format!("{region}/{tier}") },
        (None, status) => unknown(format!("{ip} is {}", status.unwrap_or("in no known state"))),
        (Some(user), _) => match Place::of_link(user) {
            Some(place) => attached(ip, &place, world),
            None => AddressState::HeldByOther { holder: user.clone() },
        },
    }
}

fn attached(ip: IpAddr, place: &Place, world: &World) -> AddressState {
    let behind = || {
        let message =
            format!("{ip} says that it is on {}, which does not show it (yet)", place.provider_id());
        AddressState::Unknown(Error::new(Class::Transient, message))
    };
    let instance = match world.instances.get(place) {
        Some(Ok(Some(instance))) => instance,
        Some(Err(error)) => return AddressState::Unknown(error.clone()),
        Some(Ok(None)) | None => return behind(),
    };
    let Some((interface, name)) = model::holding(instance, ip) else {
        return behind();
    };
    let token = Token { instance: instance.id.unwrap_or_default(), interface, name }.write();
    AddressState::Attached { provider_id: place.provider_id(), token }
}

fn instance_state(
    place: &Place,
    addresses: &Result<Addresses, Error>,
    world: &World,
    ask: &Ask,
) -> InstanceState {
    let instance = match world.instances.get(place) {
        Some(Ok(Some(instance))) => instance,
        Some(Err(error)) => return InstanceState::Unknown(error.clone()),
        Some(Ok(None)) | None => return InstanceState::NotFound,
    };
    if !model::runs(instance) {
        return InstanceState::Stopped;
    }
    if model::interface(instance).is_none() {
        let why = "it has no network interface".to_owned();
        return InstanceState::Running { refuses: Some(Refusal::Unsupported(why)) };
    }
    let shown = model::access_config(instance).and_then(model::nat_ip);
    let Some(foreign) = shown.filter(|ip| !ask.addresses.contains(ip)) else {
        return InstanceState::Running { refuses: None };
    };
    match addresses {
        Err(error) => InstanceState::Unknown(error.clone()),
        Ok(addresses) if find(addresses, foreign).is_some() => {
            InstanceState::Running { refuses: Some(Refusal::HoldsForeignAddress(foreign)) }
        }
        Ok(addresses) => match addresses.unreachable.first() {
            None => InstanceState::Running { refuses: None },
            Some(region) => {
                let message =
                    format!("{region} did not answer; {foreign} may be a static address of somebody's");
                InstanceState::Unknown(Error::new(Class::Transient, message))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::Barrier;

    /// Each waits until so many others are under way: one by one, none would ever end.
    #[tokio::test]
    async fn a_few_are_asked_for_at_once_and_no_more() {
        let (together, under_way, most) = (Barrier::new(AT_ONCE), AtomicUsize::new(0), AtomicUsize::new(0));
        let ask = async |key: usize| {
            let now = under_way.fetch_add(1, Ordering::Relaxed) + 1;
            most.fetch_max(now, Ordering::Relaxed);
            together.wait().await;
            under_way.fetch_sub(1, Ordering::Relaxed);
            key * 2
        };
        let keys: Vec<usize> = (0..AT_ONCE * 3).collect();
        let asked = few_at_once(keys.clone(), ask);
        let within = std::time::Duration::from_secs(10);
        let mut answers = tokio::time::timeout(within, asked).await.expect("they are asked for at once");
        answers.sort_unstable();
        assert_eq!(answers, keys.iter().map(|key| (*key, key * 2)).collect::<Vec<_>>());
        assert_eq!(most.into_inner(), AT_ONCE);
    }
}
