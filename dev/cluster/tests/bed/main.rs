//! The bed is real: what tests and people stand on behaves as a cluster does.

mod binaries;
mod components;
mod kit;
mod leftovers;
mod nodes;
mod workloads;

use std::process::ExitCode;

fn main() -> ExitCode {
    cluster::harness::run(cluster::tests![
        binaries::a_release_is_downloaded_and_checked,
        binaries::nothing_works_and_the_message_says_what_to_do,
        binaries::a_version_that_is_not_there_is_refused,
        components::api_server_killed_and_restarted,
        components::every_component_can_be_paused_and_restarted,
        components::two_clusters_side_by_side,
        components::service_accounts_get_their_own_kubeconfig,
        leftovers::interrupted_cluster_leaves_nothing,
        leftovers::killed_cluster_leaves_nothing,
        leftovers::panicking_test_leaves_nothing,
        leftovers::failed_start_shows_the_log_and_leaves_nothing,
        nodes::silent_node_becomes_unknown_and_its_pods_are_evicted,
        nodes::not_ready_at_once_and_well_again,
        nodes::recreated_node_is_another_node,
        nodes::deleted_node_takes_its_pods_with_it,
        workloads::deployment_waits_for_labelled_nodes,
        workloads::drain_ends_when_the_pods_are_gone,
        workloads::statefulset_rolls_out_in_order,
        workloads::daemonset_follows_the_nodes,
    ])
}
