//! `ip-address-controller certs rotate`: another CA, now.

use crate::certs_status::{Place, settings_of};
use anyhow::Result;
use certs::rotate;
use clap::Args;
use kube::Api;

/// Whose CA.
#[derive(Args, Clone, Debug)]
pub struct Rotate {
    #[command(flatten)]
    place: Place,
}

impl Rotate {
    /// Stages the next CA, and says what will happen.
    pub fn run(&self) -> Result<String> {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(self.ask())
    }

    async fn ask(&self) -> Result<String> {
        let Place { namespace, secret, context } = &self.place;
        let client = crate::process::client(context.as_deref()).await?;
        let (staged, is_new) = rotate(&Api::namespaced(client, namespace), secret, settings_of).await?;
        let how = if is_new { "staged" } else { "was staged already" };
        Ok(format!(
            "next CA {how}: serial {}\n\
             The webhook's replicas publish it now, and serve a certificate of it a minute later.\n\
             The old CA stays trusted until the last certificate that it signed has expired.\n",
            staged.serial
        ))
    }
}
