//! Writes to the API server: each checks the lease, none lasts longer than the lease's margin.

use super::events::{self, Teller};
use super::lean;
use super::stories::Stories;
use super::throttle::RetryAfter;
use super::{Message, bugs, watch};
use crate::leader::LeaderToken;
use crds::{
    ANNOTATION_RESERVED_IP, FIELD_MANAGER, FINALIZER, LABEL_ALLOCATION, LABEL_READY, NetIPAllocationStatus,
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, EvictParams, Patch, PatchParams, Preconditions};
use kube::core::{DynamicObject, Status};
use kube::{Api, Client, ResourceExt as _};
use plan::{NodeMarks, TemplateChange, WorkloadKey};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use telemetry::controller::Metrics;
use tokio::sync::mpsc;
use tracing::{debug, info};

/// How often the ownership of a template is given up before it is left at that.
const DISOWN_ATTEMPTS: u32 = 3;

/// What is written; one write of each at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// Status or finalizer of an allocation.
    Allocation(String),
    /// Labels and annotation of a node.
    Node(String),
    /// A pod by UID, and where it is.
    Pod { namespace: String, uid: String },
    /// A DaemonSet's template.
    Template(WorkloadKey),
}

impl Target {
    /// All words of [`Target::kind`].
    pub const KINDS: [&str; 4] = ["allocation", "node", "pod", "template"];

    /// As in metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Allocation(_) => "allocation",
            Self::Node(_) => "node",
            Self::Pod { .. } => "pod",
            Self::Template(_) => "template",
        }
    }

    /// The namespace that it is in, if it is in one: somebody else's.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Allocation(_) | Self::Node(_) => None,
            Self::Pod { namespace, .. } => Some(namespace),
            Self::Template(workload) => Some(&workload.namespace),
        }
    }
}

/// How a write ended.
#[derive(Debug)]
pub enum Written {
    Done,
    /// The object changed meanwhile, or is gone: what is there now has to be looked at.
    Conflict,
    /// A disruption budget does not allow it now, or nobody gave us the right.
    Refused(String),
    /// The API server has enough of us for now.
    Throttled(Option<Duration>),
    Failed(String),
}

/// The object as the API server has it after our write.
#[derive(Debug)]
pub enum Answer {
    Allocation(Box<lean::Allocation>),
    Node(Box<lean::Node>),
}

/// Everything that a write needs.
#[derive(Clone)]
pub struct Writer {
    pub client: Client,
    pub token: LeaderToken,
    pub timeout: Duration,
    pub mailbox: mpsc::Sender<Message>,
    pub teller: Teller,
    pub metrics: Metrics,
    pub stories: Stories,
    pub retry_after: RetryAfter,
}

impl Writer {
    /// Does the write and reports how it ended.
    pub async fn run<F: Future<Output = kube::Result<Option<Answer>>>>(self, target: Target, write: F) {
        let mut answer = None;
        let written = if self.token.may_write() {
            let write = tokio::time::timeout(self.timeout, write);
            match bugs::caught(format!("{target:?}"), write).await {
                Ok(Ok(Ok(object))) => {
                    answer = object;
                    Written::Done
                }
                Ok(Ok(Err(error))) => outcome(&target, &error, &self.retry_after),
                Ok(Err(_)) => Written::Failed("the API server did not answer in time".to_owned()),
                Err(bug) => Written::Failed(bug),
            }
        } else {
            Written::Failed("the lease is in doubt".to_owned())
        };
        let _ = self.mailbox.send(Message::Written(target, written, answer)).await;
    }

    /// Writes the status, if the object is still the one that the status was made for.
    pub async fn status(
        &self,
        name: &str,
        version: &str,
        before: Arc<NetIPAllocationStatus>,
        status: Arc<NetIPAllocationStatus>,
    ) -> kube::Result<Option<Answer>> {
        let api: Api<lean::Allocation> = Api::all(self.client.clone());
        let patch = patch(json!([
            { "op": "replace", "path": "/metadata/resourceVersion", "value": version },
            { "op": "add", "path": "/status", "value": *status },
        ]));
        let object = api.patch_status(name, &PatchParams::default(), &patch).await?;
        self.stories.written(&self.metrics, name, &before, &status);
        self.teller.tell(&events::reference(&object.metadata), &before, &status);
        Ok(Some(Answer::Allocation(Box::new(object))))
    }

    /// Adds or removes the finalizer.
    pub async fn finalizer(&self, name: &str, present: bool) -> kube::Result<Option<Answer>> {
        let api: Api<lean::Allocation> = Api::all(self.client.clone());
        let current = api.get(name).await?;
        let version = current.metadata.resource_version;
        let mut finalizers = current.metadata.finalizers.unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        if present {
            finalizers.push(FINALIZER.to_owned());
        }
        let patch = patch(json!([
            { "op": "replace", "path": "/metadata/resourceVersion", "value": version },
            { "op": "add", "path": "/metadata/finalizers", "value": finalizers },
        ]));
        let object = api.patch(name, &PatchParams::default(), &patch).await?;
        // An object whose last finalizer goes is gone with it; the watch says so.
        Ok(present.then(|| Answer::Allocation(Box::new(object))))
    }

    /// Sets our marks on a node by server-side apply, or removes them one by one: apply would leave what
    /// somebody else also wrote.
    pub async fn marks(&self, wanted: &NodeMarks, node: &plan::Node) -> kube::Result<Option<Answer>> {
        let api: Api<lean::Node> = Api::all(self.client.clone());
        let object = if let Some((allocation, address)) = &wanted.marks {
            let apply = json!({
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": wanted.node,
                    "uid": wanted.uid,
                    "labels": { LABEL_READY: "true", LABEL_ALLOCATION: allocation },
                    "annotations": { ANNOTATION_RESERVED_IP: address.to_string() },
                },
            });
            let parameters = PatchParams::apply(FIELD_MANAGER).force();
            api.patch(&wanted.node, &parameters, &Patch::Apply(&apply)).await?
        } else {
            let patch = patch(removal(wanted, node));
            api.patch(&wanted.node, &PatchParams::default(), &patch).await?
        };
        info!(node = wanted.node, marks = ?wanted.marks, "marked");
        Ok(Some(Answer::Node(Box::new(object))))
    }

    /// Evicts a pod, honouring disruption budgets.
    pub async fn evict(&self, eviction: &plan::Eviction) -> kube::Result<Option<Answer>> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &eviction.namespace);
        let parameters = EvictParams { delete_options: Some(only(&eviction.uid)), ..EvictParams::default() };
        api.evict(&eviction.name, &parameters).await?;
        self.tell(eviction, "evicted");
        Ok(None)
    }

    /// Deletes a pod that never ran.
    pub async fn delete(&self, eviction: &plan::Eviction) -> kube::Result<Option<Answer>> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &eviction.namespace);
        api.delete(&eviction.name, &only(&eviction.uid)).await?;
        self.tell(eviction, "deleted");
        Ok(None)
    }

    /// In the log and as an event of the pod.
    fn tell(&self, eviction: &plan::Eviction, what: &str) {
        let plan::Eviction { name, namespace, cause, .. } = eviction;
        info!(pod = name, namespace, cause = cause.as_str(), "{what}");
        self.teller.tell_eviction(eviction);
    }

    /// Puts the requirement into a DaemonSet's template, or takes it out.
    pub async fn template(&self, change: &TemplateChange) -> kube::Result<Option<Answer>> {
        let resource = kube::api::ApiResource::erase::<k8s_openapi::api::apps::v1::DaemonSet>(&());
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &change.workload.namespace, &resource);
        let current = api.get(&change.workload.name).await?;
        let version = current.metadata.resource_version.clone();
        let object = serde_json::to_value(&current).map_err(kube::Error::SerdeError)?;
        let operations = webhook::workload::set_daemon_set(&object, &change.names);
        if operations.0.is_empty() {
            debug!("the template of {} is as it should be", change.workload.name);
            return Ok(None);
        }
        let mut all = vec![json!({ "op": "replace", "path": "/metadata/resourceVersion", "value": version })];
        let operations = serde_json::to_value(&operations).map_err(kube::Error::SerdeError)?;
        all.extend(operations.as_array().into_iter().flatten().cloned());
        // By this name the webhook knows our own writes, and lets them pass.
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let written = api.patch(&change.workload.name, &params, &patch(Value::Array(all))).await?;
        info!(daemon_set = change.workload.name, names = ?change.names, "template changed");
        if let Err(error) = disown(&api, written).await {
            // Whoever applies an affinity server-side is told of a conflict, and can force it.
            debug!(%error, "cannot give up the ownership of a template");
        }
        Ok(None)
    }
}

/// Gives up what the write of a template made us the owner of. Others write to a DaemonSet at the same time, so
/// it may take more than one attempt.
async fn disown(api: &Api<DynamicObject>, mut object: DynamicObject) -> kube::Result<()> {
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let name = object.name_any();
    let mut left = DISOWN_ATTEMPTS;
    loop {
        left -= 1;
        let value = serde_json::to_value(&object).map_err(kube::Error::SerdeError)?;
        let operations = webhook::workload::disown(&value);
        if operations.0.is_empty() {
            return Ok(());
        }
        match api.patch(&name, &params, &Patch::Json::<Value>(operations)).await {
            Ok(_) => return Ok(()),
            Err(error) if left == 0 => return Err(error),
            Err(_) => object = api.get(&name).await?,
        }
    }
}

fn outcome(target: &Target, error: &kube::Error, retry_after: &RetryAfter) -> Written {
    let kube::Error::Api(status) = error else { return Written::Failed(watch::explain(error)) };
    let is_pod = matches!(target, Target::Pod { .. });
    match status.code {
        404 | 409 => Written::Conflict,
        422 if is_failed_test(status) => Written::Conflict,
        // Of one pod or template: a budget, or somebody's admission webhook. Others need not wait for that.
        429 if !is_everybodys(target, status) => {
            let _ = retry_after.take();
            let said = sentence(status);
            if is_pod { Written::Refused(said) } else { Written::Failed(said) }
        }
        403 if is_pod => Written::Refused(sentence(status)),
        429 => {
            let asked = retry_after.take().or_else(|| asked_for(status));
            Written::Throttled(asked.map(|asked| asked.min(LONGEST_PAUSE)))
        }
        _ => Written::Failed(sentence(status)),
    }
}

/// Whether what a patch expected was not so. The API server says the same number of an object that would be
/// invalid, which no new try heals: then it names the fields, and of a patch that does not apply none.
fn is_failed_test(status: &Status) -> bool {
    status.details.as_ref().is_none_or(|details| details.causes.is_empty())
}

/// Nobody's word stops everybody's writes for longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Whether it is the API server that has enough of us: it answers so before it looks at what is written. What an
/// admission webhook says costs the object that it was asked about.
fn is_everybodys(target: &Target, status: &Status) -> bool {
    if status.message.starts_with("admission webhook") {
        return false;
    }
    let of_one = target.namespace().is_some();
    !of_one || status.message.starts_with("Too many requests")
}

/// What the API server says, with the details.
fn sentence(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let causes: Vec<&str> = causes.map(|cause| cause.message.as_str()).collect();
    let causes = if causes.is_empty() { String::new() } else { format!(" ({})", causes.join("; ")) };
    format!("{}{causes}", status.message)
}

fn asked_for(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}

fn only(uid: &str) -> DeleteParams {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

/// Removes the marks that are there, if they are still what was seen.
fn removal(wanted: &NodeMarks, node: &plan::Node) -> Value {
    let mut operations = vec![json!({ "op": "test", "path": "/metadata/uid", "value": wanted.uid })];
    let marks = [
        ("labels", LABEL_READY, node.labels.ready()),
        ("labels", LABEL_ALLOCATION, node.labels.allocation()),
        ("annotations", ANNOTATION_RESERVED_IP, node.reserved_ip.as_deref()),
    ];
    for (field, key, value) in marks {
        if let Some(value) = value {
            let path = format!("/metadata/{field}/{}", key.replace('~', "~0").replace('/', "~1"));
            operations.push(json!({ "op": "test", "path": path, "value": value }));
            operations.push(json!({ "op": "remove", "path": path }));
        }
    }
    Value::Array(operations)
}

/// Our patches are well formed; an empty one would be refused by the API server, and reported.
fn patch(operations: Value) -> Patch<Value> {
    Patch::Json::<Value>(serde_json::from_value(operations).unwrap_or_default())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn written(target: &Target, status: Value) -> Written {
        let status: Status = serde_json::from_value(status).unwrap();
        outcome(target, &kube::Error::Api(Box::new(status)), &RetryAfter::default())
    }

    fn node() -> Target {
        Target::Node("n1".to_owned())
    }

    fn pod() -> Target {
        Target::Pod { namespace: "web".to_owned(), uid: "1".to_owned() }
    }

    #[test]
    fn an_object_that_would_be_invalid_is_a_failure() {
        let message = "the server rejected our request due to an error in our request";
        let test = json!({ "code": 422, "reason": "Invalid", "message": message, "details": {} });
        assert!(matches!(written(&node(), test), Written::Conflict));
        let cause =
            json!({ "reason": "FieldValueInvalid", "message": "must be no more than 63", "field": "labels" });
        let details = json!({ "name": "n1", "kind": "Node", "causes": [cause] });
        let invalid = json!({ "code": 422, "message": "Node \"n1\" is invalid", "details": details });
        let Written::Failed(said) = written(&node(), invalid) else { panic!("a failure") };
        assert_eq!(said, "Node \"n1\" is invalid (must be no more than 63)");
    }

    #[test]
    fn who_refuses_an_eviction_is_told_from_an_api_server_that_has_enough() {
        let cause = json!({ "reason": "DisruptionBudget", "message": "The disruption budget web needs 1 healthy pods" });
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        let budget = json!({ "code": 429, "message": message, "details": { "causes": [cause], "retryAfterSeconds": 10 } });
        let Written::Refused(said) = written(&pod(), budget) else { panic!("refused") };
        assert!(said.ends_with("(The disruption budget web needs 1 healthy pods)"), "{said}");
        let denied = json!({ "code": 403, "reason": "Forbidden", "message": "pods/eviction is forbidden" });
        assert!(matches!(written(&pod(), denied.clone()), Written::Refused(_)));
        assert!(matches!(written(&node(), denied), Written::Failed(_)), "marks are no matter of refusal");
        let enough = json!({ "code": 429, "message": "Too many requests, please try again later." });
        assert!(matches!(written(&pod(), enough), Written::Throttled(None)));
        let webhook = json!({ "code": 429, "message": "admission webhook \"drain.example\" denied the request: later",
            "details": { "retryAfterSeconds": 3600 } });
        assert!(matches!(written(&pod(), webhook.clone()), Written::Refused(_)), "it costs this pod only");
        assert!(
            matches!(written(&node(), webhook), Written::Failed(_)),
            "nor does it stop other nodes' writes"
        );
        let same_words = json!({ "code": 429, "message": "admission webhook \"x\" denied the request: Too many requests" });
        for target in [pod(), node()] {
            assert!(!matches!(written(&target, same_words.clone()), Written::Throttled(_)), "{target:?}");
        }
        let long = json!({ "code": 429, "message": "later", "details": { "retryAfterSeconds": 3600 } });
        let Written::Throttled(Some(pause)) = written(&node(), long) else { panic!("throttled") };
        assert_eq!(pause, LONGEST_PAUSE, "nobody stops everybody for an hour");
        let later = json!({ "code": 429, "message": "later", "details": { "retryAfterSeconds": 3 } });
        assert!(matches!(written(&node(), later), Written::Throttled(Some(pause)) if pause.as_secs() == 3));
    }
}
