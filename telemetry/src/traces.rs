//! Spans of what takes time: moves with their steps, and admission requests. They are for whoever exports
//! them; while nobody does, recording one costs a look at an atomic.

use serde_json::{Value, json};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;

/// Spans that wait for the exporter; what comes on top of them is dropped and counted.
const WAITING: usize = 4096;

static EXPORTER: OnceLock<mpsc::Sender<Span>> = OnceLock::new();
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Something that had a beginning and an end.
#[derive(Clone, Debug)]
pub struct Span {
    /// The trace that it is part of.
    pub context: Context,
    /// Its own id.
    pub id: String,
    /// What it is.
    pub name: &'static str,
    /// Whether it answers somebody else's request.
    pub is_server: bool,
    /// Nanoseconds since 1970.
    pub start: u64,
    /// Nanoseconds since 1970.
    pub end: u64,
    /// What is to be known of it.
    pub attributes: Vec<(&'static str, String)>,
    /// What went wrong.
    pub error: Option<String>,
}

/// Where a span belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// 32 hexadecimal digits.
    pub trace: String,
    /// The span above it, 16 hexadecimal digits.
    pub parent: Option<String>,
}

impl Context {
    /// A trace of its own.
    pub fn new() -> Self {
        Self { trace: format!("{:016x}{}", fastrand::u64(1..), span_id()), parent: None }
    }

    /// As a caller says in the header `traceparent` (W3C), if it is well-formed.
    pub fn of_caller(header: &str) -> Option<Self> {
        let mut parts = header.split('-');
        let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_id = |text: &str, digits: usize| {
            text.len() == digits
                && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
                && text.bytes().any(|byte| byte != b'0')
        };
        let well_formed = version == "00" && parts.next().is_none() && flags.len() == 2;
        (well_formed && is_id(trace, 32) && is_id(parent, 16))
            .then(|| Self { trace: trace.to_owned(), parent: Some(parent.to_owned()) })
    }
}

impl Default for Context {
    fn default() -> Self {
        Self::new()
    }
}

/// A new id for a span.
pub fn span_id() -> String {
    format!("{:016x}", fastrand::u64(1..))
}

/// Nanoseconds since 1970.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether anybody exports spans.
pub fn is_on() -> bool {
    EXPORTER.get().is_some()
}

/// Hands a span to the exporter, if there is one. Never waits.
pub fn record(make: impl FnOnce() -> Span) {
    if let Some(exporter) = EXPORTER.get()
        && exporter.try_send(make()).is_err()
    {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

/// From now on spans are recorded; `None` if somebody else takes them already.
pub fn take() -> Option<mpsc::Receiver<Span>> {
    let (send, receive) = mpsc::channel(WAITING);
    EXPORTER.set(send).ok().map(|()| receive)
}

/// How many spans were dropped since this was asked last.
pub fn dropped() -> u64 {
    DROPPED.swap(0, Ordering::Relaxed)
}

/// The body of an OTLP/HTTP request in JSON.
pub fn request(resource: &[(String, String)], spans: &[Span]) -> Value {
    let resource: Vec<Value> = resource.iter().map(|(key, value)| attribute(key, value)).collect();
    let spans: Vec<Value> = spans.iter().map(span).collect();
    let scope = json!({ "name": "ip-address-controller", "version": env!("CARGO_PKG_VERSION") });
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource },
        "scopeSpans": [{ "scope": scope, "spans": spans }],
    }] })
}

fn span(span: &Span) -> Value {
    let attributes: Vec<Value> = span.attributes.iter().map(|(key, value)| attribute(key, value)).collect();
    let mut value = json!({
        "traceId": span.context.trace,
        "spanId": span.id,
        "name": span.name,
        "kind": if span.is_server { 2 } else { 1 },
        "startTimeUnixNano": span.start.to_string(),
        "endTimeUnixNano": span.end.to_string(),
        "attributes": attributes,
        "status": match &span.error {
            None => json!({}),
            Some(message) => json!({ "code": 2, "message": message }),
        },
    });
    if let Some(parent) = &span.context.parent {
        value["parentSpanId"] = json!(parent);
    }
    value
}

fn attribute(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callers_trace_is_taken_up_if_it_is_well_formed() {
        let (trace, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let context = Context::of_caller(&format!("00-{trace}-{parent}-01")).unwrap();
        assert_eq!(context, Context { trace: trace.to_owned(), parent: Some(parent.to_owned()) });
        for bad in [
            String::new(),
            format!("00-{trace}-{parent}"),
            format!("01-{trace}-{parent}-01"),
            format!("00-{trace}-{parent}-01-more"),
            format!("00-{}-{parent}-01", trace.to_uppercase()),
            format!("00-{}-{parent}-01", "0".repeat(32)),
            format!("00-{trace}-0-01"),
        ] {
            assert_eq!(Context::of_caller(&bad), None, "{bad}");
        }
    }

    #[test]
    fn new_ids_are_of_the_right_length() {
        let context = Context::new();
        assert_eq!((context.trace.len(), span_id().len(), context.parent), (32, 16, None));
    }
}
