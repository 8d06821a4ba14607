//! Questions to a history.

use crate::history::{Call, Event, History, Outcome, Purpose, Spec, What};
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// What belongs to others, who share the clouds and the API server.
#[derive(Clone, Debug, Default)]
pub struct Others {
    /// Their addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// Their instances, by provider ID.
    pub instances: BTreeSet<String>,
}

impl What {
    /// Whether something in the API server concerns a node, an allocation or a namespace of ours; what happens in
    /// clouds may.
    pub fn concerns(&self, is_ours: &impl Fn(&str) -> bool) -> bool {
        let of_namespace = |pod: &str| is_ours(pod.split('/').next().unwrap_or_default());
        match self {
            Self::Node { name, .. } | Self::NodeGone { name } => is_ours(name),
            Self::Cordon { node, .. }
            | Self::DrainOver { node }
            | Self::Pods { node, .. }
            | Self::Bound { node, .. } => is_ours(node),
            Self::Pod { pod, .. } | Self::PodEnds { pod, .. } => of_namespace(pod),
            Self::Marks(marks) => is_ours(&marks.node),
            Self::Spec(spec) => is_ours(&spec.allocation),
            Self::Status(status) => is_ours(&status.allocation),
            Self::FinalizerGone { allocation, .. } | Self::Going { allocation } => is_ours(allocation),
            Self::Write { object, .. } => is_ours(object),
            _ => true,
        }
    }
}

impl History {
    /// The same without what concerns other nodes, allocations and namespaces of the API server: a cluster may be
    /// shared by runs that have a cloud each.
    #[must_use]
    pub fn only(mut self, is_ours: impl Fn(&str) -> bool) -> Self {
        self.events.retain(|event| event.what.concerns(&is_ours));
        self
    }

    /// The same without what concerns addresses and instances of others. What concerns nobody's stays: nobody of
    /// ours may touch it.
    #[must_use]
    pub fn apart_from(mut self, others: &Others) -> Self {
        let addresses = self.scope.addresses();
        let instances = self.scope.instances.clone();
        let is_our_instance = |id: &Option<String>| id.as_ref().is_some_and(|id| instances.contains(id));
        self.events.retain(|event| match &event.what {
            What::Call(call) => {
                let ours = call.address.is_some_and(|address| addresses.contains(&address))
                    || is_our_instance(&call.instance);
                let theirs = call.address.is_some_and(|address| others.addresses.contains(&address))
                    || call.instance.as_ref().is_some_and(|id| others.instances.contains(id));
                ours || !theirs
            }
            What::Hold(hold) => {
                addresses.contains(&hold.address)
                    || is_our_instance(&hold.before)
                    || is_our_instance(&hold.after)
            }
            What::Own(own) => instances.contains(&own.instance),
            _ => true,
        });
        self
    }

    /// When it ends.
    pub fn end(&self) -> Timestamp {
        let last = self.events.last().map(|event| event.at);
        self.scope.until.or(last).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// The calls of ours.
    pub fn our_calls(&self) -> impl Iterator<Item = (usize, &Event, &Call)> {
        self.events.iter().enumerate().filter_map(|(at, event)| match &event.what {
            What::Call(call) if self.scope.is_ours(&call.caller) => Some((at, event, call)),
            _ => None,
        })
    }

    /// Who has an address right before the event of that number.
    pub fn holder(&self, address: IpAddr, before: usize) -> Option<&str> {
        let earlier = self.events[..before.min(self.events.len())].iter().rev();
        let mut changes = earlier.filter_map(|event| match &event.what {
            What::Hold(hold) if hold.address == address => Some(hold.after.as_deref()),
            _ => None,
        });
        changes.next().flatten()
    }

    /// The instance of a node right before the event of that number; none if there is no such node.
    pub fn instance_of(&self, node: &str, before: usize) -> Option<(&str, &str)> {
        let earlier = self.events[..before.min(self.events.len())].iter().rev();
        let mut changes = earlier.filter_map(|event| match &event.what {
            What::Node { name, uid, provider_id } if name == node => {
                Some(Some((provider_id.as_str(), uid.as_str())))
            }
            What::NodeGone { name } if name == node => Some(None),
            _ => None,
        });
        changes.next().flatten()
    }

    /// The node of an instance right before the event of that number.
    pub fn node_of(&self, instance: &str, before: usize) -> Option<&str> {
        let earlier = self.events[..before.min(self.events.len())].iter().rev();
        let mut names = earlier.filter_map(|event| match &event.what {
            What::Node { name, provider_id, .. } if provider_id == instance => Some(name.as_str()),
            _ => None,
        });
        names.find(|name| self.instance_of(name, before).is_some_and(|(id, _)| id == instance))
    }

    /// The address that a node is marked with right before the event of that number.
    pub fn mark(&self, node: &str, before: usize) -> Option<IpAddr> {
        let earlier = self.events[..before.min(self.events.len())].iter().rev();
        let mut changes = earlier.filter_map(|event| match &event.what {
            What::Marks(marks) if marks.node == node && marks.own => Some(marks.address),
            What::Node { name, .. } | What::NodeGone { name } if name == node => Some(None),
            _ => None,
        });
        changes.next().flatten()
    }

    /// The number of the last read of that address that was answered to one of ours (to this one, if it is given)
    /// before the event of that number.
    pub fn last_read(&self, address: IpAddr, caller: Option<&str>, before: usize) -> Option<usize> {
        self.events[..before.min(self.events.len())].iter().rposition(|event| match &event.what {
            What::Call(call) => {
                is_read(call, address)
                    && caller.map_or_else(|| self.scope.is_ours(&call.caller), |name| call.caller == name)
            }
            _ => false,
        })
    }

    /// The same if what it showed was not old.
    pub fn last_fresh_read(&self, address: IpAddr, caller: Option<&str>, before: usize) -> Option<usize> {
        let read = self.last_read(address, caller, before)?;
        let fresh = |event: &Event| matches!(&event.what, What::Call(call) if call.purpose == Purpose::Read { lags: false });
        fresh(&self.events[read]).then_some(read)
    }

    /// What an allocation asked for right before the event of that number: by its generation if it is given and
    /// known.
    pub fn spec(&self, allocation: &str, generation: Option<i64>, before: usize) -> Option<&Spec> {
        let all = || {
            let earlier = self.events[..before.min(self.events.len())].iter().rev();
            earlier.filter_map(|event| match &event.what {
                What::Spec(spec) if spec.allocation == allocation => Some(spec),
                _ => None,
            })
        };
        let exact = generation.and_then(|of| all().find(|spec| spec.generation == Some(of)));
        exact.or_else(|| all().next())
    }

    /// The addresses of an allocation right before the event of that number; where nobody wrote what it asks for,
    /// those that the scope has.
    pub fn listed(&self, allocation: &str, generation: Option<i64>, before: usize) -> BTreeSet<IpAddr> {
        match self.spec(allocation, generation, before) {
            Some(spec) => spec.addresses.clone(),
            None => self.scope.allocations.get(allocation).map(|of| of.addresses.clone()).unwrap_or_default(),
        }
    }

    /// Whether an allocation has been deleted before the event of that number, or is about to be.
    pub fn is_going(&self, allocation: &str, before: usize) -> bool {
        let earlier = self.events[..before.min(self.events.len())].iter().rev();
        let mut last = earlier.filter_map(|event| match &event.what {
            What::Going { allocation: of } if of == allocation => Some(true),
            What::FinalizerGone { allocation: of, .. } if of == allocation => Some(true),
            What::Spec(spec) if spec.allocation == allocation && spec.generation == Some(1) => Some(false),
            _ => None,
        });
        last.next().unwrap_or(false)
    }

    /// The allocations that list an address right before the event of that number, and are there to stay.
    pub fn owners(&self, address: IpAddr, before: usize) -> impl Iterator<Item = &str> {
        let names = self.scope.allocations.keys().map(String::as_str);
        names.filter(move |name| {
            self.listed(name, None, before).contains(&address) && !self.is_going(name, before)
        })
    }

    /// Whether an allocation has listed an address at any time before the event of that number. Where nobody wrote
    /// what allocations ask for, the scope says so.
    pub fn was_listed(&self, address: IpAddr, before: usize) -> bool {
        let specs = || {
            self.events[..before.min(self.events.len())].iter().filter_map(|event| match &event.what {
                What::Spec(spec) => Some(spec),
                _ => None,
            })
        };
        let known = self.events.iter().any(|event| matches!(event.what, What::Spec(_)));
        if !known {
            return self.scope.addresses().contains(&address);
        }
        specs().any(|spec| spec.addresses.contains(&address))
    }

    /// When a time is so long after another that what was so then may not be known yet.
    pub fn lag_before(&self, at: Timestamp) -> Timestamp {
        let lag = jiff::SignedDuration::try_from(self.scope.lag).unwrap_or(jiff::SignedDuration::MAX);
        at.checked_sub(lag).unwrap_or(Timestamp::MIN)
    }
}

/// Whether a call is a read that shows this address, and was answered.
fn is_read(call: &Call, address: IpAddr) -> bool {
    matches!(call.purpose, Purpose::Read { .. })
        && call.outcome == Outcome::Accepted
        && call.address.is_none_or(|shown| shown == address)
}
