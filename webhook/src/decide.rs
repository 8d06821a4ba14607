//! What is answered to a review: a function of the request and the index alone.

use crate::allocation;
use crate::index::Index;
use crate::json::Unambiguous;
use crate::review::{Malformed, Reason, Refusal, Request, Verdict};
use crate::workload::{self, LeanDaemonSet, LeanPod, Ownership};
use json_patch::Patch;
use plan::WorkloadKey;
use plan::parse::Fault;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Instant;

/// What is asked of us, one endpoint each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Convert and refuse NetIPAllocations.
    MutateAllocation,
    /// Judge final NetIPAllocations, and compare them with the others.
    ValidateAllocation,
    /// Send pods to the nodes of their allocations.
    MutateWorkload,
}

/// What is answered, or what has to be known first.
#[derive(Debug)]
pub enum Decision {
    /// This; and if it is allowed and will be stored, these addresses are the object's from now on.
    Answer(Verdict, Option<Claim>),
    /// It depends on a ReplicaSet that the watch has not shown yet.
    Await(Unknown),
}

/// Addresses that an object gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Name of the object.
    pub name: String,
    /// The addresses that are new in it.
    pub addresses: Vec<IpAddr>,
    /// The addresses that it keeps.
    pub kept: Vec<IpAddr>,
}

/// A ReplicaSet that the watch has not shown yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// Its namespace.
    pub namespace: String,
    /// Its UID.
    pub uid: String,
}

/// Answers from what is known now. With `last` the name of an unknown ReplicaSet has to do, and also where
/// there is nothing to wait for.
pub fn decide(
    question: Question,
    request: &Request<'_>,
    index: &Index,
    now: Instant,
    last: bool,
) -> Result<Decision, Malformed> {
    let update = match &*request.operation {
        "CREATE" => false,
        "UPDATE" => true,
        other => return Err(Malformed(format!("only CREATE and UPDATE are reviewed, not {other:.32?}"))),
    };
    if request.sub_resource.as_deref().is_some_and(|sub| !sub.is_empty()) {
        return Err(Malformed("subresources are not reviewed".into()));
    }
    match question {
        Question::MutateAllocation => Ok(mutate(allocation(request, update)?, index)),
        Question::ValidateAllocation => {
            let stores = request.dry_run != Some(true);
            Ok(validate(&allocation(request, update)?, index, now, stores))
        }
        Question::MutateWorkload if request.is_about("", "pods") => pod(request, index, last),
        Question::MutateWorkload if request.is_about("apps", "daemonsets") => {
            daemon_set(request, update, index)
        }
        Question::MutateWorkload => Err(unexpected(request, "pods or daemonsets")),
    }
}

/// The two fields of an allocation that matter. Whatever else is in it is skipped: anybody can send much
/// of it.
#[derive(Deserialize)]
struct LeanAllocation<'b> {
    #[serde(borrow, default)]
    metadata: Option<LeanMeta<'b>>,
    #[serde(default)]
    spec: Option<Unambiguous>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeanMeta<'b> {
    #[serde(borrow)]
    name: Option<Cow<'b, str>>,
    #[serde(borrow)]
    generate_name: Option<Cow<'b, str>>,
}

impl LeanAllocation<'_> {
    fn into_spec(self) -> Value {
        self.spec.map_or(Value::Null, |Unambiguous(spec)| spec)
    }
}

struct Allocation<'b> {
    metadata: LeanMeta<'b>,
    spec: Value,
    old: Option<Value>,
}

impl Allocation<'_> {
    fn request(&self) -> allocation::Request<'_> {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        allocation::Request { name, spec: &self.spec, old: self.old.as_ref() }
    }

    /// The name, or the beginning of one that is still to be made up.
    fn name(&self) -> &str {
        self.metadata.name.as_deref().or(self.metadata.generate_name.as_deref()).unwrap_or_default()
    }
}

fn refusal(name: &str, reason: Reason, faults: Vec<Fault>) -> Option<Refusal> {
    (!faults.is_empty()).then(|| Refusal { reason, name: name.to_owned(), faults })
}

fn allocation<'b>(request: &Request<'b>, update: bool) -> Result<Allocation<'b>, Malformed> {
    if !request.is_about(crds::GROUP, "netipallocations") {
        return Err(unexpected(request, "netipallocations"));
    }
    let object: LeanAllocation<'b> = read(request.object, "object")?;
    let old: Option<LeanAllocation<'b>> =
        if update { Some(read(request.old_object, "oldObject")?) } else { None };
    Ok(Allocation {
        metadata: object.metadata.unwrap_or_default(),
        spec: object.spec.map_or(Value::Null, |Unambiguous(spec)| spec),
        old: old.map(LeanAllocation::into_spec),
    })
}

fn mutate(asked: Allocation<'_>, index: &Index) -> Decision {
    let name = asked.name().to_owned();
    let Allocation { metadata, spec, old } = asked;
    let given = metadata.name.as_deref().unwrap_or_default();
    let answer = allocation::mutate(given, spec, old.as_ref(), index.excluded());
    let refusal = refusal(&name, Reason::Invalid, answer.faults);
    Decision::Answer(Verdict { patch: answer.patch, warnings: answer.warnings, refusal }, None)
}

fn validate(asked: &Allocation<'_>, index: &Index, now: Instant, stores: bool) -> Decision {
    let mut faults = allocation::validate(asked.request());
    let reason = if faults.is_empty() { Reason::Duplicate } else { Reason::Invalid };
    let holder = |address| index.holder(address, asked.name(), now).map(str::to_owned);
    faults.extend(allocation::duplicates(asked.request(), holder));
    let refusal = refusal(asked.name(), reason, faults);
    let claim = (stores && refusal.is_none()).then(|| Claim {
        name: asked.name().to_owned(),
        addresses: allocation::new_addresses(asked.request()).map(|(_, address)| address).collect(),
        kept: allocation::kept_addresses(asked.request()).collect(),
    });
    Decision::Answer(Verdict { refusal, ..Verdict::default() }, claim)
}

fn pod(request: &Request<'_>, index: &Index, last: bool) -> Result<Decision, Malformed> {
    let pod: LeanPod<'_> = read(request.object, "object")?;
    let namespace = request.namespace.as_deref().unwrap_or_default();
    let by_name = last || index.is_failing(namespace);
    let patch = |workload: &WorkloadKey| patched(workload::patch_pod(&pod, workload, index));
    match workload::ownership(&pod, namespace, index) {
        Ownership::Workload(workload) => patch(&workload),
        Ownership::ReplicaSet { guess: Some(workload), .. } if by_name => patch(&workload),
        Ownership::ReplicaSet { uid, .. } if !by_name => {
            Ok(Decision::Await(Unknown { namespace: namespace.to_owned(), uid }))
        }
        Ownership::ReplicaSet { .. } | Ownership::Nobody => Ok(Decision::Answer(Verdict::default(), None)),
    }
}

fn daemon_set(request: &Request<'_>, update: bool, index: &Index) -> Result<Decision, Malformed> {
    let object: LeanDaemonSet<'_> = read(request.object, "object")?;
    let old: Option<LeanDaemonSet<'_>> =
        if update { Some(read(request.old_object, "oldObject")?) } else { None };
    let namespace = request.namespace.as_deref().unwrap_or_default();
    patched(workload::patch_daemon_set(&object, old.as_ref(), namespace, index))
}

fn patched(patch: Result<Patch, serde_json::Error>) -> Result<Decision, Malformed> {
    let patch = patch.map_err(|error| Malformed::new(format_args!("affinity: {error}")))?;
    Ok(Decision::Answer(Verdict { patch, ..Verdict::default() }, None))
}

fn read<'b, T: Deserialize<'b>>(raw: Option<&'b RawValue>, what: &str) -> Result<T, Malformed> {
    let raw = raw.ok_or_else(|| Malformed(format!("the request has no {what}")))?;
    serde_json::from_str(raw.get()).map_err(|error| Malformed::new(format_args!("{what}: {error}")))
}

fn unexpected(request: &Request<'_>, expected: &str) -> Malformed {
    let got = format!("{:.64?} of group {:.64?}", request.resource.resource, request.resource.group);
    Malformed(format!("{expected} are reviewed here, not {got}"))
}
