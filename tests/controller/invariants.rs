//! What must never happen: the checker of invariants at the end of every test, over what each of its scenes has for
//! itself. The runner calls it, in one place: no scene can forget it.

use crate::stage::Ground;
use anyhow::{Context as _, Result, bail};
use faults::{History, Scope, Violation};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long nothing is called at the end of a scene: longer than the time between two audits.
const QUIET: Duration = Duration::from_secs(6);
/// How long a mark or a status may speak of what is not so any more: an audit, on a machine that has much to do.
const LAG: Duration = Duration::from_secs(30);
/// How long the end is waited for, and how often it is looked at.
const PATIENCE: Duration = Duration::from_secs(40);
const LOOK: Duration = Duration::from_millis(500);
/// What may still be on its way when a scene has ended.
const IN_THE_END: [&str; 4] = ["I4", "I7", "I8", "L2"];

tokio::task_local! {
    /// The scenes of the test that runs.
    static RECORDS: Records;
}

/// The scenes of a test.
#[derive(Clone, Default)]
struct Records(Arc<Mutex<Vec<Arc<Record>>>>);

/// What a scene has for itself, and what it promises.
pub struct Record {
    ground: Arc<Ground>,
    parts: Mutex<Parts>,
}

#[derive(Clone, Default)]
struct Parts {
    addresses: BTreeSet<IpAddr>,
    instances: BTreeSet<String>,
    nodes: BTreeSet<String>,
    allocations: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    moves: Option<BTreeMap<IpAddr, usize>>,
    eligible: Option<BTreeSet<String>>,
    still: Vec<(Timestamp, Timestamp)>,
}

/// How a test went.
pub struct Report {
    /// By its own word.
    pub ended: Result<()>,
    /// By the checker's.
    pub violations: Vec<Violation>,
}

/// Runs a test, and fails it if anything happened that must never happen.
pub async fn judged(play: impl Future<Output = Result<()>>) -> Result<()> {
    let Report { ended, violations } = report(play).await?;
    if violations.is_empty() {
        return ended;
    }
    let told: Vec<String> = violations.iter().map(ToString::to_string).collect();
    let told = format!("what must never happen:\n{}", told.join("\n"));
    match ended {
        Ok(()) => bail!(told),
        Err(error) => Err(error.context(told)),
    }
}

/// Runs a test, and tells how it went.
pub async fn report(play: impl Future<Output = Result<()>>) -> Result<Report> {
    let records = Records::default();
    let ended = RECORDS.scope(records.clone(), play).await;
    let scenes = records.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut violations = Vec::new();
    for record in scenes {
        violations.extend(record.verdict(ended.is_ok()).await?);
    }
    Ok(Report { ended, violations })
}

impl Record {
    /// A new one, which is checked when the test ends that runs now.
    pub fn begin(ground: &Arc<Ground>) -> Result<Arc<Self>> {
        let record = Arc::new(Self { ground: ground.clone(), parts: Mutex::default() });
        let records =
            RECORDS.try_with(Clone::clone).context("a scene outside of any test is never checked")?;
        records.0.lock().unwrap_or_else(PoisonError::into_inner).push(record.clone());
        Ok(record)
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn address(&self, address: IpAddr) {
        self.ground.others().addresses.insert(address);
        self.parts().addresses.insert(address);
    }

    pub fn instance(&self, provider_id: &str) {
        self.ground.others().instances.insert(provider_id.to_owned());
        self.parts().instances.insert(provider_id.to_owned());
    }

    pub fn node(&self, name: &str, provider_id: &str) {
        self.instance(provider_id);
        self.parts().nodes.insert(name.to_owned());
    }

    pub fn allocation(&self, name: &str) {
        self.parts().allocations.insert(name.to_owned());
    }

    pub fn namespace(&self, name: &str) {
        self.parts().namespaces.insert(name.to_owned());
    }

    /// There is cause for so many moves of an address, and for none of any other of which nothing is said.
    pub fn moves(&self, address: IpAddr, count: usize) {
        self.parts().moves.get_or_insert_default().insert(address, count);
    }

    /// In the end these instances can have an address, and have one as far as there are addresses.
    pub fn ends_on(&self, instances: impl IntoIterator<Item = String>) {
        self.parts().eligible = Some(instances.into_iter().collect());
    }

    /// Since then nothing was to happen, and until now.
    pub fn was_still(&self, since: Timestamp) {
        self.parts().still.push((since, Timestamp::now()));
    }

    /// What it violates; what may still be on its way is waited for.
    async fn verdict(&self, ended: bool) -> Result<Vec<Violation>> {
        let begun = tokio::time::Instant::now();
        loop {
            let found = self.violations(ended)?;
            let to_come = found.iter().any(|violation| IN_THE_END.contains(&violation.invariant));
            if !ended || !to_come || begun.elapsed() > PATIENCE {
                return Ok(found);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What it violates so far; with `ended` what has to be so in the end is looked at, too.
    pub fn violations(&self, ended: bool) -> Result<Vec<Violation>> {
        let addresses = self.parts().addresses.clone();
        let mut found = faults::check(&self.history(ended)?);
        found.extend(self.ground.cloud.late(&addresses));
        Ok(found)
    }

    /// What happened to what it has.
    pub fn history(&self, ended: bool) -> Result<History> {
        let parts = self.parts().clone();
        let scope = self.scope(&parts, ended)?;
        // The end is now, and what is written from now on is not looked at.
        let until = Timestamp::now();
        let events = self.ground.written()?.into_iter().chain(self.ground.cloud.events());
        let events = events.filter(|event| event.at <= until);
        let history = History { scope: Scope { until: Some(until), ..scope }, events: Vec::new() };
        let mut others = self.ground.others().clone();
        others.addresses.retain(|address| !parts.addresses.contains(address));
        others.instances.retain(|id| !parts.instances.contains(id));
        let is_ours = |name: &str| {
            [&parts.nodes, &parts.allocations, &parts.namespaces].iter().any(|names| names.contains(name))
        };
        Ok(history.joined(events).only(is_ours).apart_from(&others))
    }

    fn scope(&self, parts: &Parts, ended: bool) -> Result<Scope> {
        let mut scope = Scope::default();
        for name in &parts.allocations {
            // What each of them lists, and when, the audit log says.
            scope = scope.allocation(name, parts.addresses.iter().copied());
        }
        // Who stands alone on a stage has ended the controller, or is about to: that it rests is no news.
        let rests = ended && self.ground.is_shared();
        // A cloud in memory has no budget of calls in front of it.
        let calls = if self.ground.cloud.is_memory() { (f64::INFINITY, f64::INFINITY) } else { scope.calls };
        Ok(Scope {
            callers: self.ground.callers(),
            instances: parts.instances.clone(),
            secrets: vec![self.ground.token()?],
            lag: LAG,
            calls,
            moves: parts.moves.clone(),
            eligible: parts.eligible.clone().filter(|_| ended),
            quiet: if rests { QUIET } else { Duration::ZERO },
            still: parts.still.clone(),
            ended: rests,
            ..scope
        })
    }
}
