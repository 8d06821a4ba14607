//! The controller on a real control plane, with real workloads on simulated nodes.
#![allow(clippy::panic, clippy::expect_used)]

mod attach;
mod memory;
mod stage;

use anyhow::{Result, anyhow};
use cluster::harness::Test;
use stage::{Replica, Stage};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

/// The stage that most tests share, with one controller on it.
#[derive(Default)]
pub struct Shared(OnceCell<Result<(Stage, Replica), String>>);

impl Shared {
    pub async fn stage(&self) -> Result<&Stage> {
        let started = self
            .0
            .get_or_init(async || {
                let start = async {
                    let stage = Stage::empty().await?;
                    let replica = stage.replica("controller", None, Duration::from_secs(15))?;
                    Ok::<_, anyhow::Error>((stage, replica))
                };
                start.await.map_err(|error| format!("{error:#}"))
            })
            .await;
        started.as_ref().map(|(stage, _)| stage).map_err(|error| anyhow!("{error}"))
    }
}

macro_rules! on_shared_stage {
    ($shared:ident, $($path:path),* $(,)?) => {
        vec![$({
            let shared = $shared.clone();
            Test::new(stringify!($path), move |_| async move { $path(shared.stage().await?).await })
        }),*]
    };
}

fn main() -> ExitCode {
    let shared = Arc::new(Shared::default());
    let all = on_shared_stage![
        shared,
        attach::an_address_is_attached_and_its_pods_follow,
        attach::what_is_attached_already_is_adopted_without_a_move,
        attach::more_addresses_than_nodes_is_no_error,
    ];
    cluster::harness::run(all)
}
