//! Requests and replies, free of any cloud.

use serde_json::Value;
use std::collections::HashMap;

/// A request that has arrived whole.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    /// Its method.
    pub method: String,
    /// Its path, percent-decoded, without what named the caller.
    pub path: String,
    /// Its query.
    pub query: Vec<(String, String)>,
    /// Its headers, names in lower case.
    pub headers: HashMap<String, String>,
    /// Its body.
    pub body: Vec<u8>,
    /// What the caller put before the path: scheme, host and the name of the caller.
    pub base_url: String,
    /// The name of the caller in the path: `/as/NAME/…`.
    pub named: Option<String>,
}

impl HttpRequest {
    /// The first value of a query parameter.
    pub fn param(&self, name: &str) -> Option<&str> {
        let mut found = self.query.iter().filter(|(key, _)| key == name);
        found.next().map(|(_, value)| value.as_str())
    }

    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The path's segments, without empty ones at its ends.
    pub fn segments(&self) -> Vec<&str> {
        self.path.trim_matches('/').split('/').collect()
    }

    /// The caller by its bearer token; long tokens are cut.
    pub fn bearer(&self) -> Option<String> {
        let token = self.header("authorization")?.strip_prefix("Bearer ")?;
        Some(token.chars().take(64).collect())
    }
}

/// A reply to be sent.
#[derive(Clone, Debug)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Headers besides content type and length.
    pub headers: Vec<(&'static str, String)>,
    /// Content type.
    pub content_type: &'static str,
    /// The body.
    pub body: String,
}

impl Reply {
    /// A reply in JSON.
    pub fn json(status: u16, body: &Value) -> Self {
        Self {
            status,
            headers: Vec::new(),
            content_type: "application/json; charset=utf-8",
            body: body.to_string(),
        }
    }

    /// The same reply with one more header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// An error of a cloud's API, before it is written in the cloud's way.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    /// HTTP status.
    pub status: u16,
    /// The vendor's code.
    pub code: String,
    /// The vendor's words.
    pub message: String,
    /// Headers that go with it.
    pub headers: Vec<(&'static str, String)>,
    /// Further parts of the body.
    pub details: Option<Value>,
}

impl ApiError {
    /// An error with nothing special about it.
    pub fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self { status, code: code.to_owned(), message: message.into(), headers: Vec::new(), details: None }
    }

    /// The same error with one more header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}
