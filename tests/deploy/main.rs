//! deploy/ on a real control plane: what is rendered, admitted, allowed, upgraded, left behind; and the image's
//! root folder.

mod admitted;
mod image;
mod kit;
mod kubelet;
mod rendered;
mod roles;
mod scene;
mod uninstall;
mod upgrade;

use cluster::{tests, tests_on_all_versions};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut all = tests_on_all_versions![
        admitted::overlays_are_taken_and_their_pods_run,
        admitted::charts_are_taken_and_their_pods_run,
    ];
    all.extend(tests![
        rendered::chart_and_kustomize_make_the_same_objects,
        rendered::pods_are_as_they_must_be,
        rendered::another_namespace_is_meant_everywhere,
        rendered::the_chart_is_clean,
        rendered::values_that_cannot_be_are_refused,
        admitted::a_pod_that_asks_for_more_is_refused,
        roles::they_are_enough_for_a_whole_life,
        roles::they_are_no_more_than_enough,
        roles::with_cert_manager_the_webhook_has_fewer,
        roles::people_get_theirs_by_the_clusters_roles,
        upgrade::the_predecessors_objects_by_helm,
        upgrade::the_predecessors_objects_by_kustomize,
        upgrade::an_earlier_chart,
        upgrade::helm_upgrades_while_everything_runs,
        upgrade::client_side_and_server_side_in_turn,
        uninstall::helm_leaves_addresses_and_labels,
        uninstall::helm_releases_everything_if_told_so,
        uninstall::it_can_be_repeated_and_a_strange_controller_is_told,
        uninstall::a_release_without_a_controller_is_told,
        image::the_root_folder_has_what_is_needed_and_nothing_else,
        image::the_dockerfile_is_clean,
        image::the_root_folder_is_reproducible,
        image::controller_and_webhook_become_ready_in_it,
    ]);
    cluster::harness::run_at_once(4, all)
}
