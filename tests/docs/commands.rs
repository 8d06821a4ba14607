//! Every command that a page shows is run, here or by another test, or is marked as not run.

use crate::pages::{self, Command, ROOT, program};
use crate::stage::{self, ADDRESS, ALLOCATION, BINARY, NODE, POD, Shared, shell};
use anyhow::{Context as _, Result, bail, ensure};
use cluster::Cluster;
use futures::stream::{self, StreamExt as _};
use std::collections::BTreeSet;
use std::process;

/// Commands that are not run here: where, how they begin, and why. One that is on no page fails the test.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("docs/plugin.md", "kubectl netip ", "tests/plugin runs them and compares what they print with the page"),
    ("", "helm ", "tests/deploy runs Helm: install, upgrade, test, uninstall, --take-ownership"),
    ("README.md", "ip-address-controller controller", "runs until it is stopped; all tests run it"),
    ("docs/admission.md", "WEBHOOK_URL=", "runs until it is stopped; all tests run it with this variable"),
    (
        "docs/simulators.md",
        "cargo run -p sim",
        "runs until it is stopped; dev/sim/tests/wire/command.rs runs it",
    ),
    (
        "docs/runbooks/",
        "kubectl -n ip-address-controller exec ",
        "needs a kubelet; `certs status` itself is run by tests/certs",
    ),
    ("docs/runbooks/", "kubectl -n ip-address-controller port-forward ", "needs a kubelet"),
    ("docs/runbooks/", "kubectl -n ip-address-controller top ", "needs a kubelet and metrics-server"),
    (
        "docs/install.md",
        "kubectl -n ip-address-controller wait --for=condition=Complete job/",
        "needs a kubelet for the Job; tests/deploy runs its program in the pod's place",
    ),
    ("docs/migration.md", "kubectl", "migration.rs plays the page"),
    ("docs/migration.md", "ip-address-controller", "migration.rs plays the page"),
    ("docs/install.md", "kubectl", "`install_page` plays the page, on a cluster of its own"),
    ("docs/install.md", "ip-address-controller", "`install_page` plays the page, on a cluster of its own"),
];

/// Programs that are run; everything else has to be marked on its page.
const RUN: [&str; 3] = ["kubectl", "kubectl-netip", "ip-address-controller"];

fn listed(command: &Command) -> Option<usize> {
    let is = |(page, start, _): &(&str, &str, &str)| {
        command.page.starts_with(page) && command.text.starts_with(start)
    };
    ELSEWHERE.iter().position(is)
}

/// What a page calls by a name in capitals is something on the stage.
fn filled_in(text: &str) -> String {
    let names = [
        ("NAME", ALLOCATION),
        ("NAMESPACE", ALLOCATION),
        ("ADDRESS", ADDRESS),
        ("NODE", NODE),
        ("POD", POD),
        ("PENDING-POD", POD),
        ("KEY=VALUE", "pool=stage"),
    ];
    let fill = |word: &str| {
        names.iter().find(|(name, _)| *name == word).map_or(word, |(_, value)| *value).to_owned()
    };
    // A word ends where no name can go on.
    let mut filled = String::new();
    let mut word = String::new();
    for character in text.chars() {
        if character.is_ascii_alphanumeric() || "-_=:".contains(character) {
            word.push(character);
        } else {
            filled.push_str(&with_value(&word, &fill));
            word.clear();
            filled.push(character);
        }
    }
    filled + &with_value(&word, &fill)
}

/// `spec.nodeName=NODE` has its name behind the sign.
fn with_value(word: &str, fill: &impl Fn(&str) -> String) -> String {
    match word.split_once('=') {
        Some((key, value)) if fill(word) == word => format!("{key}={}", fill(value)),
        _ => fill(word),
    }
}

/// Every command is of a kind that we know what to do with.
pub fn each_is_run_or_says_why_not() -> Result<()> {
    let commands = pages::commands()?;
    ensure!(commands.len() > 100, "only {} commands: are the pages still read?", commands.len());
    let makefile = std::fs::read_to_string(format!("{ROOT}/Makefile"))?;
    let mut used = BTreeSet::new();
    let mut faults = Vec::new();
    for command in &commands {
        let program = program(&command.text);
        if program == "make" {
            faults.extend(missing_targets(command, &makefile));
        } else if let Some(entry) = listed(command) {
            used.insert(entry);
        } else if !RUN.contains(&program) && !command.marked {
            faults.push(format!(
                "{command}\n  neither run, nor listed here, nor marked `not run` above its block"
            ));
        }
    }
    let stale = (0..ELSEWHERE.len()).filter(|entry| !used.contains(entry));
    faults.extend(stale.map(|entry| format!("no page has {:?} any more", ELSEWHERE[entry])));
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

fn missing_targets(command: &Command, makefile: &str) -> Vec<String> {
    let words = command.text.split('#').next().unwrap_or_default().split_whitespace();
    let targets = words.skip_while(|word| *word != "make").skip(1).filter(|word| !word.contains('='));
    let missing = targets.filter(|target| !makefile.contains(&format!("\n{target}:")));
    missing.map(|target| format!("{command}\n  there is no target {target}")).collect()
}

/// `make something` in the middle of a sentence has a target, too.
pub fn make_targets_in_sentences_exist() -> Result<()> {
    let makefile = std::fs::read_to_string(format!("{ROOT}/Makefile"))?;
    for (page, text) in pages::pages()? {
        for (at, _) in text.match_indices("`make ") {
            let target: String =
                text[at + 6..].chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
            let known = target.is_empty() || makefile.contains(&format!("\n{target}:"));
            ensure!(known, "{page}: there is no target {target}");
        }
    }
    Ok(())
}

/// kubectl, the plugin and our program, on an installation that works.
pub async fn they_work(shared: Shared) -> Result<()> {
    let stage = shared.stage().await?;
    let commands = pages::commands()?;
    let ours =
        commands.iter().filter(|command| RUN.contains(&program(&command.text)) && listed(command).is_none());
    let mut seen = BTreeSet::new();
    let once: Vec<_> = ours.filter(|command| seen.insert(command.text.clone())).collect();
    ensure!(once.len() > 30, "only {} commands are run", once.len());
    let cluster = &stage.playground.cluster;
    let faults: Vec<String> = stream::iter(once)
        .map(|command| async move {
            let done = shell(cluster, &filled_in(&command.text)).await;
            done.err().map(|error| format!("{command}\n  {error:#}"))
        })
        .buffer_unordered(4)
        .filter_map(|fault| async { fault })
        .collect()
        .await;
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

/// docs/install.md from top to bottom, as far as it goes without Helm, a registry and kubelets.
pub async fn install_page() -> Result<()> {
    let cluster = Cluster::start().await?;
    let commands = pages::commands()?;
    let page: Vec<_> = commands.iter().filter(|command| command.page == "docs/install.md").collect();
    let ours = page.iter().filter(|command| RUN.contains(&program(&command.text)));
    let mut run = 0;
    for command in ours.filter(|command| !command.text.contains("wait --for=condition=Complete")) {
        shell(&cluster, &command.text).await.with_context(|| command.to_string())?;
        run += 1;
        if command.text == "kubectl apply -k deploy/kustomize/base" {
            installed(&cluster).await?;
        }
    }
    ensure!(run == 6, "{run} commands: has the page changed its form?");
    let left = cluster.kubectl(&["get", "crd,ns", "-o", "name"]).await?.ok()?;
    ensure!(!left.contains("netipallocations") && !left.contains("/ip-address-controller"), "{left}");
    Ok(())
}

async fn installed(cluster: &Cluster) -> Result<()> {
    let deployments = ["ip-address-controller", "ip-address-controller-webhook"];
    for name in deployments {
        cluster.kubectl(&["-n", "ip-address-controller", "get", "deployment", name]).await?.ok()?;
    }
    Ok(())
}

/// `--help` of every command that docs/settings.md has a section for.
pub fn help_is_printed() -> Result<()> {
    for command in ["controller", "webhook", "all", "uninstall", "certs status", "certs rotate"] {
        let output = process::Command::new(BINARY).args(command.split(' ')).arg("--help").output()?;
        if !output.status.success() || output.stdout.is_empty() {
            bail!("{command} --help: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
    Ok(())
}

/// The stage's own names are what `filled_in` says.
pub fn names_in_capitals_are_filled_in() -> Result<()> {
    for (shown, run) in [
        ("kubectl get nia NAME -o wide", "kubectl get nia stage -o wide"),
        ("kubectl -n NAMESPACE get pods", "kubectl -n stage get pods"),
        ("--field-selector spec.nodeName=NODE", "--field-selector spec.nodeName=stage-1"),
        (
            "involvedObject.kind=NetIPAllocation,involvedObject.name=NAME",
            "involvedObject.kind=NetIPAllocation,involvedObject.name=stage",
        ),
        ("-l KEY=VALUE -o wide", "-l pool=stage -o wide"),
        ("custom-columns=NAME:.metadata.name", "custom-columns=NAME:.metadata.name"),
        ("| grep ADDRESS", "| grep 192.0.2.10"),
    ] {
        ensure!(filled_in(shown) == run, "{shown} became {}", filled_in(shown));
    }
    ensure!(stage::POD.starts_with(ALLOCATION), "the pod is of the stage's own workload");
    Ok(())
}
