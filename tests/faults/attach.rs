//! A first attach, with faults.

use crate::run::Run;
use anyhow::{Context as _, Result, ensure};
use cluster::Version;
use cluster::harness::Bed;
use faults::{Act, Call, Event, Group, Outcome, Plan, Purpose, Seen, Side, What, Which, sweep};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::{Mutex, MutexGuard};

/// Runs share one Lease, so they come one after the other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

async fn turn() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().await
}

fn work(seen: &[Seen]) -> Vec<String> {
    let mutating = seen.iter().filter(|seen| seen.name.mutating && seen.name.group == Group::Work);
    mutating.map(|seen| format!("{:?} {} {}", seen.name.side, seen.name.verb, seen.name.object)).collect()
}

pub async fn through_the_proxy_ends_as_without_it(bed: Arc<Bed>) -> Result<()> {
    let cluster = bed.cluster(Version::Newest).await?;
    let _turn = turn().await;
    let mut plain = Run::start(cluster, "plain", None).await?;
    plain.allocate().await?;
    let expected = plain.settles().await?;
    plain.check(Vec::new()).await?;
    plain.stop().await?;
    let mut run = Run::start(cluster, "proxied", Some(Plan::default())).await?;
    run.allocate().await?;
    let end = run.settles().await?;
    ensure!(end == expected, "{end:?} is not {expected:?}");
    run.check(Vec::new()).await?;
    let seen = run.proxy.as_ref().context("no proxy")?.seen();
    let numbers: Vec<u64> = seen.iter().map(|seen| seen.seq).collect();
    ensure!(numbers == (1..=seen.len() as u64).collect::<Vec<_>>(), "one sequence: {numbers:?}");
    let sides: BTreeSet<Side> = seen.iter().map(|seen| seen.name.side).collect();
    ensure!(sides == BTreeSet::from([Side::Api, Side::Gcp]), "both are in it: {sides:?}");
    ensure!(
        seen.iter().any(|seen| seen.name.verb == "watch" && seen.status == Some(200)),
        "watches go through"
    );
    ensure!(seen.iter().any(|seen| seen.name.group == Group::Lease), "leases are told apart");
    let work = work(&seen);
    println!("{} requests, {} of them are swept:\n{}", seen.len(), work.len(), work.join("\n"));
    for word in ["Api patch nodes/", "Gcp addAccessConfig", "Gcp deleteAccessConfig", "/status"] {
        ensure!(work.iter().any(|one| one.contains(word)), "no {word} in {work:?}");
    }
    let plans = sweep(&seen, &[Act::CrashBefore, Act::CrashAfter, Act::ReplyLost]);
    ensure!(plans.len() == 3 * work.len(), "{} plans for {} requests", plans.len(), work.len());
    run.stop().await
}

pub async fn a_503_on_the_label_patch_is_healed(bed: Arc<Bed>) -> Result<()> {
    let cluster = bed.cluster(Version::Newest).await?;
    let _turn = turn().await;
    let on = Which::verb(Side::Api, "patch", "nodes/*");
    let plan = Plan::one(on, Act::Answer { status: 503, retry_after: None });
    let mut run = Run::start(cluster, "unlabelled", Some(plan)).await?;
    run.allocate().await?;
    run.settles().await?;
    let proxy = run.proxy.as_ref().context("no proxy")?;
    ensure!(proxy.to_come().is_empty(), "the fault did not happen: {:?}", proxy.to_come());
    let seen = proxy.seen();
    let patches =
        seen.iter().filter(|seen| seen.name.verb == "patch" && seen.name.object.starts_with("nodes/"));
    let statuses: Vec<Option<u16>> = patches.map(|seen| seen.status).collect();
    ensure!(statuses.first() == Some(&Some(503)), "{statuses:?}");
    ensure!(statuses.last() == Some(&Some(200)), "it was tried again: {statuses:?}");
    run.check(Vec::new()).await?;
    run.stop().await
}

/// A plan from a file, or, without one, a crash with the attach done and its reply withheld: the real process is
/// killed and started again.
pub async fn by_plan(bed: Arc<Bed>) -> Result<()> {
    let cluster = bed.cluster(Version::Newest).await?;
    let _turn = turn().await;
    let plan = match std::env::var_os("FAULT_PLAN") {
        Some(file) => Plan::load(Path::new(&file))?,
        None => Plan::one(Which::verb(Side::Gcp, "addAccessConfig", "*"), Act::CrashAfter),
    };
    let mut run = Run::start(cluster, "by-plan", Some(plan)).await?;
    run.allocate().await?;
    run.settles().await?;
    let to_come = run.proxy.as_ref().context("no proxy")?.to_come();
    ensure!(to_come.is_empty(), "what was planned did not happen: {to_come:?}");
    run.check(Vec::new()).await?;
    run.stop().await
}

/// The checker on a real history, with one call more: an attach that a deposed replica sends.
pub async fn what_a_broken_controller_does_is_found(bed: Arc<Bed>) -> Result<()> {
    let cluster = bed.cluster(Version::Newest).await?;
    let _turn = turn().await;
    let mut run = Run::start(cluster, "broken", None).await?;
    run.allocate().await?;
    run.settles().await?;
    run.check(Vec::new()).await?;
    let history = run.history()?.only(|name| name.starts_with("broken"));
    let last = history.events.last().context("no event")?.at;
    let stolen = What::Call(Call {
        caller: run.name.clone(),
        purpose: Purpose::Attach,
        address: Some([192, 0, 2, 1].into()),
        instance: history.scope.instances.first().cloned(),
        outcome: Outcome::Refused("notFound".to_owned()),
    });
    let mut worse = history.joined([Event { at: last, what: stolen }]);
    // The planted call is the last event: that it is not quiet afterwards is no news.
    worse.scope.quiet = std::time::Duration::ZERO;
    let found: BTreeSet<&str> = faults::check(&worse).iter().map(|violation| violation.invariant).collect();
    // Nobody lists the address, and the instance has another one.
    ensure!(found == BTreeSet::from(["I2", "I3"]), "{found:?}");
    run.stop().await
}
