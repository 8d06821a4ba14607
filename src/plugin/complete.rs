//! Completion: scripts for `kubectl-netip`, and answers to kubectl's own completion for `kubectl netip`.

use super::Cli;
use anyhow::Result;
use clap::{Command, CommandFactory as _};
use clap_complete::Shell;

/// Prints the script of a shell.
pub fn script(shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "kubectl-netip", &mut script);
    crate::cli::print(&String::from_utf8_lossy(&script))
}

/// Answers as kubectl expects it of `kubectl_complete-netip`: a candidate a line, then a directive (4: no
/// file names).
pub fn answer(words: &[String]) -> Result<()> {
    let mut lines = candidates(words);
    lines.push(":4\n".to_owned());
    crate::cli::print(&lines.join("\n"))
}

/// What the last word may become, with a description behind a tab.
fn candidates(words: &[String]) -> Vec<String> {
    let mut command = Cli::command();
    command.build();
    let (last, before) = words.split_last().map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
    let chosen = before.iter().find_map(|word| command.find_subcommand(word));
    let all = match chosen {
        _ if last.starts_with('-') => flags(chosen.unwrap_or(&command)),
        None => commands(&command),
        Some(_) => Vec::new(),
    };
    all.into_iter().filter(|candidate| candidate.starts_with(last)).collect()
}

fn commands(command: &Command) -> Vec<String> {
    let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    shown.map(|sub| described(sub.get_name(), sub.get_about())).collect()
}

fn flags(command: &Command) -> Vec<String> {
    let long = command.get_arguments().filter_map(|flag| Some((flag.get_long()?, flag.get_help())));
    long.map(|(name, help)| described(&format!("--{name}"), help)).collect()
}

fn described(name: &str, about: Option<&clap::builder::StyledStr>) -> String {
    about.map_or(name.to_owned(), |about| format!("{name}\t{about}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &[&str]) -> Vec<String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let first = |candidate: String| candidate.split('\t').next().unwrap_or_default().to_owned();
        candidates(&words).into_iter().map(first).collect()
    }

    #[test]
    fn commands_and_their_flags_are_completed() {
        assert_eq!(names(&["do"]), ["doctor"]);
        assert_eq!(names(&["convert", "--t"]), ["--to"]);
        assert_eq!(names(&["status", "--controller"]), ["--controller-namespace"]);
        assert!(names(&[""]).contains(&"history".to_owned()));
        assert!(!names(&[""]).contains(&"__complete".to_owned()));
        assert_eq!(names(&["status", ""]), [""; 0]);
    }
}
