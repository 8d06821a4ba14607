//! `ip-address-controller certs status`: what is there, what is trusted, what comes next.

use anyhow::{Context as _, Result, ensure};
use certs::{Certificate, Consumer, Contents, Fault, Kind, Lifetimes, Settings, Step, Target, decide};
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, DynamicObject};
use std::fmt::Write as _;
use std::time::Duration;

/// By this annotation cert-manager's CA injector knows its objects.
const INJECTED_BY_CERT_MANAGER: &str = "cert-manager.io/inject-ca-from";

/// Where the certificates are.
#[derive(Args, Clone, Debug)]
pub struct Place {
    /// Namespace of the Secret
    #[arg(long, env = "POD_NAMESPACE", default_value = "ip-address-controller")]
    pub namespace: String,
    /// Secret with the certificates
    #[arg(long, env = "WEBHOOK_SECRET", default_value = "ip-address-controller-webhook-tls")]
    pub secret: String,
    /// Context of the kubeconfig
    #[arg(long)]
    pub context: Option<String>,
}

/// Where to look.
#[derive(Args, Clone, Debug)]
pub struct Status {
    #[command(flatten)]
    place: Place,
    /// Name of both webhook configurations
    #[arg(long, default_value = "ip-address-controller")]
    configuration: String,
    /// Fail unless the API server trusts what is served: the leaf is valid, and both configurations carry
    /// its CA
    #[arg(long)]
    check: bool,
}

impl Status {
    /// The report.
    pub fn report(&self) -> Result<String> {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(self.ask())
    }

    async fn ask(&self) -> Result<String> {
        let Place { namespace, secret, context } = &self.place;
        let client = crate::process::client(context.as_deref()).await?;
        let found = Found::read(&client, namespace, secret, &self.configuration).await?;
        let now = Timestamp::now();
        let report = found.report(now);
        ensure!(!self.check || found.is_trusted(now), "the webhook is not trusted, or not valid:\n{report}");
        Ok(report)
    }
}

/// What there is of certificates, and of those who have to trust them.
pub struct Found {
    place: String,
    secret: Option<Secret>,
    targets: Vec<(Target, Option<DynamicObject>)>,
}

impl Found {
    /// Reads the Secret and both webhook configurations.
    pub async fn read(client: &Client, namespace: &str, secret: &str, configuration: &str) -> Result<Self> {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let place = format!("{namespace}/{secret}");
        let secret = secrets.get_opt(secret).await.with_context(|| format!("cannot read Secret {place}"))?;
        let mut targets = Vec::new();
        for kind in [Kind::Mutating, Kind::Validating] {
            let target = Target { kind, name: configuration.to_owned() };
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &target.resource());
            let object = api.get_opt(&target.name).await.with_context(|| format!("cannot read {target}"))?;
            targets.push((target, object));
        }
        Ok(Self { place, secret, targets })
    }

    fn contents(&self) -> (Contents, Vec<Fault>) {
        let data = self.secret.as_ref().and_then(|secret| secret.data.as_ref());
        data.map(Contents::read).unwrap_or_default()
    }

    fn consumer(target: &Target, object: Option<&DynamicObject>) -> Option<Consumer> {
        object.and_then(|object| target.read(object))
    }

    /// What was found, in words. Keys are never in it.
    fn report(&self, now: Timestamp) -> String {
        let mut lines = Lines::default();
        let (contents, faults) = self.contents();
        let by_cert_manager = self.targets.iter().any(|(_, object)| {
            let annotations = object.as_ref().and_then(|object| object.metadata.annotations.as_ref());
            annotations.is_some_and(|annotations| annotations.contains_key(INJECTED_BY_CERT_MANAGER))
        });
        let place = &self.place;
        let source = match self.secret {
            Some(_) => format!("own CA in Secret {place}"),
            None if by_cert_manager => "files; cert-manager's CA injector writes the bundles".to_owned(),
            None => format!("files, or nothing yet: there is no Secret {place}"),
        };
        lines.put("source", &source);
        lines.contents(&contents, &faults, now);
        let read =
            |(target, object): &(Target, Option<DynamicObject>)| Self::consumer(target, object.as_ref());
        if self.secret.is_some() {
            let consumers: Vec<Consumer> = self.targets.iter().filter_map(read).collect();
            lines.next_step(&contents, &consumers, now);
        }
        for (target, object) in &self.targets {
            let consumer = Self::consumer(target, object.as_ref());
            lines.put(&target.to_string(), &trust(object.is_some(), consumer.as_ref(), &contents).1);
        }
        lines.0
    }

    /// Whether both configurations are there and trust what is served.
    fn is_trusted(&self, now: Timestamp) -> bool {
        let called = |(target, object): &(Target, Option<DynamicObject>)| {
            Self::consumer(target, object.as_ref()).is_some()
        };
        self.targets.iter().all(called) && self.problems(now).is_empty()
    }

    /// What keeps the API server from trusting the webhook.
    pub fn problems(&self, now: Timestamp) -> Vec<String> {
        let (contents, faults) = self.contents();
        let mut problems: Vec<String> = faults
            .iter()
            .map(|fault| format!("Secret {}: {}: {}", self.place, fault.entry, fault.problem))
            .collect();
        if self.secret.is_some() {
            let leaf = contents.leaf.as_ref().map(|leaf| &leaf.certificate);
            let authority = contents.current.as_ref().map(|authority| &authority.certificate);
            for (name, certificate) in [("leaf", leaf), ("CA", authority)] {
                if !certificate.is_some_and(|certificate| certificate.valid_at(now)) {
                    problems.push(format!("Secret {} has no {name} that is valid now", self.place));
                }
            }
        }
        for (target, object) in &self.targets {
            let Some(consumer) = Self::consumer(target, object.as_ref()) else { continue };
            let (trusts, words) = trust(true, Some(&consumer), &contents);
            if !trusts {
                problems.push(format!("{target} {words}"));
            }
        }
        problems
    }
}

/// Whether one configuration trusts the CAs, and how.
fn trust(exists: bool, consumer: Option<&Consumer>, contents: &Contents) -> (bool, String) {
    let Some(consumer) = consumer else {
        return (false, if exists { "calls no webhook" } else { "does not exist" }.to_owned());
    };
    let since = consumer.since.map(|since| format!(", written {since}")).unwrap_or_default();
    let carried = consumer.trusted().len();
    let missing: Vec<Certificate> =
        contents.authorities().into_iter().filter(|authority| !consumer.carries(authority)).collect();
    match (missing.as_slice(), carried) {
        (_, 0) => (false, "trusts no CA".to_owned()),
        ([], _) if contents.authorities().is_empty() => (true, format!("trusts {carried} CA(s){since}")),
        ([], _) => (true, format!("carries the bundle, {carried} CA(s){since}")),
        (missing, _) => (false, format!("does NOT carry {missing:?}")),
    }
}

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn put(&mut self, name: &str, text: &str) {
        // Writing to a String does not fail.
        let _ = writeln!(self.0, "{:<14}{text}", format!("{name}: "));
    }

    fn certificate(&mut self, name: &str, certificate: &Certificate, now: Timestamp) {
        let state = if certificate.valid_at(now) { "valid" } else { "NOT VALID" };
        let Certificate { serial, subject, not_before, not_after, .. } = certificate;
        self.put(name, &format!("{state} from {not_before} to {not_after}, serial {serial}, {subject}"));
    }

    fn contents(&mut self, contents: &Contents, faults: &[Fault], now: Timestamp) {
        for (name, authority) in [("CA", &contents.current), ("next CA", &contents.next)] {
            if let Some(authority) = authority {
                self.certificate(name, &authority.certificate, now);
            }
        }
        for old in &contents.old {
            self.certificate("old CA", old, now);
        }
        if let Some(leaf) = &contents.leaf {
            self.certificate("leaf", &leaf.certificate, now);
            let names: Vec<&str> = leaf.certificate.names.iter().map(String::as_str).collect();
            self.put("leaf's names", &names.join(", "));
        }
        for fault in faults {
            self.put("PROBLEM", &format!("{}: {}", fault.entry, fault.problem));
        }
    }

    fn next_step(&mut self, contents: &Contents, consumers: &[Consumer], now: Timestamp) {
        let decision = decide(contents, consumers, now, &settings_of(contents));
        let text = match decision.step {
            Step::Keep => format!("none before {}", decision.ask_again),
            step => format!("{}: {}", step.name(), decision.reason),
        };
        self.put("next step", &text);
    }
}

/// The lifetimes that the certificates were made with; they are not stored anywhere else.
pub fn settings_of(contents: &Contents) -> Settings {
    let usual = Lifetimes::default();
    let life = |certificate: &Certificate| {
        let whole = Duration::try_from(certificate.not_after.duration_since(certificate.not_before));
        whole.unwrap_or_default().saturating_sub(usual.back_dated)
    };
    let authority = contents.current.as_ref().map_or(usual.authority, |ca| life(&ca.certificate));
    let leaf = contents.leaf.as_ref().map_or(usual.leaf, |leaf| life(&leaf.certificate));
    Settings { names: Vec::new(), lifetimes: Lifetimes { authority, leaf, ..usual } }
}
