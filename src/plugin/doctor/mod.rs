//! `doctor`: checks the installation and what allocations refer to; each finding says what to do.

mod admission;
mod autoscaler;
mod definition;
mod nodes;
mod roles;
mod workloads;

use super::connect::Cluster;
use super::lease::Controller;
use super::show::{Show, Style};
use super::snapshot::Snapshot;
use serde::Serialize;

/// Everything that was found.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Report(Vec<Finding>);

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    check: &'static str,
    level: Level,
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    what_to_do: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Level {
    Fine,
    Warning,
    Wrong,
}

/// A finding before it is known which check it is of: how bad, what, and what to do.
pub type Found = (Level, String, String);

impl Report {
    /// What a check found; if nothing, that it is fine.
    fn add(&mut self, check: &'static str, fine: &str, found: Vec<Found>) {
        if found.is_empty() {
            let message = fine.to_owned();
            self.0.push(Finding { check, level: Level::Fine, message, what_to_do: String::new() });
        }
        self.0.extend(found.into_iter().map(|(level, message, what_to_do)| Finding {
            check,
            level,
            message,
            what_to_do,
        }));
    }

    pub fn anything_wrong(&self) -> bool {
        self.0.iter().any(|finding| finding.level == Level::Wrong)
    }
}

pub async fn examine(cluster: &Cluster) -> Report {
    let mut report = Report(Vec::new());
    report.add(
        "crd",
        "NetIPAllocations are served, in the form of this version",
        definition::check(cluster).await,
    );
    report.add("webhooks", "registered, with the right failure policies", admission::webhooks(cluster).await);
    report.add(
        "certificates",
        "valid, and trusted by the API server",
        admission::certificates(cluster).await,
    );
    report.add("roles", "both service accounts may do all that they have to", roles::check(cluster).await);
    let controller = Controller::ask(cluster).await;
    let leads = format!("{} leads", controller.pod());
    report.add("controller", &leads, lease(&controller));
    match Snapshot::take(cluster).await {
        Ok(snapshot) => look_around(&mut report, cluster, &snapshot).await,
        Err(error) => report.add("cluster", "", vec![cannot_tell(&format!("{error:#}"))]),
    }
    report
}

/// What allocations refer to.
async fn look_around(report: &mut Report, cluster: &Cluster, snapshot: &Snapshot) {
    report.add("nodes", "every allocation has nodes of its cloud", nodes::check(snapshot));
    let workloads = workloads::read(cluster, &snapshot.world).await;
    report.add("workloads", "all there, with no more replicas than addresses", workloads::check(&workloads));
    report.add(
        "budgets",
        "no PodDisruptionBudget makes a drain hang",
        workloads::budgets(cluster, &workloads).await,
    );
    let found = autoscaler::check(cluster, &snapshot.world, &workloads).await;
    report.add("autoscaler", "none is seen, or it knows what not to touch", found);
}

fn lease(controller: &Controller) -> Vec<Found> {
    if controller.alive {
        return Vec::new();
    }
    if controller.unknown {
        return vec![cannot_tell(&controller.problem)];
    }
    let what_to_do = "look at the controller's pods and logs: kubectl -n ip-address-controller get pods; or give \
                      --controller-namespace and --lease";
    vec![(Level::Wrong, controller.problem.clone(), what_to_do.to_owned())]
}

/// For what could not be read.
fn cannot_tell(error: &str) -> Found {
    let what_to_do = "run doctor as somebody who may read that".to_owned();
    (Level::Wrong, error.to_owned(), what_to_do)
}

impl Show for Report {
    fn text(&self, style: Style) -> String {
        self.0.iter().map(|finding| finding.lines(style)).collect()
    }
}

impl Finding {
    fn lines(&self, style: Style) -> String {
        let word = match self.level {
            Level::Fine => style.good("fine   "),
            Level::Warning => style.warn("WARNING"),
            Level::Wrong => style.bad("WRONG  "),
        };
        let line = format!("{word}  {:<12}  {}\n", self.check, self.message);
        if self.what_to_do.is_empty() {
            line
        } else {
            format!("{line}         {:<12}  → {}\n", "", self.what_to_do)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_say_what_to_do_and_only_wrong_ones_are_wrong() {
        let mut report = Report(Vec::new());
        report.add("crd", "served", Vec::new());
        report.add("nodes", "", vec![(Level::Warning, "n1 is odd".to_owned(), "look".to_owned())]);
        assert!(!report.anything_wrong());
        report.add("roles", "", vec![(Level::Wrong, "none".to_owned(), "apply".to_owned())]);
        assert!(report.anything_wrong());
        let expected = "\
fine     crd           served
WARNING  nodes         n1 is odd
                       → look
WRONG    roles         none
                       → apply
";
        assert_eq!(report.text(Style::default()), expected);
    }
}
