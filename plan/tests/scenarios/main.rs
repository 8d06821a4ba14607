//! Named scenarios: a world in, what the planner makes of it out. `README.md` beside this file
//! explains the notation.

mod always;
mod check;
mod notation;
mod parsing;
mod perform;
mod scene;
mod show;
mod vocabulary;

use check::Expected;
use libtest_mimic::{Arguments, Failed, Trial};
use notation::{Scenario, Stage};
use perform::Between;
use plan::Plan;
use scene::Scene;
use std::collections::BTreeMap;
use std::process::ExitCode;

macro_rules! cases {
    ($($file:literal),* $(,)?) => {
        &[$(($file, include_str!(concat!("cases/", $file, ".txt")))),*]
    };
}

const CASES: &[(&str, &str)] = cases![
    "placement",
    "eligibility",
    "taints",
    "leaving",
    "daemonsets",
    "steps",
    "crashes",
    "storm",
    "cloud",
    "conflicts",
    "identity",
    "deletion",
    "labels",
    "pods",
    "modes",
    "status",
    "isolation",
];

/// Scenarios that the planner does not fulfil yet: `file: name => what it does instead`.
const KNOWN_FAILING: &str = include_str!("known-failing.txt");

/// Plans until nothing is left to do; more rounds than any scenario needs means that it never ends.
const MAX_ROUNDS: usize = 30;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = parsing::trials();
    for (file, text) in CASES {
        match notation::scenarios(text) {
            Ok(scenarios) => trials.extend(scenarios.into_iter().map(|scenario| trial(file, scenario))),
            Err(why) => trials.push(broken(format!("{file}: notation"), why)),
        }
    }
    libtest_mimic::run(&arguments, leave_out(trials)).exit_code()
}

fn trial(file: &str, scenario: Scenario) -> Trial {
    let name = format!("{file}: {}", scenario.name);
    Trial::test(name, move || run(&scenario).map_err(Failed::from))
}

fn broken(name: String, why: String) -> Trial {
    Trial::test(name, move || Err(Failed::from(why)))
}

/// Marks what is known to fail as ignored, with the reason.
fn leave_out(trials: Vec<Trial>) -> Vec<Trial> {
    let lines = KNOWN_FAILING.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut failing: BTreeMap<&str, &str> = lines.filter_map(|line| line.split_once(" => ")).collect();
    let mut all: Vec<Trial> = trials
        .into_iter()
        .map(|trial| match failing.remove(trial.name()) {
            Some(why) => trial.with_kind(why).with_ignored_flag(true),
            None => trial,
        })
        .collect();
    for name in failing.into_keys() {
        let why = "known-failing.txt names a scenario that does not exist".to_owned();
        all.push(broken(name.to_owned(), why));
    }
    all
}

fn run(scenario: &Scenario) -> Result<(), String> {
    let mut scene = Scene::default();
    let mut plan = Plan::default();
    for (index, stage) in scenario.stages.iter().enumerate() {
        let between = stage.then.read(Between::read)?;
        if index > 0 {
            between.happen(&mut scene, &plan);
        }
        scene.change(&stage.world, between.stale)?;
        plan = play(&mut scene, stage).map_err(|why| format!("stage {}:\n{why}", index + 1))?;
    }
    Ok(())
}

fn play(scene: &mut Scene, stage: &Stage) -> Result<Plan, String> {
    let expected = Expected::read(&stage.expected)?;
    let mut plan = plan::plan(&scene.world, scene.now);
    let mut wrong = always::broken(scene, &plan);
    let mut rounds = vec![show::actions(&plan)];
    while stage.to_rest && rounds.last().is_some_and(|actions| !actions.is_empty()) {
        if rounds.len() > MAX_ROUNDS {
            wrong.push("it never comes to rest".to_owned());
            break;
        }
        Between::done().happen(scene, &plan);
        scene.refresh();
        plan = plan::plan(&scene.world, scene.now);
        wrong.extend(always::broken(scene, &plan));
        rounds.push(show::actions(&plan));
    }
    wrong.extend(expected.differences(scene, &plan, &rounds));
    if wrong.is_empty() {
        return Ok(plan);
    }
    Err(format!("(- expected, + found)\n{}", wrong.join("\n")))
}
