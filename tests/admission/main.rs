//! What gets into the cluster, on the oldest and the newest API server: by the schema on its own, and with
//! the webhook before it.

mod requests;
mod schema;
mod webhook;

use cluster::{tests, tests_on_all_versions};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut all = tests_on_all_versions![
        schema::accepted::manifests_of_the_predecessor,
        schema::accepted::a_stray_namespace_is_no_obstacle,
        schema::accepted::an_empty_field_counts_as_absent,
        schema::accepted::the_largest_list_mixes_both_families,
        schema::accepted::every_field_at_once,
        schema::accepted::defaults_appear_on_read_back,
        schema::refused::each_bad_spec_with_its_field_and_a_reason,
        schema::refused::both_references_changed_to_different_workloads,
        schema::refused::an_object_of_a_mebibyte_gets_an_answer,
        schema::agreement::schema_and_parser_agree_and_what_they_accept_can_be_asked_for,
        schema::subresources::status_and_spec_are_written_apart,
        schema::stored_before::broken_objects_stay_workable,
        webhook::allocations::five_faults_are_told_in_one_answer,
        webhook::duplicates::the_other_object_is_named,
        webhook::legacy::a_legacy_manifest_is_converted_and_the_client_is_told,
        webhook::pods::others_are_untouched,
        webhook::rollouts::deployments,
        webhook::ownership::server_side_apply_needs_no_force,
        webhook::ownership::the_controllers_own_writes_pass_by,
    ];
    all.extend(tests![
        schema::kubectl::columns_are_printed,
        schema::kubectl::wait_sees_the_ready_condition,
        schema::kubectl::explain_describes_the_fields,
        schema::kubectl::the_crds_folder_is_applied_as_it_is,
        webhook::all::the_controller_is_ready_while_the_webhook_is_not,
        webhook::all::the_webhook_serves_while_the_controller_is_not_ready,
        webhook::allocations::addresses_become_canonical,
        webhook::allocations::each_bad_spec_gets_the_webhooks_message,
        webhook::allocations::requests_are_counted_and_logged_by_uid,
        webhook::allocations::warnings_reach_the_client,
        webhook::bytes::hostile_bodies_cost_little_memory,
        webhook::bytes::what_is_no_review_is_refused_and_nothing_falls_over,
        webhook::down::readiness_names_what_is_missing,
        webhook::down::the_schema_refuses_bad_specs_on_its_own,
        webhook::down::what_needs_no_webhook_goes_on,
        webhook::duplicates::a_clash_is_found_among_twenty_thousand_addresses,
        webhook::duplicates::a_deleted_object_frees_its_addresses_and_one_being_deleted_does_not,
        webhook::duplicates::a_dry_run_holds_nothing,
        webhook::duplicates::an_address_moves_in_two_steps,
        webhook::duplicates::of_two_in_quick_succession_one_is_refused,
        webhook::isolation::bad_objects_and_namespaces_harm_nobody_else,
        webhook::legacy::a_server_side_applier_needs_no_force,
        webhook::legacy::two_references_are_one_if_they_can_be,
        webhook::manifests::helm_upgrades_them,
        webhook::manifests::kubectl_applies_them_again,
        webhook::pods::existing_affinity_is_kept,
        webhook::pods::the_selector_follows_the_allocations,
        webhook::pods::two_allocations_of_a_workload_are_one_requirement,
        webhook::rollouts::daemon_sets,
        webhook::rollouts::stateful_sets,
    ]);
    cluster::harness::run(all)
}
