//! The running simulators, and the handle by which a test holds them.

use crate::admin;
use crate::aws::Aws;
use crate::azure::Azure;
use crate::changes::{Change, ChangeError};
use crate::exchange::Exchange;
use crate::faults::Rule;
use crate::gcp::Gcp;
use crate::limits::Limits;
use crate::log::{Event, Snapshot};
use crate::model::State;
use crate::model::things::Cloud;
use crate::permissions::Roles;
use crate::pipeline::{Api, handle};
use crate::server::serve;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::world::{AddressSpec, InstanceSpec, World};
use anyhow::{Context as _, Result};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// How often things happen that are due while nobody calls.
const TICK: Duration = Duration::from_millis(20);

/// Where the servers listen, on loopback; 0 is any free port.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Ports {
    pub gcp: u16,
    pub aws: u16,
    pub azure: u16,
    pub admin: u16,
}

/// The running simulators. Dropping it ends them.
pub struct Sim {
    shared: Shared,
    gcp: SocketAddr,
    aws: SocketAddr,
    azure: SocketAddr,
    admin: SocketAddr,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Sim {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Sim {
    /// Starts all simulators on free ports of loopback.
    pub async fn start(world: World) -> Result<Self> {
        Self::start_on(world, Ports::default()).await
    }

    /// Starts all simulators on the given ports of loopback.
    pub async fn start_on(world: World, ports: Ports) -> Result<Self> {
        let shared = Shared::new(world.build()?);
        let mut tasks = Vec::new();
        let gcp = api::<Gcp>(&shared, ports.gcp, &mut tasks).await?;
        let aws = api::<Aws>(&shared, ports.aws, &mut tasks).await?;
        let azure = api::<Azure>(&shared, ports.azure, &mut tasks).await?;
        let listener = listen("admin", ports.admin).await?;
        let admin = listener.local_addr()?;
        let world = shared.clone();
        tasks.push(tokio::spawn(serve(listener, move |request| {
            let world = world.clone();
            async move { admin::handle(&world, &request).await }
        })));
        tasks.push(tokio::spawn(tick(shared.clone())));
        Ok(Self { shared, gcp, aws, azure, admin, tasks })
    }

    /// Endpoint of the Compute API.
    pub fn gcp_url(&self) -> String {
        format!("http://{}", self.gcp)
    }

    /// Endpoint of the EC2 API.
    pub fn aws_url(&self) -> String {
        format!("http://{}", self.aws)
    }

    /// Endpoint of the Resource Manager.
    pub fn azure_url(&self) -> String {
        format!("http://{}", self.azure)
    }

    /// Endpoint by which the simulators are controlled.
    pub fn admin_url(&self) -> String {
        format!("http://{}", self.admin)
    }

    /// What a process of ours needs in its environment to call these instead of the clouds; `caller` is the
    /// name that events know it by.
    pub fn environment(&self, caller: &str) -> Vec<(&'static str, String)> {
        let as_caller = |url: String| format!("{url}/as/{caller}");
        vec![
            ("GCP_COMPUTE_ENDPOINT", as_caller(self.gcp_url())),
            ("GCP_CREDENTIALS", "anonymous".to_owned()),
            ("AWS_ENDPOINT_URL_EC2", as_caller(self.aws_url())),
            ("AWS_ACCESS_KEY_ID", caller.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
            ("AZURE_ARM_ENDPOINT", as_caller(self.azure_url())),
            ("AZURE_CREDENTIALS", "anonymous".to_owned()),
        ]
    }

    /// Adds a fault and gives its number.
    pub fn fault(&self, rule: Rule) -> u64 {
        self.shared.lock().faults.add(rule)
    }

    /// The faults that are still to come, with what is left of their counts.
    pub fn faults(&self) -> Vec<(u64, Rule)> {
        self.shared.lock().faults.rules().to_vec()
    }

    /// Takes a fault away; false if there is none of that number any more.
    pub fn remove_fault(&self, number: u64) -> bool {
        self.shared.lock().faults.remove(number)
    }

    /// Takes all faults away.
    pub fn clear_faults(&self) {
        self.shared.lock().faults.clear();
    }

    /// Changes the world from outside; gives the number of the event.
    pub fn change(&self, change: &Change) -> Result<u64, ChangeError> {
        let made = self.shared.lock().change(change);
        self.shared.notify();
        made
    }

    /// Adds the usual instance of a node with that provider ID.
    pub fn add_instance(&self, provider_id: &str) -> Result<u64, ChangeError> {
        let instance = InstanceSpec::of(provider_id);
        self.change(&Change::AddInstance { instance })
    }

    /// Reserves one more address, which nobody has yet.
    pub fn add_address(&self, cloud: Cloud, address: IpAddr) -> Result<u64, ChangeError> {
        let address = AddressSpec::free(cloud, address);
        self.change(&Change::AddAddress { address })
    }

    /// Stops an instance, named by its provider ID or its name.
    pub fn stop_instance(&self, instance: &str) -> Result<u64, ChangeError> {
        let instance = instance.to_owned();
        self.change(&Change::StopInstance { instance })
    }

    /// Ends an instance for good.
    pub fn terminate_instance(&self, instance: &str) -> Result<u64, ChangeError> {
        let instance = instance.to_owned();
        self.change(&Change::TerminateInstance { instance, keep_interfaces: false })
    }

    /// Puts a new instance of the same name in the place of one.
    pub fn recreate_instance(&self, instance: &str) -> Result<u64, ChangeError> {
        let instance = instance.to_owned();
        self.change(&Change::RecreateInstance { instance })
    }

    /// Somebody else attaches an address to an instance, whoever had it.
    pub fn attach(&self, address: IpAddr, instance: &str) -> Result<u64, ChangeError> {
        let instance = instance.to_owned();
        self.change(&Change::Attach { address, instance, name: None })
    }

    /// Somebody else detaches an address.
    pub fn detach(&self, address: IpAddr) -> Result<u64, ChangeError> {
        self.change(&Change::Detach { address })
    }

    /// The events after a number, oldest first.
    pub fn events(&self, since: u64) -> Vec<Event> {
        self.with(|state| state.log.since(since))
    }

    /// Waits until there is an event after a number, and gives all of them.
    pub async fn next_events(&self, since: u64) -> Vec<Event> {
        let mut last = self.shared.events();
        // The sender lives as long as this handle, so waiting cannot fail.
        let _ = last.wait_for(|last| *last > since).await;
        self.events(since)
    }

    /// Who holds what now.
    pub fn snapshot(&self) -> Snapshot {
        self.with(|state| state.log.snapshot(u64::MAX))
    }

    /// Who held what right after an event; after number 0 it is what everybody started with.
    pub fn snapshot_at(&self, seq: u64) -> Snapshot {
        self.with(|state| state.log.snapshot(seq))
    }

    /// The world as it is now, in the form that it can be started from again.
    pub fn world(&self) -> World {
        self.with(|state| World::of_state(state))
    }

    /// Stops the clock, so that only [`Sim::advance`] moves it.
    pub fn stop_clock(&self) {
        self.with(|state| state.clock.stop());
    }

    /// Lets the clock run.
    pub fn run_clock(&self) {
        self.with(|state| state.clock.run());
    }

    /// Moves the clock forward; what is due happens.
    pub fn advance(&self, by: Duration) {
        self.with(|state| {
            state.clock.advance(by);
            state.settle();
        });
        self.shared.notify();
    }

    /// Changes how the clouds behave.
    pub fn set(&self, change: impl FnOnce(&mut Settings)) {
        self.with(|state| change(&mut state.settings));
    }

    /// Says what callers may do.
    pub fn set_roles(&self, roles: Roles) {
        self.with(|state| state.roles = roles);
    }

    /// Says how often the clouds may be called.
    pub fn set_limits(&self, limits: Limits) {
        self.with(|state| state.limiter.limits = limits);
    }

    /// Says that a caller runs on an instance and needs its way to the internet.
    pub fn place_caller(&self, caller: &str, provider_id: &str) {
        self.with(|state| state.callers.insert(caller.to_owned(), provider_id.to_owned()));
    }

    /// Starts to record requests and replies.
    pub fn record(&self) {
        self.with(|state| state.exchanges.record());
    }

    /// What was recorded.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.with(|state| state.exchanges.all().to_vec())
    }

    fn with<T>(&self, read: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.shared.lock();
        state.settle();
        read(&mut state)
    }
}

async fn api<A: Api>(shared: &Shared, port: u16, tasks: &mut Vec<JoinHandle<()>>) -> Result<SocketAddr> {
    let listener = listen(&A::CLOUD.to_string(), port).await?;
    let address = listener.local_addr()?;
    let shared = shared.clone();
    tasks.push(tokio::spawn(serve(listener, move |request| {
        let shared = shared.clone();
        async move { handle::<A>(&shared, &request).await }
    })));
    Ok(address)
}

async fn listen(name: &str, port: u16) -> Result<TcpListener> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listener = TcpListener::bind(address).await;
    listener
        .with_context(|| format!("cannot listen on {address} for {name}; choose another port, or 0 for any"))
}

async fn tick(shared: Shared) {
    let mut interval = tokio::time::interval(TICK);
    loop {
        interval.tick().await;
        shared.lock().settle();
        shared.notify();
    }
}
