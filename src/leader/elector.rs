//! Asks for the lease, keeps it, gives it up.

use super::{LeaderToken, Timings};
use anyhow::{Context as _, Result, bail};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tracing::{debug, info, warn};

/// Where this process stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Somebody else leads, or nobody yet.
    Standby,
    /// We lead.
    Leading {
        /// Term of leadership: the Lease's leaseTransitions.
        epoch: i64,
        /// We gave the lease up, and nobody took it.
        nobody_took_it: bool,
    },
    /// We led, and the lease is lost: the process has to end.
    Lost,
}

/// What a leader may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Give the lease up and do not ask for it for one lease duration.
    Yield,
    /// Give the lease up and end.
    Stop,
}

/// The election, seen from one candidate.
pub struct Elector {
    api: Api<Lease>,
    name: String,
    identity: String,
    timings: Timings,
    token: LeaderToken,
    standing: watch::Sender<Standing>,
    commands: mpsc::Receiver<Command>,
    /// The record as it was last seen, and when it was first seen so.
    seen: Option<(LeaseSpec, Instant)>,
    /// We gave it up and have not asked for it since.
    yielded: bool,
}

impl Elector {
    /// A candidate, and the two ends by which it is followed and told.
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        identity: String,
        timings: Timings,
    ) -> (Self, watch::Receiver<Standing>, mpsc::Sender<Command>, LeaderToken) {
        let (standing, stands) = watch::channel(Standing::Standby);
        let (tell, commands) = mpsc::channel(2);
        let token = LeaderToken::default();
        let elector = Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity,
            timings,
            token: token.clone(),
            standing,
            commands,
            seen: None,
            yielded: false,
        };
        (elector, stands, tell, token)
    }

    /// Runs until it is told to stop, or a lease that it held is lost.
    pub async fn run(mut self) {
        let (wake, mut wakes) = mpsc::channel(1);
        let watching = tokio::spawn(follow(self.api.clone(), self.name.clone(), wake));
        loop {
            let command = match self.acquire(&mut wakes).await {
                Some((lease, epoch)) => self.lead(lease, epoch).await,
                None => Command::Stop,
            };
            match command {
                Command::Stop => break,
                Command::Yield if self.step_aside().await => break,
                Command::Yield => {}
            }
            if *self.standing.borrow() == Standing::Lost {
                break;
            }
        }
        watching.abort();
    }

    /// Asks for the lease until it is ours; `None`: told to stop.
    async fn acquire(&mut self, wakes: &mut mpsc::Receiver<()>) -> Option<(Lease, i64)> {
        loop {
            match timeout(self.timings.request(), self.try_acquire()).await {
                Ok(Ok(Some(won))) => return Some(won),
                Ok(Ok(None)) => {}
                Ok(Err(error)) => debug!("lease {}: {error:#}", self.name),
                Err(_) => debug!("lease {}: no answer", self.name),
            }
            let pause = self.timings.retry.mul_f64(1.0 + 0.2 * fastrand::f64());
            tokio::select! {
                () = sleep(pause) => {}
                Some(()) = wakes.recv() => {}
                command = self.commands.recv() => match command {
                    Some(Command::Yield) => {}
                    Some(Command::Stop) | None => return None,
                },
            }
        }
    }

    async fn try_acquire(&mut self) -> Result<Option<(Lease, i64)>> {
        let Some(mut lease) = self.api.get_opt(&self.name).await? else {
            let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(self.record(0, None)) };
            return self.write(None, lease, 0).await;
        };
        let spec = lease.spec.clone().unwrap_or_default();
        if !self.is_up_for_grabs(&spec) {
            return Ok(None);
        }
        let epoch = i64::from(spec.lease_transitions.unwrap_or_default()) + 1;
        lease.spec = Some(self.record(epoch, None));
        self.write(Some(()), lease, epoch).await
    }

    /// Creates or replaces; the API server lets one of several candidates through.
    async fn write(&self, existing: Option<()>, lease: Lease, epoch: i64) -> Result<Option<(Lease, i64)>> {
        let sent = Instant::now();
        let parameters = PostParams::default();
        let written = match existing {
            Some(()) => self.api.replace(&self.name, &parameters, &lease).await,
            None => self.api.create(&parameters, &lease).await,
        };
        match written {
            Ok(lease) => {
                self.token.extend(sent + self.timings.renew_deadline);
                Ok(Some((lease, epoch)))
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the lease is free: released, or not heard of for its duration since we first saw it so.
    fn is_up_for_grabs(&mut self, spec: &LeaseSpec) -> bool {
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        // Our own name stands there if an answer to an earlier try was lost.
        if holder.is_empty() || holder == self.identity {
            return true;
        }
        let now = Instant::now();
        let since = match &self.seen {
            Some((seen, since)) if seen == spec => *since,
            _ => {
                self.seen = Some((spec.clone(), now));
                now
            }
        };
        let theirs = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
        now.duration_since(since) > self.timings.lease.max(Duration::from_secs(theirs))
    }

    /// Renews until told otherwise or lost.
    async fn lead(&mut self, mut lease: Lease, epoch: i64) -> Command {
        info!(epoch, identity = self.identity, "leading");
        let nobody_took_it = std::mem::take(&mut self.yielded);
        self.standing.send_replace(Standing::Leading { epoch, nobody_took_it });
        loop {
            tokio::select! {
                () = sleep(self.timings.retry) => {}
                command = self.commands.recv() => {
                    self.release(lease, epoch).await;
                    return command.unwrap_or(Command::Stop);
                }
            }
            match self.renew(&lease, epoch).await {
                Ok(renewed) => lease = renewed,
                Err(error) => {
                    warn!("the lease is lost: {error:#}");
                    self.token.revoke();
                    self.standing.send_replace(Standing::Lost);
                    return Command::Stop;
                }
            }
        }
    }

    /// One renewal that succeeds before the deadline, however many tries it takes.
    async fn renew(&self, lease: &Lease, epoch: i64) -> Result<Lease> {
        let deadline = self.token.deadline();
        let mut current = lease.clone();
        loop {
            if Instant::now() >= deadline {
                bail!("not renewed within {:?}", self.timings.renew_deadline);
            }
            let sent = Instant::now();
            let limit = deadline.min(sent + self.timings.request());
            match timeout_at(limit, self.try_renew(&current, epoch)).await {
                Ok(Ok(Renewal::Done(renewed))) => {
                    self.token.extend(sent + self.timings.renew_deadline);
                    return Ok(renewed);
                }
                Ok(Ok(Renewal::Changed(changed))) => current = changed,
                Ok(Ok(Renewal::Taken(holder))) => bail!("{holder} holds it now"),
                Ok(Err(error)) => {
                    debug!("lease {}: {error:#}", self.name);
                    sleep(self.timings.retry.min(deadline.saturating_duration_since(Instant::now()))).await;
                }
                Err(_) => debug!("lease {}: no answer", self.name),
            }
        }
    }

    async fn try_renew(&self, lease: &Lease, epoch: i64) -> Result<Renewal> {
        let acquired = lease.spec.as_ref().and_then(|spec| spec.acquire_time.clone());
        let renewed = Lease { spec: Some(self.record(epoch, acquired)), ..lease.clone() };
        match self.api.replace(&self.name, &PostParams::default(), &renewed).await {
            Ok(lease) => Ok(Renewal::Done(lease)),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let current = self.api.get(&self.name).await.context("reading the lease after a conflict")?;
                let holder = current.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
                // Somebody wrote a label or the like, or an earlier try of ours arrived after all.
                if holder.as_deref() == Some(&self.identity) {
                    return Ok(Renewal::Changed(current));
                }
                Ok(Renewal::Taken(holder.unwrap_or_else(|| "nobody".to_owned())))
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {
                Ok(Renewal::Taken("nobody (the Lease was deleted)".to_owned()))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn release(&mut self, lease: Lease, epoch: i64) {
        self.token.revoke();
        self.standing.send_replace(Standing::Standby);
        let spec = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            ..self.record(epoch, None)
        };
        let released = Lease { spec: Some(spec), ..lease };
        match timeout(self.timings.request(), self.api.replace(&self.name, &PostParams::default(), &released))
            .await
        {
            Ok(Ok(_)) => info!("the lease is released"),
            Ok(Err(error)) => warn!("the lease could not be released: {error}"),
            Err(_) => warn!("the lease could not be released: no answer"),
        }
    }

    /// Gives others the time to take the lease; whether we were told to stop meanwhile.
    async fn step_aside(&mut self) -> bool {
        let until = Instant::now() + self.timings.lease;
        loop {
            tokio::select! {
                () = sleep_until(until) => break,
                command = self.commands.recv() => match command {
                    Some(Command::Yield) => {}
                    Some(Command::Stop) | None => return true,
                },
            }
        }
        let lease = timeout(self.timings.request(), self.api.get_opt(&self.name)).await;
        self.yielded = is_left(lease.map_err(anyhow::Error::from).and_then(|read| Ok(read?)));
        false
    }

    fn record(&self, epoch: i64, acquired: Option<MicroTime>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(self.timings.lease.as_secs()).unwrap_or(i32::MAX)),
            acquire_time: Some(acquired.unwrap_or_else(|| now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(i32::try_from(epoch).unwrap_or(i32::MAX)),
            ..LeaseSpec::default()
        }
    }
}

enum Renewal {
    Done(Lease),
    /// Still ours, at another version.
    Changed(Lease),
    Taken(String),
}

/// Whether nobody took a lease that was given up. Of one that could not be read nobody can say: an address is not
/// taken from our own node on a guess.
fn is_left(lease: Result<Option<Lease>>) -> bool {
    let Ok(lease) = lease else { return false };
    lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default().is_empty()
}

/// Wakes the candidate whenever the lease changes hands: a release is answered at once.
async fn follow(api: Api<Lease>, name: String, wake: mpsc::Sender<()>) {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = std::pin::pin!(watcher::watcher(api, config));
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Apply(lease)) => {
                let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
                if holder.is_empty() {
                    let _ = wake.try_send(());
                }
            }
            Ok(watcher::Event::Delete(_)) => {
                let _ = wake.try_send(());
            }
            Ok(_) => {}
            Err(_) => sleep(Duration::from_secs(1)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_cannot_be_read_is_not_said_to_be_left() {
        let held_by = |holder: &str| {
            let spec = LeaseSpec { holder_identity: Some(holder.to_owned()), ..LeaseSpec::default() };
            Ok(Some(Lease { spec: Some(spec), ..Lease::default() }))
        };
        assert!(is_left(held_by("")));
        assert!(is_left(Ok(None)), "deleted");
        assert!(!is_left(held_by("another")));
        assert!(!is_left(Err(anyhow::anyhow!("no answer"))));
    }
}
