//! What can be said of a workload, watch by watch.
#![allow(clippy::unwrap_used)]

use super::*;
use serde_json::json;

fn followers() -> Followers {
    let client = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    let metrics = Metrics::new(&telemetry::Telemetry::new(None).unwrap()).unwrap();
    Followers::new(client, mpsc::channel(64).0, metrics)
}

fn key(kind: WorkloadKind, namespace: &str, name: &str) -> WorkloadKey {
    WorkloadKey { kind, namespace: namespace.to_owned(), name: name.to_owned() }
}

fn applied() -> WorkloadChange {
    let selector = "app=web".to_owned();
    WorkloadChange::Applied { uid: "1".to_owned(), selector, workload: plan::Workload::default() }
}

fn listed() -> BTreeSet<String> {
    BTreeSet::new()
}

#[tokio::test]
async fn a_workload_is_unlisted_until_all_its_lists_are_complete_and_costs_nobody_else() {
    let (mut followers, mut world) = (followers(), World::default());
    let web = key(WorkloadKind::Deployment, "prod", "web");
    let other = key(WorkloadKind::StatefulSet, "prod", "db");
    followers.follow(&BTreeSet::from([web.clone(), other.clone()]), &mut world);
    assert_eq!(world.unlisted[&web], "Deployment prod/web has not been listed yet");
    followers.workload(&other, WorkloadChange::Listed { present: false }, &mut world);
    assert!(!world.unlisted.contains_key(&other), "one that does not exist is known to have no pods");

    followers.workload(&web, applied(), &mut world);
    followers.workload(&web, WorkloadChange::Listed { present: true }, &mut world);
    assert_eq!(world.unlisted[&web], "ReplicaSets in namespace prod have not been listed yet");
    followers.replica_set(&web, Change::Listed(listed()), &mut world);
    assert_eq!(world.unlisted[&web], "pods in namespace prod have not been listed yet");
    assert!(followers.pending().is_some());
    let forbidden = "pods in namespace prod: 403 Forbidden: no";
    followers.pod(&web, Change::Failed(forbidden.to_owned()), &mut world);
    followers.pod(&web, Change::Begun, &mut world);
    assert_eq!(world.unlisted[&web], forbidden);
    assert_eq!(followers.pending(), None, "what is in the way is known");
    followers.pod(&web, Change::Works, &mut world);
    followers.pod(&web, Change::Listed(listed()), &mut world);
    assert!(world.unlisted.is_empty());
}

/// A workload that nobody refers to for a moment, or whose selector changes, gets other watches; what the old
/// ones left in the mailbox would say that the new ones have listed everything.
#[tokio::test]
async fn what_a_replaced_watch_has_left_behind_is_dropped() {
    let (mut followers, mut world) = (followers(), World::default());
    let web = key(WorkloadKind::Deployment, "prod", "web");
    let origin = |followers: &Followers, of_members: bool| {
        let Follower { key, generation, members_generation, .. } = &followers.all[&web];
        Origin { key: key.clone(), generation: if of_members { *members_generation } else { *generation } }
    };
    let there = || Followed::Workload(WorkloadChange::Listed { present: true });
    let pods = || Followed::Pod(Change::Listed(listed()));
    followers.follow(&BTreeSet::from([web.clone()]), &mut world);
    let old = origin(&followers, false);
    assert!(followers.take(&old, Followed::Workload(applied()), &mut world));
    let old_members = origin(&followers, true);
    followers.follow(&BTreeSet::new(), &mut world);
    assert!(!followers.take(&old, there(), &mut world), "nobody follows it");

    followers.follow(&BTreeSet::from([web.clone()]), &mut world);
    assert!(!followers.take(&old, there(), &mut world));
    assert!(!followers.take(&old, Followed::Workload(applied()), &mut world));
    assert_eq!(world.unlisted[&web], "Deployment prod/web has not been listed yet");
    let new = origin(&followers, false);
    assert!(followers.take(&new, Followed::Workload(applied()), &mut world));
    assert!(followers.take(&new, there(), &mut world));
    let members = origin(&followers, true);
    let sets = || Followed::ReplicaSet(Change::Listed(listed()));
    assert!(followers.take(&members, sets(), &mut world));
    assert!(!followers.take(&old_members, pods(), &mut world));
    assert_eq!(world.unlisted[&web], "pods in namespace prod have not been listed yet");

    let (uid, selector) = ("1".to_owned(), "app=other".to_owned());
    let changed = WorkloadChange::Applied { uid, selector, workload: plan::Workload::default() };
    assert!(followers.take(&new, Followed::Workload(changed), &mut world));
    assert!(!followers.take(&members, sets(), &mut world) && !followers.take(&members, pods(), &mut world));
    let members = origin(&followers, true);
    assert!(followers.take(&members, sets(), &mut world) && followers.take(&members, pods(), &mut world));
    assert!(world.unlisted.is_empty());
}

#[tokio::test]
async fn a_watch_that_fails_for_long_makes_it_unlisted_again_until_it_works() {
    let (mut followers, mut world) = (followers(), World::default());
    let db = key(WorkloadKind::StatefulSet, "prod", "db");
    followers.follow(&BTreeSet::from([db.clone()]), &mut world);
    followers.workload(&db, applied(), &mut world);
    followers.workload(&db, WorkloadChange::Listed { present: true }, &mut world);
    followers.pod(&db, Change::Listed(listed()), &mut world);
    assert!(world.unlisted.is_empty());
    followers.pod(&db, Change::Failed("pods: 503".to_owned()), &mut world);
    assert_eq!(world.unlisted[&db], "pods: 503");
    followers.pod(&db, Change::Works, &mut world);
    assert!(world.unlisted.is_empty());
    followers.follow(&BTreeSet::new(), &mut world);
    followers.pod(&db, Change::Failed("pods: 503".to_owned()), &mut world);
    assert!(world.unlisted.is_empty(), "nobody refers to it any more");
}

#[tokio::test]
#[allow(clippy::used_underscore_binding)] // it is held, not used
async fn what_makes_no_request_is_not_watched() {
    let (mut followers, mut world) = (followers(), World::default());
    for kind in [WorkloadKind::Deployment, WorkloadKind::StatefulSet, WorkloadKind::DaemonSet] {
        let bad = key(kind, "prod ", "web");
        followers.follow(&BTreeSet::from([bad.clone()]), &mut world);
        assert!(followers.all[&bad]._workload.is_none());
        let said = format!(
            "{kind:?} prod /web cannot be asked for: \"prod \" is not a valid namespace; remove the white space"
        );
        assert_eq!(world.unlisted[&bad], said);
    }
}

#[tokio::test]
async fn daemon_sets_wait_for_the_one_watch_of_all_of_them() {
    let (mut followers, mut world) = (followers(), World::default());
    let agent = key(WorkloadKind::DaemonSet, "prod", "agent");
    let web = key(WorkloadKind::Deployment, "prod", "web");
    followers.follow(&BTreeSet::from([agent.clone(), web.clone()]), &mut world);
    assert_eq!(world.unlisted[&agent], "DaemonSets have not been listed yet");
    followers.daemon_set(Change::Failed("DaemonSets: 403".to_owned()), &mut world);
    assert_eq!(world.unlisted[&agent], "DaemonSets: 403");
    assert_eq!(world.unlisted[&web], "Deployment prod/web has not been listed yet", "no matter of its");
    let object = json!({
        "metadata": { "name": "agent", "namespace": "prod", "uid": "1" },
        "spec": { "selector": { "matchLabels": { "app": "agent" } } },
    });
    followers.daemon_set(Change::Applied(serde_json::from_value(object).unwrap()), &mut world);
    followers.daemon_set(Change::Works, &mut world);
    followers.daemon_set(Change::Listed(BTreeSet::from(["1".to_owned()])), &mut world);
    assert_eq!(world.unlisted[&agent], "pods in namespace prod have not been listed yet");
    followers.pod(&agent, Change::Listed(listed()), &mut world);
    assert!(!world.unlisted.contains_key(&agent));
}
