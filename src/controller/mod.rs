//! The controller: observe, plan, act, publish.
//!
//! One task owns the world. Watches, readings of clouds and ends of writes arrive in its mailbox and
//! change the world in place; then one plan is made for all of it, and what the plan says is begun,
//! each thing in a task of its own that reports back to the mailbox. Nothing but the world is
//! remembered, so that a crash anywhere is healed by observing and planning again.

mod accounts;
mod act;
mod bugs;
mod clock;
mod events;
mod failure;
mod followers;
mod gauges;
mod handover;
mod lean;
mod names;
mod observe;
mod offers;
mod pace;
pub mod process;
mod progress;
mod publish;
mod reads;
mod settings;
mod state;
mod stories;
mod throttle;
mod turn;
mod watch;
mod writes;

pub use observe::Observer;
pub use settings::Settings;

use crate::leader::{Command, Elector, LeaderToken, Standing};
use accounts::Accounts;
use anyhow::{Context as _, Result, bail};
use clock::Clock;
use followers::{Followed, Followers, Origin};
use handover::Handover;
use kube::Client;
use offers::Offers;
use plan::World;
use publish::{Answer, Target, Writer, Written};
use state::State;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use telemetry::controller::Metrics;
use throttle::RetryAfter;
use tokio::sync::{mpsc, watch as watching};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use watch::{Change, Subject, Watching, watch};
use writes::Writes;

/// How many messages may wait before those who send them do.
const MAILBOX: usize = 4096;

/// What can happen.
enum Message {
    /// A watch said something.
    Observed(Observed),
    Read(accounts::Read),
    StepEnded(act::Outcome),
    /// A write to the API server ended, with the object as it is now.
    Written(Target, Written, Option<Answer>),
    /// A part of ours ended that never should.
    Broken(String),
}

/// What a message makes due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Nothing,
    /// A write ended that nobody waited for: another one may begin, as the last plan has it.
    Permits,
    /// A new plan.
    Plan,
}

/// What the watches say.
enum Observed {
    Allocation(Change<lean::Allocation>),
    Node(Change<lean::Node>),
    DaemonSet(Change<lean::DaemonSet>),
    Unscheduled(Change<lean::Pod>),
    Followed(Origin, Followed),
}

/// What the rest of the process may know of the controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    /// What is not known yet; `None`: everything is.
    pub missing: Option<String>,
    /// What was known, and cannot be watched now: plans are made with what was known last.
    pub outdated: Option<String>,
    /// How often the loop has turned.
    pub turns: u64,
    /// This replica leads.
    pub leading: bool,
}

/// The controller.
pub struct Controller {
    settings: Settings,
    state: State,
    accounts: Accounts,
    writes: Writes,
    writer: Writer,
    token: LeaderToken,
    clock: Clock,
    metrics: Metrics,
    gauges: gauges::Gauges,
    mailbox: mpsc::Receiver<Message>,
    tasks: JoinSet<()>,
    /// What the last plan would have written if there had been permits.
    offers: Offers,
    /// Evictions that were asked for, by the pod's UID.
    evicting: BTreeMap<String, Evicting>,
    /// When old views and forgotten things were last looked for.
    tidied: Instant,
    /// When the last turn began, and how long it took.
    planned: Instant,
    took: Duration,
    standing: watching::Receiver<Standing>,
    tell_elector: mpsc::Sender<Command>,
    /// The lease is to be given up, because the process stops.
    stopping: bool,
    /// It was given up for the sake of our own node.
    yielded: bool,
    handover: Handover,
    pulse: watching::Sender<Pulse>,
    _watches: [Watching; 4],
}

/// An eviction that was asked for, and the pods of its workload at that time.
struct Evicting {
    eviction: plan::Eviction,
    pods: BTreeSet<String>,
    /// Its answer was lost; until then the pod may tell what it was. `None`: it is under way.
    until: Option<Instant>,
}

/// How the API server is reached. The lease has a client of its own: it never waits behind anything else.
#[derive(Clone)]
pub struct Clients {
    /// For watches and writes.
    pub work: Client,
    /// For the lease alone.
    pub lease: Client,
}

/// Runs until `stop` is cancelled (then the lease is released and it ends well) or the lease is lost.
pub async fn run(
    settings: Settings,
    clients: Clients,
    connect: Arc<dyn cloud::Connect>,
    metrics: Metrics,
    pulse: watching::Sender<Pulse>,
    stop: CancellationToken,
) -> Result<()> {
    let (elector, standing, tell_elector, token) = Elector::new(
        clients.lease,
        &settings.namespace,
        &settings.lease_name,
        settings.identity.clone(),
        settings.timings,
    );
    let electing = tokio::spawn(elector.run());
    let controller =
        Controller::new(settings, &clients.work, connect, metrics, pulse, standing, tell_elector, token);
    let ended = controller.turn_until(stop).await;
    if ended.is_ok() {
        // It is told to stop by now, and releases what it holds.
        electing.await.context("the election ended badly")?;
    } else {
        electing.abort();
    }
    ended
}

impl Controller {
    #[allow(clippy::too_many_arguments)] // parts that are made in one place, and nowhere else
    fn new(
        settings: Settings,
        client: &Client,
        connect: Arc<dyn cloud::Connect>,
        metrics: Metrics,
        pulse: watching::Sender<Pulse>,
        standing: watching::Receiver<Standing>,
        tell_elector: mpsc::Sender<Command>,
        token: LeaderToken,
    ) -> Self {
        let (send, mailbox) = mpsc::channel(MAILBOX);
        let clock = Clock::new();
        let world = World {
            own_node: settings.own_node.clone(),
            excluded_namespaces: settings.excluded_namespaces(),
            newcomer_seconds: i64::try_from(settings.newcomer.as_secs()).unwrap_or(i64::MAX),
            ..World::default()
        };
        let mut tasks = JoinSet::new();
        let (teller, telling) = events::Teller::new(settings.recorder(client.clone()), metrics.clone());
        tasks.spawn(telling);
        let retry_after = RetryAfter::default();
        let writer = Writer {
            client: retry_after.noted_by(client),
            token: token.clone(),
            timeout: settings.timings.request(),
            mailbox: send.clone(),
            teller,
            metrics: metrics.clone(),
            stories: stories::Stories::default(),
            retry_after,
        };
        Self {
            state: State::new(world, Followers::new(client.clone(), send.clone(), metrics.clone())),
            accounts: Accounts::new(connect, send.clone(), clock, metrics.clone()),
            writes: Writes::default(),
            gauges: gauges::Gauges::new(metrics.clone(), &settings),
            _watches: watches(client, &send, &metrics),
            writer,
            token,
            clock,
            metrics,
            mailbox,
            tasks,
            offers: Offers::default(),
            evicting: BTreeMap::new(),
            tidied: Instant::now(),
            planned: Instant::now(),
            took: Duration::ZERO,
            standing,
            tell_elector,
            stopping: false,
            yielded: false,
            handover: Handover::default(),
            pulse,
            settings,
        }
    }

    /// The loop.
    async fn turn_until(mut self, stop: CancellationToken) -> Result<()> {
        let mut wake = Instant::now();
        let mut stopping = None;
        loop {
            tokio::select! {
                Some(message) = self.mailbox.recv() => {
                    let mut due = self.take(message)?;
                    while let Ok(message) = self.mailbox.try_recv() {
                        due = due.max(self.take(message)?);
                    }
                    if due == Due::Permits {
                        self.serve();
                        // Most of the time goes into what is to be written, not into plans that say the same.
                        let pause = (self.took * 10).clamp(REPLAN, LONGEST_REPLAN);
                        wake = wake.min(self.planned + self.took + pause).max(Instant::now());
                    }
                    if due < Due::Plan {
                        continue;
                    }
                }
                () = tokio::time::sleep_until(wake) => {}
                changed = self.standing.changed() => {
                    changed.context("the election ended")?;
                    self.stand()?;
                }
                () = stop.cancelled(), if stopping.is_none() => {
                    info!("stopping: what is under way ends first");
                    stopping = Some(Instant::now() + self.settings.grace);
                    self.stopping = true;
                }
            }
            self.reap()?;
            self.planned = Instant::now();
            wake = self.turn();
            if let Some(by) = stopping {
                wake = wake.min(by);
                if self.is_idle() || Instant::now() >= by {
                    let _ = self.tell_elector.send(Command::Stop).await;
                    return Ok(());
                }
            }
        }
    }

    /// Whether nothing that we began is under way.
    fn is_idle(&self) -> bool {
        self.state.world.in_flight.is_empty() && !self.writes.any_under_way()
    }

    /// Reads, steps and writes catch their own panics. A task that panicked all the same is one that everything
    /// else needs: begin anew.
    fn reap(&mut self) -> Result<()> {
        while let Some(ended) = self.tasks.try_join_next() {
            ended.context("a task ended badly")?;
        }
        Ok(())
    }

    /// The lease changed hands.
    fn stand(&mut self) -> Result<()> {
        let standing = *self.standing.borrow_and_update();
        match standing {
            Standing::Standby => self.yielded = false,
            Standing::Lost => bail!("the lease is lost; another replica leads or will"),
            Standing::Leading { epoch, nobody_took_it } => {
                turn::take_over(&mut self.state.world, epoch, nobody_took_it);
                self.handover.leading(nobody_took_it, self.settings.timings.lease, Instant::now());
                self.yielded = false;
                self.offers = Offers::default();
                self.accounts.forget(&mut self.state.world);
                self.state.reshaped = true;
                self.metrics.lease_transitions.with_label_values::<&str>(&[]).inc();
                self.finish_restorations();
            }
        }
        Ok(())
    }

    fn is_leading(&self) -> bool {
        matches!(*self.standing.borrow(), Standing::Leading { .. })
    }

    /// Takes a message into the world; what is due then.
    fn take(&mut self, message: Message) -> Result<Due> {
        let changed = match message {
            Message::Observed(Observed::Node(change)) => self.take_node(change),
            Message::Observed(Observed::Allocation(Change::Applied(object))) => {
                return Ok(self.take_allocation(object));
            }
            Message::Observed(observed) => self.state.see(observed),
            Message::Read(read) => {
                self.accounts.apply(read, &mut self.state.world);
                true
            }
            Message::StepEnded(outcome) => {
                self.step_ended(&outcome);
                true
            }
            Message::Written(target, written, answer) => return Ok(self.written(&target, &written, answer)),
            Message::Broken(what) => bail!(what),
        };
        Ok(if changed { Due::Plan } else { Due::Nothing })
    }

    /// The echo of a write that nobody waited for may come before its answer; it is no news either.
    fn take_allocation(&mut self, object: lean::Allocation) -> Due {
        let name = kube::ResourceExt::name_any(&object);
        let generation = object.metadata.generation;
        let known = self.state.world.allocations.get(&name).map(|known| known.generation);
        let echo = self.offers.is_idle(&Target::Allocation(name)) && known.is_some() && known == generation;
        match self.state.allocation(Change::Applied(object)) {
            true if echo => Due::Permits,
            true => Due::Plan,
            false => Due::Nothing,
        }
    }

    /// A node in trouble, or out of it, makes what the cloud says of its instance worth asking for.
    fn take_node(&mut self, change: Change<lean::Node>) -> bool {
        let name = match &change {
            Change::Applied(object) => kube::ResourceExt::name_any(object),
            _ => return self.state.node(change),
        };
        let was_ready = self.state.world.nodes.get(&name).is_none_or(|node| node.ready);
        let changed = self.state.node(change);
        if let Some(node) = self.state.world.nodes.get(&name).filter(|node| was_ready != node.ready) {
            self.accounts.hurry(&node.provider_id);
        }
        changed
    }

    fn written(&mut self, target: &Target, written: &Written, answer: Option<Answer>) -> Due {
        let outcome = match written {
            Written::Done => "done",
            Written::Conflict => "conflict",
            Written::Refused(_) => "refused",
            Written::Throttled(_) => "throttled",
            Written::Failed(message) => {
                warn!("{target:?} could not be written: {message}");
                "failed"
            }
        };
        self.metrics.kubernetes_writes.with_label_values(&[target.kind(), outcome]).inc();
        match answer {
            Some(Answer::Allocation(object)) => drop(self.state.our_allocation(&object)),
            Some(Answer::Node(object)) => drop(self.state.our_node(*object)),
            None => {}
        }
        let idle = self.offers.ended(target);
        let done = matches!(written, Written::Done);
        let refused = self.writes.ended(target.clone(), written, Instant::now());
        if let Target::Pod { uid, .. } = target {
            self.eviction_ended(uid, written, refused);
        }
        if idle && done && !self.state.reshaped { Due::Permits } else { Due::Plan }
    }
}

/// What is watched whatever allocations refer to.
fn watches(client: &Client, mailbox: &mpsc::Sender<Message>, metrics: &Metrics) -> [Watching; 4] {
    // Injected pods that wait for a node are few wherever one looks; those of gone allocations have
    // nobody else to ask for them.
    let waiting = Subject::all(client, "unscheduled pods").fields("spec.nodeName=,status.phase=Pending");
    let (send, metrics) = (|| mailbox.clone(), || metrics.clone());
    [
        watch(Subject::all(client, "NetIPAllocations"), send(), metrics(), |change| {
            Message::Observed(Observed::Allocation(change))
        }),
        watch(Subject::all(client, "nodes"), send(), metrics(), |change| {
            Message::Observed(Observed::Node(change))
        }),
        watch(Subject::all(client, "DaemonSets"), send(), metrics(), |change| {
            Message::Observed(Observed::DaemonSet(change))
        }),
        watch(waiting, send(), metrics(), |change| Message::Observed(Observed::Unscheduled(change))),
    ]
}

/// After a write that nobody waited for, a new plan is made after this long; after longer where plans take long.
const REPLAN: Duration = Duration::from_millis(100);
const LONGEST_REPLAN: Duration = Duration::from_secs(1);

/// How long a task of ours may hold up the end of the process.
pub const GRACE: Duration = Duration::from_secs(25);
