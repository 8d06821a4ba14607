//! moto, a simulator of EC2 by others, with the cases that it can play.

use crate::bed::ip;
use std::cell::Cell;
use std::net::{IpAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// Cases that moto plays.
pub const PLAYED: [&str; 12] = [
    "reads::free_attached_and_unknown_addresses",
    "reads::everything_that_was_asked_for_has_an_answer",
    "writes::attach_attaches",
    "writes::what_is_attached_already_is_attached",
    "writes::what_somebody_has_by_now_is_not_taken",
    "writes::detach_frees_and_again_is_success",
    "writes::what_somebody_else_attached_is_adopted_and_detached",
    "writes::a_move_is_a_detach_and_an_attach",
    "writes::ipv6_is_unsupported_with_a_reason",
    "fences::a_stale_token_is_refused",
    "fences::a_stale_detach_does_not_hit_another_node",
    "fences::two_writers_of_one_address",
];

const NO_FAULTS: &str = "moto cannot be made to fail, to lose replies, to lag or to be slow";
const NO_LIFE: &str =
    "moto's terminated instances keep their interfaces and addresses (dev/sim/truth/moto_differences.py)";
const NO_COUNT: &str = "moto does not tell which calls it got";
const NO_IAM: &str = "moto has no roles for this";
const TWO_ON_ONE: &str = "moto puts two addresses on one private address (dev/sim/truth/moto_differences.py)";

/// Every other case, and why not.
pub const NOT_PLAYED: [(&str, &str); 34] = [
    ("histories::random_histories_rob_nobody", NO_FAULTS),
    (
        "reads::a_holder_is_named_as_the_node_is",
        "moto answers 500 to a filter of instances by their interface",
    ),
    (
        "reads::a_holder_that_was_not_asked_for_is_named_all_the_same",
        "moto answers 500 to a filter of instances by their interface",
    ),
    (
        "reads::one_that_something_else_has_is_held_by_other",
        "moto shows no interface of a NAT gateway's address",
    ),
    ("reads::instances_stop_end_and_are_never_there", NO_LIFE),
    ("reads::an_instance_with_a_static_address_of_somebody_elses_refuses", NO_COUNT),
    ("reads::an_error_is_unknown_and_never_free", NO_FAULTS),
    ("reads::more_than_a_page_in_two_regions", NO_COUNT),
    ("reads::a_list_that_breaks_off_is_unknown", NO_FAULTS),
    ("reads::a_list_that_leaves_things_out_takes_nothing_away", NO_FAULTS),
    ("reads::an_endpoint_that_is_down_is_unknown", "nobody plays the cloud in it"),
    ("reads::no_credentials_are_told_with_what_to_do", "nobody plays the cloud in it"),
    (
        "writes::what_something_else_has_by_now_is_not_taken",
        "moto shows no interface of a NAT gateway's address",
    ),
    ("writes::another_region_is_refused_before_anything_is_sent", "moto's addresses have no border group"),
    ("writes::an_instance_that_is_gone_is_a_conflict", NO_LIFE),
    ("writes::a_stopped_instance_keeps_its_address_until_it_is_detached", NO_LIFE),
    ("fences::two_writers_of_one_node", TWO_ON_ONE),
    ("fences::who_lost_the_lease_sends_nothing", NO_COUNT),
    ("fences::leadership_is_asked_right_before_every_write", NO_COUNT),
    ("fences::a_lost_reply_and_a_new_process_with_the_same_key", NO_FAULTS),
    ("fences::a_reset_before_the_effect_is_tried_again", NO_FAULTS),
    ("fences::a_detach_whose_reply_was_lost_is_done", NO_FAULTS),
    ("fences::a_connection_that_is_closed_without_a_reply_says_nothing", NO_FAULTS),
    ("fences::reads_that_lag_steal_nothing", NO_FAULTS),
    ("fences::a_hung_call_ends_with_its_deadline", NO_FAULTS),
    ("fences::somebody_writes_between_our_read_and_our_write", NO_FAULTS),
    ("limits::throttling_is_obeyed_and_no_storm", NO_FAULTS),
    ("limits::a_throttled_write_waits_for_its_turn", NO_FAULTS),
    ("limits::expired_credentials_are_denied_and_renewed_ones_work", NO_FAULTS),
    ("limits::errors_carry_a_request_id_and_no_secret", NO_FAULTS),
    ("limits::equal_refusals_have_equal_messages", NO_FAULTS),
    ("limits::every_call_is_metered", NO_COUNT),
    ("permissions::the_documented_role_is_enough_and_nothing_in_it_too_much", NO_IAM),
    ("calls::every_operation_does_the_documented_calls", NO_COUNT),
];

/// Regions: each case has a world of its own.
const REGIONS: [&str; 13] = [
    "us-east-1",
    "us-east-2",
    "us-west-1",
    "us-west-2",
    "eu-west-1",
    "eu-west-2",
    "eu-west-3",
    "eu-central-1",
    "eu-north-1",
    "ap-south-1",
    "ap-northeast-1",
    "ap-southeast-1",
    "ca-central-1",
];

thread_local! {
    static CASE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The case of this thread is played by moto.
pub fn play(case: &str) {
    CASE.set(PLAYED.iter().position(|played| *played == case));
}

static SERVER: OnceLock<Result<Server, String>> = OnceLock::new();

struct Server {
    url: String,
    process: Mutex<Child>,
}

/// A region with three instances and three addresses.
pub struct Moto {
    pub url: String,
    pub nodes: Vec<String>,
    region: &'static str,
}

/// Ends the server, if there is one.
pub fn stop() {
    if let Some(Ok(server)) = SERVER.get() {
        let mut process = server.process.lock().expect("the process");
        let _ = process.kill();
        let _ = process.wait();
    }
}

fn start() -> Result<Server, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dev/sim/truth/run");
    let made = Command::new(script).arg("--python").stderr(Stdio::inherit()).output();
    let made = made.map_err(|error| error.to_string())?;
    let python = String::from_utf8_lossy(&made.stdout).trim().to_owned();
    if !made.status.success() || python.is_empty() {
        return Err(
            "dev/sim/truth/run --python failed; see above, or leave these out with MOTO=skip".to_owned()
        );
    }
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let port = free.map_err(|error| error.to_string())?.port();
    let server = Path::new(&python).with_file_name("moto_server");
    let process = Command::new(&python)
        .arg(server)
        .args(["-H", "127.0.0.1", "-p", &port.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let process = process.map_err(|error| format!("{python}: {error}"))?;
    Ok(Server { url: format!("http://127.0.0.1:{port}"), process: Mutex::new(process) })
}

impl Moto {
    /// A world of the case of this thread, if moto plays it.
    pub async fn of_this_case() -> Option<Self> {
        let region = REGIONS[CASE.get()?];
        let server = SERVER.get_or_init(start).as_ref().unwrap_or_else(|error| panic!("{error}"));
        let mut moto = Self { url: server.url.clone(), nodes: Vec::new(), region };
        moto.wait().await;
        // In a subnet of its own an instance gets no address by itself.
        let vpc = one(&moto.call("CreateVpc", &[("CidrBlock", "10.1.0.0/16")]).await, "vpcId");
        let subnet = [("VpcId", vpc.as_str()), ("CidrBlock", "10.1.0.0/24")];
        let subnet = one(&moto.call("CreateSubnet", &subnet).await, "subnetId");
        for _ in 0..3 {
            let launch =
                [("ImageId", "ami-12c6146b"), ("MinCount", "1"), ("MaxCount", "1"), ("SubnetId", &subnet)];
            let launched = moto.call("RunInstances", &launch).await;
            let (zone, id) = (one(&launched, "availabilityZone"), one(&launched, "instanceId"));
            moto.nodes.push(format!("aws:///{zone}/{id}"));
        }
        for n in 1..=3 {
            moto.call("AllocateAddress", &[("Domain", "vpc"), ("Address", &ip(n).to_string())]).await;
        }
        Some(moto)
    }

    async fn wait(&self) {
        for _ in 0..300 {
            if reqwest::get(format!("{}/moto-api/", self.url)).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        panic!("moto does not answer");
    }

    async fn call(&self, action: &str, parameters: &[(&str, &str)]) -> String {
        let region = self.region;
        let credential = format!(
            "AWS4-HMAC-SHA256 Credential=person/20260101/{region}/ec2/aws4_request, SignedHeaders=host, Signature=0"
        );
        let form: Vec<(&str, &str)> =
            [("Action", action), ("Version", "2016-11-15")].iter().chain(parameters).copied().collect();
        let client = reqwest::Client::new();
        let request = client.post(&self.url).header("authorization", credential).form(&form);
        let reply = request.send().await.expect("an answer");
        let status = reply.status();
        let text = reply.text().await.expect("a body");
        assert!(status.is_success(), "{action}: {text}");
        text
    }

    /// The instance whose interface has an address.
    pub async fn holder(&self, address: IpAddr) -> Option<String> {
        let address = address.to_string();
        let filter = [("Filter.1.Name", "public-ip"), ("Filter.1.Value.1", address.as_str())];
        let found = self.call("DescribeAddresses", &filter).await;
        let interface = all(&found, "networkInterfaceId").into_iter().find(|id| !id.is_empty())?;
        for node in &self.nodes {
            if self.interface(node).await == interface {
                return Some(node.clone());
            }
        }
        Some(interface)
    }

    async fn interface(&self, node: &str) -> String {
        let id = node.rsplit('/').next().unwrap_or_default();
        one(&self.call("DescribeInstances", &[("InstanceId.1", id)]).await, "networkInterfaceId")
    }

    /// Takes an address from whoever has it.
    pub async fn attach(&self, address: IpAddr, node: &str) {
        let address = address.to_string();
        let filter = [("Filter.1.Name", "public-ip"), ("Filter.1.Value.1", address.as_str())];
        let allocation = one(&self.call("DescribeAddresses", &filter).await, "allocationId");
        let interface = self.interface(node).await;
        let to = [
            ("AllocationId", allocation.as_str()),
            ("NetworkInterfaceId", &interface),
            ("AllowReassociation", "true"),
        ];
        self.call("AssociateAddress", &to).await;
    }
}

/// The texts of all elements of a name.
fn all(xml: &str, name: &str) -> Vec<String> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let parts = xml.split(&open).skip(1);
    parts.map(|part| part.split(&close).next().unwrap_or_default().to_owned()).collect()
}

fn one(xml: &str, name: &str) -> String {
    all(xml, name).into_iter().next().unwrap_or_else(|| panic!("no {name} in {xml}"))
}
