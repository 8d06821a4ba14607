//! The cloud accounts: what to ask each for. When is up to their schedules.

use super::clock::Clock;
use super::reads::{Action, Outcome, Purpose, READ_TIMEOUT, Schedule};
use super::{Message, bugs};
use cloud::{Account, AddressState, Ask, Class, Cloud, Connect, InstanceState, Provider, Reading, Refusal};
use crds::{CloudProvider, NetIPAllocationStatus};
use plan::{AddressView, InstanceView, Reason, Seen, Time, World};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use telemetry::controller::Metrics;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::warn;

/// A reading and what it was for.
#[derive(Debug)]
pub struct Read {
    pub account: Account,
    /// When it began.
    pub at: Time,
    pub reading: Reading,
    pub purpose: Purpose,
    /// When an audit began, and of which addresses.
    pub began: Instant,
    pub ask: Arc<Ask>,
}

/// An account that allocations need.
struct Reader {
    provider: Arc<dyn Provider>,
    ask: Arc<Ask>,
    schedule: Schedule,
    /// What it said of each address: an address may be asked of several accounts.
    said: BTreeMap<IpAddr, (Time, AddressState)>,
    /// What went wrong with the last read, if something did.
    trouble: Option<String>,
}

/// All accounts.
pub struct Accounts {
    connect: Arc<dyn Connect>,
    readers: BTreeMap<Account, Reader>,
    /// Addresses whose first reading is on its way.
    awaited: BTreeSet<IpAddr>,
    mailbox: mpsc::Sender<Message>,
    clock: Clock,
    metrics: Metrics,
    /// Audits that ended since the last plan: what was asked, and when they began.
    audited: Vec<(Arc<Ask>, Instant)>,
}

impl Accounts {
    pub fn new(
        connect: Arc<dyn Connect>,
        mailbox: mpsc::Sender<Message>,
        clock: Clock,
        metrics: Metrics,
    ) -> Self {
        let (readers, awaited) = (BTreeMap::new(), BTreeSet::new());
        Self { connect, readers, awaited, mailbox, clock, metrics, audited: Vec::new() }
    }

    /// The account of an instance.
    pub fn account_of(&self, provider_id: &str) -> Option<Account> {
        self.connect.account_of(provider_id)
    }

    /// The provider for an instance.
    pub fn provider_of(&self, provider_id: &str) -> Option<Arc<dyn Provider>> {
        let account = self.account_of(provider_id)?;
        match self.readers.get(&account) {
            Some(reader) => Some(reader.provider.clone()),
            None => self.connect.open(&account).ok(),
        }
    }

    /// Works out anew what to ask whom; what was never read is read at once.
    pub fn reshape(&mut self, world: &mut World) {
        let wanted = wanted(&*self.connect, world);
        let mut closed = Vec::new();
        self.readers.retain(|account, _| wanted.contains_key(account));
        for (account, (ask, interval)) in wanted {
            match self.reader(&account, interval) {
                Ok(reader) => reader.ask_for(ask, interval, world),
                Err(error) => {
                    warn!("{account}: {error}");
                    closed.push((ask, error));
                }
            }
        }
        self.prune(world);
        for (ask, error) in closed {
            mark_unknown(world, &ask, &error, self.clock.now());
        }
        self.name_unasked(world);
    }

    fn reader(&mut self, account: &Account, interval: Duration) -> Result<&mut Reader, cloud::Error> {
        use std::collections::btree_map::Entry;
        match self.readers.entry(account.clone()) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => Ok(place.insert(Reader {
                provider: self.connect.open(account)?,
                ask: Arc::default(),
                schedule: Schedule::new(interval, Instant::now()),
                said: BTreeMap::new(),
                trouble: None,
            })),
        }
    }

    /// An address that no account is asked about, because no node tells which one that would be.
    fn name_unasked(&self, world: &mut World) {
        let asked: BTreeSet<IpAddr> =
            self.readers.values().flat_map(|reader| &reader.ask.addresses).copied().collect();
        let specs = world.allocations.values().filter_map(|object| object.spec.as_ref().ok());
        let unasked: Vec<IpAddr> = specs
            .flat_map(|spec| &spec.addresses)
            .filter(|address| !asked.contains(address))
            .copied()
            .collect();
        for address in unasked {
            let message = "no node that matches tells which cloud account to ask".to_owned();
            let unknown = Seen { view: AddressView::Unknown { message }, at: self.clock.now() };
            world.addresses.entry(address).or_insert(unknown);
        }
    }

    /// What nobody asks about any more is forgotten.
    fn prune(&mut self, world: &mut World) {
        let asks = || self.readers.values().map(|reader| &reader.ask);
        world.addresses.retain(|address, _| asks().any(|ask| ask.addresses.contains(address)));
        world.instances.retain(|id, _| asks().any(|ask| ask.instances.contains(id)));
        self.awaited.clear();
        for reader in self.readers.values_mut() {
            let ask = reader.ask.clone();
            reader.said.retain(|address, _| ask.addresses.contains(address));
            reader.schedule.retain(|address| ask.addresses.contains(address));
            self.awaited.extend(ask.addresses.iter().filter(|address| !reader.said.contains_key(address)));
        }
    }

    /// Whether the first reading of an address is on its way: until it is here, nothing is said of it.
    pub fn awaits(&self, address: &IpAddr) -> bool {
        self.awaited.contains(address)
    }

    /// Something happened to an instance: what the cloud says of it may have changed.
    pub fn hurry(&mut self, provider_id: &str) {
        let account = self.connect.account_of(provider_id);
        if let Some(reader) = account.and_then(|account| self.readers.get_mut(&account)) {
            reader.schedule.hurry(Instant::now());
        }
    }

    /// A new leader trusts nothing that was read before.
    pub fn forget(&mut self, world: &mut World) {
        world.addresses.clear();
        world.instances.clear();
        self.readers.clear();
        self.awaited.clear();
    }

    /// The addresses to read back, with the time of the last write of each; all of them.
    pub fn verify(&mut self, wanted: &BTreeMap<IpAddr, Option<Instant>>) {
        for reader in self.readers.values_mut() {
            let ask = &reader.ask.addresses;
            let of_it = wanted.iter().filter(|(address, _)| ask.contains(address));
            reader.schedule.want(of_it.map(|(address, written)| (*address, *written)).collect());
        }
    }

    /// Begins the reads that are due; when is the next?
    pub fn read(&mut self, tasks: &mut JoinSet<()>) -> Option<Instant> {
        let now = Instant::now();
        for (account, reader) in &mut self.readers {
            for action in reader.schedule.begin(now) {
                let (ask, purpose) = match action {
                    Action::Audit => (reader.ask.clone(), Purpose::Audit),
                    Action::ReadBack(addresses) => {
                        let ask = Ask { addresses, instances: BTreeSet::new() };
                        (Arc::new(ask), Purpose::ReadBack)
                    }
                };
                let (account, provider) = (account.clone(), reader.provider.clone());
                let job = Job { provider, account, ask, purpose };
                tasks.spawn(job.run(self.mailbox.clone(), self.clock));
            }
        }
        self.readers.values().filter_map(|reader| reader.schedule.wake()).min()
    }

    /// Counts the audits that the plan has just decided upon.
    pub fn count_audits(&mut self, statuses: &BTreeMap<String, Arc<NetIPAllocationStatus>>) {
        for (ask, began) in std::mem::take(&mut self.audited) {
            for (name, status) in statuses {
                let asked = status.ips.iter().filter_map(|ip| ip.address.parse().ok());
                if asked.into_iter().any(|address: IpAddr| ask.addresses.contains(&address)) {
                    let degraded =
                        status.conditions.iter().any(|c| c.type_ == "Degraded" && c.status == "True");
                    let outcome = if degraded { "error" } else { "success" };
                    self.metrics.reconciles.with_label_values(&[name.as_str(), outcome]).inc();
                    let took = began.elapsed().as_secs_f64();
                    self.metrics.reconcile_duration.with_label_values(&[name.as_str()]).observe(took);
                }
            }
        }
    }

    /// Takes a reading into the world.
    pub fn apply(&mut self, read: Read, world: &mut World) {
        let Some(reader) = self.readers.get_mut(&read.account) else { return };
        let (outcome, trouble) = judge(&read.reading);
        let told = if outcome.incomplete { "incomplete" } else { "complete" };
        self.metrics.cloud_reads.with_label_values(&[read.account.to_string().as_str(), told]).inc();
        reader.schedule.ended(read.purpose, &outcome, Instant::now(), fastrand::f64());
        reader.trouble = trouble;
        if read.purpose == Purpose::Audit {
            self.audited.push((read.ask, read.began));
        }
        let mut heard = Vec::new();
        for (address, state) in read.reading.addresses {
            if reader.ask.addresses.contains(&address) {
                reader.hear(address, state, read.at);
                heard.push(address);
            }
        }
        for address in heard {
            self.settle(address, world);
        }
        for (id, state) in read.reading.instances {
            let before = world.instances.get(&id);
            let overtaken = before.is_some_and(|seen| seen.at > read.at);
            let known = before.is_some_and(|seen| !matches!(seen.view, InstanceView::Unknown { .. }));
            let silent = matches!(&state, InstanceState::Unknown(error) if is_passing(error));
            if !(overtaken || silent && known) {
                world.instances.insert(id, Seen { view: instance_view(state), at: read.at });
            }
        }
    }

    /// Merges what all accounts said of an address.
    fn settle(&mut self, address: IpAddr, world: &mut World) {
        let asked = || self.readers.values().filter(|reader| reader.ask.addresses.contains(&address));
        let seen = merged(self.readers.values().filter_map(|reader| reader.said.get(&address)));
        // Who says where it is needs no second word; that nobody has it, all have to say.
        let found = seen.as_ref().is_some_and(|seen| {
            matches!(seen.view, AddressView::Attached { .. } | AddressView::HeldByOther { .. })
        });
        if found || asked().all(|reader| reader.said.contains_key(&address)) {
            self.awaited.remove(&address);
        }
        world.addresses.extend(seen.map(|seen| (address, seen)));
    }

    /// What was read too long ago is not known any more; whether there was any.
    pub fn expire(&mut self, world: &mut World) -> bool {
        let now = self.clock.now();
        let mut expired = Vec::new();
        for reader in self.readers.values_mut() {
            let age = i64::try_from(reader.schedule.max_age().as_millis()).unwrap_or(i64::MAX);
            let is_old = |at: Time| now.millis_since(at) > age;
            let why = reader.trouble.as_ref().map(|trouble| format!(": {trouble}")).unwrap_or_default();
            let message = format!("it has not been read for longer than three audits{why}");
            for (address, (at, state)) in &mut reader.said {
                if is_old(*at) && !matches!(state, AddressState::Unknown(_)) {
                    *state = AddressState::Unknown(cloud::Error::new(Class::Transient, message.clone()));
                    expired.push(*address);
                }
            }
            for id in &reader.ask.instances {
                let seen = world.instances.get_mut(id).filter(|seen| is_old(seen.at));
                if let Some(seen) = seen.filter(|seen| !matches!(seen.view, InstanceView::Unknown { .. })) {
                    seen.view = InstanceView::Unknown { message: message.clone() };
                }
            }
        }
        for address in &expired {
            self.settle(*address, world);
        }
        !expired.is_empty()
    }
}

impl Reader {
    fn ask_for(&mut self, ask: Ask, interval: Duration, world: &World) {
        let now = Instant::now();
        let news = ask.instances.iter().any(|id| !world.instances.contains_key(id))
            || ask.addresses.iter().any(|address| !self.said.contains_key(address));
        if *self.ask != ask {
            self.ask = Arc::new(ask);
        }
        self.schedule.set_interval(interval, now);
        if news {
            self.schedule.hurry(now);
        }
    }

    /// Takes what was read of an address. A read that was throttled or lost says nothing: what is known stays,
    /// until it is too old.
    fn hear(&mut self, address: IpAddr, state: AddressState, at: Time) {
        let before = self.said.get(&address);
        let overtaken = before.is_some_and(|(seen, _)| *seen > at);
        let known = before.is_some_and(|(_, before)| !matches!(before, AddressState::Unknown(_)));
        let silent = matches!(&state, AddressState::Unknown(error) if is_passing(error));
        if !(overtaken || silent && known) {
            self.said.insert(address, (at, state));
        }
    }
}

/// Whether the next read may well tell what this one did not.
fn is_passing(error: &cloud::Error) -> bool {
    matches!(error.class, Class::Throttled | Class::Transient)
}

/// How a read went, and what went wrong.
fn judge(reading: &Reading) -> (Outcome, Option<String>) {
    let mut outcome = Outcome::default();
    let mut errors = Vec::new();
    for (address, state) in &reading.addresses {
        if let AddressState::Unknown(error) = state {
            outcome.unknown.insert(*address);
            errors.push(error);
        }
    }
    errors.extend(reading.instances.values().filter_map(|state| match state {
        InstanceState::Unknown(error) => Some(error),
        _ => None,
    }));
    outcome.incomplete = !errors.is_empty();
    outcome.retry_after = errors.iter().filter_map(|error| error.retry_after).max();
    (outcome, errors.first().map(|error| error.message.clone()))
}

/// One batch read.
struct Job {
    provider: Arc<dyn Provider>,
    account: Account,
    ask: Arc<Ask>,
    purpose: Purpose,
}

impl Job {
    async fn run(self, mailbox: mpsc::Sender<Message>, clock: Clock) {
        if self.purpose == Purpose::ReadBack {
            // Times are whole milliseconds, and a reading tells of a write only if it began after it.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (at, began) = (clock.now(), Instant::now());
        let deadline = began + READ_TIMEOUT;
        // Who does not keep to the deadline is not waited for: this account would never be read again.
        let read = self.provider.read(&self.ask, deadline);
        let read = tokio::time::timeout_at(deadline + Duration::from_secs(1), read);
        let reading = match bugs::caught(&self.account, read).await {
            Ok(Ok(reading)) => reading,
            Ok(Err(_)) => untold(&self.ask, format!("no answer within {} s", READ_TIMEOUT.as_secs())),
            Err(bug) => untold(&self.ask, bug),
        };
        let read = Read { account: self.account, at, reading, purpose: self.purpose, began, ask: self.ask };
        let _ = mailbox.send(Message::Read(read)).await;
    }
}

/// A reading that tells nothing.
fn untold(ask: &Ask, message: String) -> Reading {
    let error = cloud::Error::new(Class::Transient, message);
    Reading {
        addresses: ask.addresses.iter().map(|a| (*a, AddressState::Unknown(error.clone()))).collect(),
        instances: ask
            .instances
            .iter()
            .map(|id| (id.clone(), InstanceState::Unknown(error.clone())))
            .collect(),
    }
}

/// What to ask each account for, and how often. A pool's nodes are counted once, however many allocations
/// select them.
fn wanted(connect: &dyn Connect, world: &World) -> BTreeMap<Account, (Ask, Duration)> {
    let mut wanted: BTreeMap<Account, (Ask, Duration)> = BTreeMap::new();
    for (names, nodes) in plan::pools(world) {
        let mut of_pool: BTreeMap<Account, BTreeSet<String>> = BTreeMap::new();
        for node in nodes {
            if let Some(account) = connect.account_of(&node.provider_id) {
                of_pool.entry(account).or_default().insert(node.provider_id.clone());
            }
        }
        for name in names {
            if let Some(object) = world.allocations.get(name) {
                add_allocation(connect, object, &of_pool, &mut wanted);
            }
        }
        // Moved, and therefore once for a pool: this is what grows with the number of nodes.
        for (account, mut instances) in of_pool {
            if let Some((ask, _)) = wanted.get_mut(&account) {
                ask.instances.append(&mut instances);
            }
        }
    }
    wanted
}

fn add_allocation(
    connect: &dyn Connect,
    object: &plan::Allocation,
    of_pool: &BTreeMap<Account, BTreeSet<String>>,
    wanted: &mut BTreeMap<Account, (Ask, Duration)>,
) {
    let Ok(spec) = &object.spec else { return };
    let mut recorded = BTreeSet::new();
    let mut addresses: BTreeSet<IpAddr> = spec.addresses.iter().copied().collect();
    for ip in &object.status.ips {
        addresses.extend(ip.address.parse::<IpAddr>());
        recorded.extend(ip.instances());
    }
    let known: Vec<&str> = recorded.iter().copied().collect();
    let mut accounts = connect.accounts(cloud_of(spec.provider), &known, spec.region.as_deref());
    accounts.extend(of_pool.keys().cloned());
    let interval = Duration::from_secs(u64::try_from(spec.reconcile_interval).unwrap_or(30));
    for account in accounts {
        let (ask, shortest) = wanted.entry(account).or_insert((Ask::default(), interval));
        ask.addresses.extend(&addresses);
        *shortest = interval.min(*shortest);
    }
    for id in recorded {
        if let Some((ask, _)) = connect.account_of(id).and_then(|account| wanted.get_mut(&account)) {
            ask.instances.insert(id.to_owned());
        }
    }
}

fn cloud_of(provider: CloudProvider) -> Cloud {
    match provider {
        CloudProvider::Gcp => Cloud::Gcp,
        CloudProvider::Aws => Cloud::Aws,
        CloudProvider::Azure => Cloud::Azure,
    }
}

fn mark_unknown(world: &mut World, ask: &Ask, error: &cloud::Error, at: Time) {
    for address in &ask.addresses {
        let view = AddressView::Unknown { message: error.message.clone() };
        world.addresses.insert(*address, Seen { view, at });
    }
}

fn merged<'r>(said: impl Iterator<Item = &'r (Time, AddressState)>) -> Option<Seen<AddressView>> {
    let (at, state) = said.cloned().reduce(|(first_at, first), (second_at, second)| {
        let merged = cloud::merge(first.clone(), second);
        (if merged == first { first_at } else { second_at }, merged)
    })?;
    let view = match state {
        AddressState::Attached { provider_id, token } => AddressView::Attached { provider_id, token },
        AddressState::Free { token } => AddressView::Free { token },
        AddressState::HeldByOther { holder } => AddressView::HeldByOther { holder },
        AddressState::NotFound => AddressView::NotFound,
        AddressState::Unknown(error) => AddressView::Unknown { message: error.message },
    };
    Some(Seen { view, at })
}

fn instance_view(state: InstanceState) -> InstanceView {
    match state {
        InstanceState::Running { refuses } => InstanceView::Running {
            refuses: refuses.map(|refusal| match refusal {
                Refusal::HoldsForeignAddress(address) => {
                    (Reason::HoldsForeignAddress, format!("its interface holds {address}, which is not ours"))
                }
                Refusal::Unsupported(why) => (Reason::Unsupported, why),
            }),
        },
        InstanceState::Stopped => InstanceView::Stopped,
        InstanceState::NotFound => InstanceView::NotFound,
        InstanceState::Unknown(error) => InstanceView::Unknown { message: error.message },
    }
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::panic)]
#[path = "accounts_tests.rs"]
mod tests;
