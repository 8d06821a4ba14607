//! A running world and plain HTTP to talk to it.

// Helpers of tests may fail a test, though they are no test functions themselves.
#![allow(clippy::expect_used, clippy::panic)]

use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use sim::{Cloud, InstanceSpec, Pace, Sim, World};
use std::net::IpAddr;
use std::time::Duration;

pub const GCP_1: &str = "gce://dev-project/us-central1-a/node-1";
pub const GCP_2: &str = "gce://dev-project/us-central1-b/node-2";
pub const AWS_1: &str = "aws:///eu-west-1a/i-00000000000000001";
pub const AWS_2: &str = "aws:///eu-west-1b/i-00000000000000002";
pub const I_1: &str = "i-00000000000000001";
pub const I_2: &str = "i-00000000000000002";
pub const GROUP: &str =
    "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/dev-nodes/providers";
pub const API: &str = "?api-version=2024-05-01";

/// Provider ID of an Azure node.
pub fn azure_node(name: &str) -> String {
    format!("azure://{GROUP}/Microsoft.Compute/virtualMachines/{name}")
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Two nodes and two free addresses in each cloud. Operations are done when they are asked for once; the
/// clock stands.
pub fn small_world() -> World {
    let nodes = [GCP_1, GCP_2, AWS_1, AWS_2].map(InstanceSpec::of);
    let azure = ["node-1", "node-2"].map(|name| InstanceSpec::of(&azure_node(name)));
    let mut world = World {
        instances: nodes.into_iter().chain(azure).collect(),
        standing_clock: Some("2026-01-01T00:00:00Z".parse().expect("a time")),
        ..World::default()
    };
    world.settings.gcp.operation = Pace::Polls(1);
    world.settings.azure.operation = Pace::Polls(1);
    for (cloud, network) in [(Cloud::Gcp, 1), (Cloud::Aws, 2), (Cloud::Azure, 3)] {
        for last in [1, 2] {
            world = world.address(cloud, [203, 0, network, last]);
        }
    }
    world
}

/// A running world.
pub struct Bed {
    pub sim: Sim,
    http: Client,
}

/// What was answered.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("text"))
    }

    /// The texts of all elements of a name in an XML reply.
    pub fn all(&self, name: &str) -> Vec<String> {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        let parts = self.text.split(&open).skip(1);
        parts.map(|part| part.split(&close).next().unwrap_or_default().to_owned()).collect()
    }

    pub fn one(&self, name: &str) -> String {
        self.all(name).into_iter().next().unwrap_or_else(|| panic!("no {name} in {}", self.text))
    }

    /// Status and code of an error, in whichever cloud's form.
    pub fn error(&self) -> (u16, String) {
        let code = if self.text.starts_with("<?xml") {
            self.all("Code").first().cloned().unwrap_or_default()
        } else {
            let error = &self.json()["error"];
            let reason = error["errors"][0]["reason"].as_str().or(error["code"].as_str());
            reason.unwrap_or_default().to_owned()
        };
        (self.status, code)
    }

    pub fn message(&self) -> String {
        if self.text.starts_with("<?xml") {
            return self.one("Message");
        }
        self.json()["error"]["message"].as_str().unwrap_or_default().to_owned()
    }
}

impl Bed {
    pub async fn start(world: World) -> Self {
        Self {
            sim: Sim::start(world).await.expect("simulators"),
            http: Client::builder().timeout(Duration::from_secs(10)).build().expect("a client"),
        }
    }

    pub async fn small() -> Self {
        Self::start(small_world()).await
    }

    pub fn request(&self, method: Method, url: &str) -> RequestBuilder {
        self.http.request(method, url)
    }

    /// Sends a request; an error if there is no answer.
    pub async fn try_send(&self, request: RequestBuilder) -> Result<Answer, reqwest::Error> {
        let reply = request.send().await?;
        Ok(Answer {
            status: reply.status().as_u16(),
            headers: reply.headers().clone(),
            text: reply.text().await?,
        })
    }

    pub async fn send(&self, request: RequestBuilder) -> Answer {
        self.try_send(request).await.expect("an answer")
    }

    pub fn gcp(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}/compute/v1/projects/dev-project/{path}", self.sim.gcp_url());
        self.request(method, &url)
    }

    pub async fn gcp_get(&self, path: &str) -> Answer {
        self.send(self.gcp(Method::GET, path)).await
    }

    /// `zones/z/instances/n` of a GCP node.
    pub fn gcp_path(node: &str) -> String {
        let parts: Vec<&str> = node.trim_start_matches("gce://").split('/').collect();
        format!("zones/{}/instances/{}", parts[1], parts[2])
    }

    pub async fn gcp_interface(&self, node: &str) -> Value {
        self.gcp_get(&Self::gcp_path(node)).await.json()["networkInterfaces"][0].clone()
    }

    pub async fn gcp_address(&self, address: &str) -> Value {
        let name = format!("ip-{}", address.replace('.', "-"));
        self.gcp_get(&format!("regions/us-central1/addresses/{name}")).await.json()
    }

    pub fn gcp_add(&self, node: &str, config: &Value) -> RequestBuilder {
        let path = format!("{}/addAccessConfig?networkInterface=nic0", Self::gcp_path(node));
        self.gcp(Method::POST, &path).json(config)
    }

    pub fn gcp_delete(&self, node: &str, name: &str) -> RequestBuilder {
        let path = format!("{}/deleteAccessConfig?networkInterface=nic0", Self::gcp_path(node));
        self.gcp(Method::POST, &path).query(&[("accessConfig", name)])
    }

    /// Asks for an operation once.
    pub async fn gcp_poll(&self, operation: &Value) -> Value {
        let link = operation["selfLink"].as_str().expect("a link");
        let (_, path) = link.split_once("/projects/dev-project/").expect("a path");
        self.gcp_get(path).await.json()
    }

    /// Sends a change and sees its operation through.
    pub async fn gcp_done(&self, request: RequestBuilder) -> Value {
        let answer = self.send(request).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        self.gcp_poll(&answer.json()).await
    }

    /// Attaches a reserved address to a node that has none of the cloud's choice any more.
    pub async fn gcp_attach(&self, node: &str, address: &str) {
        self.gcp_done(self.gcp_delete(node, "external-nat")).await;
        let done = self.gcp_done(self.gcp_add(node, &json!({ "natIP": address, "name": "ours" }))).await;
        assert_eq!((&done["status"], &done["error"]), (&json!("DONE"), &Value::Null));
    }

    pub async fn aws(&self, action: &str, params: &[(&str, &str)]) -> Answer {
        self.send(self.aws_request(action, params)).await
    }

    pub fn aws_request(&self, action: &str, params: &[(&str, &str)]) -> RequestBuilder {
        let form: Vec<(&str, &str)> = [("Action", action), ("Version", "2016-11-15")]
            .into_iter()
            .chain(params.iter().copied())
            .collect();
        let signature =
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20260101/eu-west-1/ec2/aws4_request, Signature=0";
        self.request(Method::POST, &self.sim.aws_url()).header("authorization", signature).form(&form)
    }

    /// Allocation id of an address.
    pub async fn allocation(&self, address: &str) -> String {
        let filter = [("Filter.1.Name", "public-ip"), ("Filter.1.Value.1", address)];
        self.aws("DescribeAddresses", &filter).await.one("allocationId")
    }

    /// First interface of an instance.
    pub async fn eni(&self, instance: &str) -> String {
        let filter = [("Filter.1.Name", "attachment.instance-id"), ("Filter.1.Value.1", instance)];
        self.aws("DescribeNetworkInterfaces", &filter).await.one("networkInterfaceId")
    }

    /// Associates an address with the first interface of an instance.
    pub async fn associate(&self, address: &str, instance: &str, reassociate: &str) -> Answer {
        let (allocation, eni) = (self.allocation(address).await, self.eni(instance).await);
        let params = [
            ("AllocationId", allocation.as_str()),
            ("NetworkInterfaceId", &eni),
            ("AllowReassociation", reassociate),
        ];
        self.aws("AssociateAddress", &params).await
    }

    /// The description of one address.
    pub async fn aws_address(&self, address: &str) -> Answer {
        let filter = [("Filter.1.Name", "public-ip"), ("Filter.1.Value.1", address)];
        self.aws("DescribeAddresses", &filter).await
    }

    pub fn azure(&self, method: Method, path: &str) -> RequestBuilder {
        self.request(method, &format!("{}{GROUP}/{path}{API}", self.sim.azure_url()))
    }

    pub async fn azure_get(&self, path: &str) -> Answer {
        self.send(self.azure(Method::GET, path)).await
    }

    pub async fn nic(&self, node: &str) -> Value {
        self.azure_get(&format!("Microsoft.Network/networkInterfaces/{node}-nic")).await.json()
    }

    pub async fn pip(&self, address: &str) -> Value {
        let name = format!("pip-{}", address.replace('.', "-"));
        self.azure_get(&format!("Microsoft.Network/publicIPAddresses/{name}")).await.json()
    }

    pub fn put_nic(&self, node: &str, nic: &Value) -> RequestBuilder {
        self.azure(Method::PUT, &format!("Microsoft.Network/networkInterfaces/{node}-nic")).json(nic)
    }

    /// The interface of a node with an address on it, or without any.
    pub async fn nic_with(&self, node: &str, address: Option<&str>) -> Value {
        let mut nic = self.nic(node).await;
        let config = &mut nic["properties"]["ipConfigurations"][0]["properties"];
        config["publicIPAddress"] = match address {
            Some(address) => json!({ "id": self.pip(address).await["id"] }),
            None => Value::Null,
        };
        nic
    }

    /// Asks once for the operation that an answer names.
    pub async fn azure_poll(&self, answer: &Answer) -> Answer {
        let url = answer.header("azure-asyncoperation").expect("an operation");
        self.send(self.request(Method::GET, url)).await
    }

    /// Puts an address on the interface of a node and sees the operation through.
    pub async fn azure_attach(&self, node: &str, address: &str) {
        let nic = self.nic_with(node, Some(address)).await;
        let answer = self.send(self.put_nic(node, &nic)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(self.azure_poll(&answer).await.json()["status"], "Succeeded");
    }

    /// Provider ID of whoever holds an address now.
    pub fn holder(&self, address: &str) -> Option<String> {
        let holds = self.sim.snapshot().holds;
        holds.get(&ip(address)).map(|hold| hold.holder.clone())
    }
}

/// The public address that an interface refers to.
pub fn reference(nic: &Value) -> &Value {
    &nic["properties"]["ipConfigurations"][0]["properties"]["publicIPAddress"]["id"]
}
