//! A CA that is replaced because somebody wants it so: a key may have leaked, or a drill is due.

use crate::contents::Contents;
use crate::decide::Step;
use crate::issue::carry_out;
use crate::material::{Certificate, Unusable};
use crate::settings::Settings;
use crate::store::{CallError, call, write};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

/// Replicas write, too; whoever loses reads again.
const ATTEMPTS: usize = 5;

/// Why no other CA could be staged.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// Nothing to replace.
    #[error(
        "there is no Secret {0} with a CA of our own: either the webhook has not run yet, or somebody else makes its certificates (cert-manager), and then the CA is replaced there"
    )]
    NoAuthority(String),
    /// The API server said no.
    #[error("the Secret cannot be read or written: {0}")]
    Call(String),
    /// The new one could not be made.
    #[error("no CA could be made: {0}")]
    Issue(#[from] Unusable),
    /// Somebody else was faster each time.
    #[error("somebody else keeps writing the Secret; try again")]
    Busy,
}

impl From<CallError> for RotateError {
    fn from(error: CallError) -> Self {
        Self::Call(error.to_string())
    }
}

/// Stages another CA; the webhook's replicas publish it, and let it sign when it has been trusted for the
/// margin. One that is staged already stays. Gives the staged one, and whether it is new.
pub async fn rotate(
    api: &Api<Secret>,
    name: &str,
    settings: impl Fn(&Contents) -> Settings,
) -> Result<(Certificate, bool), RotateError> {
    for _ in 0..ATTEMPTS {
        let secret = call(api.get_opt(name)).await?;
        let data = secret.as_ref().and_then(|secret| secret.data.as_ref());
        let (contents, _) = data.map(Contents::read).unwrap_or_default();
        if contents.current.is_none() {
            return Err(RotateError::NoAuthority(name.to_owned()));
        }
        if let Some(staged) = contents.next {
            return Ok((staged.certificate, false));
        }
        let next = carry_out(Step::StageCa, &contents, &[], Timestamp::now(), &settings(&contents))?;
        if let Some(staged) = &next.next
            && write(api, name, secret.as_ref(), &next).await?.is_some()
        {
            return Ok((staged.certificate.clone(), true));
        }
    }
    Err(RotateError::Busy)
}
