//! The `kubectl-netip` binary, which kubectl runs as `kubectl netip`.

use clap::Parser as _;

fn main() -> std::process::ExitCode {
    ip_address_controller::plugin::Cli::parse().run()
}
