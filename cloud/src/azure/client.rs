//! Requests to the Resource Manager: one at a time, with a token, answered whole.

use super::errors;
use crate::settings::on_loopback;
use crate::{AzureSettings, Class, Error};
use azure_core::credentials::TokenCredential;
use azure_core::http::headers::HeaderName;
use azure_core::http::{
    ClientOptions, Context, Method, Pipeline, PipelineSendOptions, Request, RetryOptions, Url,
};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const PUBLIC_ENDPOINT: &str = "https://management.azure.com";
const USER_AGENT: &str = "ip-address-controller";

/// The Resource Manager of an endpoint.
#[derive(Debug)]
pub struct Arm {
    endpoint: String,
    anonymous: bool,
    pipeline: Pipeline,
    credential: OnceLock<Arc<dyn TokenCredential>>,
}

/// A reply that went well.
#[derive(Debug)]
pub struct Answer {
    pub body: String,
    /// Where the operation can be asked for that the request started.
    pub operation: Option<String>,
    pub retry_after: Option<Duration>,
    pub request_id: Option<String>,
}

/// A request.
#[derive(Debug)]
pub struct Put<'a> {
    pub body: String,
    pub if_match: &'a str,
}

impl Arm {
    /// Opens an endpoint. Retries are the caller's: one that nobody decided on would not be fenced.
    pub fn new(settings: &AzureSettings) -> Self {
        let endpoint = settings.endpoint.as_deref().unwrap_or(PUBLIC_ENDPOINT);
        let options = ClientOptions { retry: RetryOptions::none(), ..ClientOptions::default() };
        let version = Some(env!("CARGO_PKG_VERSION"));
        Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            anonymous: settings.anonymous,
            pipeline: Pipeline::new(Some(USER_AGENT), version, options, Vec::new(), Vec::new(), None),
            credential: OnceLock::new(),
        }
    }

    /// The URL of a path of the API.
    pub fn url(&self, path: &str, api_version: &str) -> String {
        let separator = if path.contains('?') { '&' } else { '?' };
        format!("{}{path}{separator}api-version={api_version}", self.endpoint)
    }

    /// Reads what is at a URL.
    pub async fn get(&self, url: &str) -> Result<Answer, Error> {
        self.send(url, Method::Get, None).await?.map_err(|refused| refused.error)
    }

    /// The same; none if there is nothing.
    pub async fn find(&self, url: &str) -> Result<Option<Answer>, Error> {
        match self.send(url, Method::Get, None).await? {
            Ok(answer) => Ok(Some(answer)),
            Err(Refused { status: 404, .. }) => Ok(None),
            Err(refused) => Err(refused.error),
        }
    }

    /// Writes what is at a URL, if it is still what was read.
    pub async fn put(&self, url: &str, put: Put<'_>) -> Result<Answer, Error> {
        self.send(url, Method::Put, Some(put)).await?.map_err(|refused| refused.error)
    }

    /// Whether a link of a reply leads to the same place: nobody else gets our token.
    pub fn is_ours(&self, url: &str) -> bool {
        let behind = url.strip_prefix(&self.endpoint);
        behind.is_some_and(|rest| rest.starts_with('/'))
    }

    async fn send(
        &self,
        url: &str,
        method: Method,
        put: Option<Put<'_>>,
    ) -> Result<Result<Answer, Refused>, Error> {
        if !self.is_ours(url) {
            let message =
                format!("a link of the cloud's leads elsewhere than to {}; not followed", self.endpoint);
            return Err(Error::new(Class::Permanent, message));
        }
        let parsed =
            Url::parse(url).map_err(|error| Error::new(Class::Permanent, format!("{url}: {error}")))?;
        let mut request = Request::new(parsed, method);
        request.insert_header("accept", "application/json");
        if let Some(token) = self.token().await? {
            request.insert_header("authorization", format!("Bearer {token}"));
        }
        if let Some(put) = put {
            request.insert_header("content-type", "application/json");
            request.insert_header("if-match", put.if_match.to_owned());
            request.set_body(put.body);
        }
        let unchecked = PipelineSendOptions { skip_checks: true, ..PipelineSendOptions::default() };
        let reply = self.pipeline.send(&Context::new(), &mut request, Some(unchecked)).await;
        Ok(answer(reply.map_err(|error| errors::of_transport(&error))?))
    }

    /// A token for this endpoint. The credential keeps it until it is about to expire, then reads the files
    /// that it comes from again.
    async fn token(&self) -> Result<Option<String>, Error> {
        if self.anonymous {
            return Ok(None);
        }
        let credential = if let Some(credential) = self.credential.get() {
            credential
        } else {
            let made = super::credentials::credential()?;
            self.credential.get_or_init(|| made)
        };
        // A simulator has no audience of its own.
        let audience = if on_loopback(&self.endpoint) { PUBLIC_ENDPOINT } else { &self.endpoint };
        let scope = format!("{audience}/.default");
        let token = credential
            .get_token(&[&scope], None)
            .await
            .map_err(|error| super::credentials::refused(&error))?;
        Ok(Some(token.token.secret().to_owned()))
    }
}

/// A reply that is no success.
#[derive(Debug)]
struct Refused {
    status: u16,
    error: Error,
}

fn answer(reply: azure_core::http::RawResponse) -> Result<Answer, Refused> {
    let (status, headers, body) = reply.deconstruct();
    let header = |name: &'static str| headers.get_optional_string(&HeaderName::from_static(name));
    let retry_after = header("retry-after").and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
    let request_id = header("x-ms-request-id").or_else(|| header("x-ms-correlation-request-id"));
    let body = body.into_string().unwrap_or_default();
    let status = u16::from(status);
    if !(200..300).contains(&status) {
        let error = errors::of_reply(status, &body);
        return Err(Refused { status, error: Error { retry_after, request_id, ..error } });
    }
    Ok(Answer { body, operation: header("azure-asyncoperation"), retry_after, request_id })
}
