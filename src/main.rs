//! The `ip-address-controller` binary: parse, run, report.

use clap::Parser as _;

fn main() -> std::process::ExitCode {
    ip_address_controller::Cli::parse().run()
}
