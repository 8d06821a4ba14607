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

/// Name of both configurations.
pub const CONFIGURATION: &str = "ip-address-controller";
/// Name of the Service that `deploy/` has.
pub const SERVICE: &str = "ip-address-controller-webhook";
/// Namespace that `deploy/` installs into.
pub const NAMESPACE: &str = "ip-address-controller";
/// The webhook of pods and DaemonSets.
pub const PODS: &str = "pods.netinfra.darkbrains.com";

const FIELD_MANAGER: &str = "ip-address-controller-registration";

/// Creates both configurations, or brings them up to date, for a process outside the cluster.
pub async fn register(client: &Client, url: &str) -> kube::Result<()> {
    let [mutating, validating] = configurations(&Endpoint::Url(url.trim_end_matches('/').to_owned()));
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    api.patch(CONFIGURATION, &params, &Patch::Apply(mutating)).await?;
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    api.patch(CONFIGURATION, &params, &Patch::Apply(validating)).await?;
    tracing::info!(url, configuration = CONFIGURATION, "registered");
    Ok(())
}

/// Deletes both configurations; it is no error if they are gone.
pub async fn unregister(client: &Client) -> kube::Result<()> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    gone(api.delete(CONFIGURATION, &DeleteParams::default()).await.map(drop))?;
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    gone(api.delete(CONFIGURATION, &DeleteParams::default()).await.map(drop))?;
    tracing::info!(configuration = CONFIGURATION, "unregistered");
    Ok(())
}

fn gone(deleted: kube::Result<()>) -> kube::Result<()> {
    match deleted {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        done => done,
    }
}
