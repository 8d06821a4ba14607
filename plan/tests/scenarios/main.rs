//! Named scenarios: a world in, what the planner makes of it out. `README.md` beside this file
//! explains the notation.

mod always;
mod check;
mod notation;
mod parsing;
mod perform;
mod scene;
mod show;

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
];

/// Scenarios that the planner does not fulfil yet: `name: what it does instead`.
const KNOWN_FAILING: &str = include_str!("known-failing.txt");

/// Plans until nothing is left to do; more rounds than any scenario needs means that it never ends.
const MAX_ROUNDS: usize = 60;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut failing = known_failing();
    let mut trials = parsing::trials();
    for (file, text) in CASES {
        match notation::scenarios(text) {
            Ok(scenarios) => trials.extend(
                scenarios
                    .into_iter()
                    .map(|scenario| trial(file, scenario, &mut failing)),
            ),
            Err(why) => trials.push(broken(format!("{file}: notation"), why)),
        }
    }
    for name in failing.into_keys() {
        let why = "known-failing.txt names a scenario that does not exist".to_owned();
        trials.push(broken(name.to_owned(), why));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn known_failing() -> BTreeMap<&'static str, &'static str> {
    let lines = KNOWN_FAILING
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| line.split_once(" => ").unwrap_or((line, "")))
        .collect()
}

fn trial(file: &str, scenario: Scenario, failing: &mut BTreeMap<&str, &str>) -> Trial {
    let name = format!("{file}: {}", scenario.name);
    let known = failing.remove(name.as_str());
    let trial = Trial::test(name, move || run(&scenario).map_err(Failed::from));
    match known {
        Some(why) => trial.with_kind(why).with_ignored_flag(true),
        None => trial,
    }
}

fn broken(name: String, why: String) -> Trial {
    Trial::test(name, move || Err(Failed::from(why)))
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
    let mut actions = show::actions(&plan);
    if stage.to_rest {
        let mut last = actions.clone();
        for round in 0.. {
            if last.is_empty() {
                break;
            }
            if round == MAX_ROUNDS {
                wrong.push("it never comes to rest".to_owned());
                break;
            }
            Between::done().happen(scene, &plan);
            scene.refresh();
            plan = plan::plan(&scene.world, scene.now);
            wrong.extend(always::broken(scene, &plan));
            last = show::actions(&plan);
            actions.extend(last.iter().cloned());
        }
    }
    wrong.extend(expected.differences(scene, &plan, &actions, stage.to_rest));
    if wrong.is_empty() {
        return Ok(plan);
    }
    Err(format!("(- expected, + found)\n{}", wrong.join("\n")))
}
