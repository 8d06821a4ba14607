//! deploy/ as it is, applied again and again while the process runs: no conflict, and nothing that the
//! process wrote is lost. The process has exactly the rights of deploy/rbac.

use super::kit::{
    Hook, Registration, allocation, bare, injects, namespace, reference, selector, selects, works,
};
use crate::requests::create;
use anyhow::{Context as _, Result, bail, ensure};
use cluster::harness::Bed;
use cluster::{Cluster, Version, eventually};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::Api;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

/// deploy/webhook with a URL in place of the Service, which cannot have endpoints on loopback.
fn manifests(folder: &Path, port: u16) -> Result<PathBuf> {
    let target = folder.join("manifests");
    std::fs::create_dir_all(&target)?;
    for name in ["mutating.yaml", "validating.yaml"] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/webhook").join(name);
        let mut configuration: Value = serde_saphyr::from_str(&std::fs::read_to_string(source)?)?;
        for webhook in configuration["webhooks"].as_array_mut().context("no webhooks")? {
            let path = webhook["clientConfig"]["service"]["path"].as_str().context("no path")?;
            let url = format!("https://127.0.0.1:{port}{path}");
            webhook["clientConfig"] = serde_json::json!({ "url": url });
        }
        std::fs::write(target.join(name), serde_json::to_vec_pretty(&configuration)?)?;
    }
    Ok(target)
}

/// Everything that the process owns: the bundles and the selector.
async fn owned(cluster: &Cluster) -> Result<(Vec<String>, Value)> {
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
    let mut bundles = Vec::new();
    for object in [
        serde_json::to_value(mutating.get("ip-address-controller").await?)?,
        serde_json::to_value(validating.get("ip-address-controller").await?)?,
    ] {
        for webhook in object["webhooks"].as_array().context("no webhooks")? {
            let bundle = webhook["clientConfig"]["caBundle"].as_str().unwrap_or_default();
            ensure!(!bundle.is_empty(), "{} has no caBundle", webhook["name"]);
            bundles.push(bundle.to_owned());
        }
    }
    Ok((bundles, selector(cluster).await?))
}

async fn helm(cluster: &Cluster, args: &[&str]) -> Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("dev/cluster/helm/ensure");
    let found = tokio::process::Command::new(script).stderr(Stdio::inherit()).output().await?;
    ensure!(found.status.success(), "there is no helm");
    let output = tokio::process::Command::new(String::from_utf8(found.stdout)?.trim())
        .args(args)
        .env("KUBECONFIG", cluster.admin_kubeconfig())
        .env("HELM_CACHE_HOME", cluster.folder().join("helm"))
        .env("HELM_CONFIG_HOME", cluster.folder().join("helm"))
        .env("HELM_DATA_HOME", cluster.folder().join("helm"))
        .output()
        .await?;
    if !output.status.success() {
        bail!("helm {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// A cluster, the process without rights to create anything, and an allocation; what is owned is there
/// once `install` has been run.
async fn installed(
    install: impl AsyncFn(&Cluster, &Path) -> Result<()>,
) -> Result<(Cluster, Hook, PathBuf, (Vec<String>, Value))> {
    let cluster = bare(Version::Newest).await?;
    let hook = Hook::start(&cluster, &Registration::Others).await?;
    let folder = manifests(cluster.folder(), hook.port)?;
    install(&cluster, &folder).await?;
    works(&cluster).await?;
    namespace(&cluster, "work").await?;
    create(&cluster, &allocation("voice", &["203.0.113.1"], &reference("StatefulSet", "work", "web")))
        .await?;
    selects(&cluster, "work", true).await?;
    injects(&cluster, "work", "web", &["voice"]).await?;
    let owned = eventually("bundles and selector", async || owned(&cluster).await).await?;
    Ok((cluster, hook, folder, owned))
}

async fn unharmed(cluster: &Cluster, before: &(Vec<String>, Value), what: &str) -> Result<()> {
    // At once: nothing has to be healed.
    let now = owned(cluster).await?;
    ensure!(now == *before, "{what}: {now:?} instead of {before:?}");
    injects(cluster, "work", "web", &["voice"]).await.with_context(|| what.to_owned())
}

pub async fn kubectl_applies_them_again(_: Arc<Bed>) -> Result<()> {
    let client_side = async |cluster: &Cluster, folder: &Path| -> Result<()> {
        let folder = folder.display().to_string();
        cluster.kubectl(&["apply", "-f", &folder]).await?.ok()?;
        Ok(())
    };
    let server_side = async |cluster: &Cluster, folder: &Path| -> Result<()> {
        let folder = folder.display().to_string();
        cluster.kubectl(&["apply", "--server-side", "-f", &folder]).await?.ok()?;
        Ok(())
    };
    let (cluster, _hook, folder, owned) = installed(client_side).await?;
    client_side(&cluster, &folder).await?;
    unharmed(&cluster, &owned, "client-side after client-side").await?;
    server_side(&cluster, &folder).await?;
    unharmed(&cluster, &owned, "server-side after client-side").await?;
    server_side(&cluster, &folder).await?;
    unharmed(&cluster, &owned, "server-side after server-side").await?;
    client_side(&cluster, &folder).await?;
    unharmed(&cluster, &owned, "client-side after server-side").await
}

pub async fn helm_upgrades_them(_: Arc<Bed>) -> Result<()> {
    let upgrade = async |cluster: &Cluster, folder: &Path| -> Result<()> {
        let chart = folder.with_file_name("chart");
        std::fs::create_dir_all(chart.join("templates"))?;
        std::fs::write(chart.join("Chart.yaml"), "apiVersion: v2\nname: test\nversion: 0.1.0\n")?;
        for name in ["mutating.yaml", "validating.yaml"] {
            std::fs::copy(folder.join(name), chart.join("templates").join(name))?;
        }
        helm(cluster, &["upgrade", "--install", "test", &chart.display().to_string()]).await
    };
    let (cluster, _hook, folder, owned) = installed(upgrade).await?;
    upgrade(&cluster, &folder).await?;
    unharmed(&cluster, &owned, "helm upgrade, nothing changed").await?;
    // A new version of the chart changes something else.
    let file = folder.join("validating.yaml");
    let changed = std::fs::read_to_string(&file)?.replace("\"timeoutSeconds\": 5", "\"timeoutSeconds\": 4");
    std::fs::write(&file, changed)?;
    upgrade(&cluster, &folder).await?;
    unharmed(&cluster, &owned, "helm upgrade").await
}
