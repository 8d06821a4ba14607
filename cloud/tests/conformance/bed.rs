//! A simulated cloud with three nodes and three addresses, and a provider that talks to it.

use crate::moto::Moto;
use cloud::{
    Account, AddressState, Ask, AwsKeys, Call, Class, Cloud, Clouds, Connect as _, Error, InstanceState,
    Meter, Provider, Reading, Settings,
};
use sim::{Change, Event, Fault, Kind, On, Pace, Roles, Rule, Sim, World};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// What is nowhere to be seen in anything that is said about a failure.
pub const SECRET: &str = "very-secret-key";
pub const SUBSCRIPTION: &str = "00000000-0000-0000-0000-000000000001";

/// Names that a cloud has for what is done to addresses.
pub struct Words {
    pub attach: &'static str,
    pub detach: &'static str,
    pub list: &'static str,
    /// Something else than an instance that can have an address.
    pub other_holder: &'static str,
    pub expired: &'static str,
}

pub fn words(cloud: Cloud) -> Words {
    match cloud {
        Cloud::Gcp => Words {
            attach: "instances.addAccessConfig",
            detach: "instances.deleteAccessConfig",
            list: "addresses.aggregatedList",
            other_holder: "forwardingRules/web",
            expired: "authError",
        },
        Cloud::Aws => Words {
            attach: "AssociateAddress",
            detach: "DisassociateAddress",
            list: "DescribeAddresses",
            other_holder: "natGateways/nat",
            expired: "RequestExpired",
        },
        Cloud::Azure => Words {
            attach: "networkInterfaces.createOrUpdate",
            detach: "networkInterfaces.createOrUpdate",
            list: "publicIPAddresses.list",
            other_holder: "natGateways/nat",
            expired: "ExpiredAuthenticationToken",
        },
    }
}

pub fn in_sim(cloud: Cloud) -> sim::Cloud {
    match cloud {
        Cloud::Gcp => sim::Cloud::Gcp,
        Cloud::Aws => sim::Cloud::Aws,
        Cloud::Azure => sim::Cloud::Azure,
    }
}

/// The provider ID of the n-th node, from 1.
pub fn node(cloud: Cloud, n: usize) -> String {
    let zone = ["a", "b", "c"][(n - 1) % 3];
    match cloud {
        Cloud::Gcp => format!("gce://dev-project/us-central1-{zone}/node-{n}"),
        Cloud::Aws => format!("aws:///eu-west-1{zone}/i-{n:017x}"),
        Cloud::Azure => format!(
            "azure:///subscriptions/{SUBSCRIPTION}/resourceGroups/dev-nodes/providers/Microsoft.Compute/virtualMachines/node-{n}"
        ),
    }
}

/// The n-th address, from 1.
pub fn ip(n: u8) -> IpAddr {
    IpAddr::from([203, 0, 113, n])
}

pub fn within(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

fn yes() -> bool {
    true
}

/// A call that may write.
pub fn call(key: &str) -> Call<'_> {
    Call { deadline: within(20), key, may_write: &yes }
}

/// Counts what the provider says that it sends.
#[derive(Debug, Default)]
pub struct Counter(Mutex<BTreeMap<(&'static str, &'static str), usize>>);

impl Meter for Counter {
    fn called(&self, _: &Account, operation: &'static str, outcome: Result<(), Class>, _: Duration) {
        let outcome = outcome.map_or_else(Class::as_str, |()| "ok");
        *self.0.lock().unwrap().entry((operation, outcome)).or_default() += 1;
    }
}

impl Counter {
    pub fn get(&self) -> BTreeMap<(&'static str, &'static str), usize> {
        self.0.lock().unwrap().clone()
    }
}

pub struct Bed {
    pub cloud: Cloud,
    pub sim: Sim,
    pub clouds: Clouds,
    pub meter: Arc<Counter>,
    pub provider: Arc<dyn Provider>,
    /// The simulator by others, which then plays the cloud instead of ours.
    pub moto: Option<Moto>,
    settings: Settings,
}

/// Three nodes and three free addresses. Operations are done when they were asked for once.
pub fn small_world(cloud: Cloud) -> World {
    let nodes: Vec<String> = (1..=3).map(|n| node(cloud, n)).collect();
    let mut world = World::of_nodes(nodes.iter().map(String::as_str));
    for n in 1..=3 {
        world = world.address(in_sim(cloud), ip(n));
    }
    world.settings.gcp.operation = Pace::Polls(1);
    world.settings.azure.operation = Pace::Polls(1);
    world.settings.azure.retry_after = 0;
    world.settings.aws.address_quota = 10_000;
    // The documented role is all that any case of the suite has.
    world.roles = role(cloud, &crate::permissions::documented(cloud));
    world
}

pub fn role(cloud: Cloud, permissions: &[String]) -> Roles {
    let role = Some(permissions.to_vec());
    match cloud {
        Cloud::Gcp => Roles { gcp: role, ..Roles::default() },
        Cloud::Aws => Roles { aws: role, ..Roles::default() },
        Cloud::Azure => Roles { azure: role, ..Roles::default() },
    }
}

pub fn settings(sim: &Sim) -> Settings {
    let mut settings = Settings::default();
    settings.gcp.endpoint = Some(sim.gcp_url());
    settings.gcp.anonymous = true;
    settings.aws.endpoint = Some(sim.aws_url());
    settings.aws.keys = Some(AwsKeys { id: "controller".to_owned(), secret: SECRET.to_owned() });
    settings.azure.endpoint = Some(sim.azure_url());
    settings.azure.anonymous = true;
    settings
}

impl Bed {
    pub async fn new(cloud: Cloud) -> Self {
        let mut bed = Self::of(cloud, small_world(cloud)).await;
        if let Some(moto) = Moto::of_this_case().await {
            bed.settings.aws.endpoint = Some(moto.url.clone());
            bed.clouds = Clouds::new(bed.settings.clone(), bed.meter.clone()).expect("settings");
            let account = bed.clouds.account_of(&moto.nodes[0]).expect("an account");
            bed.provider = bed.clouds.open(&account).expect("a provider");
            bed.moto = Some(moto);
        }
        bed
    }

    pub async fn of(cloud: Cloud, world: World) -> Self {
        let sim = Sim::start(world).await.expect("simulators");
        let meter = Arc::new(Counter::default());
        let settings = settings(&sim);
        let clouds = Clouds::new(settings.clone(), meter.clone()).expect("settings");
        let account = clouds.account_of(&node(cloud, 1)).expect("an account");
        let provider = clouds.open(&account).expect("a provider");
        Self { cloud, sim, clouds, meter, provider, moto: None, settings }
    }

    /// Another process of ours, that knows nothing.
    pub fn restarted(&self) -> Arc<dyn Provider> {
        let clouds = Clouds::new(self.settings.clone(), Arc::new(())).expect("settings");
        clouds.open(&clouds.account_of(&self.node(1)).expect("an account")).expect("a provider")
    }

    pub fn node(&self, n: usize) -> String {
        match &self.moto {
            Some(moto) => moto.nodes[n - 1].clone(),
            None => node(self.cloud, n),
        }
    }

    /// The same, or one that is not among the three.
    pub fn node_or_fourth(&self, n: usize) -> String {
        if n <= 3 { self.node(n) } else { node(self.cloud, n) }
    }

    pub fn words(&self) -> Words {
        words(self.cloud)
    }

    /// All three nodes and addresses.
    pub fn ask(&self) -> Ask {
        let instances = (1..=3).map(|n| self.node(n)).collect();
        Ask { addresses: (1..=3).map(ip).collect(), instances }
    }

    pub async fn read(&self) -> Reading {
        self.provider.read(&self.ask(), within(20)).await
    }

    pub async fn state(&self, n: u8) -> AddressState {
        self.read().await.addresses.remove(&ip(n)).expect("an answer")
    }

    pub async fn instance(&self, n: usize) -> InstanceState {
        self.read().await.instances.remove(&self.node(n)).expect("an answer")
    }

    pub async fn free_token(&self, n: u8) -> String {
        match self.state(n).await {
            AddressState::Free { token } => token,
            other => panic!("{} is not free: {other:?}", ip(n)),
        }
    }

    pub async fn attached_token(&self, n: u8) -> String {
        match self.state(n).await {
            AddressState::Attached { token, .. } => token,
            other => panic!("{} is not attached: {other:?}", ip(n)),
        }
    }

    /// Attaches the n-th address to a node.
    pub async fn attach(&self, n: u8, to: usize, key: &str) -> Result<(), Error> {
        let token = self.free_token(n).await;
        self.provider.attach(ip(n), &self.node(to), &token, &call(key)).await
    }

    pub async fn detach(&self, n: u8, from: usize, token: &str, key: &str) -> Result<(), Error> {
        self.provider.detach(ip(n), &self.node(from), token, &call(key)).await
    }

    /// Who has an address, by the word of the simulator itself.
    pub async fn holder(&self, n: u8) -> Option<String> {
        match &self.moto {
            Some(moto) => moto.holder(ip(n)).await,
            None => self.sim.snapshot().holds.get(&ip(n)).map(|hold| hold.holder.clone()),
        }
    }

    pub async fn assert_on(&self, n: u8, node: usize) {
        assert_eq!(self.holder(n).await, Some(self.node(node)), "{} by the cloud's word", ip(n));
    }

    /// A person takes an address and puts it somewhere, under whatever name.
    pub async fn attach_by_hand(&self, n: u8, to: usize) {
        if let Some(moto) = &self.moto {
            return moto.attach(ip(n), &self.node(to)).await;
        }
        let name = (self.cloud == Cloud::Gcp).then(|| "by hand / at 3 a.m.".to_owned());
        self.sim.change(&Change::Attach { address: ip(n), instance: self.node(to), name }).expect("a change");
    }

    pub fn on(&self, action: &str) -> On {
        On::action(in_sim(self.cloud), action)
    }

    pub fn once(&self, action: &str, fault: Fault) {
        self.sim.fault(Rule::once(self.on(action), fault));
    }

    pub fn always(&self, action: &str, fault: Fault) {
        self.sim.fault(Rule::always(self.on(action), fault));
    }

    /// The calls since an event.
    pub fn calls(&self, since: u64) -> Vec<Event> {
        self.sim.events(since).into_iter().filter(|event| event.kind == Kind::Call).collect()
    }

    pub fn last_event(&self) -> u64 {
        self.sim.events(0).last().map_or(0, |event| event.seq)
    }

    pub fn writes(&self, since: u64) -> usize {
        self.calls(since).iter().filter(|event| event.mutating).count()
    }
}

/// Waits for something that the simulator does by itself.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never: {what}");
}

pub fn error(code: &str) -> Fault {
    Fault::Error { code: code.to_owned(), message: None, status: None }
}
