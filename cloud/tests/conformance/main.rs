//! One suite against the trait, run for every provider and its simulator, and for AWS with moto.
//!
//! `cargo test --workspace --test conformance` runs all; names are `cloud::case`.

// Helpers of tests may fail a test, though they are no test functions themselves.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod aws;
mod azure;
mod bed;
mod calls;
mod cases {
    pub mod fences;
    pub mod histories;
    pub mod limits;
    pub mod reads;
    pub mod writes;
}
mod credentials;
mod gcp;
mod moto;
mod permissions;
mod room;

use cases::{fences, histories, limits, reads, writes};
use cloud::Cloud;
use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;

fn trial<F: Future<Output = ()> + 'static>(
    cloud: &str,
    name: &str,
    run: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    let name =
        name.split("::").skip(usize::from(name.matches("::").count() > 1)).collect::<Vec<_>>().join("::");
    Trial::test(format!("{cloud}::{name}"), move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(run());
        Ok(())
    })
}

/// Cases of the suite for some clouds, played by our simulators or by another one.
macro_rules! suite {
    ($clouds:expr, $by:expr => $($path:path),* $(,)?) => {{
        let mut trials = Vec::new();
        for &cloud in $clouds {
            $({
                let played_by = if $by.is_empty() { cloud.as_str().to_owned() } else { format!("{}-{}", cloud.as_str(), $by) };
                trials.push(trial(&played_by, stringify!($path), move || {
                    if !$by.is_empty() {
                        moto::play(stringify!($path));
                    }
                    $path(cloud)
                }));
            })*
        }
        trials
    }};
}

/// Cases of one cloud.
macro_rules! only {
    ($cloud:expr => $($path:path),* $(,)?) => {
        vec![$(trial($cloud.as_str(), stringify!($path), || $path())),*]
    };
}

const ALL: [Cloud; 3] = [Cloud::Gcp, Cloud::Aws, Cloud::Azure];
/// EC2 has no operations that could fail after they were accepted.
const WITH_OPERATIONS: [Cloud; 2] = [Cloud::Gcp, Cloud::Azure];

/// The suite, for some clouds.
fn suite(clouds: &[Cloud], by: &'static str) -> Vec<Trial> {
    suite![clouds, by =>
        reads::free_attached_and_unknown_addresses,
        reads::a_holder_that_was_not_asked_for_is_named_all_the_same,
        reads::a_holder_is_named_as_the_node_is,
        reads::everything_that_was_asked_for_has_an_answer,
        reads::one_that_something_else_has_is_held_by_other,
        reads::instances_stop_end_and_are_never_there,
        reads::an_instance_with_a_static_address_of_somebody_elses_refuses,
        reads::an_error_is_unknown_and_never_free,
        reads::more_than_a_page_in_two_regions,
        reads::a_list_that_breaks_off_is_unknown,
        reads::a_list_that_leaves_things_out_takes_nothing_away,
        reads::an_endpoint_that_is_down_is_unknown,
        reads::no_credentials_are_told_with_what_to_do,
        writes::attach_attaches,
        writes::what_is_attached_already_is_attached,
        writes::what_somebody_has_by_now_is_not_taken,
        writes::what_something_else_has_by_now_is_not_taken,
        writes::detach_frees_and_again_is_success,
        writes::what_somebody_else_attached_is_adopted_and_detached,
        writes::a_move_is_a_detach_and_an_attach,
        writes::another_region_is_refused_before_anything_is_sent,
        writes::ipv6_is_unsupported_with_a_reason,
        writes::an_instance_that_is_gone_is_a_conflict,
        writes::a_stopped_instance_keeps_its_address_until_it_is_detached,
        fences::a_stale_token_is_refused,
        fences::a_stale_detach_does_not_hit_another_node,
        fences::two_writers_of_one_address,
        fences::two_writers_of_one_node,
        fences::who_lost_the_lease_sends_nothing,
        fences::leadership_is_asked_right_before_every_write,
        fences::a_lost_reply_and_a_new_process_with_the_same_key,
        fences::a_reset_before_the_effect_is_tried_again,
        fences::a_detach_whose_reply_was_lost_is_done,
        fences::a_connection_that_is_closed_without_a_reply_says_nothing,
        fences::reads_that_lag_steal_nothing,
        fences::a_hung_call_ends_with_its_deadline,
        fences::somebody_writes_between_our_read_and_our_write,
        histories::random_histories_rob_nobody,
        limits::throttling_is_obeyed_and_no_storm,
        limits::a_throttled_write_waits_for_its_turn,
        limits::expired_credentials_are_denied_and_renewed_ones_work,
        limits::errors_carry_a_request_id_and_no_secret,
        limits::equal_refusals_have_equal_messages,
        limits::every_call_is_metered,
        permissions::the_documented_role_is_enough_and_nothing_in_it_too_much,
        calls::every_operation_does_the_documented_calls,
    ]
}

fn trials() -> Vec<Trial> {
    let mut trials = suite(&ALL, "");
    trials.extend(suite![&WITH_OPERATIONS, "" =>
        writes::an_accepted_write_that_fails_has_failed,
        writes::found_out_late_that_it_is_in_use,
    ]);
    trials.extend(own());
    trials.extend(with_moto());
    trials
}

/// The cases that moto plays, and that each case is played or has a reason.
fn with_moto() -> Vec<Trial> {
    let skip = std::env::var("MOTO").is_ok_and(|moto| moto == "skip");
    let all = suite(&[Cloud::Aws], "moto");
    let names: Vec<String> = all.iter().map(|trial| trial.name().replacen("aws-moto::", "", 1)).collect();
    let played = all.into_iter().zip(&names).filter(|(_, name)| moto::PLAYED.contains(&name.as_str()));
    let mut trials: Vec<Trial> = played.map(|(trial, _)| trial.with_ignored_flag(skip)).collect();
    if skip {
        println!("MOTO=skip: {} cases with moto are left out", trials.len());
    }
    trials.push(Trial::test("aws-moto::every_case_is_played_or_has_a_reason", move || {
        for name in names {
            let listed = moto::NOT_PLAYED.iter().any(|(case, reason)| *case == name && !reason.is_empty());
            let played = moto::PLAYED.contains(&name.as_str());
            assert!(listed != played, "{name} is to be in one of the two lists of moto.rs");
        }
        Ok(())
    }));
    trials
}

fn own() -> Vec<Trial> {
    let mut trials = only![Cloud::Gcp =>
        gcp::the_name_says_address_and_whether_there_was_one,
        gcp::a_released_node_gets_an_address_of_its_own_back,
        gcp::a_crash_after_making_room_forgets_nothing,
        gcp::a_private_node_that_was_released_stays_private,
        gcp::an_address_that_follows_another_forgets_nothing,
        gcp::an_attach_that_fails_leaves_no_node_without_an_address,
        gcp::a_node_that_an_attach_left_bare_gets_its_own_address_back,
        gcp::the_tier_of_the_address_is_copied,
        gcp::a_node_made_anew_under_its_name_is_another_one,
        gcp::a_region_that_does_not_answer_is_unknown_and_the_others_are_not,
        gcp::a_global_address_is_not_for_nodes,
        gcp::organisation_policy_is_told_from_a_stale_condition,
        gcp::quota_for_the_own_address_is_no_throttling,
        gcp::an_instance_that_is_busy_is_a_conflict,
        gcp::a_name_that_nothing_has_removes_nothing,
        gcp::links_may_name_either_host,
        room::a_missing_permission_takes_no_nodes_address,
        room::a_policy_leaves_one_node_bare_at_most_and_says_which,
        room::a_policy_leaves_one_node_bare_however_many_are_tried_at_once,
        room::a_refusal_that_was_not_foreseen_is_the_last_for_a_while,
        room::a_permission_that_is_denied_on_one_node_costs_the_others_nothing,
        room::a_permission_that_is_denied_on_two_nodes_costs_no_third_its_address,
        room::rights_that_are_withdrawn_cost_one_node_its_address_at_most,
        room::a_node_without_an_address_needs_no_room_and_is_always_tried,
        room::a_reply_that_is_lost_while_room_is_made_leaves_no_node_bare,
        room::an_address_that_is_not_there_any_more_costs_no_node_its_own,
        room::an_address_that_is_elsewhere_by_now_costs_no_node_its_own,
        credentials::gke_workload_identity_is_renewed,
        credentials::a_key_file_that_was_replaced_is_read_again,
    ];
    trials.extend(only![Cloud::Aws =>
        aws::no_call_of_ours_ever_takes_an_address_by_force,
        aws::nodes_with_several_interfaces_take_it_on_the_first,
        aws::its_own_address_is_no_address_of_somebody_elses,
        aws::either_answer_to_a_repeated_association_will_do,
        aws::empty_fields_are_absent_fields,
        aws::a_pending_instance_is_tried_again_later,
        aws::a_network_without_a_gateway_is_for_a_person_to_mend,
        aws::refusals_do_not_drag_their_blob_along,
        aws::provider_ids_without_a_zone_are_answered_as_they_were_asked,
        aws::reads_that_lag_and_disagree_settle,
        credentials::eks_pod_identity_is_renewed,
        credentials::eks_irsa_is_renewed,
    ]);
    trials.extend(only![Cloud::Azure =>
        azure::an_interface_keeps_everything_through_attach_and_detach,
        azure::what_was_read_is_what_is_written_but_for_one_reference,
        azure::an_interface_that_somebody_wrote_is_read_again,
        azure::a_429_that_is_a_lock_closes_nothing,
        azure::busy_late_and_superseded_writes_are_conflicts,
        azure::while_it_is_written_nothing_is_certain,
        azure::an_operation_that_is_forgotten_is_looked_up_in_the_interface,
        azure::an_interface_whose_write_failed_is_repaired,
        azure::uniform_scale_sets_are_unsupported_without_a_call,
        azure::an_interface_left_behind_holds_its_address,
        azure::basic_addresses_are_refused_behind_a_load_balancer,
        azure::machines_that_do_not_name_their_primary_interface,
        azure::locked_node_groups_are_told_apart,
        azure::ipv6_goes_to_the_ipv6_configuration,
        credentials::azure_managed_identity_is_renewed,
        credentials::azure_workload_identity_is_exchanged_and_renewed,
    ]);
    trials
}

fn main() -> ExitCode {
    if let Some(ended) = credentials::child() {
        return ended;
    }
    let arguments = Arguments::from_args();
    let conclusion = libtest_mimic::run(&arguments, trials());
    moto::stop();
    credentials::tidy();
    conclusion.exit_code()
}
