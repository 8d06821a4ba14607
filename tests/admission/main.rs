//! What gets into the cluster: the schema on its own, on the oldest and the newest API server.

mod requests;
mod schema;

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
        schema::subresources::status_and_spec_are_written_apart,
        schema::stored_before::broken_objects_stay_workable,
    ];
    all.extend(tests![
        schema::kubectl::columns_are_printed,
        schema::kubectl::wait_sees_the_ready_condition,
        schema::kubectl::explain_describes_the_fields,
        schema::kubectl::the_crds_folder_is_applied_as_it_is,
    ]);
    cluster::harness::run(all)
}
