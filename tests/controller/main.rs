//! The controller on a real control plane, with real workloads on simulated nodes.
#![allow(clippy::panic, clippy::expect_used)]

mod alone;
mod attach;
mod bench;
mod bench_isolation;
mod bench_process;
mod election;
mod errors;
mod healing;
mod invariants;
mod isolation;
mod leave;
mod memory;
mod modes;
mod neighbours;
mod planted;
mod played;
mod pods;
mod processes;
mod proxy;
mod release;
mod scale;
mod scene;
mod stage;

use anyhow::{Result, anyhow};
use cloud::Cloud;
use cluster::harness::Test;
use stage::{Replica, Stage};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

/// A stage that many tests share, with one controller on it.
pub struct Shared {
    /// A simulated cloud; `None`: one in memory.
    cloud: Option<Cloud>,
    stage: OnceCell<Result<(Stage, Replica), String>>,
}

impl Shared {
    fn new(cloud: Option<Cloud>) -> Arc<Self> {
        Arc::new(Self { cloud, stage: OnceCell::new() })
    }

    /// The name of a test on this stage.
    fn name(&self, test: &str) -> String {
        self.cloud.map_or_else(|| test.to_owned(), |cloud| format!("{}::{test}", cloud.as_str()))
    }

    /// The stage; if it cannot be set up, no test tries again.
    pub async fn stage(&self) -> Result<&Stage> {
        let started = self
            .stage
            .get_or_init(async || {
                let start = async {
                    let stage = Stage::with(self.cloud).await?;
                    stage.share();
                    let replica = stage.replica("controller", None, Duration::from_secs(15))?;
                    Ok::<_, anyhow::Error>((stage, replica))
                };
                start.await.map_err(|error| format!("{error:#}"))
            })
            .await;
        started.as_ref().map(|(stage, _)| stage).map_err(|error| anyhow!("{error}"))
    }
}

macro_rules! on_shared_stage {
    ($shared:expr, $($path:path),* $(,)?) => {
        vec![$({
            let shared = $shared.clone();
            let name = shared.name(stringify!($path));
            Test::new(&name, move |_| invariants::judged(async move { $path(shared.stage().await?).await }))
        }),*]
    };
}

macro_rules! on_own_stage {
    ($($path:path),* $(,)?) => {
        vec![$(Test::new(stringify!($path), move |_| invariants::judged($path()))),*]
    };
}

fn main() -> ExitCode {
    if std::env::var_os("BENCH").is_some() {
        return cluster::harness::run_one(bench::run());
    }
    let mut all = in_memory();
    // The same with the vendor's SDK and a simulator on the wire; where it is spoilt, nobody else plays.
    let gcp = Shared::new(Some(Cloud::Gcp));
    all.extend(scenes(&gcp));
    all.extend(planted(&gcp));
    all.extend(on_shared_stage![gcp, planted::an_instance_that_is_left_bare]);
    all.extend(spoilt(&Shared::new(Some(Cloud::Gcp))));
    all.extend(throttled(&Shared::new(Some(Cloud::Gcp))));
    all.extend(unreadable(&Shared::new(Some(Cloud::Gcp))));
    all.extend([Cloud::Aws, Cloud::Azure].into_iter().flat_map(on_other_clouds));
    all.extend(on_their_own());
    all.extend([Cloud::Gcp, Cloud::Aws, Cloud::Azure].map(|cloud| {
        let name = format!("{}::processes::a_restart_in_the_middle_of_a_move", cloud.as_str());
        Test::new(&name, move |_| invariants::judged(processes::a_restart_in_the_middle_of_a_move(cloud)))
    }));
    cluster::harness::run_at_once(8, all)
}

/// Scenes that play with any cloud.
fn scenes(shared: &Arc<Shared>) -> Vec<Test> {
    on_shared_stage![
        shared,
        attach::an_address_is_attached_and_its_pods_follow,
        attach::what_is_attached_already_is_adopted_without_a_move,
        attach::more_addresses_than_nodes_is_no_error,
        leave::a_cordoned_node_keeps_it_while_a_pod_runs,
        leave::a_drained_node_loses_it_once_the_last_pod_is_really_gone,
        leave::an_autoscalers_taint_is_a_drain,
        leave::without_a_target_nothing_is_detached,
        leave::a_drain_that_hangs_ends_with_its_timeout,
        leave::a_deleted_node_loses_it,
        leave::a_node_and_its_machine_gone_at_once,
        leave::a_node_that_is_not_ready_for_longer_than_the_grace,
        leave::a_node_that_is_not_ready_for_less_than_the_grace,
        leave::a_silent_node_loses_address_and_pods_at_once,
        leave::a_machine_that_was_terminated_while_its_node_looks_ready,
        leave::a_node_that_was_created_anew_under_the_same_name_inherits_nothing,
        leave::an_untolerated_no_execute_taint_drives_it_off,
        leave::a_tainted_pool_works_with_the_predecessors_manifest,
        leave::selector_and_zones_can_change,
        leave::addresses_come_and_go_and_change_places,
        leave::zones_are_kept_and_then_levelled,
        leave::pods_with_similar_names_neither_hold_it_nor_are_touched,
        release::deletion_detaches,
        release::deletion_with_retain_leaves_the_addresses,
        release::deletion_when_node_and_machine_are_gone,
        release::pods_that_wait_for_a_gone_allocation_come_back,
        modes::paused_moves_nothing_and_goes_on_afterwards,
        modes::plan_mode_says_and_touches_nothing,
        modes::a_storm_is_waited_out_unless_the_cloud_confirms,
        modes::two_allocations_share_a_pool_and_no_node,
        modes::the_same_address_in_two_objects_belongs_to_the_older,
        pods::a_webhook_that_never_injects_ends_in_one_eviction,
        pods::a_running_daemon_set_loses_no_pod_before_a_node_is_marked,
        pods::a_stateful_set_follows_its_address,
    ]
}

/// Violations that are planted, and have to be reported.
fn planted(shared: &Arc<Shared>) -> Vec<Test> {
    on_shared_stage![
        shared,
        planted::a_detach_from_a_healthy_node,
        planted::a_call_of_somebody_who_does_not_lead,
        planted::a_drain_that_is_not_waited_for,
        planted::marks_of_a_node_that_has_no_address,
        planted::a_finalizer_that_goes_before_the_address,
        planted::a_status_that_says_ready_when_it_is_not,
        planted::a_token_in_an_annotation,
        planted::an_end_that_is_not_as_promised,
    ]
}

/// Scenes in which the cloud goes wrong.
fn spoilt(shared: &Arc<Shared>) -> Vec<Test> {
    on_shared_stage![
        shared,
        release::deletion_while_an_attach_is_on_its_way_to_a_node_that_goes,
        release::a_cloud_that_refuses_everything_is_let_go_with_retain,
        errors::each_class_of_error_at_each_step,
        errors::a_lost_reply_is_read_back_and_not_done_twice,
        errors::a_slow_cloud_holds_up_nobody_else,
        errors::a_foreign_address_on_the_target_is_never_displaced,
        errors::an_address_on_a_foreign_machine_is_never_taken,
    ]
}

/// Scenes in which it has enough of us: nothing else can play on that account.
fn throttled(shared: &Arc<Shared>) -> Vec<Test> {
    on_shared_stage![shared, errors::an_account_that_is_throttled_at_each_step_is_left_alone_and_then_served]
}

/// Scenes in which it tells nothing: of nobody's addresses.
fn unreadable(shared: &Arc<Shared>) -> Vec<Test> {
    on_shared_stage![shared, errors::an_unreadable_cloud_takes_no_marks_and_evicts_nobody]
}

/// All of these, and those that need no cloud.
fn in_memory() -> Vec<Test> {
    let shared = Shared::new(None);
    let mut all = scenes(&shared);
    all.extend(planted(&shared));
    all.extend(spoilt(&shared));
    all.extend(throttled(&shared));
    all.extend(unreadable(&shared));
    all.extend(on_shared_stage![
        shared,
        planted::attaches_that_no_provider_would_send,
        election::of_three_candidates_one_leads_and_each_takes_its_turn,
        election::a_lease_that_is_taken_away_is_lost_at_once,
        election::a_lease_that_is_deleted_is_lost_and_can_be_had_again,
        election::clocks_an_hour_apart_change_nothing,
        election::a_leader_that_yields_comes_back_only_if_nobody_else_wants_it,
    ]);
    all
}

/// The main ones with the others.
fn on_other_clouds(cloud: Cloud) -> Vec<Test> {
    let shared = Shared::new(Some(cloud));
    let mut all = planted(&shared);
    all.extend(on_shared_stage![
        shared,
        attach::an_address_is_attached_and_its_pods_follow,
        attach::what_is_attached_already_is_adopted_without_a_move,
        leave::a_drained_node_loses_it_once_the_last_pod_is_really_gone,
        leave::a_node_that_is_not_ready_for_longer_than_the_grace,
        leave::a_node_and_its_machine_gone_at_once,
        release::deletion_detaches,
        release::deletion_with_retain_leaves_the_addresses,
    ]);
    all
}

fn on_their_own() -> Vec<Test> {
    on_own_stage![
        neighbours::bad_neighbours_cost_nobody_else,
        alone::each_write_is_read_back_once,
        alone::at_rest_nothing_is_written_and_reads_are_batches,
        alone::a_leader_that_stops_hands_over_and_nothing_moves,
        alone::a_leader_that_dies_in_the_middle_of_a_move_is_succeeded,
        alone::an_api_server_that_is_gone_for_longer_than_the_lease_ends_the_leader,
        alone::an_api_server_and_etcd_that_restart_change_nothing,
        alone::a_compacted_history_changes_nothing,
        healing::a_running_deployment_is_brought_to_its_addresses_one_pod_at_a_time,
        healing::pods_made_while_the_webhook_was_down_are_healed,
        scale::five_hundred_nodes_and_two_hundred_addresses_settle_with_the_fewest_calls,
        alone::an_address_leaves_the_leaders_own_node_by_another_leader,
        alone::alone_it_moves_the_address_of_its_own_node_itself,
        alone::alone_with_a_cloud_that_refuses_it_gives_the_lease_up_once,
        processes::sigterm_hands_over_and_ends_well,
        processes::sigkill_hands_over_when_the_lease_is_over,
        processes::sigstop_and_sigcont_of_a_leader_in_the_middle_of_a_move,
        processes::bad_settings_end_with_two_and_a_sentence,
        isolation::workloads_that_cannot_be_listed_cost_nobody_else,
        isolation::a_list_that_hangs_once_is_begun_anew,
        isolation::a_watch_of_nodes_that_fails_is_told_and_stops_nothing,
        isolation::an_eviction_that_a_budget_refuses_is_told_and_done_when_it_may_be,
        isolation::an_address_added_during_an_audit_is_read_right_after_it,
        isolation::a_read_back_that_fails_is_repeated_in_seconds,
        isolation::one_throttled_read_changes_no_status,
        isolation::a_panic_costs_one_step_or_one_reading,
        isolation::many_allocations_are_written_a_few_at_a_time,
        isolation::a_failed_test_of_a_patch_and_an_invalid_object_are_told_apart,
    ]
}
