//! A cluster, a simulated cloud, and the processes that people run.

use anyhow::{Context as _, Result, ensure};
use cluster::{Cluster, NodeSpec, Process, Program, Provider, Reaper, eventually, free_port};
use serde_json::Value;
use sim::{Sim, World};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::process::Command;

pub const NAMESPACE: &str = "ip-address-controller";
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// What a command of the plugin answered.
pub struct Answer {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Answer {
    /// What was printed by a command that has to work.
    pub fn ok(self) -> Result<String> {
        ensure!(self.code == 0, "exit code {}: {}{}", self.code, self.stdout, self.stderr);
        ensure!(self.stderr.is_empty(), "{}", self.stderr);
        Ok(self.stdout)
    }

    /// The one line of a command that has to fail.
    pub fn refusal(self) -> Result<String> {
        ensure!(self.code == 1 && self.stdout.is_empty(), "exit code {}: {}", self.code, self.stdout);
        ensure!(self.stderr.lines().count() == 1, "more than a line: {}", self.stderr);
        Ok(self.stderr)
    }
}

/// Runs the plugin.
pub async fn netip(kubeconfig: &Path, args: &[&str]) -> Result<Answer> {
    let output = Command::new(env!("CARGO_BIN_EXE_kubectl-netip"))
        .args(args)
        .env("KUBECONFIG", kubeconfig)
        .env_remove("NO_COLOR")
        .output()
        .await?;
    Ok(Answer {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout)?,
        stderr: String::from_utf8(output.stderr)?,
    })
}

pub struct Stage {
    pub cluster: Cluster,
    pub sim: Sim,
    reaper: Arc<Reaper>,
}

impl Stage {
    /// A cluster with our CRD, namespace and roles; nothing runs yet.
    pub async fn new() -> Result<Self> {
        let cluster = Cluster::start().await?;
        cluster.install_crds().await?;
        cluster.kubectl(&["create", "namespace", NAMESPACE]).await?.ok()?;
        let webhook = "ip-address-controller-webhook";
        cluster.kubectl(&["create", "serviceaccount", webhook, "-n", NAMESPACE]).await?.ok()?;
        for role in ["controller", "webhook", "certs", "webhook-self-registration"] {
            cluster.kubectl(&["apply", "-f", &format!("{ROOT}/deploy/rbac/{role}.yaml")]).await?.ok()?;
        }
        let reaper = Arc::new(Reaper::start(cluster.folder())?);
        Ok(Self { cluster, sim: Sim::start(World::default()).await?, reaper })
    }

    /// A node, its instance, and the label `pool`; Ready when this returns.
    pub async fn add_node(&self, name: &str, zone: usize, pool: &str) -> Result<()> {
        let spec = NodeSpec::new(Provider::Gcp, name, zone).label("pool", pool);
        self.sim.add_instance(&spec.provider_id)?;
        self.cluster.nodes().create(spec).await?;
        eventually(&format!("{name} to take pods"), async || {
            let node = self.json(&["get", "node", name]).await?;
            let ready = r#"{"type":"Ready","status":"True"}"#;
            let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let is = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
            ensure!(is && node["spec"].get("taints").is_none(), "no {ready} in {node}");
            Ok(())
        })
        .await
    }

    pub fn add_address(&self, address: &str) -> Result<()> {
        self.sim.add_address(sim::Cloud::Gcp, address.parse()?)?;
        Ok(())
    }

    /// The controller, as a pod of that name runs it, with the usual lease: on a busy machine a short one may
    /// be lost, and then the process ends.
    pub async fn controller(&self, name: &'static str) -> Result<Process> {
        let account = self.cluster.service_account_kubeconfig(NAMESPACE, "ip-address-controller").await?;
        let env = vec![
            ("POD_NAME", name.to_owned()),
            ("GCP_COMPUTE_ENDPOINT", format!("{}/as/{name}", self.sim.gcp_url())),
            ("GCP_CREDENTIALS", "anonymous".to_owned()),
        ];
        self.launch(name, "controller", &account, env)
    }

    /// The webhook, which registers itself.
    pub async fn webhook(&self) -> Result<Process> {
        let webhook = "ip-address-controller-webhook";
        let account = self.cluster.service_account_kubeconfig(NAMESPACE, webhook).await?;
        let port = free_port()?;
        let env = vec![
            ("WEBHOOK_ADDR", format!("127.0.0.1:{port}")),
            ("WEBHOOK_URL", format!("https://127.0.0.1:{port}")),
        ];
        self.launch("webhook", "webhook", &account, env)
    }

    fn launch(
        &self,
        name: &'static str,
        command: &str,
        kubeconfig: &Path,
        mut env: Vec<(&str, String)>,
    ) -> Result<Process> {
        env.push(("KUBECONFIG", kubeconfig.display().to_string()));
        env.push(("POD_NAMESPACE", NAMESPACE.to_owned()));
        env.push(("HEALTH_ADDR", format!("127.0.0.1:{}", free_port()?)));
        env.push(("METRICS_PORT", free_port()?.to_string()));
        let program = Program {
            name,
            path: env!("CARGO_BIN_EXE_ip-address-controller").into(),
            args: vec![command.to_owned()],
            env: env.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            log: self.cluster.folder().join(format!("{name}.log")),
        };
        let process = Process::new(program, self.reaper.clone());
        process.spawn()?;
        Ok(process)
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.cluster.admin_kubeconfig()
    }

    /// The plugin, run by the administrator.
    pub async fn netip(&self, args: &[&str]) -> Result<Answer> {
        netip(&self.kubeconfig(), args).await
    }

    pub async fn apply(&self, manifest: &str) -> Result<()> {
        self.cluster.kubectl_with_input(&["apply", "-f", "-"], manifest).await?.ok()?;
        Ok(())
    }

    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.cluster.kubectl(args).await?.ok()
    }

    pub async fn json(&self, args: &[&str]) -> Result<Value> {
        let text = self.kubectl(&[args, &["-o", "json"]].concat()).await?;
        serde_json::from_str(&text).context("no JSON")
    }
}

/// docs/plugin.md shows this command with this output. `GENERATE=1` (with one test thread) writes it there.
pub fn is_in_the_docs(command: &str, output: &str) -> Result<()> {
    let file = format!("{ROOT}/docs/plugin.md");
    let docs = std::fs::read_to_string(&file)?;
    let head = format!("```\n$ kubectl netip {command}\n");
    let (before, rest) = docs.split_once(&head).with_context(|| format!("{command} is not in the docs"))?;
    let (shown, after) = rest.split_once("```").context("a block that does not end")?;
    if std::env::var_os("GENERATE").is_some() {
        return Ok(std::fs::write(&file, format!("{before}{head}{output}```{after}"))?);
    }
    ensure!(
        masked(shown) == masked(output),
        "docs/plugin.md shows for {command}\n{shown}\nand it is\n{output}"
    );
    Ok(())
}

/// Times and durations are never the same twice; they are shown as words here.
fn masked(text: &str) -> String {
    let word = |word: &str| {
        let duration = word.strip_suffix(['s', 'm']).is_some_and(|number| number.parse::<f64>().is_ok());
        let time = word.parse::<jiff::Timestamp>().is_ok();
        if duration || time { "TIME".to_owned() } else { word.to_owned() }
    };
    let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}
