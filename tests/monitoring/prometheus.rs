//! Prometheus and promtool: finding them, running them, asking them.

use anyhow::{Context as _, Result, bail, ensure};
use cluster::{Cluster, Process, eventually};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

pub const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The folder with both, which `dev/prometheus/ensure` makes if there is none.
pub fn binaries() -> Result<PathBuf> {
    let script = Path::new(ROOT).join("dev/prometheus/ensure");
    let output = Command::new(&script).output().with_context(|| format!("{}", script.display()))?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().into())
}

/// Runs promtool in a folder; its words are the error if it is not content.
pub fn promtool(folder: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(binaries()?.join("promtool")).args(arguments).current_dir(folder).output()?;
    let said =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    ensure!(output.status.success(), "promtool {arguments:?}:\n{said}");
    Ok(said)
}

/// A running Prometheus.
pub struct Prometheus {
    process: Process,
    url: String,
    began: f64,
}

impl Prometheus {
    /// Scrapes the targets every second, and evaluates the rules as often.
    pub async fn start(cluster: &Cluster, rules: &Value, targets: &[(&str, u16)]) -> Result<Self> {
        let folder = cluster.folder();
        let port = cluster::free_port()?;
        let config = folder.join("prometheus.yaml");
        let scraped: Vec<Value> = targets
            .iter()
            .map(|(pod, port)| json!({ "targets": [format!("127.0.0.1:{port}")], "labels": { "pod": pod } }))
            .collect();
        // JSON is YAML.
        let settings = json!({
            "global": { "scrape_interval": "1s", "evaluation_interval": "1s" },
            "rule_files": ["rules.json"],
            "scrape_configs": [{ "job_name": "ip-address-controller", "static_configs": scraped }],
        });
        std::fs::write(&config, settings.to_string())?;
        std::fs::write(folder.join("rules.json"), rules.to_string())?;
        let args = [
            &format!("--config.file={}", config.display()),
            &format!("--storage.tsdb.path={}", folder.join("prometheus").display()),
            &format!("--web.listen-address=127.0.0.1:{port}"),
            "--log.level=warn",
        ];
        let process = cluster.launch("prometheus", &binaries()?.join("prometheus"), &args, [])?;
        let prometheus = Self { process, url: format!("http://127.0.0.1:{port}"), began: now()? };
        eventually("Prometheus to answer", async || {
            prometheus.process.check_running()?;
            prometheus.query("vector(1)").await
        })
        .await?;
        Ok(prometheus)
    }

    async fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value> {
        let url = format!("{}/api/v1/{path}", self.url);
        let answer: Value =
            reqwest::Client::new().get(&url).query(parameters).send().await?.json().await.context(url)?;
        if answer["status"] != "success" {
            bail!("{parameters:?}: {}", answer["error"]);
        }
        Ok(answer["data"].clone())
    }

    /// What an expression is now.
    pub async fn query(&self, expression: &str) -> Result<Vec<Value>> {
        let data = self.get("query", &[("query", expression)]).await?;
        Ok(data["result"].as_array().cloned().unwrap_or_default())
    }

    /// Whether an expression has had a value, which is a number, since the beginning.
    pub async fn was_ever(&self, expression: &str) -> Result<bool> {
        let (start, end) = (self.began.to_string(), now()?.to_string());
        let parameters = [("query", expression), ("start", &start), ("end", &end), ("step", "1")];
        let data = self.get("query_range", &parameters).await?;
        let series = data["result"].as_array().context("no matrix")?;
        let mut samples = series.iter().flat_map(|series| series["values"].as_array().into_iter().flatten());
        Ok(samples.any(|sample| sample[1] != "NaN"))
    }

    /// The rules, as Prometheus understands and last evaluated them.
    pub async fn rules(&self) -> Result<Vec<Value>> {
        let data = self.get("rules", &[]).await?;
        let groups = data["groups"].as_array().context("no groups")?;
        Ok(groups.iter().flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default()).collect())
    }

    /// Alerts that fire now.
    pub async fn firing(&self) -> Result<Vec<Value>> {
        let data = self.get("alerts", &[]).await?;
        let alerts = data["alerts"].as_array().cloned().unwrap_or_default();
        Ok(alerts.into_iter().filter(|alert| alert["state"] == "firing").collect())
    }
}

fn now() -> Result<f64> {
    Ok(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs_f64())
}
