//! A cloud in memory, with every call on record for the checker of invariants, and faults by script.

use async_trait::async_trait;
use cloud::{
    Account, AddressState, Ask, Call, Class, Cloud, Connect, Error, InstanceState, Provider, Reading, Refusal,
};
use faults::{Event, Hold, Outcome, Purpose, Violation, What};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// A call, as it was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub verb: Verb,
    /// `None`: a batch.
    pub address: Option<IpAddr>,
    pub instance: String,
    pub answer: Result<(), Class>,
    /// When the call came in.
    pub at: std::time::Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    Read,
    Preflight,
    Attach,
    Detach,
    Restore,
}

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// Nothing happens, and this is said.
    Error(Class),
    /// It happens, and the answer is lost.
    LostReply,
    /// It takes so long.
    Delay(Duration),
    /// It happens, and then the client that made the call panics.
    Panic,
}

/// Faults for the calls that match, so many times.
struct Script {
    verb: Verb,
    address: Option<IpAddr>,
    fault: Fault,
    times: usize,
}

#[derive(Default)]
struct State {
    /// Who holds each address, and the how-manieth attachment it is.
    addresses: BTreeMap<IpAddr, Option<(String, u64)>>,
    instances: BTreeMap<String, InstanceState>,
    attachments: u64,
    calls: Vec<Recorded>,
    scripts: Vec<Script>,
    /// What happened, in the words of the checker.
    events: Vec<Event>,
    /// Calls that were sent after their deadline, which no event shows.
    late: Vec<(IpAddr, Violation)>,
    latency: Duration,
}

impl State {
    fn note(&mut self, what: What) {
        self.events.push(Event { at: Timestamp::now(), what });
    }

    /// An address changes hands; by nobody of ours if there is no name.
    fn hold(&mut self, address: IpAddr, after: Option<&str>, by: Option<&str>) {
        self.attachments += 1;
        let number = self.attachments;
        let holder = after.map(|holder| (holder.to_owned(), number));
        let before = self.addresses.insert(address, holder).flatten().map(|(holder, _)| holder);
        let (after, by) = (after.map(str::to_owned), by.map(str::to_owned));
        if before != after {
            self.note(What::Hold(Hold { address, before, after, by }));
        }
    }
}

/// The cloud; clones are the same one.
#[derive(Clone, Default)]
pub struct Memory {
    state: Arc<Mutex<State>>,
    /// Who calls.
    caller: String,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memory")
    }
}

impl Memory {
    /// The same one, called by somebody of that name.
    pub fn called_by(&self, caller: &str) -> Self {
        Self { state: self.state.clone(), caller: caller.to_owned() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub fn add_address(&self, address: IpAddr) {
        self.state().addresses.insert(address, None);
    }

    pub fn add_instance(&self, provider_id: &str) {
        self.state().instances.insert(provider_id.to_owned(), InstanceState::Running { refuses: None });
    }

    /// Sets what the cloud says of an instance; one that ends loses its address.
    pub fn set_instance(&self, provider_id: &str, instance: InstanceState) {
        let mut state = self.state();
        if matches!(instance, InstanceState::NotFound) {
            let is_there =
                |holder: &Option<(String, u64)>| holder.as_ref().is_some_and(|(by, _)| by == provider_id);
            let held: Vec<IpAddr> = state
                .addresses
                .iter()
                .filter(|(_, holder)| is_there(holder))
                .map(|(address, _)| *address)
                .collect();
            for address in held {
                state.hold(address, None, None);
            }
        }
        state.instances.insert(provider_id.to_owned(), instance);
    }

    /// Somebody else attaches an address.
    pub fn attach_by_hand(&self, address: IpAddr, provider_id: &str) {
        self.state().hold(address, Some(provider_id), None);
    }

    /// An address that is no business of ours is on an instance.
    pub fn put_foreign(&self, address: IpAddr, provider_id: &str) {
        self.set_instance(provider_id, holds_foreign(address));
        let (before, after) = (None, Some(provider_id.to_owned()));
        self.state().note(What::Hold(Hold { address, before, after, by: None }));
    }

    pub fn set_latency(&self, latency: Duration) {
        self.state().latency = latency;
    }

    /// The next so many calls of that kind (for that address, if one is given) go wrong like this.
    pub fn script(&self, verb: Verb, address: Option<IpAddr>, times: usize, fault: Fault) {
        self.state().scripts.push(Script { verb, address, fault, times });
    }

    /// Whatever was scripted and has not happened does not happen any more.
    pub fn heal(&self, address: Option<IpAddr>) {
        self.state().scripts.retain(|script| script.address != address);
    }

    /// Whether a script for such calls of an address is still to be played.
    pub fn is_to_come(&self, verb: Verb, address: IpAddr) -> bool {
        let state = self.state();
        state.scripts.iter().any(|s| s.verb == verb && s.address == Some(address) && s.times > 0)
    }

    pub fn holder(&self, address: IpAddr) -> Option<String> {
        self.state().addresses.get(&address).cloned().flatten().map(|(holder, _)| holder)
    }

    pub fn calls(&self) -> Vec<Recorded> {
        self.state().calls.clone()
    }

    /// Calls that changed something of an address, or tried to.
    pub fn writes(&self, address: IpAddr) -> Vec<(Verb, String)> {
        let writes = |call: &Recorded| matches!(call.verb, Verb::Attach | Verb::Detach);
        let of = |call: &Recorded| call.address == Some(address) && writes(call);
        self.calls().into_iter().filter(of).map(|call| (call.verb, call.instance)).collect()
    }

    pub fn reads(&self) -> usize {
        self.state().calls.iter().filter(|call| call.verb == Verb::Read).count()
    }

    /// What happened, in the words of the checker.
    pub fn events(&self) -> Vec<Event> {
        self.state().events.clone()
    }

    /// Calls about these addresses that were sent after their deadline.
    pub fn late(&self, addresses: &BTreeSet<IpAddr>) -> Vec<Violation> {
        let state = self.state();
        let ours = state.late.iter().filter(|(address, _)| addresses.contains(address));
        ours.map(|(_, violation)| violation.clone()).collect()
    }

    /// The fault that a script has for this call.
    fn fault(&self, verb: Verb, addresses: &BTreeSet<IpAddr>) -> Option<Fault> {
        let mut state = self.state();
        let matches = |script: &Script| {
            script.times > 0
                && script.verb == verb
                && script.address.is_none_or(|address| addresses.contains(&address))
        };
        let script = state.scripts.iter_mut().find(|script| matches(script))?;
        script.times -= 1;
        Some(script.fault)
    }

    /// The addresses that scripts for such calls are about.
    fn scripted(&self, verb: Verb) -> BTreeSet<IpAddr> {
        let state = self.state();
        state
            .scripts
            .iter()
            .filter(|script| script.verb == verb)
            .filter_map(|script| script.address)
            .collect()
    }

    fn record(&self, verb: Verb, address: Option<IpAddr>, instance: &str, answer: Result<(), Class>) {
        self.record_at(std::time::Instant::now(), verb, address, instance, answer);
    }

    fn record_at(
        &self,
        at: std::time::Instant,
        verb: Verb,
        address: Option<IpAddr>,
        instance: &str,
        answer: Result<(), Class>,
    ) {
        self.state().calls.push(Recorded { verb, address, instance: instance.to_owned(), answer, at });
    }

    /// Notes a call that was sent, and what came of it; what it changed comes behind it.
    fn send(
        &self,
        verb: Verb,
        address: IpAddr,
        instance: &str,
        fault: Option<Fault>,
        change: impl FnOnce(&mut State) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut state = self.state();
        let (at, place) = (Timestamp::now(), state.events.len());
        let answer = match fault {
            Some(Fault::Error(class)) => Err(Error::new(class, format!("scripted: {class:?}"))),
            Some(Fault::LostReply | Fault::Panic) => {
                // Whatever came of it, nobody is told.
                let _ = change(&mut state);
                Err(Error::new(Class::Transient, "the connection was lost"))
            }
            Some(Fault::Delay(_)) | None => change(&mut state),
        };
        let outcome = match (&answer, fault) {
            (_, Some(Fault::LostReply | Fault::Panic)) => Outcome::Unanswered,
            (Ok(()), _) => Outcome::Accepted,
            (Err(error), _) => Outcome::Refused(error.class.as_str().to_owned()),
        };
        let call = faults::Call {
            caller: self.caller.clone(),
            purpose: if verb == Verb::Attach { Purpose::Attach } else { Purpose::Detach },
            address: Some(address),
            instance: Some(instance.to_owned()),
            outcome,
        };
        state.events.insert(place, Event { at, what: What::Call(call) });
        answer
    }

    /// A write: faults, the fence, then the change itself.
    async fn write(
        &self,
        verb: Verb,
        address: IpAddr,
        instance: &str,
        call: &Call<'_>,
        change: impl FnOnce(&mut State) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let at = std::time::Instant::now();
        let fault = self.fault(verb, &BTreeSet::from([address]));
        let latency = self.state().latency;
        tokio::time::sleep(latency).await;
        if let Some(Fault::Delay(delay)) = &fault {
            tokio::time::sleep(*delay).await;
        }
        if Instant::now() > call.deadline {
            let what = format!("{verb:?} of {address} was sent after its deadline");
            let late = Violation { invariant: "I13", at: Timestamp::now(), what };
            self.state().late.push((address, late));
        }
        let panics = matches!(fault, Some(Fault::Panic));
        // Who does not lead any more sends nothing.
        let answer = match call.check() {
            Err(fenced) => Err(fenced),
            Ok(()) => self.send(verb, address, instance, fault, change),
        };
        let recorded = answer.as_ref().copied().map_err(|error| error.class);
        self.record_at(at, verb, Some(address), instance, recorded);
        assert!(!panics, "scripted: {verb:?}");
        answer
    }
}

#[async_trait]
impl Provider for Memory {
    async fn read(&self, ask: &Ask, _deadline: Instant) -> Reading {
        let fault = self.fault(Verb::Read, &ask.addresses);
        let latency = self.state().latency;
        tokio::time::sleep(latency).await;
        if let Some(Fault::Delay(delay)) = &fault {
            tokio::time::sleep(*delay).await;
        }
        if let Some(Fault::Panic) = &fault {
            self.record(Verb::Read, None, "", Ok(()));
            panic!("scripted: a read");
        }
        let unknown = match fault {
            Some(Fault::Error(class)) => Some(Error::new(class, format!("scripted: {class:?}"))),
            Some(Fault::LostReply) => Some(Error::new(Class::Transient, "the connection was lost")),
            _ => None,
        };
        // Scenes share the account: of the others' addresses everything is known.
        let spoilt = self.scripted(Verb::Read);
        self.record(Verb::Read, None, "", unknown.as_ref().map_or(Ok(()), |error| Err(error.class)));
        let mut state = self.state();
        let unknown_here = |address: &IpAddr| unknown.as_ref().filter(|_| spoilt.contains(address));
        for address in &ask.addresses {
            let error = unknown_here(address);
            state.note(What::Call(faults::Call {
                caller: self.caller.clone(),
                purpose: Purpose::Read { lags: false },
                address: Some(*address),
                instance: None,
                outcome: error
                    .map_or(Outcome::Accepted, |error| Outcome::Refused(error.class.as_str().to_owned())),
            }));
        }
        let address = |address: &IpAddr| match (unknown_here(address), state.addresses.get(address)) {
            (Some(error), _) => AddressState::Unknown(error.clone()),
            (None, None) => AddressState::NotFound,
            (None, Some(None)) => AddressState::Free { token: "free".to_owned() },
            (None, Some(Some((holder, number)))) => {
                AddressState::Attached { provider_id: holder.clone(), token: number.to_string() }
            }
        };
        let instance = |id: &String| state.instances.get(id).cloned().unwrap_or(InstanceState::NotFound);
        Reading {
            addresses: ask.addresses.iter().map(|a| (*a, address(a))).collect(),
            instances: ask.instances.iter().map(|id| (id.clone(), instance(id))).collect(),
        }
    }

    async fn preflight(&self, address: IpAddr, instance: &str, _: Instant) -> Result<(), Error> {
        let fault = self.fault(Verb::Preflight, &BTreeSet::from([address]));
        assert!(!matches!(fault, Some(Fault::Panic)), "scripted: a preflight");
        let answer = match (fault, self.state().instances.get(instance)) {
            (Some(Fault::Error(class)), _) => Err(Error::new(class, format!("scripted: {class:?}"))),
            (_, Some(InstanceState::Running { refuses: None })) => Ok(()),
            _ => Err(Error::new(Class::Permanent, "the instance cannot take it")),
        };
        let recorded = answer.as_ref().copied().map_err(|error| error.class);
        self.record(Verb::Preflight, Some(address), instance, recorded);
        answer
    }

    async fn attach(&self, address: IpAddr, instance: &str, _: &str, call: &Call<'_>) -> Result<(), Error> {
        let (id, caller) = (instance.to_owned(), self.caller.clone());
        self.write(Verb::Attach, address, instance, call, move |state| {
            let second = state.addresses.iter().any(|(other, holder)| {
                *other != address && holder.as_ref().is_some_and(|(holder, _)| *holder == id)
            });
            if second {
                return Err(Error::new(Class::Conflict, "the instance holds another address"));
            }
            if !matches!(state.instances.get(&id), Some(InstanceState::Running { .. })) {
                return Err(Error::new(Class::Permanent, "no such instance, or it does not run"));
            }
            match state.addresses.get(&address) {
                None => Err(Error::new(Class::Permanent, "no such address")),
                Some(Some((holder, _))) if *holder == id => Ok(()),
                Some(Some((holder, _))) => {
                    let message = format!("{address} is on {holder}");
                    Err(Error::new(Class::Conflict, message))
                }
                Some(None) => {
                    state.hold(address, Some(&id), Some(&caller));
                    Ok(())
                }
            }
        })
        .await
    }

    async fn detach(
        &self,
        address: IpAddr,
        instance: &str,
        token: &str,
        call: &Call<'_>,
    ) -> Result<(), Error> {
        let (id, token, caller) = (instance.to_owned(), token.to_owned(), self.caller.clone());
        self.write(Verb::Detach, address, instance, call, move |state| {
            match state.addresses.get(&address).cloned().flatten() {
                None => Ok(()),
                Some((holder, number)) if holder == id && number.to_string() == token => {
                    state.hold(address, None, Some(&caller));
                    Ok(())
                }
                Some(_) => Err(Error::new(Class::Conflict, "it is attached otherwise by now")),
            }
        })
        .await
    }

    async fn restore(&self, instance: &str, token: Option<&str>, _: &Call<'_>) -> Result<(), Error> {
        self.record(Verb::Restore, None, &format!("{instance} {}", token.unwrap_or("-")), Ok(()));
        Ok(())
    }
}

impl Connect for Memory {
    fn accounts(&self, cloud: Cloud, provider_ids: &[&str], region: Option<&str>) -> BTreeSet<Account> {
        let mut accounts: BTreeSet<Account> =
            provider_ids.iter().filter_map(|id| self.account_of(id)).collect();
        if let (Cloud::Aws, Some(region)) = (cloud, region) {
            accounts.insert(Account { cloud, scope: region.to_owned() });
        }
        accounts
    }

    fn account_of(&self, provider_id: &str) -> Option<Account> {
        let mut parts = provider_id.split('/');
        let cloud = match parts.next()? {
            "gce:" => Cloud::Gcp,
            "aws:" => Cloud::Aws,
            "azure:" => Cloud::Azure,
            _ => return None,
        };
        Some(Account { cloud, scope: parts.nth(1)?.to_owned() })
    }

    fn open(&self, _: &Account) -> Result<Arc<dyn Provider>, Error> {
        Ok(Arc::new(self.clone()))
    }
}

/// What an instance says that holds an address of somebody else's.
pub fn holds_foreign(address: IpAddr) -> InstanceState {
    InstanceState::Running { refuses: Some(Refusal::HoldsForeignAddress(address)) }
}
