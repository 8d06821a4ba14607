//! The Secret's reading and writing.

use crate::contents::Contents;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ObjectMeta, PostParams};
use std::collections::BTreeMap;
use std::time::Duration;

/// kube has no timeout of its own for an answer.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a call did not work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("no answer within {} s", CALL_TIMEOUT.as_secs())]
    Timeout,
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// An answer in time.
pub(crate) async fn call<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, CallError> {
    Ok(tokio::time::timeout(CALL_TIMEOUT, request).await.map_err(|_| CallError::Timeout)??)
}

/// Writes the contents over what was read. `Ok(None)`: somebody else was faster.
pub(crate) async fn write(
    api: &Api<Secret>,
    name: &str,
    read: Option<&Secret>,
    contents: &Contents,
) -> Result<Option<Secret>, CallError> {
    let params = PostParams { field_manager: Some(crate::FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let data = Some(contents.data());
    let written = if let Some(read) = read {
        // The resource version that was read goes along: if it is not the newest, nothing is written.
        let secret = Secret { data, string_data: None, ..read.clone() };
        call(api.replace(name, &params, &secret)).await
    } else {
        let labels = [("app.kubernetes.io/name".to_owned(), "ip-address-controller".to_owned())];
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from(labels)),
            ..ObjectMeta::default()
        };
        call(api.create(&params, &Secret { metadata, data, ..Secret::default() })).await
    };
    match written {
        Ok(secret) => Ok(Some(secret)),
        // 409: made or changed by somebody else. 404: gone since it was read.
        Err(CallError::Api(kube::Error::Api(status))) if [404, 409].contains(&status.code) => Ok(None),
        Err(error) => Err(error),
    }
}
