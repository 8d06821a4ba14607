//! Who has to trust our CA: objects of the API server with a `caBundle`.

use crate::material::Certificate;
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use std::fmt;

/// Who owns the bundles, in the API server's books.
pub const FIELD_MANAGER: &str = "ip-address-controller-certs";

/// Kinds of objects with a `caBundle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `MutatingWebhookConfiguration`.
    Mutating,
    /// `ValidatingWebhookConfiguration`.
    Validating,
    /// A CustomResourceDefinition with a conversion webhook; one without needs no bundle.
    Conversion,
}

/// An object that the bundle has to be put into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.resource().kind, self.name)
    }
}

impl Target {
    /// How the API server calls it.
    pub fn resource(&self) -> ApiResource {
        let (group, kind) = match self.kind {
            Kind::Mutating => ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
            Kind::Validating => ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
            Kind::Conversion => ("apiextensions.k8s.io", "CustomResourceDefinition"),
        };
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
    }

    /// What the object says about its bundle. None, if it calls no webhook at all.
    pub fn read(&self, object: &DynamicObject) -> Option<Consumer> {
        let configs: Vec<&Value> = match self.kind {
            Kind::Conversion => {
                object.data.pointer("/spec/conversion/webhook/clientConfig").into_iter().collect()
            }
            Kind::Mutating | Kind::Validating => {
                let webhooks = object.data.pointer("/webhooks").and_then(Value::as_array);
                webhooks.into_iter().flatten().map(|webhook| &webhook["clientConfig"]).collect()
            }
        };
        if configs.is_empty() {
            return None;
        }
        let bundles = configs.iter().map(|config| decode(&config["caBundle"])).collect();
        Some(Consumer::new(self.to_string(), bundles, since(object)))
    }

    /// The patch that puts a bundle there and touches nothing else. It names the object's UID: applied
    /// to one that has gone meanwhile, it must not make a new one.
    pub fn patch(&self, object: &DynamicObject, bundle: &str) -> Value {
        let config = json!({ "caBundle": k8s_openapi::ByteString(bundle.as_bytes().to_vec()) });
        let resource = self.resource();
        let mut patch = json!({
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": { "name": self.name, "uid": object.uid() },
        });
        if self.kind == Kind::Conversion {
            patch["spec"] = json!({ "conversion": { "webhook": { "clientConfig": config } } });
        } else {
            let webhooks = object.data.pointer("/webhooks").and_then(Value::as_array);
            let named = webhooks.into_iter().flatten().map(|webhook| &webhook["name"]);
            patch["webhooks"] = named.map(|name| json!({ "name": name, "clientConfig": config })).collect();
        }
        patch
    }
}

fn decode(bundle: &Value) -> String {
    let bytes: Option<k8s_openapi::ByteString> = serde_json::from_value(bundle.clone()).ok();
    bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default()
}

/// When we last wrote the bundle, by the API server's clock and books.
fn since(object: &DynamicObject) -> Option<Timestamp> {
    let entries = object.metadata.managed_fields.as_ref()?;
    let ours = |entry: &&k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry| {
        entry.manager.as_deref() == Some(FIELD_MANAGER) && entry.operation.as_deref() == Some("Apply")
    };
    entries.iter().find(ours)?.time.as_ref().map(|time| time.0)
}

/// An object as it was last seen: what it trusts, and since when.
#[derive(Clone, Debug, PartialEq)]
pub struct Consumer {
    /// Which object, for people.
    pub name: String,
    /// When we wrote its bundle; none, if somebody else did.
    pub since: Option<Timestamp>,
    bundles: Vec<String>,
    trusted: Vec<Certificate>,
}

impl Consumer {
    /// From the bundles of all its webhooks.
    pub fn new(name: String, bundles: Vec<String>, since: Option<Timestamp>) -> Self {
        let mut parsed =
            bundles.iter().map(|bundle| Certificate::all_from_pem(bundle.as_bytes()).unwrap_or_default());
        // What one webhook of it does not trust, it does not trust.
        let mut trusted = parsed.next().unwrap_or_default();
        for bundle in parsed {
            trusted.retain(|certificate| bundle.contains(certificate));
        }
        Self { name, since, bundles, trusted }
    }

    /// Whether all its webhooks trust a CA.
    pub fn carries(&self, authority: &Certificate) -> bool {
        self.trusted.contains(authority)
    }

    /// The CAs that all its webhooks trust.
    pub fn trusted(&self) -> &[Certificate] {
        &self.trusted
    }

    /// Whether the bundle has to be written.
    pub fn differs(&self, bundle: &str) -> bool {
        self.since.is_none() || self.bundles.iter().any(|carried| carried != bundle)
    }
}
