//! The Kubernetes API of ip-address-controller.
//!
//! The types here are the single source: the CRD manifests beside this crate are printed from them
//! (`ip-address-controller crds`), and a test fails when the two differ.
//!
//! The types are what a *valid* object looks like. Objects that were stored under an earlier, laxer
//! schema need not fit them, so whoever reads from the cluster decodes leniently and reports what is
//! wrong instead of failing to decode.

// The doc comments are what `kubectl explain` prints, where backticks are noise.
#[allow(clippy::doc_markdown)]
// One `type_ = "string"` per printer column.
#[allow(clippy::duplicated_attributes)]
mod netipallocation;
mod rules;
mod schema;

pub use netipallocation::*;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

/// API group of all our kinds.
pub const GROUP: &str = "netinfra.darkbrains.com";
/// Node label that says "a reserved IP is attached here"; the OR over all allocations.
pub const LABEL_READY: &str = "ip.ready";
/// Node label with the name of the allocation whose IP the node holds.
pub const LABEL_ALLOCATION: &str = "netinfra.darkbrains.com/allocation";
/// Node annotation with the address that the node holds.
pub const ANNOTATION_RESERVED_IP: &str = "netinfra.darkbrains.com/reserved-ip";
/// Pod annotation (on pods and on DaemonSet templates) that says which node affinity is ours: the names of the
/// allocations in it, in order, with commas between them. Without it nothing is ever removed or deleted.
pub const ANNOTATION_INJECTED: &str = "netinfra.darkbrains.com/injected";
/// Finalizer that lets the controller carry out `releasePolicy` before an allocation goes.
pub const FINALIZER: &str = "netinfra.darkbrains.com/release";
/// Field manager of everything that the controller applies.
pub const FIELD_MANAGER: &str = "ip-address-controller";

/// A CRD and the file in `crds/` that holds its manifest.
pub struct Manifest {
    /// File name inside `crds/`.
    pub file: &'static str,
    /// The definition itself.
    pub crd: CustomResourceDefinition,
}

/// Every CRD of the project.
pub fn manifests() -> Vec<Manifest> {
    vec![Manifest { file: "netipallocation.yaml", crd: schema::finish(NetIPAllocation::crd()) }]
}

impl Manifest {
    /// The manifest as `kubectl apply -f` takes it.
    pub fn to_yaml(&self) -> Result<String, serde_saphyr::ser::Error> {
        let body = serde_saphyr::to_string(&self.crd)?;
        Ok(format!(
            "# Printed by `ip-address-controller crds` from crds/src; change the types, then `make generate`.\n{body}"
        ))
    }
}
