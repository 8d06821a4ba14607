//! `kubectl netip`: what is where and why, what would be done, what is wrong. It only reads the
//! Kubernetes API: no cloud is called and nothing is written.

mod complete;
mod connect;
mod convert;
mod diff;
mod doctor;
mod history;
mod lease;
mod published;
mod show;
mod snapshot;
mod status;
mod top;
mod why;

use anyhow::Result;
use clap::{Parser, Subcommand};
use clap_complete::Shell;
use connect::ClusterFlags;
use show::Output;
use snapshot::Snapshot;
use std::process::ExitCode;

/// What is where and why, what would be done, what is wrong: reads the cluster, changes nothing.
#[derive(Debug, Parser)]
#[command(name = "kubectl-netip", bin_name = "kubectl netip", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(flatten)]
    cluster: ClusterFlags,
    #[command(flatten)]
    output: Output,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show allocations, their addresses, the nodes that hold them and the pods there
    Status {
        /// Only this allocation
        name: Option<String>,
    },
    /// Tell which rule or error keeps an address, a node or a pod as it is
    Why {
        /// An address, a node or a pod: 203.0.113.10, [node/]NAME, [pod/]NAME or NAMESPACE/POD
        subject: String,
    },
    /// Show what the controller would do now, as a diff; nothing, if that is nothing
    Plan {
        /// Only this allocation
        name: Option<String>,
    },
    /// Show the last moves of addresses, newest first
    History {
        /// Only this allocation
        name: Option<String>,
    },
    /// Watch allocations and their moves, live
    Top {
        /// Only this allocation
        name: Option<String>,
    },
    /// Check the installation, and say what to do about each finding; exits with 1 if something is wrong
    Doctor,
    /// Convert legacy NetIPAllocation manifests to the current form
    Convert(convert::Convert),
    /// Print the completion script of a shell
    Completion {
        /// The shell
        shell: Shell,
    },
    /// What kubectl asks for when it completes `kubectl netip`
    #[command(name = "__complete", hide = true)]
    Complete {
        /// The words so far
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

impl Cli {
    /// Runs the command; a failure is one line on standard error and exit code 1.
    pub fn run(self) -> ExitCode {
        let done = match &self.command {
            Command::Convert(convert) => convert.run().map(|()| true),
            Command::Completion { shell } => complete::script(*shell).map(|()| true),
            Command::Complete { words } => complete::answer(words).map(|()| true),
            _ => tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(Into::into)
                .and_then(|runtime| runtime.block_on(self.ask())),
        };
        match done {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("kubectl netip: {error:#}");
                ExitCode::FAILURE
            }
        }
    }

    /// What takes a cluster; whether all is well.
    async fn ask(&self) -> Result<bool> {
        let cluster = self.cluster.connect().await?;
        if matches!(self.command, Command::Doctor) {
            let report = doctor::examine(&cluster).await;
            self.output.print(&report)?;
            return Ok(!report.anything_wrong());
        }
        if let Command::Top { name } = &self.command {
            top::watch(&cluster, name.as_deref()).await?;
            return Ok(true);
        }
        let snapshot = Snapshot::take(&cluster).await?;
        match &self.command {
            Command::Status { name } => {
                self.output.print(&status::report(&snapshot, snapshot.named(name.as_deref())?))?;
            }
            Command::Why { subject } => {
                self.output.print(&why::report(&snapshot, subject, &cluster.namespace)?)?;
            }
            Command::Plan { name } => {
                self.output.print(&diff::report(&snapshot, snapshot.named(name.as_deref())?))?;
            }
            Command::History { name } => {
                self.output.print(&history::report(&snapshot, snapshot.named(name.as_deref())?))?;
            }
            // Not of a snapshot, and dealt with by now.
            Command::Top { .. }
            | Command::Doctor
            | Command::Convert(_)
            | Command::Completion { .. }
            | Command::Complete { .. } => {}
        }
        Ok(true)
    }
}
