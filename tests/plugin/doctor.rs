//! What `doctor` finds where something is wrong.

use crate::stage::{Stage, is_in_the_docs, netip};
use anyhow::{Result, ensure};
use cluster::{Cluster, NodeSpec, Provider, eventually};
use playground::NAMESPACE;

const FAULTY: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: { name: sip, namespace: default }
spec:
  replicas: 3
  selector: { matchLabels: { app: sip } }
  template:
    metadata: { labels: { app: sip } }
    spec:
      nodeSelector: { ip.ready: "true" }
      containers: [{ name: sip, image: registry.example/sip }]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: { name: strict, namespace: default }
spec:
  maxUnavailable: 0
  selector: { matchLabels: { app: sip } }
---
apiVersion: v1
kind: ConfigMap
metadata: { name: cluster-autoscaler-status, namespace: kube-system }
---
apiVersion: netinfra.darkbrains.com/v1alpha1
kind: NetIPAllocation
metadata: { name: voice }
spec:
  reservedIPs: ["203.0.113.10", "203.0.113.11"]
  nodeSelector: { pool: voice }
  workloadRef: { kind: Deployment, name: sip, namespace: default }
  cloud: { provider: gcp }
---
apiVersion: netinfra.darkbrains.com/v1alpha1
kind: NetIPAllocation
metadata: { name: mail }
spec:
  reservedIPs: ["203.0.113.20"]
  nodeSelector: { pool: nobody }
  workloadRef: { kind: StatefulSet, name: postfix }
  cloud: { provider: gcp }
"#;

/// A cluster in which nearly everything is wrong.
async fn faulty() -> Result<Stage> {
    let stage = Stage::new().await?;
    let root = env!("CARGO_MANIFEST_DIR");
    stage.add_node("voice-1", 0, &[("pool", "voice")]).await?;
    stage
        .cluster
        .nodes()
        .create(NodeSpec::new(Provider::Gcp, "voice-2", 1).label("pool", "voice").provider_id(""))
        .await?;
    stage.apply(FAULTY).await?;
    // Nobody serves the webhooks, and somebody has been at one of them.
    stage.kubectl(&["apply", "-f", &format!("{root}/deploy/webhook/validating.yaml")]).await?;
    let ignore = r#"[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]"#;
    let validating = "validatingwebhookconfiguration/ip-address-controller";
    stage.kubectl(&["patch", validating, "--type=json", "-p", ignore]).await?;
    stage.kubectl(&["delete", "clusterrolebinding", "ip-address-controller-webhook"]).await?;
    Ok(stage)
}

/// The whole report is in the docs.
pub async fn each_fault_is_found() -> Result<()> {
    let stage = faulty().await?;
    eventually("the whole report", async || {
        let answer = stage.netip(&["doctor"]).await?;
        ensure!(answer.code == 1, "{}", answer.stdout);
        // Until the controllers have made the pods and counted them.
        ensure!(answer.stdout.contains("0 are healthy, 3 wanted"), "{}", answer.stdout);
        ensure!(answer.stdout.contains("3 wait for a node"), "{}", answer.stdout);
        is_in_the_docs("doctor || echo \"exit code $?\"", &format!("{}exit code 1\n", answer.stdout))
    })
    .await?;
    // With a node of the allocation marked and the pods on it, the budget is what a drain hangs on.
    stage.kubectl(&["label", "node", "voice-1", "ip.ready=true"]).await?;
    eventually("the budget to be found", async || {
        let report = stage.netip(&["doctor"]).await?.stdout;
        let expected = "WRONG    budgets       PodDisruptionBudget strict never lets a pod of Deployment default/sip go (3 healthy, 3 wanted): a drain hangs";
        ensure!(report.contains(expected), "{report}");
        ensure!(report.contains("WARNING  workloads     Deployment default/sip has 3 replicas, and 2 addresses to run on: some share a node"), "{report}");
        Ok(())
    })
    .await?;
    karpenter_is_seen(&stage).await?;
    let found: serde_json::Value =
        serde_json::from_str(&stage.netip(&["doctor", "-o", "json"]).await?.stdout)?;
    let complete =
        |finding: &serde_json::Value| finding["level"] == "Fine" || finding["whatToDo"].is_string();
    ensure!(found.as_array().is_some_and(|all| all.len() > 9 && all.iter().all(complete)), "{found}");
    Ok(())
}

/// Karpenter made a node, and takes it away.
async fn karpenter_is_seen(stage: &Stage) -> Result<()> {
    stage.kubectl(&["label", "node", "voice-1", "karpenter.sh/nodepool=default"]).await?;
    stage.kubectl(&["taint", "node", "voice-1", "karpenter.sh/disrupted:NoSchedule"]).await?;
    stage
        .kubectl(&["annotate", "node", "voice-1", "netinfra.darkbrains.com/reserved-ip=203.0.113.10"])
        .await?;
    let report = stage.netip(&["doctor"]).await?.stdout;
    for expected in [
        "an autoscaler is about to remove node voice-1, which holds 203.0.113.10",
        "annotate the pod template with karpenter.sh/do-not-disrupt: \"true\"",
    ] {
        ensure!(report.contains(expected), "{report}");
    }
    Ok(())
}

pub async fn an_empty_cluster() -> Result<()> {
    let cluster = Cluster::start().await?;
    let said = netip(&cluster.admin_kubeconfig(), &["status"]).await?.refusal()?;
    let expected = "kubectl netip: netipallocations cannot be listed: not found; is the CRD installed?";
    ensure!(said.starts_with(expected), "{said}");
    let doctor = netip(&cluster.admin_kubeconfig(), &["doctor"]).await?;
    ensure!(doctor.code == 1, "{}", doctor.stdout);
    for expected in [
        "WRONG    crd           CRD netipallocations.netinfra.darkbrains.com is not installed".to_owned(),
        "WRONG    webhooks      MutatingWebhookConfiguration/ip-address-controller is not registered"
            .to_owned(),
        format!(
            "WRONG    roles         service account {NAMESPACE}/ip-address-controller may not: get netipallocations"
        ),
        format!(
            "WRONG    controller    there is no Lease {NAMESPACE}/ip-address-controller-leader: it has never run"
        ),
        "WRONG    cluster       netipallocations cannot be listed: not found".to_owned(),
    ] {
        ensure!(doctor.stdout.contains(&expected), "{expected:?} is not in\n{}", doctor.stdout);
    }
    // The predecessor's definition knows neither status nor workloadRef.
    let mut old = serde_json::to_value(&crds::manifests().remove(0).crd)?;
    let schema = &mut old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    schema["spec"]["properties"].as_object_mut().expect("fields").remove("failover");
    cluster.kubectl_with_input(&["apply", "--server-side", "-f", "-"], &old.to_string()).await?.ok()?;
    eventually("the old definition to be found out", async || {
        let report = netip(&cluster.admin_kubeconfig(), &["doctor"]).await?.stdout;
        let expected = "WRONG    crd           CRD netipallocations.netinfra.darkbrains.com is an older one: it lacks spec.failover";
        ensure!(report.contains(expected), "{report}");
        Ok(())
    })
    .await
}
