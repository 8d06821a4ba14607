//! What must never happen: the checker of invariants at the end of every test, over what each of its scenes has for
//! itself. The runner calls it, in one place: no scene can forget it.

use crate::stage::Ground;
use anyhow::{Context as _, Result, bail};
use faults::{History, Scope, Violation, What};
use jiff::{SignedDuration, Timestamp};
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
const LOOK: Duration = Duration::from_secs(2);
/// How much of what happened is told beside a violation.
const TOLD: usize = 40;
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
    /// What happened before them.
    story: String,
}

/// Runs a test, and fails it if anything happened that must never happen.
pub async fn judged(play: impl Future<Output = Result<()>>) -> Result<()> {
    let Report { ended, violations, story } = report(play, PATIENCE).await?;
    if violations.is_empty() {
        return ended;
    }
    let told: Vec<String> = violations.iter().map(ToString::to_string).collect();
    let told = format!("what must never happen:\n{}\nbefore that:\n{story}", told.join("\n"));
    match ended {
        Ok(()) => bail!(told),
        Err(error) => Err(error.context(told)),
    }
}

/// Runs a test, and tells how it went. What has to be so in the end is waited for, but not for ever.
pub async fn report(play: impl Future<Output = Result<()>>, patience: Duration) -> Result<Report> {
    let records = Records::default();
    let ended = RECORDS.scope(records.clone(), play).await;
    let scenes = records.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (mut violations, mut story) = (Vec::new(), String::new());
    for record in scenes {
        let found = record.verdict(ended.is_ok(), patience).await?;
        if let Some(first) = found.first() {
            story.push_str(&record.before(first.at)?);
        }
        violations.extend(found);
    }
    Ok(Report { ended, violations, story })
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
    async fn verdict(&self, ended: bool, patience: Duration) -> Result<Vec<Violation>> {
        let begun = tokio::time::Instant::now();
        loop {
            let found = self.violations(ended)?;
            let to_come = found.iter().any(|violation| IN_THE_END.contains(&violation.invariant));
            if !ended || !to_come || begun.elapsed() > patience {
                return Ok(found);
            }
            // Until it has been quiet for long enough, if it is from now on.
            let last = found.iter().filter(|violation| violation.invariant == "I7").map(|of| of.at).max();
            let age = last.and_then(|at| Timestamp::now().duration_since(at).try_into().ok());
            let quiet = age.map_or(Duration::ZERO, |age: Duration| QUIET.saturating_sub(age));
            tokio::time::sleep(if quiet.is_zero() { LOOK } else { quiet }).await;
        }
    }

    /// What happened right before a time and a little later, in lines.
    fn before(&self, at: Timestamp) -> Result<String> {
        let history = self.history(false)?;
        let told = history.events.iter().filter(|event| {
            let tells = !matches!(event.what, What::Write { .. } | What::Lease(_));
            tells && event.at.duration_since(at) < SignedDuration::from_secs(1)
        });
        let lines: Vec<String> = told.map(|event| format!("{} {:?}\n", event.at, event.what)).collect();
        Ok(lines[lines.len().saturating_sub(TOLD)..].concat())
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
        let is_ours = |name: &str| {
            [&parts.nodes, &parts.allocations, &parts.namespaces].iter().any(|names| names.contains(name))
        };
        let events = self.ground.written(&is_ours)?.into_iter().chain(self.ground.cloud.events());
        let events = events.filter(|event| event.at <= until);
        let history = History { scope: Scope { until: Some(until), ..scope }, events: Vec::new() };
        let mut others = self.ground.others().clone();
        others.addresses.retain(|address| !parts.addresses.contains(address));
        others.instances.retain(|id| !parts.instances.contains(id));
        Ok(history.joined(events).apart_from(&others))
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
