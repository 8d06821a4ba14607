//! What readings make of the world.

use super::*;
use async_trait::async_trait;
use cloud::{Call, Error};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A cloud whose accounts are the first part of a provider ID, and that counts how often it is asked for one. Reads
/// of the account `bug` panic.
#[derive(Debug, Default)]
struct Fake {
    asked: AtomicUsize,
    panics: bool,
}

#[async_trait]
impl Provider for Fake {
    async fn read(&self, _: &Ask, _: Instant) -> Reading {
        assert!(!self.panics, "no such index");
        Reading::default()
    }
    async fn preflight(&self, _: IpAddr, _: &str, _: Instant) -> Result<(), Error> {
        Ok(())
    }
    async fn attach(&self, _: IpAddr, _: &str, _: &str, _: &Call<'_>) -> Result<(), Error> {
        Ok(())
    }
    async fn detach(&self, _: IpAddr, _: &str, _: &str, _: &Call<'_>) -> Result<(), Error> {
        Ok(())
    }
    async fn restore(&self, _: &str, _: Option<&str>, _: &Call<'_>) -> Result<(), Error> {
        Ok(())
    }
}

impl Connect for Fake {
    fn accounts(&self, _: Cloud, ids: &[&str], _: Option<&str>) -> BTreeSet<Account> {
        ids.iter().filter_map(|id| self.account_of(id)).collect()
    }
    fn account_of(&self, provider_id: &str) -> Option<Account> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let scope = provider_id.split('/').nth(2)?.to_owned();
        Some(Account { cloud: Cloud::Gcp, scope })
    }
    fn open(&self, account: &Account) -> Result<Arc<dyn Provider>, Error> {
        Ok(Arc::new(Self { panics: account.scope == "bug", ..Self::default() }))
    }
}

fn account() -> Account {
    Account { cloud: Cloud::Gcp, scope: "p".to_owned() }
}

fn address() -> IpAddr {
    IpAddr::from([203, 0, 113, 1])
}

fn instance() -> String {
    "gce://p/z/n0".to_owned()
}

fn world(allocations: u8, nodes: usize) -> World {
    let mut world = World::default();
    for number in 0..allocations {
        let spec = serde_json::json!({
            "reservedIPs": [format!("203.0.113.{}", number + 1)], "cloud": { "provider": "gcp" },
            "reconcileInterval": 10,
        });
        let allocation = plan::Allocation {
            uid: number.to_string(),
            created: Time(0),
            generation: 1,
            deleting: false,
            has_finalizer: true,
            spec: plan::parse::parse(&spec).map(Arc::new),
            status: Arc::default(),
        };
        world.allocations.insert(format!("a{number}"), allocation);
    }
    for number in 0..nodes {
        let provider_id = format!("gce://p/z/n{number}");
        let node = plan::Node { uid: number.to_string(), provider_id, ready: true, ..plan::Node::default() };
        world.nodes.insert(format!("n{number}"), node);
    }
    world
}

fn accounts(world: &mut World) -> Accounts {
    let telemetry = telemetry::Telemetry::new(None).expect("telemetry");
    let metrics = Metrics::new(&telemetry).expect("metrics");
    let mut accounts = Accounts::new(Arc::new(Fake::default()), mpsc::channel(8).0, Clock::new(), metrics);
    accounts.reshape(world);
    accounts
}

/// An audit that ended with these words, begun so many milliseconds after now.
fn read(accounts: &Accounts, millis: i64, state: AddressState, machine: InstanceState) -> Read {
    Read {
        account: account(),
        at: accounts.clock.now().plus_millis(millis),
        reading: Reading {
            addresses: BTreeMap::from([(address(), state)]),
            instances: BTreeMap::from([(instance(), machine)]),
        },
        purpose: Purpose::Audit,
        began: Instant::now(),
        ask: Arc::default(),
    }
}

fn free() -> AddressState {
    AddressState::Free { token: String::new() }
}

fn running() -> InstanceState {
    InstanceState::Running { refuses: None }
}

fn error(class: Class) -> Error {
    Error::new(class, "said the cloud")
}

fn is_unknown(world: &World) -> (bool, bool) {
    (
        matches!(world.addresses[&address()].view, AddressView::Unknown { .. }),
        matches!(world.instances[&instance()].view, InstanceView::Unknown { .. }),
    )
}

#[tokio::test]
async fn a_read_that_was_throttled_takes_nothing_back() {
    let mut world = world(1, 1);
    let mut accounts = accounts(&mut world);
    assert!(accounts.awaits(&address()));
    accounts.apply(read(&accounts, 0, free(), running()), &mut world);
    assert!(!accounts.awaits(&address()));
    for class in [Class::Throttled, Class::Transient] {
        let (lost, silent) = (AddressState::Unknown(error(class)), InstanceState::Unknown(error(class)));
        accounts.apply(read(&accounts, 1, lost, silent), &mut world);
        assert_eq!(is_unknown(&world), (false, false), "{class:?}");
    }
    let (denied, silent) =
        (AddressState::Unknown(error(Class::Denied)), InstanceState::Unknown(error(Class::Denied)));
    accounts.apply(read(&accounts, 2, denied, silent), &mut world);
    assert_eq!(is_unknown(&world), (true, true), "what somebody has to see to is said at once");
}

#[tokio::test]
async fn what_was_read_long_ago_is_not_known_any_more() {
    let mut world = world(1, 1);
    let mut accounts = accounts(&mut world);
    // Three audits of 10 s, and 20 s for the last answer.
    accounts.apply(read(&accounts, -49_000, free(), running()), &mut world);
    assert!(!accounts.expire(&mut world));
    assert_eq!(is_unknown(&world), (false, false));
    accounts
        .readers
        .values_mut()
        .for_each(|reader| reader.said.values_mut().for_each(|(at, _)| at.0 -= 2_000));
    world.instances.values_mut().for_each(|seen| seen.at.0 -= 2_000);
    accounts.readers.values_mut().for_each(|reader| reader.trouble = Some("said the cloud".to_owned()));
    assert!(accounts.expire(&mut world));
    assert_eq!(is_unknown(&world), (true, true));
    let AddressView::Unknown { message } = &world.addresses[&address()].view else { unreachable!() };
    assert_eq!(message, "it has not been read for longer than three audits: said the cloud");
    assert!(!accounts.expire(&mut world), "once");
    accounts.apply(read(&accounts, 0, free(), running()), &mut world);
    assert_eq!(is_unknown(&world), (false, false));
}

#[tokio::test]
async fn an_instance_that_could_not_be_read_makes_the_reading_incomplete() {
    let reading = |machine: InstanceState| Reading {
        addresses: BTreeMap::from([(address(), free())]),
        instances: BTreeMap::from([(instance(), machine)]),
    };
    let (outcome, trouble) = judge(&reading(running()));
    assert!(!outcome.incomplete && trouble.is_none());
    let (outcome, trouble) = judge(&reading(InstanceState::Unknown(error(Class::Denied))));
    assert!(outcome.incomplete && outcome.unknown.is_empty());
    assert_eq!(trouble.as_deref(), Some("said the cloud"));
}

/// A hundred allocations that select the same nodes cost about what one does.
#[tokio::test]
async fn nodes_are_counted_once_however_many_allocations_select_them() {
    let count = |allocations: u8| {
        let fake = Fake::default();
        let wanted = wanted(&fake, &world(allocations, 1000));
        assert_eq!(wanted[&account()].0.instances.len(), 1000);
        assert_eq!(wanted[&account()].0.addresses.len(), usize::from(allocations));
        fake.asked.load(Ordering::Relaxed)
    };
    assert_eq!(count(1), 1000);
    assert_eq!(count(100), 1000);
}

/// Of what a bug kept it from telling, nothing is known; the other account is read as ever.
#[tokio::test]
async fn a_read_that_panics_costs_its_account_alone() {
    let mut world = world(1, 1);
    let provider_id = "gce://bug/z/n9".to_owned();
    let node = plan::Node { uid: "9".to_owned(), provider_id, ready: true, ..plan::Node::default() };
    world.nodes.insert("n9".to_owned(), node);
    let metrics = Metrics::new(&telemetry::Telemetry::new(None).expect("telemetry")).expect("metrics");
    let (mailbox, mut messages) = mpsc::channel(8);
    let mut accounts = Accounts::new(Arc::new(Fake::default()), mailbox, Clock::new(), metrics);
    accounts.reshape(&mut world);
    for round in 1..=2 {
        let mut tasks = JoinSet::new();
        accounts.readers.values_mut().for_each(|reader| reader.schedule.hurry(Instant::now()));
        accounts.read(&mut tasks);
        while let Some(ended) = tasks.join_next().await {
            ended.expect("no task ends badly");
        }
        let mut told = BTreeMap::new();
        while let Ok(Message::Read(read)) = messages.try_recv() {
            told.insert(read.account.scope.clone(), read.reading.addresses.get(&address()).cloned());
            accounts.apply(read, &mut world);
        }
        let Some(Some(AddressState::Unknown(error))) = told.get("bug") else { panic!("{told:?}") };
        assert_eq!(error.class, Class::Transient, "round {round}");
        assert!(error.message.starts_with("a bug in this program: no such index"), "{error}");
        assert_eq!(told.get("p"), Some(&None), "the fake tells nothing, but it was asked");
        // The next one is due.
        accounts
            .readers
            .values_mut()
            .for_each(|reader| reader.schedule = Schedule::new(Duration::ZERO, Instant::now()));
    }
    let InstanceView::Unknown { message } = &world.instances["gce://bug/z/n9"].view else { panic!("known") };
    assert!(message.starts_with("a bug in this program"), "{message}");
}
