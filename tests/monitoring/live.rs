//! A real Prometheus scrapes the real processes while things go wrong: alerts are seen to fire, every series
//! that a rule asks for exists, and no panel of the dashboard stays empty.

use crate::processes::{self, Running};
use crate::prometheus::Prometheus;
use crate::rules::{self, text};
use crate::scene::Scene;
use crate::selectors;
use crate::stage::Stage;
use anyhow::{Context as _, Result, ensure};
use cloud::Cloud;
use cluster::eventually;
use serde_json::{Value, json};
use sim::{Fault, On, Rule};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Alerts that nothing here brings about, and why; promtool has seen them fire.
const NOT_SEEN: [(&str, &str); 11] = [
    ("CertificateExpiring", "takes 25 days"),
    ("CertificateFailures", "takes rights away from the webhook: tests/certs does that"),
    ("Conflict", "needs a race of two webhooks, or none"),
    ("ControllerNotReady", "lasts for a moment at the start"),
    ("EvictionStopped", "tests/controller brings it about, in a minute"),
    ("KubernetesWriteFailures", "takes rights away from the controller"),
    ("LeaderFlapping", "takes six changes of leader"),
    ("MultipleLeaders", "must not be"),
    ("ReconcileLatencySLOBreach", "takes an audit of ten seconds"),
    ("SlowReconciliation", "takes an audit of ten seconds"),
    ("WebhookSlow", "takes a webhook that is starved"),
];

/// What is looked at.
struct Show<'s> {
    stage: &'s Stage,
    prometheus: Prometheus,
    controllers: [Running; 2],
    webhook: Running,
    webhook_port: u16,
}

pub async fn alerts_fire_and_panels_fill_when_things_go_wrong() -> Result<()> {
    let stage = Stage::with(Some(Cloud::Gcp)).await?;
    let show = Show::begin(&stage).await?;
    let calm = show.calm().await?;
    show.a_drain_that_waits().await?;
    show.no_node().await?;
    show.a_storm().await?;
    show.a_cloud_that_errs(&calm).await?;
    show.a_webhook_that_is_bothered().await?;
    show.everything_can_be_asked_for().await?;
    show.processes_that_die().await?;
    show.every_alert_was_seen().await
}

impl<'s> Show<'s> {
    async fn begin(stage: &'s Stage) -> Result<Self> {
        let (webhook, webhook_port) = processes::webhook(stage, &[]).await?;
        let first = processes::controller(stage, "first", &[])?;
        let second = processes::controller(stage, "second", &[])?;
        let targets = [("first", first.metrics), ("second", second.metrics), ("webhook", webhook.metrics)];
        let prometheus = Prometheus::start(&stage.cluster, &at_once(rules::rules()?), &targets).await?;
        Ok(Self { stage, prometheus, controllers: [first, second], webhook, webhook_port })
    }

    /// Waits until alerts fire, or have for a moment since this was asked.
    async fn seen(&self, names: &[&str]) -> Result<()> {
        let asked = Instant::now();
        for name in names {
            eventually(&format!("the alert {name} to fire"), async || {
                let since = asked.elapsed().as_secs() + 2;
                let alert = format!("ALERTS{{alertname=\"NetIPAllocation{name}\",alertstate=\"firing\"}}");
                let fired = self.prometheus.query(&format!("last_over_time({alert}[{since}s])")).await?;
                ensure!(!fired.is_empty(), "these do: {:?}", names_of(&self.prometheus.firing().await?));
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// When all is well no alert fires that anybody would get up for.
    async fn calm(&self) -> Result<Scene<'s>> {
        let scene = self.stage.scene("calm", 3, 2).await?;
        scene.allocate(json!({})).await?;
        scene.settled().await?;
        eventually("Prometheus to see both addresses, and no alert", async || {
            let attached = self.prometheus.query("sum(netipallocation_attached_ips_total)").await?;
            ensure!(attached.first().is_some_and(|sample| sample["value"][1] == "2"), "{attached:?}");
            let firing = self.prometheus.firing().await?;
            let waking: Vec<&Value> =
                firing.iter().filter(|alert| alert["labels"]["severity"] != "info").collect();
            ensure!(waking.is_empty(), "{waking:?}");
            Ok(())
        })
        .await?;
        Ok(scene)
    }

    async fn a_drain_that_waits(&self) -> Result<()> {
        let scene = self.stage.scene("drain", 2, 1).await?;
        scene.allocate(scene.workload_ref("Deployment")).await?;
        let home = scene.settled().await?[0];
        scene.workload("Deployment", 1, false, 0).await?;
        scene.pods_ready(1).await?;
        scene.cordon(home).await?;
        self.seen(&["NodeCordonedWithIP"]).await?;
        scene.drain(home).await?;
        scene.leaves(0, home).await?;
        self.seen(&["IPReallocated"]).await
    }

    /// An address of a pool without nodes, and one that the cloud does not have.
    async fn no_node(&self) -> Result<()> {
        let scene = self.stage.scene("nowhere", 0, 1).await?;
        scene.allocate(json!({})).await?;
        self.seen(&["UnattachedIPsWarning", "UnattachedIPsCritical", "AvailabilitySLOBreach"]).await?;
        scene.delete_allocation().await?;
        let scene = self.stage.scene("missing", 1, 0).await?;
        scene.allocate(json!({ "reservedIPs": ["203.0.113.99"] })).await?;
        self.seen(&["AddressUnusable"]).await?;
        scene.delete_allocation().await
    }

    async fn a_storm(&self) -> Result<()> {
        let scene = self.stage.scene("storm", 4, 1).await?;
        // Long enough for all three to fall before the first is given up.
        let failover = json!({ "stormThresholdPercent": 55, "notReadyGraceSeconds": 15 });
        scene.allocate(json!({ "failover": failover })).await?;
        let home = scene.settled().await?[0];
        let others = (1..=4).filter(|node| *node != home).take(2);
        for node in others.chain([home]) {
            self.stage.cluster.nodes().mark_not_ready(&scene.node_name(node)).await?;
        }
        self.seen(&["StormGuard"]).await?;
        for node in 1..=4 {
            self.stage.cluster.nodes().revive(&scene.node_name(node)).await?;
        }
        scene.settled().await?;
        Ok(())
    }

    async fn a_cloud_that_errs(&self, calm: &Scene<'_>) -> Result<()> {
        let sim = self.stage.cloud.simulator();
        let refuse = || Fault::Error { code: "backendError".to_owned(), message: None, status: None };
        let on = |action: &str| On::action(sim::Cloud::Gcp, action);
        sim.fault(Rule::always(On { mutating: Some(false), ..On::default() }, refuse()));
        self.seen(&["CloudStateUnknown", "CRDUnhealthy", "GCPAPIErrors", "CloudAPIErrors"]).await?;
        self.seen(&["HighReconcileErrorRate"]).await?;
        sim.clear_faults();
        let home = calm.settled().await?[0];
        sim.fault(Rule::always(on("instances.deleteAccessConfig"), refuse()));
        calm.cordon(home).await?;
        self.seen(&["IPDetachFailures"]).await?;
        sim.clear_faults();
        sim.fault(Rule::always(on("instances.addAccessConfig"), refuse()));
        self.seen(&["IPAttachFailures", "MoveStuck"]).await?;
        sim.clear_faults();
        calm.settled().await?;
        sim.fault(Rule::always(On::default(), Fault::Throttle { seconds: None }));
        self.seen(&["CloudBudgetLow"]).await?;
        sim.clear_faults();
        sim.fault(Rule::always(On::default(), Fault::Withhold { permission: "*".to_owned() }));
        self.seen(&["CloudAccessDenied"]).await?;
        sim.clear_faults();
        calm.settled().await?;
        Ok(())
    }

    async fn a_webhook_that_is_bothered(&self) -> Result<()> {
        let url = format!("https://127.0.0.1:{}/mutate-pods", self.webhook_port);
        let distrustful = reqwest::Client::new().get(&url).send().await;
        ensure!(distrustful.is_err(), "it trusts a certificate that nobody told it of");
        self.seen(&["CertificateUntrusted"]).await?;
        let careless = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).build()?;
        for _ in 0..100 {
            let request = careless.post(&url).header("Content-Type", "application/json").body("{}");
            ensure!(request.send().await?.status() == 400, "that is no review");
        }
        self.seen(&["WebhookErrors"]).await
    }

    /// Every expression is understood, every series exists that it asks for, and no panel is empty.
    async fn everything_can_be_asked_for(&self) -> Result<()> {
        for rule in self.prometheus.rules().await? {
            ensure!(rule["health"] == "ok", "{}: {}", rule["name"], rule["lastError"]);
        }
        let mut missing = BTreeSet::new();
        for rule in rules::alerts()? {
            for selector in selectors::of(&text(&rule["expr"])) {
                // Reasons come from a closed list, against which they are checked elsewhere.
                let kept = selector.matchers.iter().filter(|(label, _)| label != "reason");
                let kept: Vec<String> = kept.map(|(label, value)| format!("{label}=~\"{value}\"")).collect();
                let asked = format!("{}{{{}}}", selector.name, kept.join(","));
                if !self.prometheus.was_ever(&asked).await? {
                    missing.insert(format!("{}: {asked}", text(&rule["alert"])));
                }
            }
        }
        ensure!(missing.is_empty(), "series that do not exist: {missing:#?}");
        for (title, expression) in rules::panels()? {
            let Some(expression) = expression else { continue };
            let asked = expression.replace("$cluster", "test").replace("$__rate_interval", "15s");
            ensure!(!asked.contains('$'), "{title}: a variable that nobody sets: {asked}");
            if !self.prometheus.was_ever(&asked).await? {
                missing.insert(format!("{title}: {expression}"));
            }
        }
        ensure!(missing.is_empty(), "panels that stay empty: {missing:#?}");
        Ok(())
    }

    async fn processes_that_die(&self) -> Result<()> {
        let leader = eventually("a leader", async || {
            let leaders = self.prometheus.query("netipallocation_controller_is_leader == 1").await?;
            let pod = leaders.first().map(|leader| text(&leader["metric"]["pod"])).context("none")?;
            Ok(usize::from(pod == "second"))
        })
        .await?;
        self.controllers[leader].process.kill().await?;
        self.seen(&["NoLeader", "LeaderChanged"]).await?;
        self.controllers[1 - leader].process.kill().await?;
        self.webhook.process.kill().await?;
        self.seen(&["ControllerDown", "WebhookDown"]).await
    }

    async fn every_alert_was_seen(&self) -> Result<()> {
        let seen = self.prometheus.query("last_over_time(ALERTS{alertstate=\"firing\"}[1h])").await?;
        let seen: BTreeSet<String> = seen.iter().map(|series| text(&series["metric"]["alertname"])).collect();
        let excused: BTreeMap<String, &str> =
            NOT_SEEN.iter().map(|(name, why)| (format!("NetIPAllocation{name}"), *why)).collect();
        for rule in rules::alerts()? {
            let name = text(&rule["alert"]);
            ensure!(
                seen.contains(&name) || excused.contains_key(&name),
                "{name} was not seen to fire, and nobody says why"
            );
        }
        Ok(())
    }
}

fn names_of(alerts: &[Value]) -> BTreeSet<String> {
    alerts.iter().map(|alert| text(&alert["labels"]["alertname"])).collect()
}

/// The rules without their patience.
fn at_once(mut rules: Value) -> Value {
    let groups = rules["groups"].as_array_mut().into_iter().flatten();
    for rule in groups.flat_map(|group| group["rules"].as_array_mut().into_iter().flatten()) {
        rule.as_object_mut().expect("an object").remove("for");
    }
    rules
}
