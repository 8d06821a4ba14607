//! Carries out a plan on the world, as the controller and the cloud would.

use crate::notation::Words;
use crate::scene::Scene;
use crate::vocabulary::{attached, free, mark, unmark};
use plan::{Action, AddressView, LastEviction, LastWrite, Plan, Reason, Step, WriteKind};

/// What happens between two stages.
#[derive(Default)]
pub struct Between {
    events: Vec<Event>,
    seconds: Option<i64>,
    /// The cloud is not read again.
    pub stale: bool,
}

#[derive(Clone, Copy)]
enum Event {
    Marks,
    Steps,
    PodsAndObjects,
    /// The controller lost all that it remembers outside the cluster.
    Crash,
    /// The stored status is lost too.
    Forget,
}

const DONE: [Event; 3] = [Event::Marks, Event::Steps, Event::PodsAndObjects];

impl Between {
    /// `then [done | marks done | steps done] [after 30s] [crash] [forgotten] [stale]`
    pub fn read(words: &mut Words<'_>) -> Result<Self, String> {
        let mut between = Self::default();
        if words.peek().is_some() {
            words.expect("then")?;
        }
        while let Some(word) = words.next() {
            match word {
                "done" => between.events.extend(DONE),
                "marks" => {
                    words.expect("done")?;
                    between.events.push(Event::Marks);
                }
                "steps" => {
                    words.expect("done")?;
                    between.events.push(Event::Steps);
                }
                "after" => between.seconds = Some(words.seconds()?),
                "crash" => between.events.push(Event::Crash),
                "forgotten" => between.events.push(Event::Forget),
                "stale" => between.stale = true,
                other => return Err(format!("`{other}` cannot happen between two stages")),
            }
        }
        Ok(between)
    }

    /// Everything of the plan is done, and a second passes.
    pub fn done() -> Self {
        Self { events: DONE.into(), ..Self::default() }
    }

    pub fn happen(&self, scene: &mut Scene, plan: &Plan) {
        remember(scene, plan);
        for event in &self.events {
            match event {
                Event::Marks => marks(scene, plan),
                Event::Steps => plan.steps.iter().for_each(|step| carry_out(scene, step)),
                Event::PodsAndObjects => pods_and_objects(scene, plan),
                Event::Crash => crash(scene),
                Event::Forget => forget(scene),
            }
        }
        scene.now = scene.now.plus_seconds(self.seconds.unwrap_or(1));
    }
}

fn crash(scene: &mut Scene) {
    let world = &mut scene.world;
    world.noticed.clear();
    world.last_write.clear();
    world.failures.clear();
    world.in_flight.clear();
    world.evicted.clear();
    world.refused_evictions.clear();
}

fn forget(scene: &mut Scene) {
    for allocation in scene.world.allocations.values_mut() {
        allocation.status = std::sync::Arc::default();
    }
}

fn remember(scene: &mut Scene, plan: &Plan) {
    for (name, status) in &plan.statuses {
        if let Some(allocation) = scene.world.allocations.get_mut(name) {
            allocation.status = status.clone();
        }
    }
    scene.world.noticed.clone_from(&plan.noticed);
}

fn marks(scene: &mut Scene, plan: &Plan) {
    for change in &plan.labels {
        let node = scene.world.nodes.get_mut(&change.node);
        let Some(node) = node.filter(|node| node.uid == change.uid) else {
            continue;
        };
        match &change.marks {
            Some((allocation, address)) => mark(node, allocation, *address),
            None => unmark(node),
        }
    }
}

fn carry_out(scene: &mut Scene, step: &Step) {
    let address = step.address;
    let (kind, place, after) = match &step.action {
        Action::Verify => return,
        Action::Attach { to, .. } => (WriteKind::Attach, to, attached(&to.provider_id, address)),
        Action::Detach { from, .. } => (WriteKind::Detach, from, free(address)),
    };
    let write = LastWrite { at: scene.now, kind, provider_id: place.provider_id.clone(), succeeded: true };
    scene.world.last_write.insert(address, write);
    scene.world.failures.remove(&(address, place.provider_id.clone()));
    if let Some(seen) = scene.world.addresses.get_mut(&address) {
        let same = match (&seen.view, kind) {
            (AddressView::Free { .. }, WriteKind::Attach) => true,
            (AddressView::Attached { provider_id, .. }, WriteKind::Detach) => {
                *provider_id == place.provider_id
            }
            _ => false,
        };
        if same {
            seen.view = after;
        }
    }
}

fn pods_and_objects(scene: &mut Scene, plan: &Plan) {
    let world = &mut scene.world;
    for eviction in &plan.evictions {
        if eviction.cause != Reason::Stranded {
            let pods = world.pods.iter().filter(|(_, pod)| *pod.workload == eviction.workload);
            let pods = pods.map(|(uid, _)| uid.clone()).collect();
            world.evicted.insert(eviction.workload.clone(), LastEviction { at: scene.now, pods });
        }
        world.pods.remove(&eviction.uid);
    }
    for change in &plan.daemon_sets {
        if let Some(workload) = world.workloads.get_mut(&change.workload) {
            workload.injected = (!change.names.is_empty()).then(|| change.names.clone());
            workload.ours = workload.injected.is_some();
        }
    }
    for change in &plan.finalizers {
        let Some(allocation) = world.allocations.get_mut(&change.allocation) else {
            continue;
        };
        allocation.has_finalizer = change.present;
        if allocation.deleting && !change.present {
            world.allocations.remove(&change.allocation);
        }
    }
}
