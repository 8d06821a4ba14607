//! What a cloud is made of: instances, their interfaces and the reserved public addresses.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// The clouds that are simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Cloud {
    Gcp,
    Aws,
    Azure,
}

impl Cloud {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Gcp, Self::Aws, Self::Azure];
}

impl fmt::Display for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gcp => "gcp",
            Self::Aws => "aws",
            Self::Azure => "azure",
        })
    }
}

/// Whether an instance runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum InstanceState {
    Pending,
    Running,
    Stopped,
    /// Gone, but still described by clouds that do so for a while.
    Terminated,
}

/// A virtual machine.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The provider ID that its Kubernetes node has.
    pub provider_id: String,
    /// Its name; on AWS its id.
    pub name: String,
    /// The zone it runs in.
    pub zone: String,
    /// The region of that zone.
    pub region: String,
    /// AWS: where its public addresses are advertised from.
    pub border_group: String,
    /// A number that no other instance ever has, not even one of the same name.
    pub uid: u64,
    /// When it was made.
    pub created: Timestamp,
    /// Whether it runs.
    pub state: InstanceState,
    /// Since when.
    pub state_since: Timestamp,
    /// Keys of its interfaces, the first one first.
    pub interfaces: Vec<String>,
    /// It gets a public address of the cloud's choice when it has no other.
    pub wants_ephemeral: bool,
    /// It reaches the cloud's API even without a public address.
    pub private_egress: bool,
    /// Tags or labels.
    pub tags: BTreeMap<String, String>,
    /// AWS: the idempotency token it was launched with.
    pub client_token: Option<String>,
}

/// A network interface.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Its id as the cloud writes it.
    pub id: String,
    /// Key of the instance it belongs to.
    pub instance: Option<String>,
    /// Its name among the interfaces of its instance, or its resource name.
    pub name: String,
    /// Its place in its instance.
    pub index: usize,
    /// Its region.
    pub region: String,
    /// AWS: where its public addresses are advertised from.
    pub border_group: String,
    /// Its private addresses.
    pub slots: Vec<Slot>,
    /// Counts its writes; fingerprints and `ETags` are made of it.
    pub version: u64,
    /// How the last write went.
    pub provisioning: Provisioning,
    /// The operation that is changing it.
    pub busy: Option<String>,
    /// What the operation will make of it.
    pub draft: Option<Draft>,
    /// AWS: no internet gateway is attached to its network.
    pub no_gateway: bool,
    /// Whatever else its owner has set on it.
    pub document: Map<String, Value>,
    /// Tags.
    pub tags: BTreeMap<String, String>,
}

/// What an interface is to be.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Draft {
    pub slots: Vec<Slot>,
    pub document: Map<String, Value>,
    pub tags: BTreeMap<String, String>,
}

/// How the last write of a resource went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Provisioning {
    Succeeded,
    Updating,
    Failed,
}

/// A private address of an interface, which one public address can stand for.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// Azure: name of the IP configuration.
    pub name: String,
    /// The private address.
    pub private_ip: IpAddr,
    /// It is the first one of its interface.
    pub primary: bool,
    /// The public address that stands for it.
    pub binding: Option<Binding>,
    /// Whatever else its owner has set on it.
    pub document: Map<String, Value>,
}

/// A public address on a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// What a detach must name: GCP's access config name, AWS's association id.
    pub id: String,
    /// The address; none while the cloud has not given one (a stopped instance).
    pub ip: Option<IpAddr>,
    /// Key of the reserved address; none for one of the cloud's choice.
    pub reserved: Option<String>,
    /// GCP: network tier.
    pub tier: String,
}

/// A reserved public address.
#[derive(Clone, Debug)]
pub struct Address {
    /// Its id as the cloud writes it.
    pub id: String,
    /// Its resource name; on AWS its allocation id.
    pub name: String,
    /// The address.
    pub ip: IpAddr,
    /// Its region; `global` for GCP's global addresses.
    pub region: String,
    /// AWS: where it is advertised from.
    pub border_group: String,
    /// GCP: network tier; Azure: SKU.
    pub tier: String,
    /// A number that no other address ever has.
    pub uid: u64,
    /// When it was reserved.
    pub created: Timestamp,
    /// Counts its writes.
    pub version: u64,
    /// Who has it.
    pub holder: Option<Holder>,
    /// Azure: the operation that is changing it.
    pub busy: Option<String>,
    /// Tags or labels.
    pub tags: BTreeMap<String, String>,
}

/// Who has a reserved address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A slot of an interface.
    Slot {
        /// Key of the interface.
        interface: String,
        /// Which of its slots.
        slot: usize,
        /// What a detach must name.
        binding: String,
    },
    /// Something that is not an instance: a load balancer, a NAT gateway, a router.
    Other {
        /// The kind and name of the resource, such as `forwardingRules/web`.
        resource: String,
        /// What a detach would have to name.
        binding: String,
    },
}
