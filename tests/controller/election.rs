//! The lease: one leads, and knows when it does not any more.

use crate::stage::Stage;
use anyhow::{Context as _, Result, ensure};
use cluster::eventually;
use ip_address_controller::leader::{Command, Elector, LeaderToken, Standing, Timings};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

const NAMESPACE: &str = "ip-address-controller";
const LEASE: Duration = Duration::from_secs(3);

struct Candidate {
    standing: watch::Receiver<Standing>,
    tell: mpsc::Sender<Command>,
    token: LeaderToken,
    task: JoinHandle<()>,
}

impl Candidate {
    fn new(stage: &Stage, lease: &str, name: &str) -> Self {
        let timings = Timings::of(LEASE);
        let (elector, standing, tell, token) =
            Elector::new(stage.cluster.client(), NAMESPACE, lease, name.to_owned(), timings);
        Self { standing, tell, token, task: tokio::spawn(elector.run()) }
    }

    fn leads(&self) -> bool {
        matches!(*self.standing.borrow(), Standing::Leading { .. })
    }

    async fn becomes(&self, what: &str, standing: impl Fn(Standing) -> bool) -> Result<()> {
        eventually(what, async || {
            let now = *self.standing.borrow();
            ensure!(standing(now), "{now:?}");
            Ok(())
        })
        .await
    }
}

async fn holder(stage: &Stage, lease: &str) -> Result<(String, i32)> {
    let api: Api<Lease> = Api::namespaced(stage.cluster.client(), NAMESPACE);
    let spec = api.get(lease).await?.spec.context("no spec")?;
    Ok((spec.holder_identity.unwrap_or_default(), spec.lease_transitions.unwrap_or_default()))
}

pub async fn of_three_candidates_one_leads_and_each_takes_its_turn(stage: &Stage) -> Result<()> {
    let lease = "turns";
    let mut candidates: Vec<_> =
        ["a", "b", "c"].iter().map(|name| Candidate::new(stage, lease, name)).collect();
    let mut epochs = Vec::new();
    while !candidates.is_empty() {
        eventually("one to lead", async || {
            let leading = candidates.iter().filter(|candidate| candidate.leads()).count();
            ensure!(leading == 1, "{leading} lead");
            Ok(())
        })
        .await?;
        let number = candidates.iter().position(Candidate::leads).context("nobody")?;
        let leader = candidates.swap_remove(number);
        ensure!(leader.token.may_write(), "a leader may write");
        ensure!(candidates.iter().all(|other| !other.token.may_write()), "nobody else may");
        epochs.push(holder(stage, lease).await?.1);
        leader.tell.send(Command::Stop).await?;
        leader.task.await?;
        ensure!(!leader.token.may_write(), "who has stopped may not");
    }
    ensure!(epochs.is_sorted() && epochs.windows(2).all(|pair| pair[0] != pair[1]), "terms grow: {epochs:?}");
    ensure!(holder(stage, lease).await?.0.is_empty(), "released at the end");
    Ok(())
}

pub async fn a_lease_that_is_taken_away_is_lost_at_once(stage: &Stage) -> Result<()> {
    let lease = "taken";
    let candidate = Candidate::new(stage, lease, "victim");
    candidate.becomes("it leads", |now| matches!(now, Standing::Leading { .. })).await?;
    let api: Api<Lease> = Api::namespaced(stage.cluster.client(), NAMESPACE);
    let patch = Patch::Merge(json!({ "spec": { "holderIdentity": "thief" } }));
    api.patch(lease, &PatchParams::default(), &patch).await?;
    candidate.becomes("it knows", |now| now == Standing::Lost).await?;
    ensure!(!candidate.token.may_write(), "and writes no more");
    ensure!(holder(stage, lease).await?.0 == "thief", "what is another's stays another's");
    candidate.task.await?;
    Ok(())
}

pub async fn a_lease_that_is_deleted_is_lost_and_can_be_had_again(stage: &Stage) -> Result<()> {
    let lease = "deleted-lease";
    let candidate = Candidate::new(stage, lease, "first");
    candidate.becomes("it leads", |now| matches!(now, Standing::Leading { .. })).await?;
    let api: Api<Lease> = Api::namespaced(stage.cluster.client(), NAMESPACE);
    api.delete(lease, &DeleteParams::default()).await?;
    candidate.becomes("it knows", |now| now == Standing::Lost).await?;
    let next = Candidate::new(stage, lease, "second");
    next.becomes("the next leads", |now| matches!(now, Standing::Leading { .. })).await?;
    next.tell.send(Command::Stop).await?;
    next.task.await?;
    Ok(())
}

/// The renew time of a holder whose clock is an hour ahead or behind says nothing: what counts is whether
/// the record changes while we look.
pub async fn clocks_an_hour_apart_change_nothing(stage: &Stage) -> Result<()> {
    for (lease, hours) in [("ahead", 1), ("behind", -1)] {
        let api: Api<Lease> = Api::namespaced(stage.cluster.client(), NAMESPACE);
        let now = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(hours);
        let record = |beat: i64| {
            let time = (now + jiff::SignedDuration::from_secs(beat)).to_string();
            json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": { "name": lease },
                "spec": {
                    "holderIdentity": "other", "leaseDurationSeconds": 3, "leaseTransitions": 7,
                    "acquireTime": time, "renewTime": time,
                },
            })
        };
        let write = async |beat: i64| {
            let parameters = PatchParams::apply("other").force();
            api.patch(lease, &parameters, &Patch::Apply(record(beat))).await
        };
        write(0).await?;
        let candidate = Candidate::new(stage, lease, "us");
        // The other renews for longer than its lease lasts.
        for beat in 1..=10 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            ensure!(!candidate.leads(), "{lease}: took the lease of a holder that renews");
            write(beat).await?;
        }
        candidate.becomes("it takes over when the other falls silent", |now| {
            now == Standing::Leading { epoch: 8, nobody_took_it: false }
        })
        .await?;
        candidate.tell.send(Command::Stop).await?;
        candidate.task.await?;
    }
    Ok(())
}

pub async fn a_leader_that_yields_comes_back_only_if_nobody_else_wants_it(stage: &Stage) -> Result<()> {
    let lease = "yielded";
    let first = Candidate::new(stage, lease, "first");
    first.becomes("it leads", |now| matches!(now, Standing::Leading { .. })).await?;
    first.tell.send(Command::Yield).await?;
    first.becomes("it stands by", |now| now == Standing::Standby).await?;
    first
        .becomes("it leads again, since nobody took it", |now| {
            matches!(now, Standing::Leading { nobody_took_it: true, .. })
        })
        .await?;
    let second = Candidate::new(stage, lease, "second");
    first.tell.send(Command::Yield).await?;
    second.becomes("the other takes it", |now| matches!(now, Standing::Leading { .. })).await?;
    ensure!(!first.leads(), "one leads");
    for candidate in [second, first] {
        candidate.tell.send(Command::Stop).await?;
        candidate.task.await?;
    }
    Ok(())
}
