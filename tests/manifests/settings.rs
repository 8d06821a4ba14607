//! docs/settings.md: every flag and variable, from the command line's own definition.

use crate::spec::row;
use clap::{Arg, Command, CommandFactory as _};
use std::collections::BTreeSet;
use std::fmt::Write as _;

const HEAD: &str = "# Settings

Settings are flags, most of them with an environment variable of the same meaning; the flag wins. Made from the command line's \
definition by `make generate`; `--help` says the same.

With the chart, set values ([the chart's README](../deploy/chart/README.md)); `extraEnv` takes the rest.
";

/// What is read from the environment and has no flag: libraries and SDKs know these names.
const VARIABLES: &[(&str, &str, &str)] = &[
    ("RUST_LOG", "all", "What is logged, e.g. `info,ip_address_controller=debug`; `info` if not set"),
    ("KUBECONFIG", "all", "The usual; inside a cluster none is needed"),
    ("GCP_PROJECT", "controller", "Project of the addresses, whatever provider IDs say"),
    ("GCP_COMPUTE_ENDPOINT", "controller", "Another endpoint than Google's"),
    ("GCP_CREDENTIALS", "controller", "`anonymous`, for simulators on loopback only"),
    ("GOOGLE_APPLICATION_CREDENTIALS", "controller", "A file with credentials, read by Google's SDK"),
    ("AWS_REGION", "controller", "Region of the addresses, whatever provider IDs say"),
    ("AWS_ENDPOINT_URL_EC2", "controller", "Another endpoint than Amazon's"),
    ("AWS_ENDPOINT_URL", "controller", "The same, if the one above is not set"),
    ("AZURE_SUBSCRIPTION_ID", "controller", "Subscription of the addresses, whatever provider IDs say"),
    ("AZURE_ARM_ENDPOINT", "controller", "Another endpoint than Microsoft's public cloud"),
    ("AZURE_AUTHORITY_HOST", "controller", "Where tokens come from in a sovereign cloud"),
    ("AZURE_CREDENTIALS", "controller", "`anonymous`, for simulators on loopback only"),
    ("AZURE_CLIENT_ID", "controller", "Which identity; set by Workload Identity"),
    ("AZURE_TENANT_ID", "controller", "Its tenant; set by Workload Identity"),
    ("AZURE_FEDERATED_TOKEN_FILE", "controller", "Its token; set by Workload Identity"),
    ("AZURE_CLIENT_SECRET", "controller", "A secret instead of a token"),
    (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "all",
        "Where traces go (OTLP over HTTP in JSON); none are made if not set",
    ),
    ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "all", "The same, for traces alone, as a whole URL"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "all", "Headers for the receiver, `name=value` by comma"),
    ("OTEL_SERVICE_NAME", "all", "Name of the service in traces"),
    ("OTEL_RESOURCE_ATTRIBUTES", "all", "Further attributes, `name=value` by comma"),
    ("OTEL_SDK_DISABLED", "all", "`true`: no traces, whatever else is set"),
];

/// The page.
pub fn page() -> String {
    let cli = ip_address_controller::Cli::command();
    let mut page = HEAD.to_owned();
    for path in
        [&["controller"][..], &["webhook"], &["uninstall"], &["certs", "status"], &["certs", "rotate"]]
    {
        let command = find(&cli, path);
        let about = command.get_about().expect("every command is described");
        write!(page, "\n## {}\n\n{about}.\n\n", path.join(" ")).expect("a string takes everything");
        page.push_str("| flag | variable | default | meaning |\n|---|---|---|---|\n");
        for argument in arguments(command) {
            row(&mut page, &cells(argument).each_ref().map(String::as_str));
        }
    }
    page.push_str("\n## all\n\nController and webhook in one process: the settings of both.\n");
    page.push_str("\n## Without a flag\n\n| variable | read by | meaning |\n|---|---|---|\n");
    for (name, reader, meaning) in VARIABLES {
        row(&mut page, &[&format!("`{name}`"), reader, meaning]);
    }
    page
}

fn find<'c>(cli: &'c Command, path: &[&str]) -> &'c Command {
    path.iter().fold(cli, |command, name| command.find_subcommand(name).expect("a command"))
}

/// What a person may give.
fn arguments(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|argument| !["help", "version"].contains(&argument.get_id().as_str()))
}

fn cells(argument: &Arg) -> [String; 4] {
    let flag = argument.get_long().map_or_else(String::new, |name| format!("`--{name}`"));
    let variable = argument.get_env().map_or_else(String::new, |name| format!("`{}`", name.display()));
    let defaults: Vec<_> =
        argument.get_default_values().iter().map(|value| value.display().to_string()).collect();
    let default = match defaults.join(",") {
        none if none.is_empty() || !argument.get_action().takes_values() => String::new(),
        default => format!("`{default}`"),
    };
    let help = argument.get_long_help().or_else(|| argument.get_help()).expect("every setting is described");
    let help = help.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    [flag, variable, default, help]
}

/// The page says that `all` takes the settings of both, and of nothing else.
#[test]
fn all_takes_the_settings_of_both() {
    let cli = ip_address_controller::Cli::command();
    let names = |path: &[&str]| -> BTreeSet<String> {
        arguments(find(&cli, path)).map(|argument| argument.get_id().to_string()).collect()
    };
    assert_eq!(names(&["all"]), &names(&["controller"]) | &names(&["webhook"]));
}

/// What the sources read from the environment by name is on the page.
#[test]
fn variables_without_a_flag_are_all_listed() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources: String =
        ["cloud/src", "src", "telemetry/src"].map(|folder| crate::tests_in(&root.join(folder))).concat();
    let page = page();
    let word = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
    let named: BTreeSet<&str> = ["\"GCP_", "\"AWS_", "\"AZURE_", "\"OTEL_"]
        .iter()
        .flat_map(|start| sources.match_indices(start))
        .map(|(at, _)| &sources[at + 1..])
        .map(|text| &text[..text.bytes().take_while(word).count()])
        .collect();
    assert!(named.len() > 10, "the sources have changed their form: {named:?}");
    for name in named {
        assert!(page.contains(&format!("`{name}`")), "docs/settings.md lacks {name}");
    }
}
