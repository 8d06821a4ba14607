//! The envelope: a review in, a review out, version `admission.k8s.io/v1` only.
//!
//! Only what is needed is decoded, and text is borrowed from the bytes that came. Objects stay raw until
//! somebody has decided to look into them.

use base64::Engine as _;
use json_patch::Patch;
use plan::parse::Fault;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt::Write as _;

/// The only version that is understood.
pub const API_VERSION: &str = "admission.k8s.io/v1";

/// A UUID has 36; it goes into logs and into the answer.
const MAX_UID: usize = 128;

/// Nobody reads more faults than this, nor longer ones. A spec can be megabytes of them.
const MAX_FAULTS: usize = 64;
const MAX_FAULT: usize = 500;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'b> {
    #[serde(borrow, default)]
    api_version: Cow<'b, str>,
    #[serde(borrow, default)]
    kind: Cow<'b, str>,
    #[serde(borrow, default)]
    request: Option<Request<'b>>,
}

/// What the API server asks.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request<'b> {
    /// Names this request; the answer has to repeat it.
    #[serde(borrow, default)]
    pub uid: Cow<'b, str>,
    /// What kind of resource it is about.
    #[serde(borrow, default)]
    pub resource: Resource<'b>,
    /// The subresource, if it is about one.
    #[serde(borrow, default)]
    pub sub_resource: Option<Cow<'b, str>>,
    /// Namespace of the object.
    #[serde(borrow, default)]
    pub namespace: Option<Cow<'b, str>>,
    /// CREATE, UPDATE…
    #[serde(borrow, default)]
    pub operation: Cow<'b, str>,
    /// The object as it is to be.
    #[serde(borrow, default)]
    pub object: Option<&'b RawValue>,
    /// The object as it is.
    #[serde(borrow, default)]
    pub old_object: Option<&'b RawValue>,
    /// Nothing will be stored.
    #[serde(default)]
    pub dry_run: Option<bool>,
}

/// A resource by group and plural.
#[derive(Debug, Default, Deserialize)]
pub struct Resource<'b> {
    /// API group; empty for the core.
    #[serde(borrow, default)]
    pub group: Cow<'b, str>,
    /// Plural.
    #[serde(borrow, default)]
    pub resource: Cow<'b, str>,
}

/// Bytes that are no review we could answer; says why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);

impl Malformed {
    /// Words that may quote what came: the beginning of them.
    pub fn new(words: impl std::fmt::Display) -> Self {
        Self(brief(&words.to_string()).into_owned())
    }
}

/// Decodes a review. Whatever is not one is an error, never a panic.
pub fn decode(bytes: &[u8]) -> Result<Request<'_>, Malformed> {
    if bytes.is_empty() {
        return Err(Malformed("the body is empty; an AdmissionReview is expected".into()));
    }
    // serde_json does not look into strings that it skips.
    let text =
        std::str::from_utf8(bytes).map_err(|error| Malformed(format!("the body is not UTF-8: {error}")))?;
    let envelope: Envelope<'_> = serde_json::from_str(text)
        .map_err(|error| Malformed::new(format_args!("not an AdmissionReview: {error}")))?;
    if envelope.kind != "AdmissionReview" || envelope.api_version != API_VERSION {
        let got = format!("{:.64?} of {:.64?}", envelope.kind, envelope.api_version);
        return Err(Malformed(format!("AdmissionReview of {API_VERSION} is expected, not {got}")));
    }
    let Some(request) = envelope.request else {
        return Err(Malformed("the review has no request".into()));
    };
    let printable = request.uid.bytes().all(|byte| byte.is_ascii_graphic());
    if request.uid.is_empty() || request.uid.len() > MAX_UID || !printable {
        return Err(Malformed(format!("the request has no uid of at most {MAX_UID} printable characters")));
    }
    Ok(request)
}

impl Request<'_> {
    /// Whether it is about this resource.
    pub fn is_about(&self, group: &str, resource: &str) -> bool {
        self.resource.group == group && self.resource.resource == resource
    }
}

/// What is answered, before it is put into bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// What to change; empty: nothing.
    pub patch: Patch,
    /// What to tell the client.
    pub warnings: Vec<String>,
    /// Why it is refused; `None`: it is allowed.
    pub refusal: Option<Refusal>,
}

/// A refusal, as a person and as a program read it.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// Why, in one word.
    pub reason: Reason,
    /// Name of the object.
    pub name: String,
    /// Everything that is wrong.
    pub faults: Vec<Fault>,
}

/// Why an object is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The spec is not valid.
    Invalid,
    /// An address is in another object.
    Duplicate,
}

impl Reason {
    /// As metrics have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Duplicate => "duplicate",
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
}

/// As the API server itself refuses an invalid object, so that clients can show the fields.
#[derive(Serialize)]
struct Status<'a> {
    #[serde(rename = "status")]
    outcome: &'static str,
    code: u16,
    reason: &'static str,
    message: String,
    details: Details<'a>,
}

#[derive(Serialize)]
struct Details<'a> {
    group: &'static str,
    kind: &'static str,
    name: &'a str,
    causes: Vec<Cause<'a>>,
}

#[derive(Serialize)]
struct Cause<'a> {
    reason: &'static str,
    field: Cow<'a, str>,
    message: Cow<'a, str>,
}

/// The beginning of a text, if it is long.
pub(crate) fn brief(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_FAULT) {
        None => text.into(),
        Some((end, _)) => format!("{}…", &text[..end]).into(),
    }
}

impl Refusal {
    /// The refusal, as a person reads it: a line per fault.
    pub fn message(&self) -> String {
        let mut text = format!("NetIPAllocation {:?} is not valid:", brief(&self.name));
        for fault in self.faults.iter().take(MAX_FAULTS) {
            // Writing to a string does not fail.
            let _ = write!(text, "\n  {}: {}", brief(&fault.path), brief(&fault.message));
        }
        if let Some(more) = self.faults.len().checked_sub(MAX_FAULTS).filter(|more| *more > 0) {
            let _ = write!(text, "\n  and {more} more");
        }
        text
    }

    fn status(&self) -> Status<'_> {
        let reason = match self.reason {
            Reason::Invalid => "FieldValueInvalid",
            Reason::Duplicate => "FieldValueDuplicate",
        };
        let causes = self.faults.iter().take(MAX_FAULTS).map(|fault| Cause {
            reason,
            field: brief(&fault.path),
            message: brief(&fault.message),
        });
        let details = Details {
            group: crds::GROUP,
            kind: "NetIPAllocation",
            name: &self.name,
            causes: causes.collect(),
        };
        Status { outcome: "Failure", code: 422, reason: "Invalid", message: self.message(), details }
    }
}

/// Puts an answer into bytes.
pub fn encode(uid: &str, verdict: &Verdict) -> Result<Vec<u8>, serde_json::Error> {
    let patch = (!verdict.patch.0.is_empty() && verdict.refusal.is_none())
        .then(|| serde_json::to_vec(&verdict.patch))
        .transpose()?
        .map(|json| base64::engine::general_purpose::STANDARD.encode(json));
    serde_json::to_vec(&Answer {
        api_version: API_VERSION,
        kind: "AdmissionReview",
        response: Response {
            uid,
            allowed: verdict.refusal.is_none(),
            status: verdict.refusal.as_ref().map(Refusal::status),
            warnings: &verdict.warnings,
            patch_type: patch.is_some().then_some("JSONPatch"),
            patch,
        },
    })
}
