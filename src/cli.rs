//! The command line.

use crate::certs_rotate::Rotate;
use crate::certs_status::Status;
use crate::process::{self, Common, Misconfigured};
use crate::uninstall::Uninstall;
use crate::{controller, webhook};
use clap::{Parser, Subcommand};
use std::io::{self, Write as _};
use std::process::ExitCode;

/// Keeps reserved static public IPs attached to healthy cloud VM nodes and makes the right workloads
/// run there.
#[derive(Debug, Parser)]
#[command(name = "ip-address-controller", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The webhook's certificates
    #[command(subcommand)]
    Certs(Certs),
    /// Print the CustomResourceDefinitions (`ip-address-controller crds | kubectl apply -f -`)
    Crds,
    /// Run the controller
    Controller {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        flags: controller::process::Flags,
    },
    /// Run controller and webhook in one process
    All {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        flags: controller::process::Flags,
        #[command(flatten)]
        settings: Box<webhook::Settings>,
    },
    /// Run the admission webhook
    Webhook {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        settings: Box<webhook::Settings>,
    },
    /// Take away what would block others once this is gone: webhook configurations, the controller,
    /// finalizers. Can be repeated
    Uninstall(Uninstall),
    /// Print the version
    Version,
}

#[derive(Debug, Subcommand)]
enum Certs {
    /// Print source, serials, dates, the next step, and which configurations carry the bundle
    Status(Status),
    /// Replace the CA now, without a failed request: a key may have leaked, or a drill is due
    Rotate(Rotate),
}

impl Cli {
    /// Runs the command; a failure is one line on standard error and a non-zero exit code.
    pub fn run(self) -> ExitCode {
        let done = match self.command {
            Command::Certs(Certs::Status(status)) => status.report().and_then(|report| print(&report)),
            Command::Certs(Certs::Rotate(rotate)) => rotate.run().and_then(|report| print(&report)),
            Command::Crds => print_crds(),
            Command::Controller { common, flags } => {
                process::run(&common, |common, shutdown| controller::process::main(common, flags, shutdown))
            }
            Command::All { common, flags, settings } => {
                process::run(&common, |common, shutdown| process::all(common, flags, *settings, shutdown))
            }
            Command::Webhook { common, settings } => {
                process::run(&common, |common, shutdown| webhook::run(common, *settings, shutdown))
            }
            Command::Uninstall(uninstall) => uninstall.run(),
            Command::Version => print(&format!("{}\n", env!("CARGO_PKG_VERSION"))),
        };
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("ip-address-controller: {error:#}");
                let misconfigured = error.downcast_ref::<Misconfigured>().is_some();
                if misconfigured { ExitCode::from(2) } else { ExitCode::FAILURE }
            }
        }
    }
}

fn print_crds() -> anyhow::Result<()> {
    for manifest in crds::manifests() {
        print(&format!("---\n{}", manifest.to_yaml()?))?;
    }
    Ok(())
}

/// Like `print!`, but a reader that went away early (`| head`) is no fault of ours.
pub fn print(text: &str) -> anyhow::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => Ok(done?),
    }
}
