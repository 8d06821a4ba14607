//! Whether the controller is alive.

use super::connect::{Cluster, explain};
use super::show::{Style, age};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde::Serialize;
use std::time::Duration;

/// What the Lease tells of the controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Controller {
    pub alive: bool,
    /// The Lease could not be read, so that nobody knows.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
    /// The replica that leads, or led last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The node that it runs on, where that can be known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Term of leadership.
    pub epoch: i64,
    /// What is wrong; empty, if nothing is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub problem: String,
}

impl Controller {
    pub async fn ask(cluster: &Cluster) -> Self {
        let place = format!("{}/{}", cluster.controller_namespace, cluster.lease);
        let api: Api<Lease> = Api::namespaced(cluster.client.clone(), &cluster.controller_namespace);
        let found = api.get_opt(&cluster.lease).await;
        let spec = match found {
            Ok(Some(lease)) => lease.spec.unwrap_or_default(),
            Ok(None) => return Self::dead(format!("there is no Lease {place}: it has never run")),
            Err(error) => {
                let problem = format!("{:#}", explain(error, &format!("Lease {place} cannot be read")));
                return Self { unknown: true, ..Self::dead(problem) };
            }
        };
        let mut controller = judge(&spec, &place, Timestamp::now());
        if !controller.alive && controller.holder.is_some() && renews(&api, &cluster.lease, &spec).await {
            // It is our clock that is wrong.
            controller.alive = true;
            controller.problem.clear();
        }
        controller.node = node_of(cluster, controller.holder.as_deref()).await;
        controller
    }

    /// The pod that leads, or led last: a replica is named after its pod.
    pub fn pod(&self) -> &str {
        pod_of(self.holder.as_deref().unwrap_or_default())
    }

    fn dead(problem: String) -> Self {
        Self { problem, ..Self::default() }
    }

    /// What has to be said before anything else; nothing, if it is alive.
    pub fn warning(&self, style: Style) -> String {
        if self.alive {
            return String::new();
        }
        let problem = &self.problem;
        let text = if self.unknown {
            style.warn(&format!("Nobody can tell whether the controller is alive: {problem}."))
        } else {
            let rest = "What follows is what it knew last; nothing is done about it.";
            style.bad(&format!("THE CONTROLLER IS NOT ALIVE: {problem}. {rest}"))
        };
        format!("{text}\n")
    }
}

/// By our own clock.
fn judge(spec: &LeaseSpec, place: &str, now: Timestamp) -> Controller {
    let holder = spec.holder_identity.clone().filter(|holder| !holder.is_empty());
    let epoch = i64::from(spec.lease_transitions.unwrap_or_default());
    let Some(holder) = holder else {
        let problem = format!("Lease {place} was released, and nobody has taken it");
        return Controller { epoch, problem, ..Controller::default() };
    };
    let renewed = spec.renew_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let problem = if now.duration_since(renewed) > SignedDuration::from_secs(i64::from(seconds(spec))) {
        format!("{} renewed Lease {place} {} ago for the last time", pod_of(&holder), age(renewed, now))
    } else {
        String::new()
    };
    Controller { alive: problem.is_empty(), holder: Some(holder), epoch, problem, ..Controller::default() }
}

fn seconds(spec: &LeaseSpec) -> i32 {
    spec.lease_duration_seconds.unwrap_or(15)
}

/// Whether the lease changes while one looks at it: clocks of two machines need not agree. A leader renews
/// it every 2/15 of its duration.
async fn renews(api: &Api<Lease>, name: &str, before: &LeaseSpec) -> bool {
    let pause = Duration::from_secs(u64::try_from(seconds(before)).unwrap_or(15)) * 5 / 15;
    tokio::time::sleep(pause).await;
    let after = api.get_opt(name).await.ok().flatten().and_then(|lease| lease.spec);
    after.is_some_and(|after| after.renew_time != before.renew_time)
}

fn pod_of(holder: &str) -> &str {
    holder.rsplit_once('_').map_or(holder, |(pod, _)| pod)
}

async fn node_of(cluster: &Cluster, holder: Option<&str>) -> Option<String> {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.controller_namespace);
    api.get_opt(pod_of(holder?)).await.ok()??.spec?.node_name
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    fn lease(holder: &str) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            renew_time: Some(MicroTime("2026-11-15T12:00:00Z".parse().unwrap())),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn a_lease_that_is_not_renewed_is_told() {
        let judge = |holder, now: &str| judge(&lease(holder), "ns/lease", now.parse().unwrap());
        assert!(judge("pod_1", "2026-11-15T12:00:15Z").alive);
        let dead = judge("pod_1", "2026-11-15T12:10:00Z");
        assert_eq!(dead.problem, "pod renewed Lease ns/lease 10m ago for the last time");
        assert!(dead.warning(Style::default()).starts_with("THE CONTROLLER IS NOT ALIVE: pod renewed"));
        let unknown = Controller { unknown: true, ..dead };
        assert!(
            unknown.warning(Style::default()).starts_with("Nobody can tell whether the controller is alive")
        );
        let released = judge("", "2026-11-15T12:00:01Z");
        assert_eq!(released.problem, "Lease ns/lease was released, and nobody has taken it");
    }
}
