//! When a node's own address may be taken away to make room for one of ours.
//!
//! The API takes an address away before anything shows whether another one may be added: without the right to
//! add, node after node would be left bare. So it is asked first (`testIamPermissions`); after a refusal
//! nothing is taken from any node until it was asked again and granted. What no permission decides, such as an
//! organisation policy, cannot be asked for: then only one node is tried in a long while, never the same one
//! soon, and as long as no attach of ours is known to have worked in this project, one at a time.
//!
//! A permission on instances may be denied on one of them alone. So its refusal closes that node, and the project
//! once a second node was refused. An address that two nodes refused for good takes the own address of no third.

use super::model::Place;
use crate::{Class, Error};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout_at};

/// How long what was granted is believed.
const BELIEVED: Duration = Duration::from_mins(10);
/// How long no node is tried after a refusal that could not be foreseen; doubled each time in a row.
const PAUSE: Duration = Duration::from_mins(10);
const LONGEST_PAUSE: Duration = Duration::from_hours(6);
/// How long a node is not tried whose last attach was refused.
const NODE_PAUSE: Duration = Duration::from_hours(1);

/// What is known about attaches of a project. A new process knows nothing.
#[derive(Debug, Default)]
pub struct Room {
    memory: Mutex<Memory>,
    /// Held by the one that tries while nothing is known to work.
    trial: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct Memory {
    /// An attach of ours is known to have worked, and none was refused since.
    works: bool,
    /// When everything was granted, by subnet.
    granted: BTreeMap<String, Instant>,
    unforeseen: Option<Unforeseen>,
    /// Nodes whose last attach was denied: until when, and how.
    nodes: BTreeMap<Place, (Instant, Error)>,
    /// Addresses that are no good, by nodes that said so: until when, and how. Other addresses have nothing to do
    /// with it.
    addresses: BTreeMap<IpAddr, BTreeMap<Place, (Instant, Error)>>,
}

/// A refusal that no question would have foreseen.
#[derive(Debug)]
struct Unforeseen {
    /// No node is tried until then.
    until: Instant,
    in_a_row: u32,
    error: Error,
}

/// The right to take one node's own address away. Kept until the outcome is known.
#[derive(Debug)]
pub struct Permit {
    /// It was asked for and granted just now.
    pub asked: bool,
    _trial: Option<OwnedMutexGuard<()>>,
}

impl Room {
    /// Waits until one may take a node's own address away; if it has to be asked for first, `ask` does that.
    pub async fn permit(
        &self,
        place: &Place,
        address: IpAddr,
        subnet: &str,
        deadline: Instant,
        ask: impl Future<Output = Result<(), Error>> + Send,
    ) -> Result<Permit, Error> {
        let trial = self.turn(deadline).await?;
        let asked = self.memory().is_to_be_asked(place, address, subnet, Instant::now())?;
        if asked {
            ask.await?;
            self.memory().granted.insert(subnet.to_owned(), Instant::now());
        }
        self.memory().take_turn(Instant::now());
        Ok(Permit { asked, _trial: trial })
    }

    /// Whether room could be made on a node now, as far as that is known without asking.
    pub fn would_permit(&self, place: &Place, address: IpAddr) -> Result<(), Error> {
        self.memory().is_to_be_asked(place, address, "", Instant::now()).map(drop)
    }

    async fn turn(&self, deadline: Instant) -> Result<Option<OwnedMutexGuard<()>>, Error> {
        if self.memory().is_open() {
            return Ok(None);
        }
        let waited = timeout_at(deadline, self.trial.clone().lock_owned()).await;
        waited.map(Some).map_err(|_| {
            let message = "nothing was sent: another attach tries out first whether this project allows any";
            Error::new(Class::Conflict, message)
        })
    }

    /// An attachment of ours was seen to exist, or came to be.
    pub fn works(&self) {
        self.memory().works = true;
    }

    /// An attach worked.
    pub fn attached(&self, place: &Place, address: IpAddr) {
        self.memory().attached(place, address);
    }

    /// An attach failed; `asked` if everything that can be asked for had been granted right before.
    pub fn failed(&self, place: &Place, address: IpAddr, error: &Error, asked: bool) {
        self.memory().failed(place, address, error, asked, Instant::now());
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    /// Whether attaches work here, so that nobody has to try first: an old attachment alone does not show it.
    fn is_open(&self) -> bool {
        self.works && self.unforeseen.is_none()
    }

    /// Whether it has to be asked what is allowed; an error if nothing may be taken from this node for this address.
    fn is_to_be_asked(
        &self,
        place: &Place,
        address: IpAddr,
        subnet: &str,
        now: Instant,
    ) -> Result<bool, Error> {
        let id = place.provider_id();
        self.is_good(place, address, now)?;
        if let Some((until, error)) = self.nodes.get(place)
            && *until > now
        {
            let why = format!("its last attach was refused: {}", error.message);
            return Err(refused(error.class, &id, &why));
        }
        if let Some(unforeseen) = &self.unforeseen
            && unforeseen.until > now
        {
            let why = format!("attaches are refused in this project: {}", unforeseen.error.message);
            return Err(refused(unforeseen.error.class, &id, &why));
        }
        Ok(self.granted.get(subnet).is_none_or(|granted| now.saturating_duration_since(*granted) > BELIEVED))
    }

    /// After a refusal that could not be foreseen there is one turn at a time: whoever takes it closes the door.
    fn take_turn(&mut self, now: Instant) {
        if let Some(unforeseen) = &mut self.unforeseen {
            unforeseen.until = now + pause(unforeseen.in_a_row);
        }
    }

    /// An error if the address was refused for good: by this node, or by two others, so that it is not the node.
    fn is_good(&self, place: &Place, address: IpAddr, now: Instant) -> Result<(), Error> {
        let refusals =
            || self.addresses.get(&address).into_iter().flatten().filter(|(_, (until, _))| *until > now);
        let here = refusals().find(|(other, _)| *other == place);
        let Some((_, (_, error))) = here.or_else(|| refusals().nth(1)) else { return Ok(()) };
        let by = if here.is_some() { "here" } else { "by two other nodes" };
        Err(refused(
            error.class,
            &place.provider_id(),
            &format!("{address} was refused {by}: {}", error.message),
        ))
    }

    /// Whatever was refused in the whole project is allowed now. What was denied on another node alone may still be.
    fn attached(&mut self, place: &Place, address: IpAddr) {
        self.works = true;
        if self.unforeseen.take().is_some() {
            self.nodes.clear();
        }
        self.nodes.remove(place);
        self.addresses.remove(&address);
    }

    fn failed(&mut self, place: &Place, address: IpAddr, error: &Error, asked: bool, now: Instant) {
        if !matches!(error.class, Class::Denied | Class::Permanent) {
            return;
        }
        let unforeseen = is_policy(error) || (asked && is_permission(error));
        let denied = |(other, (until, error)): (&Place, &(Instant, Error))| {
            other != place && *until > now && error.class == Class::Denied
        };
        let of_node = is_on_instance(error) && !self.nodes.iter().any(denied);
        let refusal = (now + NODE_PAUSE, error.clone());
        if error.class == Class::Permanent {
            self.addresses.retain(|_, nodes| nodes.values().any(|(until, _)| *until > now));
            self.addresses.entry(address).or_default().insert(place.clone(), refusal);
            return;
        }
        if unforeseen {
            self.nodes.retain(|_, (until, _)| *until > now);
            self.nodes.insert(place.clone(), refusal);
        }
        self.works = false;
        self.granted.clear();
        if unforeseen && !of_node {
            let in_a_row = self.unforeseen.as_ref().map_or(0, |before| before.in_a_row + 1);
            let until = now + pause(in_a_row);
            self.unforeseen = Some(Unforeseen { until, in_a_row, error: error.clone() });
        }
    }
}

fn pause(in_a_row: u32) -> Duration {
    PAUSE.saturating_mul(1 << in_a_row.min(8)).min(LONGEST_PAUSE)
}

/// An organisation policy, which is told by its words alone.
fn is_policy(error: &Error) -> bool {
    error.class == Class::Denied
        && (error.message.contains("constraints/") || error.message.contains("CONDITION_NOT_MET"))
}

/// A permission on the instance itself, which may be denied on one and granted on others.
fn is_on_instance(error: &Error) -> bool {
    is_permission(error) && !is_policy(error) && error.message.contains("compute.instances.")
}

/// A permission, and not credentials that are missing or no good: those say nothing about what is granted.
fn is_permission(error: &Error) -> bool {
    let credentials = error.message.contains(": GCP 401 ") || error.message.starts_with("no token");
    error.class == Class::Denied && !credentials
}

fn refused(class: Class, node: &str, why: &str) -> Error {
    Error::new(class, format!("nothing was sent: {node} would lose its own address for nothing, {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 1));
    const SUBNET: &str = "projects/p/regions/r/subnetworks/s";

    fn node(n: u8) -> Place {
        Place { project: "p".to_owned(), zone: "r-a".to_owned(), name: format!("node-{n}") }
    }

    fn policy() -> Error {
        Error::new(Class::Denied, "GCP 412: Constraint constraints/compute.vmExternalIpAccess violated")
    }

    fn permission() -> Error {
        Error::new(Class::Denied, "GCP 403: Required 'compute.addresses.use' permission")
    }

    fn on_instance() -> Error {
        Error::new(
            Class::Denied,
            "GCP 403: Required 'compute.instances.addAccessConfig' permission for 'node'",
        )
    }

    fn minutes(n: u64) -> Duration {
        Duration::from_mins(n)
    }

    /// One attempt on a node, as far as it is allowed.
    fn attempt(memory: &mut Memory, n: u8, now: Instant, fails: &Error) -> Result<(), Error> {
        let asked = memory.is_to_be_asked(&node(n), ADDRESS, SUBNET, now)?;
        memory.granted.insert(SUBNET.to_owned(), now);
        memory.take_turn(now);
        memory.failed(&node(n), ADDRESS, fails, asked, now);
        Ok(())
    }

    #[test]
    fn it_is_asked_first_and_again_after_a_while_and_after_a_refusal() {
        let now = Instant::now();
        let mut memory = Memory::default();
        let ask = |memory: &Memory, at| memory.is_to_be_asked(&node(1), ADDRESS, SUBNET, at).unwrap();
        assert!(ask(&memory, now), "a new process has to ask");
        memory.granted.insert(SUBNET.to_owned(), now);
        assert!(!ask(&memory, now + minutes(9)));
        assert!(ask(&memory, now + minutes(11)), "it is not believed for ever");
        assert!(
            memory.is_to_be_asked(&node(1), ADDRESS, "another", now).unwrap(),
            "each subnet has grants of its own"
        );
        memory.failed(&node(1), ADDRESS, &permission(), false, now);
        assert!(ask(&memory, now), "refused: what was granted is not believed any more");
    }

    #[test]
    fn what_cannot_be_foreseen_is_tried_on_one_node_in_a_long_while() {
        let start = Instant::now();
        for error in [policy(), permission()] {
            let mut memory = Memory::default();
            attempt(&mut memory, 1, start, &error).unwrap();
            let mut tried = vec![0];
            for minute in 1..=120 {
                for n in 2..=9 {
                    let now = start + minutes(minute);
                    if attempt(&mut memory, n, now, &error).is_ok() {
                        tried.push(minute);
                    }
                }
            }
            assert_eq!(tried, [0, 10, 30, 70], "one node each, ever more slowly");
        }
    }

    /// A deny policy on one instance.
    #[test]
    fn a_permission_that_is_denied_on_one_node_closes_that_node() {
        let now = Instant::now();
        let mut memory = Memory::default();
        attempt(&mut memory, 1, now, &on_instance()).unwrap();
        assert!(memory.is_to_be_asked(&node(1), ADDRESS, SUBNET, now).is_err(), "it is left alone");
        assert!(
            memory.is_to_be_asked(&node(2), ADDRESS, SUBNET, now).unwrap(),
            "the others are asked about, and tried"
        );
        memory.attached(&node(2), ADDRESS);
        assert!(
            memory.is_to_be_asked(&node(1), ADDRESS, SUBNET, now + minutes(1)).is_err(),
            "that says nothing of it"
        );
        memory.attached(&node(1), ADDRESS);
        assert!(memory.is_to_be_asked(&node(1), ADDRESS, SUBNET, now + minutes(1)).is_ok(), "this does");
    }

    #[test]
    fn a_permission_that_is_denied_on_two_nodes_closes_the_project() {
        let start = Instant::now();
        let mut memory = Memory::default();
        let mut tried = Vec::new();
        for minute in 0..=120 {
            for n in 1..=9 {
                if attempt(&mut memory, n, start + minutes(minute), &on_instance()).is_ok() {
                    tried.push((minute, n));
                }
            }
        }
        assert_eq!(tried, [(0, 1), (0, 2), (10, 3), (30, 4), (70, 1)]);
        memory.attached(&node(9), ADDRESS);
        assert!(memory.nodes.is_empty() && memory.unforeseen.is_none(), "it is granted now");
    }

    #[test]
    fn a_node_that_was_refused_is_left_alone_for_longer_than_others() {
        let now = Instant::now();
        let mut memory = Memory::default();
        attempt(&mut memory, 1, now, &policy()).unwrap();
        let later = now + minutes(20);
        let again = memory.is_to_be_asked(&node(1), ADDRESS, SUBNET, later).unwrap_err();
        assert!(again.message.contains("node-1") && again.message.contains("vmExternalIpAccess"), "{again}");
        assert_eq!(again.class, Class::Denied);
        assert!(memory.is_to_be_asked(&node(2), ADDRESS, SUBNET, later).is_ok());
        assert!(memory.is_to_be_asked(&node(1), ADDRESS, SUBNET, now + minutes(61)).is_ok(), "not for ever");
    }

    #[test]
    fn credentials_that_are_no_good_say_nothing_about_what_is_granted() {
        let now = Instant::now();
        let mut memory = Memory::default();
        for message in ["instances.addAccessConfig: GCP 401 authError: Invalid", "no token for GCP: x"] {
            attempt(&mut memory, 1, now, &Error::new(Class::Denied, message)).unwrap();
            assert!(memory.is_to_be_asked(&node(1), ADDRESS, SUBNET, now).unwrap(), "{message}");
        }
    }

    #[test]
    fn only_refusals_count() {
        let now = Instant::now();
        let mut memory = Memory { works: true, ..Memory::default() };
        for class in [Class::Transient, Class::Throttled, Class::Conflict, Class::Fenced, Class::Unsupported]
        {
            attempt(&mut memory, 1, now, &Error::new(class, "permission constraints/x")).unwrap();
        }
        assert!(memory.works && memory.nodes.is_empty() && memory.unforeseen.is_none());
        attempt(&mut memory, 1, now, &Error::new(Class::Permanent, "Invalid value for natIP")).unwrap();
        assert!(memory.works, "it is about this node alone");
        assert!(memory.is_to_be_asked(&node(1), ADDRESS, SUBNET, now).is_err());
        assert!(memory.is_to_be_asked(&node(2), ADDRESS, SUBNET, now).is_ok());
    }

    #[test]
    fn an_address_that_is_no_good_costs_two_nodes_at_most_and_no_other_address() {
        let now = Instant::now();
        let mut memory = Memory { works: true, ..Memory::default() };
        let invalid = Error::new(Class::Permanent, "Invalid value for natIP");
        let mut tried = Vec::new();
        for n in 1..=9 {
            if attempt(&mut memory, n, now, &invalid).is_ok() {
                tried.push(n);
            }
        }
        assert_eq!(tried, [1, 2], "it is not the nodes");
        let other = IpAddr::from([203, 0, 113, 2]);
        for n in [1, 2, 3] {
            assert!(
                memory.is_to_be_asked(&node(n), other, SUBNET, now).is_ok(),
                "others have nothing to do with it"
            );
        }
        assert!(memory.is_to_be_asked(&node(1), ADDRESS, SUBNET, now + minutes(61)).is_ok(), "not for ever");
        memory.attached(&node(3), ADDRESS);
        assert!(memory.is_to_be_asked(&node(1), ADDRESS, SUBNET, now).is_ok(), "it is good now");
    }

    #[tokio::test]
    async fn after_a_refusal_one_tries_at_a_time_whatever_old_attachments_say() {
        let room = Room::default();
        room.failed(&node(1), ADDRESS, &policy(), true);
        room.works();
        room.memory().unforeseen.as_mut().unwrap().until = Instant::now();
        let deadline = || Instant::now() + Duration::from_millis(50);
        let granted = || async {
            tokio::task::yield_now().await;
            Ok(())
        };
        let nodes = [node(2), node(3)];
        let permit = |n: usize| room.permit(&nodes[n], ADDRESS, SUBNET, deadline(), granted());
        let (second, third) = tokio::join!(permit(0), permit(1));
        assert!(second.is_ok() && third.is_err(), "{second:?} {third:?}");
    }

    #[tokio::test]
    async fn while_nothing_is_known_to_work_one_tries_at_a_time() {
        let room = Room::default();
        let deadline = || Instant::now() + Duration::from_millis(50);
        let granted = || async { Ok(()) };
        let first = room.permit(&node(1), ADDRESS, SUBNET, deadline(), granted()).await.unwrap();
        let second = room.permit(&node(2), ADDRESS, SUBNET, deadline(), granted()).await.unwrap_err();
        assert_eq!(second.class, Class::Conflict, "{second}");
        room.failed(&node(1), ADDRESS, &policy(), first.asked);
        drop(first);
        let third = room.permit(&node(2), ADDRESS, SUBNET, deadline(), granted()).await.unwrap_err();
        assert_eq!(third.class, Class::Denied, "{third}");
        room.attached(&node(1), ADDRESS);
        let together = (
            room.permit(&node(1), ADDRESS, SUBNET, deadline(), granted()).await,
            room.permit(&node(2), ADDRESS, SUBNET, deadline(), granted()).await,
        );
        assert!(together.0.is_ok() && together.1.is_ok());
    }

    #[tokio::test]
    async fn what_is_not_granted_gives_no_permit() {
        let room = Room::default();
        let deadline = Instant::now() + Duration::from_secs(9);
        for _ in 0..2 {
            let denied = async { Err(permission()) };
            let refused = room.permit(&node(1), ADDRESS, SUBNET, deadline, denied).await.unwrap_err();
            assert_eq!(refused, permission(), "it is asked each time");
        }
        assert!(room.permit(&node(1), ADDRESS, SUBNET, deadline, async { Ok(()) }).await.unwrap().asked);
    }
}
