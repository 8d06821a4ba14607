//! GCP: what reads show, and when they are refused.

use super::{FREE, add_action, bare, free};
use crate::kit::{Bed, GCP_1, ip, small_world};
use reqwest::Method;
use serde_json::{Value, json};
use sim::{AddressSpec, Change, Cloud, Fault, Limits, On, Roles, Rule};
use std::time::Duration;

// 7. The same with a list that is behind: doitintl/kubeip issue 157 saw minutes.
#[tokio::test]
async fn a_read_can_lag_behind_the_operation() {
    let bed = bare().await;
    bed.gcp_attach(GCP_1, FREE).await;
    bed.sim.advance(Duration::from_secs(10));
    let get = On::action(Cloud::Gcp, "addresses.get");
    bed.sim.fault(Rule::once(get, Fault::Lag { seconds: 20.0, jitter: false }));
    assert_eq!(bed.gcp_address(FREE).await["status"], "RESERVED");
    assert_eq!(bed.gcp_address(FREE).await["status"], "IN_USE");
}

// 10. API rate limits page: 403 until the minute is over; no Retry-After.
#[tokio::test]
async fn a_rate_limit_lasts_until_the_next_minute() {
    let bed = Bed::small().await;
    bed.sim.set_limits(Limits { gcp_per_minute: Some(2), ..Limits::default() });
    bed.sim.advance(Duration::from_secs(20));
    let mut statuses = Vec::new();
    for wait in [0, 0, 0, 39, 1] {
        bed.sim.advance(Duration::from_secs(wait));
        let answer = bed.gcp_get("regions/us-central1/addresses").await;
        if answer.status == 403 {
            assert_eq!(answer.error().1, "rateLimitExceeded");
            assert_eq!(answer.header("retry-after"), None);
            assert_eq!(answer.json()["error"]["details"][0]["reason"], "RATE_LIMIT_EXCEEDED");
        }
        statuses.push(answer.status);
    }
    assert_eq!(statuses, [200, 200, 403, 403, 200]);
}

// 11. Compute error page and terraform-provider-google's predicates: three refusals share one status.
#[tokio::test]
async fn permission_rate_and_quota_are_three_reasons_of_403() {
    let bed = bare().await;
    let ephemeral = json!({ "name": "external-nat" });
    bed.sim
        .set_roles(Roles { gcp: Some(vec!["compute.instances.addAccessConfig".into()]), ..Roles::default() });
    let forbidden = bed.send(bed.gcp_add(GCP_1, &ephemeral)).await;
    bed.sim.set_roles(Roles::default());
    bed.sim.fault(Rule::once(
        add_action(),
        Fault::Error { code: "rateLimitExceeded".into(), message: None, status: None },
    ));
    let rate = bed.send(bed.gcp_add(GCP_1, &ephemeral)).await;
    bed.sim.set(|settings| settings.gcp.in_use_quota = Some(1)); // the other node has one
    let quota = bed.send(bed.gcp_add(GCP_1, &ephemeral)).await;
    assert_eq!(forbidden.error(), (403, "forbidden".into()));
    assert!(forbidden.message().starts_with("Required 'compute.subnetworks.useExternalIp' permission for"));
    assert_eq!(rate.error(), (403, "rateLimitExceeded".into()));
    assert_eq!(quota.error(), (403, "quotaExceeded".into()));
    assert!(quota.message().contains("IN_USE_ADDRESSES"));
}

// 16. kubernetes/kubernetes issue 40314: a managed group makes a new machine under the old name.
#[tokio::test]
async fn a_recreated_instance_has_the_same_name_and_another_id() {
    let bed = bare().await;
    bed.gcp_attach(GCP_1, FREE).await;
    let before = bed.gcp_get(&Bed::gcp_path(GCP_1)).await.json();
    bed.sim.recreate_instance(GCP_1).unwrap();
    let after = bed.gcp_get(&Bed::gcp_path(GCP_1)).await.json();
    assert_eq!(before["name"], after["name"]);
    assert_ne!(before["id"], after["id"]);
    assert_eq!(bed.gcp_address(FREE).await["status"], "RESERVED");
}

// 17. Instance life cycle documentation: a stopped machine keeps its static address, a deleted one not.
#[tokio::test]
async fn a_stopped_instance_keeps_its_address_and_a_deleted_one_frees_it() {
    let bed = bare().await;
    bed.gcp_attach(GCP_1, FREE).await;
    bed.sim.stop_instance(GCP_1).unwrap();
    assert_eq!(bed.gcp_get(&Bed::gcp_path(GCP_1)).await.json()["status"], "TERMINATED");
    assert_eq!(bed.gcp_address(FREE).await["status"], "IN_USE");
    bed.sim.terminate_instance(GCP_1).unwrap();
    assert_eq!(bed.gcp_get(&Bed::gcp_path(GCP_1)).await.error(), (404, "notFound".into()));
    assert_eq!(bed.gcp_address(FREE).await["status"], "RESERVED");
}

// 18. Discovery document, Address.users: any resource that uses it.
#[tokio::test]
async fn a_forwarding_rule_or_a_router_can_be_the_user() {
    let bed = bare().await;
    for resource in ["forwardingRules/web", "routers/nat"] {
        let change = Change::Hold { address: ip(FREE), resource: resource.into() };
        bed.sim.change(&change).unwrap();
        let user = bed.gcp_address(FREE).await["users"][0].clone();
        assert!(user.as_str().unwrap().ends_with(&format!("/regions/us-central1/{resource}")), "{user}");
        let answer = bed.send(bed.gcp_add(GCP_1, &free())).await;
        assert!(answer.message().ends_with("External IP address: 203.0.1.1 is already in-use."));
    }
}

// 19. Replies in public issues carry both hosts.
#[tokio::test]
async fn links_come_with_either_host() {
    let bed = bare().await;
    for host in ["www.googleapis.com", "compute.googleapis.com"] {
        bed.sim.set(|settings| settings.gcp.link_host = host.into());
        let link = bed.gcp_address(FREE).await["selfLink"].clone();
        assert!(
            link.as_str().unwrap().starts_with(&format!("https://{host}/compute/v1/projects/")),
            "{link}"
        );
    }
}

// 20. Discovery document, AddressAggregatedList.unreachables: what is missing there is unknown, not absent.
#[tokio::test]
async fn an_aggregated_list_names_the_regions_it_could_not_reach() {
    let mut abroad = AddressSpec::free(Cloud::Gcp, ip("203.0.9.9"));
    abroad.region = Some("us-east1".into());
    let bed = Bed::start(small_world().reserved(abroad)).await;
    let whole = bed.gcp_get("aggregated/addresses").await.json();
    assert_eq!(whole["items"]["regions/us-east1"]["addresses"][0]["address"], "203.0.9.9");
    assert_eq!(whole["unreachables"], Value::Null);
    let fault = Fault::PartialList { missing: vec!["us-east1".into()] };
    bed.sim.fault(Rule::once(On::action(Cloud::Gcp, "addresses.aggregatedList"), fault));
    let partial = bed.gcp_get("aggregated/addresses").await.json();
    assert_eq!(partial["items"]["regions/us-east1"]["warning"]["code"], "UNREACHABLE");
    assert_eq!(partial["items"]["regions/us-central1"]["addresses"].as_array().unwrap().len(), 2);
    let unreachable = partial["unreachables"][0].as_str().unwrap();
    assert!(unreachable.ends_with("projects/dev-project/regions/us-east1"), "{unreachable}");
}

// 21. Discovery document, maxResults and pageToken: 0 to 500, 500 if left out.
#[tokio::test]
async fn lists_come_in_pages_of_at_most_five_hundred() {
    let mut world = small_world();
    for n in 0..=500_u16 {
        let [high, low] = n.to_be_bytes();
        world = world.address(Cloud::Gcp, [198, 51, high, low]);
    }
    let bed = Bed::start(world).await;
    let first = bed.gcp_get("regions/us-central1/addresses").await.json();
    assert_eq!(first["items"].as_array().unwrap().len(), 500);
    let token = first["nextPageToken"].as_str().unwrap();
    let rest = bed.gcp(Method::GET, "regions/us-central1/addresses").query(&[("pageToken", token)]);
    let rest = bed.send(rest).await.json();
    assert_eq!(rest["items"].as_array().unwrap().len(), 3);
    assert_eq!(rest["nextPageToken"], Value::Null);
    let small = bed.gcp_get("regions/us-central1/addresses?maxResults=2").await.json();
    assert_eq!(small["items"].as_array().unwrap().len(), 2);
    let too_long = bed.gcp_get("regions/us-central1/addresses?maxResults=501").await;
    assert_eq!(too_long.error(), (400, "invalid".into()));
}

// Filters. Discovery document, addresses.list filter: AIP-160, or eq with an RE2 full match, never both.
#[tokio::test]
async fn both_filter_languages_find_addresses_and_cannot_be_mixed() {
    let bed = Bed::small().await;
    let found = async |filter: &str| {
        let request = bed.gcp(Method::GET, "regions/us-central1/addresses").query(&[("filter", filter)]);
        let answer = bed.send(request).await;
        let items = answer.json()["items"].as_array().map_or(0, Vec::len);
        (answer.status, items)
    };
    assert_eq!(
        found(r#"(address="203.0.1.1") OR (address="203.0.1.2") OR (address="8.8.8.8")"#).await,
        (200, 2)
    );
    assert_eq!(found(r#"address eq "203\.0\.1\.1|8\.8\.8\.8""#).await, (200, 1));
    assert_eq!(found(r"address eq 203\.0\.1").await, (200, 0));
    assert_eq!(found(r#"(address="203.0.1.1") (name eq x)"#).await.0, 400);
}

// 22. Discovery document, AccessConfig.natIP: absent while there is none.
#[tokio::test]
async fn the_access_config_of_a_stopped_instance_has_no_address() {
    let bed = Bed::small().await;
    bed.sim.stop_instance(GCP_1).unwrap();
    let config = bed.gcp_interface(GCP_1).await["accessConfigs"][0].clone();
    assert_eq!((&config["name"], &config["natIP"]), (&json!("external-nat"), &Value::Null));
}

// 23. Reported for the real API in floci-gcp issue 191; not confirmed.
#[tokio::test]
async fn an_address_released_while_attached_stays_visible_on_the_instance() {
    let bed = bare().await;
    bed.gcp_attach(GCP_1, FREE).await;
    bed.sim.change(&Change::ReleaseAddress { address: ip(FREE) }).unwrap();
    let listed = bed.gcp(Method::GET, "regions/us-central1/addresses");
    let listed = bed.send(listed.query(&[("filter", format!("address=\"{FREE}\""))])).await;
    assert_eq!(listed.json()["items"], Value::Null);
    assert_eq!(bed.gcp_interface(GCP_1).await["accessConfigs"][0]["natIP"], FREE);
}

// Discovery document, zoneOperations.list and its filter: operations are found by the instance and by the
// caller's request id.
#[tokio::test]
async fn operations_are_listed_by_zone_and_target() {
    let bed = bare().await;
    bed.gcp_attach(GCP_1, FREE).await;
    let id = bed.gcp_get(&Bed::gcp_path(GCP_1)).await.json()["id"].as_str().unwrap_or_default().to_owned();
    let list = |zone: &'static str, filter: String| {
        let query = filter.replace(' ', "%20").replace('=', "%3D");
        let path = format!("zones/{zone}/operations?filter={query}");
        let bed = &bed;
        async move { bed.gcp_get(&path).await.json() }
    };
    let found = list("us-central1-a", format!("targetId = {id}")).await;
    let found = found["items"].as_array().cloned().unwrap_or_default();
    let mut kinds: Vec<&str> = found.iter().filter_map(|one| one["operationType"].as_str()).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["addAccessConfig", "deleteAccessConfig"], "its own address went first");
    assert_eq!(list("us-central1-b", format!("targetId = {id}")).await["items"], Value::Null);
    assert_eq!(list("us-central1-a", "targetId = 1".to_owned()).await["items"], Value::Null);
}
