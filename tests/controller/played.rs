//! The cloud of a stage: in memory, or a simulator on the wire with the vendor's SDK in between.

use crate::memory::{Fault, Memory, Verb};
use anyhow::Result;
use cloud::{AwsKeys, Class, Cloud, Clouds, Connect, InstanceState, Settings};
use cluster::Provider;
use sim::{Kind, On, Rule, Sim, World};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// What was scripted to go wrong.
pub struct Script {
    verb: Verb,
    address: IpAddr,
    /// The simulator's number of it.
    number: Option<u64>,
}

/// The same as a fault of the simulated GCP.
fn on_the_wire(verb: Verb, nodes: &str, fault: Fault) -> (On, sim::Fault) {
    let action = match verb {
        Verb::Attach => "instances.addAccessConfig",
        Verb::Detach => "instances.deleteAccessConfig",
        Verb::Preflight => "instances.get",
        Verb::Read => "addresses.aggregatedList",
        Verb::Restore => panic!("nobody spoils this"),
    };
    // A read is a list: it is spoilt for all that are in it.
    let target = (verb != Verb::Read).then(|| nodes.to_owned());
    let on = On { target, ..On::action(sim::Cloud::Gcp, action) };
    let error = |code: &str| sim::Fault::Error { code: code.to_owned(), message: None, status: None };
    let fault = match fault {
        Fault::Panic => panic!("only the cloud in memory does this"),
        Fault::LostReply => sim::Fault::LostReply,
        Fault::Delay(delay) => sim::Fault::Delay { seconds: delay.as_secs_f64() },
        Fault::Error(class) => match class {
            Class::Throttled => sim::Fault::Throttle { seconds: Some(1.0) },
            Class::Transient => error("backendError"),
            Class::Conflict => error("resourceInUseByAnotherResource"),
            Class::Denied => error("forbidden"),
            Class::Permanent | Class::Unsupported | Class::Fenced => error("invalid"),
        },
    };
    (on, fault)
}

/// A cloud.
pub enum Played {
    Memory(Memory),
    Sim { sim: Box<Sim>, cloud: Cloud },
}

impl Played {
    pub async fn sim(cloud: Cloud) -> Result<Self> {
        Ok(Self::Sim { sim: Box::new(Sim::start(World::default()).await?), cloud })
    }

    /// The one in memory, whose calls can be counted and spoilt.
    pub fn memory(&self) -> &Memory {
        match self {
            Self::Memory(memory) => memory,
            Self::Sim { .. } => panic!("this scene needs the cloud in memory"),
        }
    }

    pub fn is_memory(&self) -> bool {
        matches!(self, Self::Memory(_))
    }

    /// The simulator.
    pub fn simulator(&self) -> &Sim {
        match self {
            Self::Memory(_) => panic!("this scene needs a simulator"),
            Self::Sim { sim, .. } => sim,
        }
    }

    pub fn cloud(&self) -> Cloud {
        match self {
            Self::Memory(_) => Cloud::Gcp,
            Self::Sim { cloud, .. } => *cloud,
        }
    }

    pub fn provider(&self) -> Provider {
        match self.cloud() {
            Cloud::Gcp => Provider::Gcp,
            Cloud::Aws => Provider::Aws,
            Cloud::Azure => Provider::Azure,
        }
    }

    fn kind(&self) -> sim::Cloud {
        match self.cloud() {
            Cloud::Gcp => sim::Cloud::Gcp,
            Cloud::Aws => sim::Cloud::Aws,
            Cloud::Azure => sim::Cloud::Azure,
        }
    }

    /// How a controller in this process reaches it; `caller` is the name that it is known by.
    pub fn connect(&self, caller: &str) -> Result<Arc<dyn Connect>> {
        Ok(match self {
            Self::Memory(memory) => Arc::new(memory.called_by(caller)),
            Self::Sim { sim, .. } => {
                let as_caller = |url: String| Some(format!("{url}/as/{caller}"));
                let mut settings = Settings::default();
                settings.gcp.endpoint = as_caller(sim.gcp_url());
                settings.gcp.anonymous = true;
                settings.aws.endpoint = as_caller(sim.aws_url());
                settings.aws.keys = Some(AwsKeys { id: caller.to_owned(), secret: "test".to_owned() });
                settings.azure.endpoint = as_caller(sim.azure_url());
                settings.azure.anonymous = true;
                Arc::new(Clouds::new(settings, Arc::new(()))?)
            }
        })
    }

    /// How another process reaches it; `caller` is the name that the simulator knows it by.
    pub fn environment(&self, caller: &str) -> Vec<(&'static str, String)> {
        self.simulator().environment(caller)
    }

    pub fn add_address(&self, address: IpAddr) -> Result<()> {
        match self {
            Self::Memory(memory) => memory.add_address(address),
            Self::Sim { sim, .. } => drop(sim.add_address(self.kind(), address)?),
        }
        Ok(())
    }

    pub fn add_instance(&self, provider_id: &str) -> Result<()> {
        match self {
            Self::Memory(memory) => memory.add_instance(provider_id),
            Self::Sim { sim, .. } => drop(sim.add_instance(provider_id)?),
        }
        Ok(())
    }

    pub fn stop(&self, provider_id: &str) -> Result<()> {
        match self {
            Self::Memory(memory) => memory.set_instance(provider_id, InstanceState::Stopped),
            Self::Sim { sim, .. } => drop(sim.stop_instance(provider_id)?),
        }
        Ok(())
    }

    pub fn terminate(&self, provider_id: &str) -> Result<()> {
        match self {
            Self::Memory(memory) => memory.set_instance(provider_id, InstanceState::NotFound),
            Self::Sim { sim, .. } => drop(sim.terminate_instance(provider_id)?),
        }
        Ok(())
    }

    /// Somebody else attaches an address.
    pub fn attach_by_hand(&self, address: IpAddr, provider_id: &str) -> Result<()> {
        match self {
            Self::Memory(memory) => memory.attach_by_hand(address, provider_id),
            Self::Sim { sim, .. } => drop(sim.attach(address, provider_id)?),
        }
        Ok(())
    }

    /// A static address of somebody else's is on the interface of an instance.
    pub fn put_foreign(&self, address: IpAddr, provider_id: &str) -> Result<()> {
        match self {
            Self::Memory(memory) => memory.put_foreign(address, provider_id),
            Self::Sim { .. } => {
                self.add_address(address)?;
                self.attach_by_hand(address, provider_id)?;
            }
        }
        Ok(())
    }

    /// The next so many calls of that kind, for the address or for nodes of that name, go wrong like this.
    pub fn script(&self, verb: Verb, address: IpAddr, nodes: &str, times: usize, fault: Fault) -> Script {
        match self {
            Self::Memory(memory) => {
                memory.script(verb, Some(address), times, fault);
                Script { verb, address, number: None }
            }
            Self::Sim { sim, .. } => {
                let (on, fault) = on_the_wire(verb, nodes, fault);
                let rule = Rule { on, skip: 0, times: u32::try_from(times).ok(), fault };
                Script { verb, address, number: Some(sim.fault(rule)) }
            }
        }
    }

    /// Whether it is still to be played.
    pub fn is_to_come(&self, script: &Script) -> bool {
        match (self, script.number) {
            (Self::Sim { sim, .. }, Some(number)) => sim.faults().iter().any(|(other, _)| *other == number),
            _ => self.memory().is_to_come(script.verb, script.address),
        }
    }

    /// What has not happened does not happen any more.
    pub fn heal(&self, script: &Script) {
        match (self, script.number) {
            (Self::Sim { sim, .. }, Some(number)) => drop(sim.remove_fault(number)),
            _ => self.memory().heal(Some(script.address)),
        }
    }

    pub fn holder(&self, address: IpAddr) -> Option<String> {
        match self {
            Self::Memory(memory) => memory.holder(address),
            Self::Sim { sim, .. } => sim.snapshot().holds.get(&address).map(|hold| hold.holder.clone()),
        }
    }

    /// What was done to an address, in order.
    pub fn writes(&self, address: IpAddr) -> Vec<(Verb, String)> {
        let Self::Sim { sim, .. } = self else { return self.memory().writes(address) };
        let ours = sim.events(0).into_iter().filter(|event| event.kind != Kind::Outside);
        let changes = ours.flat_map(|event| event.changes).filter(|change| change.ip == address);
        changes
            .flat_map(|change| {
                let left = change.before.map(|hold| (Verb::Detach, hold.holder));
                let came = change.after.map(|hold| (Verb::Attach, hold.holder));
                [left, came].into_iter().flatten()
            })
            .collect()
    }

    /// What happened, in the words of the checker.
    pub fn events(&self) -> Vec<faults::Event> {
        match self {
            Self::Memory(memory) => memory.events(),
            Self::Sim { sim, .. } => faults::of_sim(&sim.snapshot_at(0), &sim.events(0)),
        }
    }

    /// What must never happen, did, and is in no event: calls about these addresses that were sent too late.
    pub fn late(&self, addresses: &BTreeSet<IpAddr>) -> Vec<faults::Violation> {
        match self {
            Self::Memory(memory) => memory.late(addresses),
            Self::Sim { .. } => Vec::new(),
        }
    }
}
