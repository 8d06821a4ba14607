//! Everything that reports are made from, read once.

use super::connect::{Cluster, explain};
use super::lease::Controller;
use super::published;
use crate::controller::Observer;
use anyhow::{Result, bail};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use plan::{Time, World};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::Duration;

/// How long the API server may take to list everything.
const PATIENCE: Duration = Duration::from_mins(1);

/// The world as the controller would see it, and the controller.
pub struct Snapshot {
    pub world: World,
    pub controller: Controller,
    pub now: Timestamp,
}

impl Snapshot {
    pub async fn take(cluster: &Cluster) -> Result<Self> {
        let (observer, controller) = tokio::join!(observer(cluster), Controller::ask(cluster));
        Ok(Self::of(std::mem::take(observer?.world()), controller))
    }

    /// What the API server tells, and what of the clouds' words is published in it.
    pub fn of(mut world: World, controller: Controller) -> Self {
        let now = Timestamp::now();
        world.own_node.clone_from(&controller.node);
        world.epoch = controller.epoch;
        published::believe(&mut world, now.into());
        Self { world, controller, now }
    }

    /// The planner's clock.
    pub fn time(&self) -> Time {
        self.now.into()
    }

    /// The allocations to speak of: all, or the one that is named.
    pub fn named(&self, name: Option<&str>) -> Result<Vec<&str>> {
        let names: Vec<&str> = self.world.allocations.keys().map(String::as_str).collect();
        match name {
            None => Ok(names),
            Some(name) if names.contains(&name) => Ok(names.into_iter().filter(|n| *n == name).collect()),
            Some(name) => bail!("there is no NetIPAllocation {name:?}; there are: {}", list(&names)),
        }
    }
}

/// Watches, with everything listed.
pub async fn observer(cluster: &Cluster) -> Result<Observer> {
    may_list_everything(&cluster.client).await?;
    let mut observer = Observer::start(&cluster.client, &cluster.controller_namespace)?;
    observer.complete(PATIENCE).await?;
    for trouble in observer.troubles() {
        eprintln!("warning: {trouble}");
    }
    Ok(observer)
}

/// Names in a row.
pub fn list(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Watches try for ever; who may not list should be told at once.
async fn may_list_everything(client: &Client) -> Result<()> {
    tokio::try_join!(
        may_list::<crds::NetIPAllocation>(client),
        may_list::<Node>(client),
        may_list::<Pod>(client),
        may_list::<DaemonSet>(client),
    )?;
    Ok(())
}

async fn may_list<K>(client: &Client) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = Api::all(client.clone());
    let one = ListParams::default().limit(1);
    let what = format!("{} cannot be listed", K::plural(&()));
    api.list_metadata(&one).await.map(drop).map_err(|error| explain(error, &what))
}
