//! How the API server comes to call us: both webhook configurations, made from one table.
//!
//! What is in `deploy/` has neither `caBundle` nor the pod webhook's `namespaceSelector`. The process
//! alone owns both, under field managers of their own, so that manifests can be applied again and again.

mod selector;
mod table;

pub use selector::keep_narrow;
pub use table::{Endpoint, configurations};

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use std::time::Duration;

/// Name of both configurations.
pub const CONFIGURATION: &str = "ip-address-controller";
/// Name of the Service that `deploy/` has.
pub const SERVICE: &str = "ip-address-controller-webhook";
/// Namespace that `deploy/` installs into.
pub const NAMESPACE: &str = "ip-address-controller";
/// The webhook of pods and DaemonSets.
pub const PODS: &str = "pods.netinfra.darkbrains.com";

/// How long the API server may take for a call.
const CALL: Duration = Duration::from_secs(10);

const FIELD_MANAGER: &str = "ip-address-controller-registration";

/// Creates both configurations, or brings them up to date, for a process outside the cluster.
pub async fn register(client: &Client, url: &str) -> kube::Result<()> {
    let [mutating, validating] = configurations(&Endpoint::Url(url.trim_end_matches('/').to_owned()));
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    call(api.patch(CONFIGURATION, &params, &Patch::Apply(mutating))).await?;
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    call(api.patch(CONFIGURATION, &params, &Patch::Apply(validating))).await?;
    tracing::info!(url, configuration = CONFIGURATION, "registered");
    Ok(())
}

/// Deletes both configurations; it is no error if they are gone.
pub async fn unregister(client: &Client) -> kube::Result<()> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    gone(call(api.delete(CONFIGURATION, &DeleteParams::default())).await.map(drop))?;
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    gone(call(api.delete(CONFIGURATION, &DeleteParams::default())).await.map(drop))?;
    tracing::info!(configuration = CONFIGURATION, "unregistered");
    Ok(())
}

/// A call that does not go on for ever.
async fn call<T>(request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    match tokio::time::timeout(CALL, request).await {
        Ok(answer) => answer,
        Err(elapsed) => Err(kube::Error::Service(Box::new(elapsed))),
    }
}

fn gone(deleted: kube::Result<()>) -> kube::Result<()> {
    match deleted {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        done => done,
    }
}
