//! The cloud accounts: what to ask each for, and when.

use super::Message;
use super::clock::Clock;
use cloud::{Account, AddressState, Ask, Cloud, Connect, InstanceState, Provider, Reading, Refusal};
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

/// How long a batch read may take.
const READ_TIMEOUT: Duration = Duration::from_secs(20);
/// Reads that something asked for are this far apart, so that a burst of new nodes costs one.
const SPACING: Duration = Duration::from_millis(500);

/// A reading and what it was for.
#[derive(Debug)]
pub struct Read {
    pub account: Account,
    /// When it began.
    pub at: Time,
    pub reading: Reading,
    /// Everything of the account was asked for.
    pub audit: bool,
}

/// An account that allocations need.
struct Reader {
    provider: Arc<dyn Provider>,
    ask: Ask,
    interval: Duration,
    /// When the next audit begins.
    due: Instant,
    began: Option<Instant>,
    under_way: bool,
    failures: u32,
    /// What it said of each address: an address may be asked of several accounts.
    said: BTreeMap<IpAddr, (Time, AddressState)>,
}

/// All accounts.
pub struct Accounts {
    connect: Arc<dyn Connect>,
    readers: BTreeMap<Account, Reader>,
    mailbox: mpsc::Sender<Message>,
    clock: Clock,
    metrics: Metrics,
    /// Audits that ended since the last plan: what was asked, and when they began.
    audited: Vec<(BTreeSet<IpAddr>, Instant)>,
}

impl Accounts {
    pub fn new(
        connect: Arc<dyn Connect>,
        mailbox: mpsc::Sender<Message>,
        clock: Clock,
        metrics: Metrics,
    ) -> Self {
        Self { connect, readers: BTreeMap::new(), mailbox, clock, metrics, audited: Vec::new() }
    }

    /// The provider for an instance.
    pub fn provider_of(&self, provider_id: &str) -> Option<Arc<dyn Provider>> {
        let account = self.connect.account_of(provider_id)?;
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
            if !self.readers.contains_key(&account) {
                match self.connect.open(&account) {
                    Ok(provider) => {
                        drop(self.readers.insert(account.clone(), Reader::new(provider, interval)));
                    }
                    Err(error) => {
                        warn!("{account}: {error}");
                        closed.push((ask, error));
                        continue;
                    }
                }
            }
            if let Some(reader) = self.readers.get_mut(&account) {
                let news = ask.instances.iter().any(|id| !world.instances.contains_key(id))
                    || ask.addresses.iter().any(|address| !reader.said.contains_key(address));
                reader.ask = ask;
                reader.interval = interval;
                if news {
                    reader.hurry();
                }
            }
        }
        self.prune(world);
        for (ask, error) in closed {
            mark_unknown(world, &ask, &error, self.clock.now());
        }
        self.name_unasked(world);
    }

    /// An address that no account is asked about, because no node tells which one that would be.
    fn name_unasked(&self, world: &mut World) {
        let asked =
            |address: &IpAddr| self.readers.values().any(|reader| reader.ask.addresses.contains(address));
        let specs = world.allocations.values().filter_map(|object| object.spec.as_ref().ok());
        let unasked: Vec<IpAddr> =
            specs.flat_map(|spec| &spec.addresses).filter(|address| !asked(address)).copied().collect();
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
        for reader in self.readers.values_mut() {
            let ask = &reader.ask;
            reader.said.retain(|address, _| ask.addresses.contains(address));
        }
    }

    /// Whether the first reading of an address is on its way: until it is here, nothing is said of it.
    pub fn awaits(&self, address: &IpAddr) -> bool {
        let mut asked = self.readers.values().filter(|reader| reader.ask.addresses.contains(address));
        asked.any(|reader| !reader.said.contains_key(address))
    }

    /// Something happened to an instance: what the cloud says of it may have changed.
    pub fn hurry(&mut self, provider_id: &str) {
        let account = self.connect.account_of(provider_id);
        if let Some(reader) = account.and_then(|account| self.readers.get_mut(&account)) {
            reader.hurry();
        }
    }

    /// A new leader trusts nothing that was read before.
    pub fn forget(&mut self, world: &mut World) {
        world.addresses.clear();
        world.instances.clear();
        self.readers.clear();
    }

    /// Begins the audits that are due; when is the next?
    pub fn audit(&mut self, tasks: &mut JoinSet<()>) -> Option<Instant> {
        let now = Instant::now();
        for (account, reader) in &mut self.readers {
            if !reader.under_way && reader.due <= now {
                reader.under_way = true;
                reader.began = Some(now);
                let ask = reader.ask.clone();
                let job =
                    Job { provider: reader.provider.clone(), account: account.clone(), ask, audit: true };
                tasks.spawn(job.run(self.mailbox.clone(), self.clock));
            }
        }
        self.readers.values().filter(|reader| !reader.under_way).map(|reader| reader.due).min()
    }

    /// Reads addresses that were just written, one batch per account that knows them.
    pub fn verify(&self, addresses: &BTreeSet<IpAddr>, tasks: &mut JoinSet<()>) {
        for (account, reader) in &self.readers {
            let asked: BTreeSet<IpAddr> = reader.ask.addresses.intersection(addresses).copied().collect();
            if !asked.is_empty() {
                let ask = Ask { addresses: asked, instances: BTreeSet::new() };
                let job =
                    Job { provider: reader.provider.clone(), account: account.clone(), ask, audit: false };
                tasks.spawn(job.run(self.mailbox.clone(), self.clock));
            }
        }
    }

    /// Counts the audits that the plan has just decided upon.
    pub fn count_audits(&mut self, statuses: &BTreeMap<String, NetIPAllocationStatus>) {
        for (addresses, began) in std::mem::take(&mut self.audited) {
            for (name, status) in statuses {
                let asked = status.ips.iter().filter_map(|ip| ip.address.parse().ok());
                if asked.into_iter().any(|address: IpAddr| addresses.contains(&address)) {
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
        let unknown = read.reading.addresses.values().find_map(|state| match state {
            AddressState::Unknown(error) => Some(error.clone()),
            _ => None,
        });
        let outcome = if unknown.is_some() { "incomplete" } else { "complete" };
        self.metrics.cloud_reads.with_label_values(&[read.account.to_string().as_str(), outcome]).inc();
        if read.audit {
            reader.ended(unknown.as_ref());
            let began = reader.began.unwrap_or_else(Instant::now);
            self.audited.push((reader.ask.addresses.clone(), began));
        }
        for (address, state) in read.reading.addresses {
            let Some(reader) = self.readers.get_mut(&read.account) else { return };
            if reader.said.get(&address).is_none_or(|(at, _)| *at <= read.at) {
                reader.said.insert(address, (read.at, state));
                let seen = merged(self.readers.values().filter_map(|reader| reader.said.get(&address)));
                world.addresses.extend(seen.map(|seen| (address, seen)));
            }
        }
        for (id, state) in read.reading.instances {
            if world.instances.get(&id).is_none_or(|seen| seen.at <= read.at) {
                world.instances.insert(id, Seen { view: instance_view(state), at: read.at });
            }
        }
    }
}

impl Reader {
    fn new(provider: Arc<dyn Provider>, interval: Duration) -> Self {
        Self {
            provider,
            ask: Ask::default(),
            interval,
            due: Instant::now(),
            began: None,
            under_way: false,
            failures: 0,
            said: BTreeMap::new(),
        }
    }

    fn hurry(&mut self) {
        let earliest = self.began.map_or_else(Instant::now, |began| began + SPACING);
        self.due = self.due.min(earliest);
    }

    /// The next audit: after the interval, or sooner if this one did not tell everything.
    fn ended(&mut self, unknown: Option<&cloud::Error>) {
        self.under_way = false;
        self.failures = if unknown.is_some() { self.failures.saturating_add(1) } else { 0 };
        let pause = match unknown {
            None => self.interval,
            Some(error) => {
                let doubled = Duration::from_millis(500) * 2u32.saturating_pow(self.failures.min(10));
                error.retry_after.unwrap_or_default().max(doubled.min(self.interval))
            }
        };
        self.due = Instant::now() + pause.mul_f64(0.9 + 0.2 * fastrand::f64());
    }
}

/// One batch read.
struct Job {
    provider: Arc<dyn Provider>,
    account: Account,
    ask: Ask,
    audit: bool,
}

impl Job {
    async fn run(self, mailbox: mpsc::Sender<Message>, clock: Clock) {
        if !self.audit {
            // Times are whole milliseconds, and a reading tells of a write only if it began after it.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let at = clock.now();
        let reading = self.provider.read(&self.ask, Instant::now() + READ_TIMEOUT).await;
        let read = Read { account: self.account, at, reading, audit: self.audit };
        let _ = mailbox.send(Message::Read(read)).await;
    }
}

/// What to ask each account for, and how often.
fn wanted(connect: &dyn Connect, world: &World) -> BTreeMap<Account, (Ask, Duration)> {
    let mut wanted: BTreeMap<Account, (Ask, Duration)> = BTreeMap::new();
    for (names, nodes) in plan::pools(world) {
        let mut by_account: BTreeMap<Account, BTreeSet<String>> = BTreeMap::new();
        for node in &nodes {
            if let Some(account) = connect.account_of(&node.provider_id) {
                by_account.entry(account).or_default().insert(node.provider_id.clone());
            }
        }
        for name in names {
            let Some(object) = world.allocations.get(name) else { continue };
            let Ok(spec) = &object.spec else { continue };
            let mut recorded = BTreeSet::new();
            let mut addresses: BTreeSet<IpAddr> = spec.addresses.iter().copied().collect();
            for ip in &object.status.ips {
                addresses.extend(ip.address.parse::<IpAddr>());
                recorded.extend(ip.instances().map(str::to_owned));
            }
            let known: Vec<&str> = recorded.iter().map(String::as_str).collect();
            let mut accounts = connect.accounts(cloud_of(spec.provider), &known, spec.region.as_deref());
            accounts.extend(by_account.keys().cloned());
            let interval = Duration::from_secs(u64::try_from(spec.reconcile_interval).unwrap_or(30));
            for account in accounts {
                let instances = by_account.get(&account).cloned().unwrap_or_default();
                let (ask, shortest) = wanted.entry(account).or_insert((Ask::default(), interval));
                ask.addresses.extend(&addresses);
                ask.instances.extend(instances);
                *shortest = interval.min(*shortest);
            }
            for id in recorded {
                if let Some((ask, _)) = connect.account_of(&id).and_then(|account| wanted.get_mut(&account)) {
                    ask.instances.insert(id);
                }
            }
        }
    }
    wanted
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
