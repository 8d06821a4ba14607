//! The real binary, as pods run it, against simulated clouds on the wire: signals, and who may write.

use crate::memory::Verb;
use crate::played::Played;
use crate::scene::Scene;
use crate::stage::Stage;
use anyhow::{Context as _, Result, ensure};
use cloud::Cloud;
use cluster::{Process, eventually};
use serde_json::json;
use sim::{Fault, On, Rule};

const LEASE_SECONDS: u64 = 4;

/// Starts the binary with a command.
pub fn launch(stage: &Stage, name: &str, command: &str, env: Vec<(&str, String)>) -> Result<Process> {
    let binary = env!("CARGO_BIN_EXE_ip-address-controller").as_ref();
    stage.cluster.launch(name, binary, &[command], env)
}

/// A replica as a process of its own.
pub struct Replica {
    pub process: Process,
    health: u16,
    port: u16,
}

impl Replica {
    fn start(stage: &Stage, name: &str) -> Result<Self> {
        Self::start_with(stage, &stage.cloud, LEASE_SECONDS, name)
    }

    /// Starts it with a simulated cloud, which need not be the stage's.
    pub fn start_with(stage: &Stage, cloud: &Played, lease_seconds: u64, name: &str) -> Result<Self> {
        let (health, metrics) = (cluster::free_port()?, cluster::free_port()?);
        let mut env = vec![
            ("KUBECONFIG", stage.kubeconfig.display().to_string()),
            ("POD_NAMESPACE", "ip-address-controller".to_owned()),
            ("POD_NAME", name.to_owned()),
            ("LEASE_DURATION", lease_seconds.to_string()),
            ("HEALTH_ADDR", format!("127.0.0.1:{health}")),
            ("METRICS_PORT", metrics.to_string()),
            ("CLUSTER_NAME", "test".to_owned()),
        ];
        env.extend(cloud.environment(name));
        stage.add_caller(name);
        Ok(Self { process: launch(stage, name, "controller", env)?, health, port: metrics })
    }

    /// Whether it says that it is ready.
    pub async fn is_ready(&self) -> bool {
        let answer = reqwest::get(format!("http://127.0.0.1:{}/readyz", self.health)).await;
        answer.is_ok_and(|answer| answer.status().is_success())
    }

    pub async fn metric(&self, name: &str) -> Result<f64> {
        let text = reqwest::get(format!("http://127.0.0.1:{}/metrics", self.port)).await?.text().await?;
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")));
        let value = line.and_then(|line| line.rsplit_once(' ')).with_context(|| format!("no {name}"))?.1;
        Ok(value.parse()?)
    }

    pub async fn leads(&self) -> Result<()> {
        eventually(&format!("{} to lead", self.process.name()), async || {
            self.process.check_running()?;
            let leads = self.metric("netipallocation_controller_is_leader").await?;
            ensure!(leads > 0.5, "it does not: {}", self.process.log_tail());
            Ok(())
        })
        .await
    }

    async fn exit_code(&self) -> Result<Option<i32>> {
        eventually(&format!("{} to end", self.process.name()), async || {
            let status = self.process.exit_status()?.context("it runs")?;
            Ok(status.code())
        })
        .await
    }

    pub fn signal(&self, signal: rustix::process::Signal) -> Result<()> {
        let id = self.process.id().context("it does not run")?;
        let id = rustix::process::Pid::from_raw(i32::try_from(id)?).context("no process id")?;
        Ok(rustix::process::kill_process(id, signal)?)
    }
}

/// Calls that change something, by the caller's name.
fn writes_by(scene: &Scene<'_>, caller: &str) -> usize {
    let events = scene.stage.cloud.simulator().events(0);
    events.iter().filter(|event| event.mutating && event.caller == caller).count()
}

struct Pair<'s> {
    scene: Scene<'s>,
    first: Replica,
    second: Replica,
}

async fn pair(stage: &Stage) -> Result<Pair<'_>> {
    let first = Replica::start(stage, "first")?;
    first.leads().await?;
    let second = Replica::start(stage, "second")?;
    let scene = stage.scene("pair", 4, 2).await?;
    scene.allocate(json!({})).await?;
    scene.settled().await?;
    Ok(Pair { scene, first, second })
}

pub async fn sigterm_hands_over_and_ends_well() -> Result<()> {
    let stage = Stage::with(Some(Cloud::Gcp)).await?;
    let Pair { scene, first, second } = pair(&stage).await?;
    first.signal(rustix::process::Signal::TERM)?;
    ensure!(first.exit_code().await? == Some(0), "a stop is a good end");
    second.leads().await?;
    let before = (writes_by(&scene, "first"), scene.places());
    ensure!(before.0 > 0, "the calls of a process are known by its name");
    ensure!(writes_by(&scene, "second") == 0, "nothing moves because of a hand-over");
    scene.cordon(1).await?;
    scene.arrives(0, 4).await?;
    ensure!(writes_by(&scene, "first") == before.0, "who has ended writes nothing");
    ensure!(scene.places()[1] == before.1[1], "the other address stays");
    Ok(())
}

pub async fn sigkill_hands_over_when_the_lease_is_over() -> Result<()> {
    let stage = Stage::with(Some(Cloud::Aws)).await?;
    let Pair { scene, first, second } = pair(&stage).await?;
    first.signal(rustix::process::Signal::KILL)?;
    second.leads().await?;
    ensure!(writes_by(&scene, "second") == 0, "nothing moves because of a hand-over");
    scene.cordon(1).await?;
    scene.arrives(0, 4).await?;
    Ok(())
}

/// A leader that is stopped for longer than its lease and goes on: it must not write any more, whatever
/// it was about to do.
pub async fn sigstop_and_sigcont_of_a_leader_in_the_middle_of_a_move() -> Result<()> {
    let stage = Stage::with(Some(Cloud::Azure)).await?;
    let Pair { scene, first, second } = pair(&stage).await?;
    first.signal(rustix::process::Signal::STOP)?;
    scene.cordon(1).await?;
    second.leads().await?;
    scene.arrives(0, 4).await?;
    let before = writes_by(&scene, "first");
    first.signal(rustix::process::Signal::CONT)?;
    ensure!(first.exit_code().await? == Some(1), "a lost lease ends the process, and not well");
    ensure!(writes_by(&scene, "first") == before, "a deposed leader writes nothing");
    scene
        .nothing_happens("what the successor did stays", async || {
            ensure!(scene.places()[0] == Some(4), "moved");
            Ok(())
        })
        .await?;
    Ok(())
}

/// The process is killed when its attach is on the wire and starts again: what it had begun is finished,
/// and nothing is done twice.
pub async fn a_restart_in_the_middle_of_a_move(cloud: Cloud) -> Result<()> {
    let stage = Stage::with(Some(cloud)).await?;
    let first = Replica::start(&stage, "first")?;
    let scene = stage.scene("restart", 2, 1).await?;
    scene.allocate(json!({})).await?;
    let from = scene.settled().await?[0];
    let to = 3 - from;
    let sim = stage.cloud.simulator();
    let attach = match cloud {
        Cloud::Aws => On::action(sim::Cloud::Aws, "AssociateAddress"),
        _ => On { mutating: Some(true), target: Some(scene.node_name(to)), ..On::default() },
    };
    sim.fault(Rule::once(attach, Fault::Delay { seconds: 3600.0 }));
    let before = stage.cloud.writes(scene.addresses[0]).len();
    scene.cordon(from).await?;
    eventually("the attach to be on the wire", async || {
        first.process.check_running()?;
        ensure!(sim.faults().is_empty() && scene.places() == [None], "not yet: {}", scene.story().await?);
        Ok(())
    })
    .await?;
    first.signal(rustix::process::Signal::KILL)?;
    let again = Replica::start(&stage, "again")?;
    scene.arrives(0, to).await?;
    again.leads().await?;
    let moved = stage.cloud.writes(scene.addresses[0]).split_off(before);
    let expected = [(Verb::Detach, scene.instance(from)), (Verb::Attach, scene.instance(to))];
    ensure!(moved == expected, "off once and on once: {moved:?}");
    let history = scene.status().await?.history;
    let told = history.first().context("no history")?;
    ensure!(
        told.from.as_deref() == Some(&scene.node_name(from))
            && told.to.as_deref() == Some(&scene.node_name(to)),
        "the move is told as one: {history:?}"
    );
    Ok(())
}

/// Settings that cannot be end the process with 2 and one line that says what to do.
pub async fn bad_settings_end_with_two_and_a_sentence() -> Result<()> {
    let run = |args: &[&str], env: &[(&str, &str)]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ip-address-controller"));
        command.args(args).env_clear().envs(env.iter().copied()).output()
    };
    let stage = Stage::with(Some(Cloud::Gcp)).await?;
    let kubeconfig = stage.kubeconfig.display().to_string();
    let plain = [("KUBECONFIG", kubeconfig.as_str()), ("HEALTH_ADDR", "127.0.0.1:0"), ("METRICS_PORT", "0")];
    let anonymous = [plain.as_slice(), &[("GCP_CREDENTIALS", "anonymous")]].concat();
    for (args, env, word) in [
        (["controller", "--lease-duration=1"].as_slice(), plain.as_slice(), "lease-duration"),
        (&["controller"], anonymous.as_slice(), "GCP_COMPUTE_ENDPOINT"),
    ] {
        let output = run(args, env)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(2), "{args:?} ended with {:?}: {said}", output.status);
        ensure!(said.contains(word), "{said}");
    }
    let unreachable = [("KUBECONFIG", "/nowhere"), ("HEALTH_ADDR", "127.0.0.1:0"), ("METRICS_PORT", "0")];
    let output = run(&["controller"], &unreachable)?;
    ensure!(!output.status.success(), "no cluster, no controller");
    ensure!(
        String::from_utf8_lossy(&output.stderr).lines().last().is_some_and(|line| line.contains("cluster"))
    );
    Ok(())
}
