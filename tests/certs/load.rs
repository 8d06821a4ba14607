//! Fifty writes a second, each of them counted.

use crate::scene::Scene;
use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, PostParams};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// Not more at once than a rate of 50 a second needs.
const AT_ONCE: usize = 32;

#[derive(Default)]
struct Count {
    done: usize,
    failed: Vec<String>,
}

pub struct Load {
    count: Arc<Mutex<Count>>,
    stop: CancellationToken,
    writing: JoinHandle<()>,
    started: Instant,
}

impl Load {
    pub fn start(scene: &Scene) -> Self {
        let (count, stop) = (Arc::new(Mutex::new(Count::default())), CancellationToken::new());
        let api = Api::namespaced(scene.admin.clone(), &scene.name);
        let writing = tokio::spawn(write(api, Arc::clone(&count), stop.clone()));
        Self { count, stop, writing, started: Instant::now() }
    }

    pub fn done(&self) -> usize {
        self.count.lock().unwrap().done
    }

    /// Waits for what is under way. Not one write may have failed.
    pub async fn end(self) -> Result<usize> {
        self.stop.cancel();
        self.writing.await?;
        let count = self.count.lock().unwrap();
        let (done, failed, seconds) = (count.done, count.failed.len(), self.started.elapsed().as_secs());
        println!("    {done} writes in {seconds} s, {failed} failed");
        ensure!(count.failed.is_empty(), "{failed} of {done} writes failed: {:#?}", count.failed);
        ensure!(done > 0, "nothing was written");
        Ok(done)
    }
}

async fn write(api: Api<ConfigMap>, count: Arc<Mutex<Count>>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    // A machine that stalls gets fewer writes, not all of them at once afterwards.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut under_way = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            _ = ticks.tick(), if under_way.len() < AT_ONCE => {
                let (api, count) = (api.clone(), Arc::clone(&count));
                under_way.spawn(async move {
                    let metadata = ObjectMeta { generate_name: Some("load-".to_owned()), ..ObjectMeta::default() };
                    let object = ConfigMap { metadata, ..ConfigMap::default() };
                    let written = api.create(&PostParams::default(), &object).await;
                    let mut count = count.lock().unwrap();
                    match written {
                        Ok(_) => count.done += 1,
                        Err(error) => count.failed.push(error.to_string()),
                    }
                });
            }
            Some(_) = under_way.join_next() => {}
        }
    }
    while under_way.join_next().await.is_some() {}
}
