//! The loop: look, decide, write, publish, serve.

use crate::bundle::{bundle, pem};
use crate::consumer::{Consumer, FIELD_MANAGER, Target};
use crate::contents::Contents;
use crate::decide::published;
use crate::files::Files;
use crate::material::Certificate;
use crate::pace::Pace;
use crate::resolve::Resolver;
use crate::settings::Settings;
use crate::store::{self, CallError, call};
use crate::turn::turn;
use crate::watch::{Known, Snapshot, Watches, watch};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use telemetry::certs::CertMetrics;
use tokio::time::Instant;

/// The longest sleep: a clock that is set must be noticed.
const LOOK_AT_LEAST: Duration = Duration::from_secs(30);
/// The shortest pause after a failure, doubled up to [`LOOK_AT_LEAST`].
const RETRY: Duration = Duration::from_millis(500);
/// Somebody who keeps overwriting a bundle is answered at most so often.
const INJECT_AT_MOST: Duration = Duration::from_secs(1);

/// Where certificates come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A CA of our own, in a Secret that all replicas share.
    Own {
        /// Its namespace.
        namespace: String,
        /// Its name.
        secret: String,
    },
    /// Files that somebody else keeps.
    Files(Files),
}

/// Told whether a certificate can be served, and if not, why.
pub type Readiness = Arc<dyn Fn(Result<(), String>) + Send + Sync>;

/// What the loop needs.
#[derive(Clone)]
pub struct Manager {
    /// Its rights are in deploy/rbac/certs.yaml.
    pub client: Client,
    /// Where certificates come from.
    pub source: Source,
    /// Where to publish the CA. None, if cert-manager's CA injector does that.
    pub targets: Vec<Target>,
    /// What to make, where we make it.
    pub settings: Settings,
    /// What the server asks.
    pub resolver: Arc<Resolver>,
    /// Metrics.
    pub metrics: CertMetrics,
    /// Ready once a certificate is served that the API server trusts; later only an expired one is a
    /// reason not to be, because being not ready helps nobody to trust us.
    pub readiness: Readiness,
}

/// Keeps the Secret, the bundles and the resolver right for as long as it is polled.
pub async fn manage(manager: Manager) -> Infallible {
    let mut running = Running::new(manager);
    loop {
        let pause = running.look().await;
        tokio::select! {
            Some(seen) = running.watches.next() => {
                if let Some(error) = running.snapshot.take(seen) {
                    running.failed("watch", &error);
                }
            }
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Something failed, and everybody who has to know does.
struct Reported;

struct Running {
    manager: Manager,
    secrets: Option<(Api<Secret>, String)>,
    targets: Vec<(Target, Api<DynamicObject>)>,
    watches: Watches,
    snapshot: Snapshot,
    /// The last contents that were whole.
    memory: Option<Contents>,
    injected: Vec<Option<Instant>>,
    pace: Pace,
    quarrelling: bool,
    retry: Duration,
    ready: bool,
    reported: String,
}

impl Running {
    fn new(manager: Manager) -> Self {
        let client = &manager.client;
        let targets: Vec<_> = manager
            .targets
            .iter()
            .map(|target| (target.clone(), Api::all_with(client.clone(), &target.resource())))
            .collect();
        let secrets = match &manager.source {
            Source::Own { namespace, secret } => {
                Some((Api::namespaced(client.clone(), namespace), secret.clone()))
            }
            Source::Files(_) => None,
        };
        let watches = watch(secrets.as_ref().map(|(api, name)| (api.clone(), name.as_str())), &targets);
        let snapshot = Snapshot::new(secrets.is_some(), targets.len());
        let injected = vec![None; targets.len()];
        let pace = Pace::new(manager.settings.lifetimes.leaf);
        let (memory, quarrelling, retry, ready, reported) = (None, false, RETRY, false, String::new());
        Self {
            manager,
            secrets,
            targets,
            watches,
            snapshot,
            memory,
            injected,
            pace,
            quarrelling,
            retry,
            ready,
            reported,
        }
    }

    /// One look, and what it asks for. How long to wait if nothing happens.
    async fn look(&mut self) -> Duration {
        let looked = match self.manager.source.clone() {
            Source::Files(files) => self.look_at_files(&files).await,
            Source::Own { .. } if !self.snapshot.complete() => Ok(LOOK_AT_LEAST),
            Source::Own { .. } => self.look_at_secret().await,
        };
        self.report();
        let retry = std::mem::replace(&mut self.retry, RETRY);
        looked.unwrap_or_else(|Reported| {
            self.retry = (retry * 2).min(LOOK_AT_LEAST);
            retry
        })
    }

    async fn look_at_secret(&mut self) -> Result<Duration, Reported> {
        let now = Timestamp::now();
        let data = self.snapshot.secret.present().and_then(|secret| secret.data.as_ref());
        let (stored, faults) = data.map(Contents::read).unwrap_or_default();
        self.complain("damaged", faults.iter().map(|fault| format!("{}: {}", fault.entry, fault.problem)));
        let consumers = self.consumers();
        let settings = self.manager.settings.clone();
        let turned = turn(&stored, !faults.is_empty(), &mut self.memory, &consumers, now, &settings);
        let turned = turned.map_err(|error| self.failed("issue", &error))?;
        if let Some(contents) = &turned.write {
            let wait = self.pace.wait(Instant::now());
            if !wait.is_zero() {
                self.quarrel(&turned.decision.reason);
                self.serve(&stored, &consumers, now);
                return Ok(wait.min(LOOK_AT_LEAST));
            }
            let kind = if turned.restored { "restore" } else { turned.decision.step.name() };
            self.write(contents, kind, &turned.decision.reason).await?;
            self.pace.wrote(Instant::now());
            return Ok(Duration::ZERO);
        }
        self.quarrelling = false;
        self.serve(&stored, &consumers, now);
        let injected = self.inject(&bundle(&stored, now)).await?;
        // Until a margin that runs has passed, another leaf may be the better one.
        let until = turned.decision.ask_again.min(self.margin_ends(&stored, &consumers, now));
        let pause =
            Duration::try_from(until.duration_since(now)).unwrap_or_default() + Duration::from_millis(1);
        Ok(pause.min(injected).min(LOOK_AT_LEAST))
    }

    /// Says once that somebody takes back what we write.
    fn quarrel(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.quarrelling, true) {
            let why = format!(
                "the Secret is written again and again ({reason}): are the clocks of all replicas right?"
            );
            self.failed("write", &why);
        }
    }

    fn margin_ends(&self, contents: &Contents, consumers: &[Consumer], now: Timestamp) -> Timestamp {
        let margin = self.manager.settings.lifetimes.margin;
        let ends = contents.authorities().into_iter().filter_map(|ca| published(&ca, consumers, margin));
        ends.filter(|end| *end > now).min().unwrap_or(Timestamp::MAX)
    }

    async fn look_at_files(&mut self, files: &Files) -> Result<Duration, Reported> {
        let now = Timestamp::now();
        // Where somebody else writes the bundles, it does not matter what we would have written.
        let authority = files.authority.clone().filter(|_| !self.targets.is_empty());
        match (Files { authority, ..files.clone() }).read().await {
            Ok(contents) => {
                self.reported.clear();
                self.memory = Some(contents);
            }
            Err(error) => self.complain("files", [error.to_string()].into_iter()),
        }
        let Some(contents) = self.memory.clone().filter(|_| self.snapshot.complete()) else {
            return Ok(files.interval);
        };
        let consumers = self.consumers();
        self.serve(&contents, &consumers, now);
        // Replicas see a swap at different times. So here a CA goes out of the bundle only by expiring:
        // no replica takes away what another one still needs.
        let mut authorities = contents.authorities();
        authorities.extend(consumers.iter().flat_map(|consumer| consumer.trusted().iter().cloned()));
        authorities.retain(|authority| now < authority.not_after);
        let injected = self.inject(&pem(authorities)).await?;
        Ok(files.interval.min(injected))
    }

    fn consumers(&self) -> Vec<Consumer> {
        self.snapshot.consumers(&self.targets).into_iter().map(|(_, consumer)| consumer).collect()
    }

    /// Writes the Secret, or learns what somebody else wrote.
    async fn write(&mut self, contents: &Contents, kind: &str, reason: &str) -> Result<(), Reported> {
        let Some((api, name)) = self.secrets.clone() else { return Ok(()) };
        let read = self.snapshot.secret.present();
        match store::write(&api, &name, read, contents).await {
            Ok(Some(written)) => {
                tracing::info!(secret = name, step = kind, reason, "wrote the certificates' Secret");
                self.manager.metrics.rotations.with_label_values(&[kind]).inc();
                self.snapshot.secret = Known::Present(written);
                Ok(())
            }
            Ok(None) => {
                tracing::debug!(secret = name, step = kind, "another replica was faster");
                let newest = call(api.get_opt(&name)).await;
                self.snapshot.secret =
                    Known::from_answer(newest.map_err(|error| self.failed("write", &error))?);
                Ok(())
            }
            Err(error) => Err(self.failed("write", &error)),
        }
    }

    /// Offers the leaf to handshakes.
    fn serve(&self, contents: &Contents, consumers: &[Consumer], now: Timestamp) {
        let Manager { resolver, metrics, settings, .. } = &self.manager;
        let serial = || resolver.served_at(now).map(|(leaf, _)| leaf.certificate.serial);
        let before = serial();
        resolver.offer(contents, consumers, now, settings.lifetimes.margin);
        let after = serial();
        if before != after {
            tracing::info!(serial = after.as_deref().unwrap_or("none"), "serving another certificate");
            metrics.rotations.with_label_values(&["reload"]).inc();
        }
    }

    /// Puts the bundle where it is not. How long to wait before the next look.
    async fn inject(&mut self, bundle: &str) -> Result<Duration, Reported> {
        let all = self.snapshot.consumers(&self.targets);
        let differing: Vec<_> =
            all.into_iter().filter(|(_, consumer)| !bundle.is_empty() && consumer.differs(bundle)).collect();
        if !differing.is_empty() && !self.is_current().await? {
            return Ok(Duration::ZERO);
        }
        let (mut wait, mut failed) = (LOOK_AT_LEAST, false);
        for (number, consumer) in differing {
            let elapsed = self.injected[number].map_or(INJECT_AT_MOST, |last| last.elapsed());
            if elapsed < INJECT_AT_MOST {
                wait = wait.min(INJECT_AT_MOST.saturating_sub(elapsed));
            } else if let Err(error) = self.inject_into(number, bundle).await {
                self.failed("inject", &format!("{}: {error}", consumer.name));
                failed = true;
            }
        }
        if failed { Err(Reported) } else { Ok(wait) }
    }

    /// Whether the Secret still is what was last seen. Watches of different objects are not in step: a
    /// bundle from an old Secret would take trust away from what another replica has begun to serve.
    async fn is_current(&mut self) -> Result<bool, Reported> {
        let Some((api, name)) = self.secrets.clone() else { return Ok(true) };
        let newest = call(api.get_opt(&name)).await.map_err(|error| self.failed("inject", &error))?;
        let version = |secret: &Secret| secret.metadata.resource_version.clone();
        let same = newest.as_ref().map(version) == self.snapshot.secret.present().map(version);
        self.snapshot.secret = Known::from_answer(newest);
        Ok(same)
    }

    async fn inject_into(&mut self, number: usize, bundle: &str) -> Result<(), CallError> {
        let (target, api) = &self.targets[number];
        let Some(object) = self.snapshot.targets[number].present() else { return Ok(()) };
        let patch = target.patch(object, bundle);
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let written = call(api.patch(&target.name, &params, &Patch::Apply(&patch))).await?;
        tracing::info!(%target, "wrote the caBundle");
        self.manager.metrics.injections.with_label_values(&[&target.to_string()]).inc();
        self.injected[number] = Some(Instant::now());
        self.snapshot.targets[number] = Known::Present(written);
        Ok(())
    }

    /// Tells metrics and readiness what is served.
    fn report(&mut self) {
        let now = Timestamp::now();
        let served = self.manager.resolver.served_at(now);
        let consumers = self.consumers();
        let issuer = served.as_ref().and_then(|(_, issuer)| issuer.as_ref());
        let trusts = |consumer: &Consumer| issuer.is_none_or(|issuer| consumer.carries(issuer));
        let metrics = &self.manager.metrics;
        for consumer in &consumers {
            metrics.trusted.with_label_values(&[&consumer.name]).set(trusts(consumer).into());
        }
        let end = |certificate: &Certificate| certificate.not_after.as_second();
        if let Some((leaf, _)) = &served {
            metrics.not_after.with_label_values(&["leaf"]).set(end(&leaf.certificate));
        }
        if let Some(issuer) = issuer {
            metrics.not_after.with_label_values(&["ca"]).set(end(issuer));
        }
        let state = match &served {
            None => Err("there is no certificate yet".to_owned()),
            Some((leaf, _)) if now >= leaf.certificate.not_after => {
                Err(format!("the certificate expired at {}", leaf.certificate.not_after))
            }
            Some(_) if !self.ready && !consumers.iter().all(trusts) => {
                Err("the API server has not been told yet to trust our CA".to_owned())
            }
            Some(_) => Ok(()),
        };
        self.ready |= state.is_ok();
        (self.manager.readiness)(state);
    }

    /// Reports trouble with the source once, until it is another trouble.
    fn complain(&mut self, cause: &str, problems: impl Iterator<Item = String>) {
        let text = problems.collect::<Vec<_>>().join("; ");
        if !text.is_empty() && text != self.reported {
            self.failed(cause, &text);
        }
        self.reported = text;
    }

    fn failed(&self, cause: &str, error: &dyn std::fmt::Display) -> Reported {
        tracing::warn!(cause, %error, "trouble with certificates; what is being served is served on");
        self.manager.metrics.failures.with_label_values(&[cause]).inc();
        Reported
    }
}
