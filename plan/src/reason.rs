//! The closed set of reasons that conditions, events, metrics and docs share.

use serde::{Deserialize, Serialize};

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident),* $(,)?) => {
        /// Why something is so, or is done.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Reason {
            $($(#[doc = $doc])+ $name),*
        }

        impl Reason {
            /// All of them, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The word that is shown.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name)),*
                }
            }

            /// What it means.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),+).trim_ascii()),*
                }
            }

            /// The reason of that name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| reason.as_str() == name)
            }
        }
    };
}

reasons! {
    /// Every address is attached to a node.
    AllAttached,
    /// The address is attached and its node is marked.
    Attached,
    /// The address was already attached to an eligible node and was taken over as it was.
    Adopted,
    /// There are more addresses than eligible nodes; the rest waits for a node.
    MoreAddressesThanNodes,
    /// No node is eligible.
    NoEligibleNode,
    /// The address waits for a node that can take it.
    WaitingForNode,
    /// The address is being attached.
    Attaching,
    /// The address is on its way to another node.
    Moving,
    /// The address is being released.
    Releasing,
    /// The address was free and an eligible node was there.
    FirstAttach,
    /// The node was cordoned and the workload's pods have left it.
    NodeDrained,
    /// An autoscaler is about to remove the node.
    NodeScaledDown,
    /// The workload's pods did not leave the cordoned node within drainTimeoutSeconds.
    DrainTimeout,
    /// The node was NotReady for longer than notReadyGraceSeconds.
    NodeNotReady,
    /// The node was declared out of service.
    NodeOutOfService,
    /// The instance is stopped, terminated or gone, by the cloud's word.
    InstanceStopped,
    /// The node is being deleted or is gone.
    NodeLost,
    /// The node does not match nodeSelector or nodeSelectorTerms any more.
    NodeNotSelected,
    /// The node is outside the region or the zones.
    OutsideZones,
    /// The node has a NoExecute taint that is not tolerated.
    NodeTainted,
    /// The node holds another reserved address; one is enough.
    SecondAddress,
    /// The address was taken off the list.
    RemovedFromSpec,
    /// The allocation is being deleted.
    AllocationDeleted,
    /// The attach failed and the address went back to the node it came from.
    Restored,
    /// The address stays on its cordoned node until the workload's pods have left it.
    WaitingForDrain,
    /// The address stays on its cordoned node while the DaemonSet's pod lives there.
    WaitingForDaemonSetPod,
    /// The node is NotReady, but not for long enough yet.
    WaitingForGrace,
    /// The address has not been on its node for minHoldSeconds yet.
    WaitingForHold,
    /// Other addresses of the allocation are on the move; maxUnavailable is reached.
    WaitingForOthers,
    /// The address has to leave its node, and there is no other node for it.
    WaitingForTarget,
    /// Too many nodes are NotReady at once; moves wait, since the view may be wrong.
    StormGuard,
    /// The last attempt failed; the next one comes after a pause.
    BackingOff,
    /// The cloud's answer is missing, so nothing is done.
    CloudUnknown,
    /// The cloud refuses the credentials.
    PermissionDenied,
    /// The cloud account has no such address.
    AddressNotFound,
    /// Somebody else holds the address: an instance outside the cluster, a load balancer.
    HeldByOther,
    /// Another allocation that comes first (it acts, or is older) lists the address too.
    HeldByAllocation,
    /// The node's interface holds a static address of somebody else's.
    HoldsForeignAddress,
    /// The cloud cannot attach this address to this instance.
    Unsupported,
    /// The spec is not valid.
    InvalidSpec,
    /// The allocation is paused.
    Paused,
    /// The allocation is in mode Plan.
    PlanOnly,
    /// The pod runs on a node without an address of its allocation.
    Misplaced,
    /// The pod waits for an allocation that its workload does not have any more.
    Stranded,
    /// Evicting does not help: a replacement has no requirement, or none can be scheduled.
    EvictionStopped,
    /// A misplaced pod may not be evicted now; the API server says why.
    EvictionRefused,
    /// More pods of the workload wait for a node than there are addresses.
    MorePodsThanAddresses,
    /// The workload cannot be listed, so nobody knows where its pods are: moves by choice wait.
    WorkloadUnknown,
    /// The workload does not exist: the address is kept, and no pod follows it.
    WorkloadNotFound,
    /// The node is not Ready.
    NotReady,
    /// The node is cordoned.
    Cordoned,
    /// The node has a taint that is not tolerated.
    Tainted,
    /// The node has no provider ID, or one of another cloud.
    OtherCloud,
    /// The node holds a reserved address already.
    HoldsAddress,
    /// Another Node object stands for the same machine, and counts.
    SameInstance,
    /// The acting controller runs on the node.
    OwnNode,
    /// An attach to this node failed a short while ago.
    CoolingOff,
}
