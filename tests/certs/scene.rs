//! One test's own part of the shared cluster: namespace, rights, configurations, balancer.

use crate::replica::Options;
use anyhow::{Context as _, Result};
use certs::{Contents, Kind, Lifetimes, Source, Target};
use cluster::harness::Bed;
use cluster::{Cluster, Version, eventually};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use playground::Balancer;
use serde_json::{Value, json};
use std::time::Duration;
use webhook::server::Limits;

/// The rights that the product asks for; each test has them under a name of its own.
const ROLES: &str = include_str!("../../deploy/rbac/certs.yaml");

pub struct Scene {
    /// The administrator.
    pub admin: Client,
    /// The replicas' rights.
    pub client: Client,
    pub balancer: Balancer,
    pub name: String,
}

impl Scene {
    pub async fn set(bed: &Bed, name: &str) -> Result<Self> {
        Self::set_on(bed, Version::Newest, name).await
    }

    pub async fn set_on(bed: &Bed, version: Version, name: &str) -> Result<Self> {
        let cluster = bed.cluster(version).await?;
        cluster.kubectl(&["create", "namespace", name]).await?.ok()?;
        cluster.kubectl(&["create", "serviceaccount", &format!("{name}-webhook"), "-n", name]).await?.ok()?;
        let roles = ROLES.replace("ip-address-controller", name);
        cluster.kubectl_with_input(&["apply", "-f", "-"], &roles).await?.ok()?;
        let scene = Self {
            admin: cluster.client(),
            client: client_of(cluster, name).await?,
            balancer: Balancer::start().await?,
            name: name.to_owned(),
        };
        for kind in [Kind::Mutating, Kind::Validating] {
            scene.configure(kind).await?;
        }
        Ok(scene)
    }

    /// (Re-)creates a configuration without a bundle, as deploy/ does.
    pub async fn configure(&self, kind: Kind) -> Result<()> {
        let target = self.target(kind);
        let manifest = json!({
            "apiVersion": target.resource().api_version, "kind": target.resource().kind,
            "metadata": { "name": self.name },
            "webhooks": [{
                "name": "allow.test.dev",
                "clientConfig": { "url": format!("https://{}/allow", self.balancer.address) },
                "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "failurePolicy": "Fail", "timeoutSeconds": 10,
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": self.name } },
                "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                            "resources": ["configmaps"], "scope": "Namespaced" }],
            }],
        });
        let object: DynamicObject = serde_json::from_value(manifest)?;
        self.targets_api(kind).create(&PostParams::default(), &object).await?;
        Ok(())
    }

    pub fn target(&self, kind: Kind) -> Target {
        Target { kind, name: self.name.clone() }
    }

    pub fn targets_api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::all_with(self.admin.clone(), &self.target(kind).resource())
    }

    /// Lifetimes short enough to be lived through, long enough for a machine that is busy.
    pub fn options(&self) -> Options {
        Options {
            source: Source::Own { namespace: self.name.clone(), secret: self.secret_name() },
            targets: vec![self.target(Kind::Mutating), self.target(Kind::Validating)],
            names: vec!["127.0.0.1".to_owned()],
            lifetimes: Lifetimes {
                authority: Duration::from_secs(30),
                leaf: Duration::from_secs(15),
                margin: Duration::from_secs(2),
                ..Lifetimes::default()
            },
            limits: Limits { drain_grace: Duration::from_secs(3), ..Limits::default() },
            handshake_per_call: true,
        }
    }

    /// The same with lifetimes of days, for tests of other things.
    pub fn calm(&self) -> Options {
        let lifetimes = Lifetimes { margin: Duration::from_secs(2), ..Lifetimes::default() };
        Options { lifetimes, handshake_per_call: false, ..self.options() }
    }

    pub fn secret_name(&self) -> String {
        format!("{}-webhook-tls", self.name)
    }

    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.admin.clone(), &self.name)
    }

    pub async fn contents(&self) -> Result<Contents> {
        let secret = self.secrets().get(&self.secret_name()).await?;
        Ok(Contents::read(&secret.data.unwrap_or_default()).0)
    }

    /// Serial of the CA that signs.
    pub async fn authority(&self) -> Result<String> {
        Ok(self.contents().await?.current.context("there is no CA")?.certificate.serial)
    }

    /// One write through the webhooks.
    pub async fn write(&self) -> Result<()> {
        let metadata = ObjectMeta { generate_name: Some("write-".to_owned()), ..ObjectMeta::default() };
        let object = ConfigMap { metadata, ..ConfigMap::default() };
        Api::<ConfigMap>::namespaced(self.admin.clone(), &self.name)
            .create(&PostParams::default(), &object)
            .await?;
        Ok(())
    }

    /// Waits until writes work.
    pub async fn works(&self) -> Result<()> {
        eventually("writes to get through the webhooks", async || self.write().await).await
    }

    /// What a configuration's webhook trusts.
    pub async fn bundle(&self, kind: Kind) -> Result<certs::Consumer> {
        let object = self.targets_api(kind).get(&self.name).await?;
        self.target(kind).read(&object).context("it has no webhooks")
    }

    pub async fn patch(&self, kind: Kind, patch: &Value) -> Result<()> {
        let params = PatchParams { field_manager: Some("somebody".to_owned()), ..PatchParams::default() };
        self.targets_api(kind)
            .patch(&self.name, &params, &Patch::Json::<()>(serde_json::from_value(patch.clone())?))
            .await?;
        Ok(())
    }
}

async fn client_of(cluster: &Cluster, name: &str) -> Result<Client> {
    let file = cluster.service_account_kubeconfig(name, &format!("{name}-webhook")).await?;
    let config = Kubeconfig::read_from(file)?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
