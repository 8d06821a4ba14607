//! Certificates on the real control plane: the API server calls replicas of a webhook that allows
//! everything, with short real lifetimes, while somebody writes.

// Clippy takes only what has `#[test]` for a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod damage;
mod files;
mod kit;
mod load;
mod publish;
mod replica;
mod rotation;
mod scene;
mod status;

use cluster::{tests, tests_on_all_versions};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut all = tests_on_all_versions![
        rotation::two_replicas_that_start_at_once_share_one_authority,
        rotation::three_rotations_of_authority_and_leaf_fail_no_write,
    ];
    all.extend(tests![
        rotation::a_rolling_restart_fails_no_write,
        rotation::connections_closed_just_as_they_are_used_fail_no_write,
        damage::a_damaged_secret_heals_with_the_same_authority_and_is_reported,
        damage::without_memory_a_damaged_secret_is_made_anew_and_the_bundle_stays_a_union,
        damage::a_leaked_authority_goes_with_secret_and_bundles_while_nobody_runs,
        publish::a_bundle_overwritten_by_hand_comes_back,
        publish::a_configuration_deleted_and_recreated_gets_the_bundle,
        publish::a_conversion_stanza_gets_the_bundle,
        publish::a_wrong_name_or_an_untrusted_authority_is_an_error_there_and_a_metric_here,
        publish::the_role_gives_no_other_rights,
        files::files_swapped_half_written_and_removed_fail_no_write,
        files::an_expired_certificate_is_not_ready_until_it_is_mended,
        files::with_somebody_elses_injector_nothing_is_written,
        status::certs_status_tells_what_there_is_and_what_comes_next,
    ]);
    cluster::harness::run(all)
}
