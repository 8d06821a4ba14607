//! Why nodes cannot take an address, with numbers: as the scheduler says it of pods.

use crate::index::{Claim, Index};
use crate::{InstanceView, Reason};
use crds::NodeRefusal;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;

/// How many nodes are named for a reason.
const EXAMPLES: usize = 5;
/// How long what was said of a node may be.
const MAX_MESSAGE: usize = 300;

/// The nodes of the cluster by what is in their way, whichever address asks.
#[derive(Debug)]
pub struct NodesInTheWay {
    nodes: usize,
    refused: BTreeMap<Reason, Refused>,
    /// Nodes that could take one, in order.
    free: Vec<usize>,
    /// The words and the data for an address that nothing else is in the way of: there may be thousands of them.
    sentence: Rc<str>,
    refusals: Vec<NodeRefusal>,
}

#[derive(Clone, Debug, Default)]
struct Refused {
    count: usize,
    examples: Vec<String>,
    message: Option<String>,
}

impl Refused {
    fn add(&mut self, node: &str) {
        self.count += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(node.to_owned());
        }
    }
}

impl NodesInTheWay {
    pub fn new(index: &Index<'_>, claim: &Claim<'_>, taken: &[bool]) -> Self {
        let nodes = index.nodes.len();
        let mut all = Self {
            nodes,
            refused: BTreeMap::new(),
            free: Vec::new(),
            sentence: "".into(),
            refusals: Vec::new(),
        };
        for (number, entry) in index.nodes.iter().enumerate() {
            let taken = || taken[number].then_some(Reason::HoldsAddress);
            let Some(reason) = index.refusal(claim, number).or_else(taken) else {
                all.free.push(number);
                continue;
            };
            let refused = all.refused.entry(reason).or_default();
            refused.add(entry.name);
            let of_the_cloud =
                matches!(reason, Reason::HoldsForeignAddress | Reason::Unsupported | Reason::CloudUnknown);
            if of_the_cloud && refused.message.is_none() {
                refused.message = said(index.instance(&entry.node.provider_id));
            }
        }
        all.sentence = all.sentence_with(&Refused::default()).into();
        all.refusals = all.refusals_with(&Refused::default());
        all
    }

    /// The most frequent first.
    fn in_order<'r>(&'r self, cooling: &'r Refused) -> Vec<(Reason, &'r Refused)> {
        let mut all: Vec<_> = self.refused.iter().map(|(reason, refused)| (*reason, refused)).collect();
        if cooling.count > 0 {
            all.push((Reason::CoolingOff, cooling));
        }
        all.sort_by_key(|(reason, refused)| (std::cmp::Reverse(refused.count), *reason));
        all
    }

    fn sentence_with(&self, cooling: &Refused) -> String {
        let able = self.free.len().saturating_sub(cooling.count);
        let able = format!("{able}/{} nodes can take it", self.nodes);
        let why = self.in_order(cooling).into_iter();
        let why: Vec<String> = why.map(|(reason, r)| format!("{} {}", r.count, reason.as_str())).collect();
        if why.is_empty() { able } else { format!("{able}: {}", why.join(", ")) }
    }

    fn refusals_with(&self, cooling: &Refused) -> Vec<NodeRefusal> {
        let refusal = |(reason, refused): (Reason, &Refused)| NodeRefusal {
            reason: reason.as_str().to_owned(),
            count: i32::try_from(refused.count).unwrap_or(i32::MAX),
            nodes: refused.examples.clone(),
            message: refused.message.clone(),
        };
        self.in_order(cooling).into_iter().map(refusal).collect()
    }
}

/// The same for one address.
#[derive(Clone, Debug)]
pub struct Tally {
    shared: Rc<NodesInTheWay>,
    /// Nodes that could take it, but for an attempt that failed a while ago.
    cooling: Option<Box<Refused>>,
}

impl Tally {
    /// `cooling`: the nodes that must not be tried for this address now; `None`: no node at all.
    pub fn new(index: &Index<'_>, shared: Rc<NodesInTheWay>, cooling: Option<&[usize]>) -> Self {
        let mut refused = Refused::default();
        match cooling {
            None => {
                shared.free.iter().take(EXAMPLES).for_each(|node| refused.add(index.nodes[*node].name));
                refused.count = shared.free.len();
            }
            Some(nodes) => {
                let free = nodes.iter().filter(|node| shared.free.binary_search(node).is_ok());
                free.for_each(|node| refused.add(index.nodes[*node].name));
            }
        }
        Self { shared, cooling: (refused.count > 0).then(|| refused.into()) }
    }

    /// What the cloud said instead of telling how an instance is.
    pub fn cloud_error(&self) -> Option<&str> {
        self.shared.refused.get(&Reason::CloudUnknown)?.message.as_deref()
    }

    /// For example: `0/7 nodes can take it: 3 HoldsForeignAddress, 2 NotReady, 2 OutsideZones`.
    pub fn sentence(&self) -> Rc<str> {
        match &self.cooling {
            None => self.shared.sentence.clone(),
            Some(cooling) => self.shared.sentence_with(cooling).into(),
        }
    }

    /// The same as data.
    pub fn refusals(&self) -> Cow<'_, [NodeRefusal]> {
        match &self.cooling {
            None => Cow::Borrowed(&self.shared.refusals),
            Some(cooling) => Cow::Owned(self.shared.refusals_with(cooling)),
        }
    }
}

/// What the cloud said of an instance, in words.
fn said(view: &InstanceView) -> Option<String> {
    let (InstanceView::Running { refuses: Some((_, text)) } | InstanceView::Unknown { message: text }) = view
    else {
        return None;
    };
    let end = text.char_indices().nth(MAX_MESSAGE).map_or(text.len(), |(end, _)| end);
    Some(text[..end].to_owned()).filter(|text| !text.is_empty())
}
