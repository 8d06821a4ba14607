//! The deployed accounts' rights: enough for everything, and no more than that.

use crate::kit::{NAMESPACE, Way, apply, cluster, render};
use crate::scene::{ADDRESSES, Scene, forbidden, with_url};
use anyhow::{Context as _, Result, ensure};
use cluster::harness::Bed;
use cluster::{Cluster, eventually, free_port};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

/// Controller and webhook go through an allocation's life; nothing that they ask for is refused, and what was
/// installed can be applied again at any time.
pub async fn they_are_enough_for_a_whole_life(_: Arc<Bed>) -> Result<()> {
    let cluster = cluster().await?;
    let port = free_port()?;
    let objects = with_url(&render(Way::Kustomize("base")).await?, port)?;
    apply(&cluster, &objects).await?;
    let scene = Scene::set(&cluster).await?;
    let webhook = scene.webhook(port).await?;
    // The controller comes later, and the webhook does not wait for it.
    scene.allocate().await?;
    let controller = scene.controller().await?;
    let before = scene.settled().await?;
    scene.workload().await?;
    scene.pods_on(&before).await?;
    apply(&cluster, &objects).await.context("again, while everything runs")?;
    bundles(&cluster).await?;

    cluster
        .kubectl(&["drain", &before[0], "--ignore-daemonsets", "--force", "--timeout=120s"])
        .await?
        .ok()?;
    eventually("the address to leave the drained node", async || {
        ensure!(!scene.marked().await?.contains(&before[0]), "it is still there");
        Ok(())
    })
    .await?;
    let after = scene.settled().await?;
    scene.pods_on(&after).await?;
    // The webhook goes, and the controller does not mind.
    webhook.stop().await?;
    scene.allocations().delete("voice", &DeleteParams::default()).await?;
    eventually("the addresses to be released", async || {
        ensure!(scene.attached()? == 0, "{} of {} are attached", scene.attached()?, ADDRESSES.len());
        ensure!(scene.allocations().get_opt("voice").await?.is_none(), "the allocation is there");
        Ok(())
    })
    .await?;
    controller.stop().await?;
    let refused = forbidden(&cluster.audit_log())?;
    ensure!(refused.is_empty(), "refused: {refused:?}");
    Ok(())
}

/// What the webhook wrote into the configurations is there after they were applied again.
pub async fn bundles(cluster: &Cluster) -> Result<()> {
    for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
        let text = cluster.kubectl(&["get", kind, "ip-address-controller", "-o", "json"]).await?.ok()?;
        let object: Value = serde_json::from_str(&text)?;
        for webhook in object["webhooks"].as_array().context("no webhooks")? {
            ensure!(webhook["clientConfig"]["caBundle"].is_string(), "{} has lost its CA", webhook["name"]);
            let pods = webhook["name"] == "pods.netinfra.darkbrains.com";
            let narrow = webhook["namespaceSelector"].to_string().contains("\"work\"");
            ensure!(narrow == pods, "{}: {}", webhook["name"], webhook["namespaceSelector"]);
        }
    }
    Ok(())
}

/// Who may not do what: account, verb, `resource.group[/name]`, namespace.
const NOT: &[(&str, &str, &str, &str)] = &[
    // Secrets are nobody's but the webhook's one.
    ("ip-address-controller", "get", "secrets/ip-address-controller-webhook-tls", NAMESPACE),
    ("ip-address-controller", "list", "secrets", ""),
    ("ip-address-controller-webhook", "get", "secrets/another", NAMESPACE),
    ("ip-address-controller-webhook", "list", "secrets", NAMESPACE),
    ("ip-address-controller-webhook", "delete", "secrets/ip-address-controller-webhook-tls", NAMESPACE),
    ("ip-address-controller-webhook", "get", "secrets/ip-address-controller-webhook-tls", "kube-system"),
    // Nobody makes pods, runs in them, or reads their logs; the webhook does not even see them.
    ("ip-address-controller", "create", "pods", "default"),
    ("ip-address-controller", "create", "pods/exec", "default"),
    ("ip-address-controller", "get", "pods/log", "default"),
    ("ip-address-controller-webhook", "list", "pods", ""),
    ("ip-address-controller-webhook", "delete", "pods", ""),
    // Nodes are labelled, not made, deleted or proxied through.
    ("ip-address-controller", "delete", "nodes", ""),
    ("ip-address-controller", "create", "nodes", ""),
    ("ip-address-controller", "get", "nodes/proxy", ""),
    ("ip-address-controller", "patch", "nodes/status", ""),
    ("ip-address-controller-webhook", "list", "nodes", ""),
    ("ip-address-controller-webhook", "patch", "nodes", ""),
    // Workloads are read; DaemonSets' templates are the exception.
    ("ip-address-controller", "patch", "deployments.apps", "default"),
    ("ip-address-controller", "delete", "daemonsets.apps", "default"),
    ("ip-address-controller", "patch", "statefulsets.apps", "default"),
    // Allocations are the users'.
    ("ip-address-controller", "create", "netipallocations.netinfra.darkbrains.com", ""),
    ("ip-address-controller", "delete", "netipallocations.netinfra.darkbrains.com", ""),
    ("ip-address-controller-webhook", "patch", "netipallocations.netinfra.darkbrains.com", ""),
    ("ip-address-controller-webhook", "patch", "netipallocations/status.netinfra.darkbrains.com", ""),
    // Leases: one, in one namespace.
    ("ip-address-controller", "update", "leases.coordination.k8s.io/another", NAMESPACE),
    ("ip-address-controller", "update", "leases.coordination.k8s.io/node-1", "kube-node-lease"),
    (
        "ip-address-controller-webhook",
        "update",
        "leases.coordination.k8s.io/ip-address-controller-leader",
        NAMESPACE,
    ),
    // Webhook configurations: the webhook's own two, and none is made or deleted.
    (
        "ip-address-controller",
        "patch",
        "mutatingwebhookconfigurations.admissionregistration.k8s.io/ip-address-controller",
        "",
    ),
    (
        "ip-address-controller-webhook",
        "create",
        "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "",
    ),
    (
        "ip-address-controller-webhook",
        "delete",
        "validatingwebhookconfigurations.admissionregistration.k8s.io/ip-address-controller",
        "",
    ),
    (
        "ip-address-controller-webhook",
        "patch",
        "validatingwebhookconfigurations.admissionregistration.k8s.io/another",
        "",
    ),
    // Rights are not handed on.
    ("ip-address-controller", "create", "clusterrolebindings.rbac.authorization.k8s.io", ""),
    ("ip-address-controller", "impersonate", "users", ""),
    ("ip-address-controller-webhook", "create", "serviceaccounts/token", NAMESPACE),
    // Uninstalling takes away what is ours, and deletes allocations only when that was asked for.
    ("ip-address-controller-uninstall", "delete", "netipallocations.netinfra.darkbrains.com", ""),
    (
        "ip-address-controller-uninstall",
        "delete",
        "mutatingwebhookconfigurations.admissionregistration.k8s.io/another",
        "",
    ),
    ("ip-address-controller-uninstall", "delete", "customresourcedefinitions.apiextensions.k8s.io", ""),
    ("ip-address-controller-uninstall", "patch", "deployments/scale.apps/another", NAMESPACE),
    ("ip-address-controller-uninstall", "patch", "nodes", ""),
    ("ip-address-controller-uninstall", "list", "pods", "default"),
];

pub async fn they_are_no_more_than_enough(_: Arc<Bed>) -> Result<()> {
    let cluster = cluster().await?;
    apply(&cluster, &render(Way::Kustomize("base")).await?).await?;
    apply(&cluster, &render(Way::Kustomize("uninstall")).await?).await?;
    for (account, verb, what, namespace) in NOT {
        let allowed = may(&cluster, account, verb, what, namespace).await?;
        ensure!(!allowed, "{account} may {verb} {what} in {namespace:?}");
    }
    // The question is asked rightly: what they need is granted.
    for (account, verb, what, namespace) in [
        ("ip-address-controller", "patch", "nodes", ""),
        (
            "ip-address-controller",
            "update",
            "leases.coordination.k8s.io/ip-address-controller-leader",
            NAMESPACE,
        ),
        ("ip-address-controller", "create", "pods/eviction", "default"),
        ("ip-address-controller-webhook", "update", "secrets/ip-address-controller-webhook-tls", NAMESPACE),
        (
            "ip-address-controller-uninstall",
            "patch",
            "deployments/scale.apps/ip-address-controller",
            NAMESPACE,
        ),
    ] {
        ensure!(may(&cluster, account, verb, what, namespace).await?, "{account} may not {verb} {what}");
    }
    Ok(())
}

/// With cert-manager the webhook has no business with Secrets and bundles, and starts without.
pub async fn with_cert_manager_the_webhook_has_fewer(_: Arc<Bed>) -> Result<()> {
    let cluster = cluster().await?;
    apply(&cluster, &render(Way::Kustomize("overlays/production")).await?).await?;
    let scene = Scene::set(&cluster).await?;
    let (health, folder) = (free_port()?, tempfile::tempdir()?);
    certificate(folder.path())?;
    let env = [
        ("WEBHOOK_ADDR", "127.0.0.1:0".to_owned()),
        ("WEBHOOK_CERT_DIR", folder.path().display().to_string()),
        ("HEALTH_ADDR", format!("127.0.0.1:{health}")),
    ];
    let webhook = scene.start("webhook", "ip-address-controller-webhook", &env).await?;
    eventually("the webhook to be ready", async || {
        let answer = reqwest::get(format!("http://127.0.0.1:{health}/readyz")).await?.text().await?;
        ensure!(answer.ends_with("\nready\n"), "{answer}{}", webhook.log_tail());
        Ok(())
    })
    .await?;
    let refused = forbidden(&cluster.audit_log())?;
    ensure!(refused.is_empty(), "refused: {refused:?}");
    for (verb, what, namespace) in [
        ("get", "secrets/ip-address-controller-webhook-tls", NAMESPACE),
        ("create", "secrets", NAMESPACE),
        ("patch", "validatingwebhookconfigurations.admissionregistration.k8s.io/ip-address-controller", ""),
    ] {
        let allowed = may(&cluster, "ip-address-controller-webhook", verb, what, namespace).await?;
        ensure!(!allowed, "it may {verb} {what}");
    }
    Ok(())
}

/// What cert-manager puts into the Secret, as the kubelet mounts it.
fn certificate(folder: &Path) -> Result<()> {
    let name = format!("ip-address-controller-webhook.{NAMESPACE}.svc");
    let names = [name.clone(), format!("{name}.cluster.local")];
    let made = rcgen::generate_simple_self_signed(names)?;
    for (file, content) in [
        ("tls.crt", made.cert.pem()),
        ("ca.crt", made.cert.pem()),
        ("tls.key", made.signing_key.serialize_pem()),
    ] {
        std::fs::write(folder.join(file), content)?;
    }
    Ok(())
}

/// `view` and `admin` of the whole cluster include allocations; of a namespace they do not.
pub async fn people_get_theirs_by_the_clusters_roles(_: Arc<Bed>) -> Result<()> {
    let cluster = cluster().await?;
    apply(&cluster, &render(Way::Kustomize("base")).await?).await?;
    for args in [
        ["create", "clusterrolebinding", "viewer", "--clusterrole=view", "--user=viewer"].as_slice(),
        &["create", "clusterrolebinding", "boss", "--clusterrole=admin", "--user=boss"],
        &["create", "rolebinding", "tenant", "--clusterrole=admin", "--user=tenant", "-n", "default"],
    ] {
        cluster.kubectl(args).await?.ok()?;
    }
    let allocations = "netipallocations.netinfra.darkbrains.com";
    eventually("the roles to be aggregated", async || {
        for (user, verb, expected) in [
            ("viewer", "list", true),
            ("viewer", "delete", false),
            ("boss", "create", true),
            ("boss", "watch", true),
            ("tenant", "list", false),
            ("tenant", "create", false),
        ] {
            let allowed = asked(&cluster, user, verb, allocations, "").await?;
            ensure!(allowed == expected, "{user} {verb}: {allowed}");
        }
        Ok(())
    })
    .await
}

async fn may(cluster: &Cluster, account: &str, verb: &str, what: &str, namespace: &str) -> Result<bool> {
    asked(cluster, &format!("system:serviceaccount:{NAMESPACE}:{account}"), verb, what, namespace).await
}

/// Asks the API server's authorizer. `what` is `resource[/subresource][.group][/name]`.
async fn asked(cluster: &Cluster, user: &str, verb: &str, what: &str, namespace: &str) -> Result<bool> {
    let (resource, group, name) = match what.split_once('.') {
        Some((resource, rest)) => {
            let (group, name) = rest.split_once('/').unwrap_or((rest, ""));
            (resource, group, name)
        }
        // Of the core group; what follows is a name where it is no subresource.
        None => match what.split_once('/') {
            Some((resource, name)) if resource == "secrets" => (resource, "", name),
            _ => (what, "", ""),
        },
    };
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let text = |text: &str| Some(text.to_owned());
    let attributes = ResourceAttributes {
        group: text(group),
        resource: text(resource),
        subresource: text(subresource),
        name: text(name),
        namespace: text(namespace),
        verb: text(verb),
        ..ResourceAttributes::default()
    };
    let spec = SubjectAccessReviewSpec {
        user: text(user),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let api: Api<SubjectAccessReview> = Api::all(cluster.client());
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(answer.status.context("no answer")?.allowed)
}
