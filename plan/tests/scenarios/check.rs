//! Compares a plan with what a scenario expects of it.

use crate::notation::{Line, Words, address, short};
use crate::scene::Scene;
use crate::show;
use crate::vocabulary::reason;
use crds::{IpStatus, NetIPAllocationStatus};
use plan::{Plan, Reason};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Words that begin a line about something to do.
const ACTIONS: &[&str] =
    &["attach", "detach", "verify", "mark", "unmark", "evict", "template", "finalizer", "yield"];

/// Reasons of addresses that are on a node and stay there for now.
const ATTACHED: &[Reason] = &[
    Reason::Attached,
    Reason::Adopted,
    Reason::WaitingForDrain,
    Reason::WaitingForDaemonSetPod,
    Reason::WaitingForGrace,
    Reason::WaitingForHold,
    Reason::WaitingForOthers,
    Reason::WaitingForTarget,
    Reason::WorkloadUnknown,
];

/// Everything that one stage expects.
#[derive(Default)]
pub struct Expected {
    actions: Vec<String>,
    planned: Vec<String>,
    statuses: Vec<Status>,
    conditions: Vec<Condition>,
    facts: Vec<Fact>,
}

struct Status {
    allocation: Option<String>,
    address: IpAddr,
    /// Any of these: the contract does not choose between them.
    reasons: Vec<Reason>,
    node: Option<String>,
}

struct Condition {
    allocation: Option<String>,
    kind: String,
    status: String,
    reason: Option<String>,
    text: Option<String>,
}

/// What is looked at only where a scenario asks for it.
enum Fact {
    Wake(Option<i64>),
    History(Vec<String>),
    Moves(usize),
    Since(IpAddr, i64),
    Says(String),
    Silent(String),
    Counts(i32, i32, i32),
    Why(IpAddr, Option<String>, String),
    AlsoListed(IpAddr, String),
    Pool(String, Vec<String>),
    /// `HoldsForeignAddress 3 n1,n2,n3 NotReady 1 n4`
    Refusals(String, String),
}

impl Expected {
    pub fn read(lines: &[Line]) -> Result<Self, String> {
        let mut expected = Self::default();
        for line in lines {
            let text = line.words.join(" ");
            line.read(|words| expected.line(words, text))?;
        }
        Ok(expected)
    }

    fn line(&mut self, words: &mut Words<'_>, text: String) -> Result<(), String> {
        match words.need("a word")? {
            "nothing" => {}
            action if ACTIONS.contains(&action) => {
                while words.next().is_some() {}
                self.actions.push(text);
            }
            "would" => {
                while words.next().is_some() {}
                self.planned.push(text);
            }
            "status" => self.statuses.push(Status::read(words)?),
            "condition" => self.conditions.push(Condition::read(words)?),
            "wake" if words.take("never") => self.facts.push(Fact::Wake(None)),
            "wake" => {
                words.expect("after")?;
                self.facts.push(Fact::Wake(Some(words.seconds()?)));
            }
            "history" => {
                while words.next().is_some() {}
                self.facts.push(Fact::History(text.split(' ').skip(1).map(str::to_owned).collect()));
            }
            "moves" => self.facts.push(Fact::Moves(words.number()?)),
            "since" => {
                let (address, seconds) = (words.address()?, words.seconds()?);
                words.expect("ago")?;
                self.facts.push(Fact::Since(address, seconds));
            }
            "says" => self.facts.push(Fact::Says(words.need("a text")?.to_owned())),
            "silent" => {
                words.expect("about")?;
                self.facts.push(Fact::Silent(words.need("a text")?.to_owned()));
            }
            "counts" => {
                let counts = Fact::Counts(words.number()?, words.number()?, words.number()?);
                self.facts.push(counts);
            }
            "why" => {
                let (address, second) = (words.address()?, words.need("a reason")?.to_owned());
                let fact = match words.next() {
                    Some(third) if second == "also" => Fact::AlsoListed(address, third.to_owned()),
                    Some(third) => Fact::Why(address, Some(second), third.to_owned()),
                    None => Fact::Why(address, None, second),
                };
                self.facts.push(fact);
            }
            "refusals" => {
                let allocation = words.need("an allocation")?.to_owned();
                let mut all = Vec::new();
                while let Some(word) = words.next() {
                    all.push(word);
                }
                self.facts.push(Fact::Refusals(allocation, all.join(" ")));
            }
            "pool" => {
                let allocation = words.need("an allocation")?.to_owned();
                let nodes = words.next().unwrap_or_default().split(',').filter(|name| !name.is_empty());
                self.facts.push(Fact::Pool(allocation, nodes.map(str::to_owned).collect()));
            }
            other => return Err(format!("`{other}` is nothing that a plan has")),
        }
        Ok(())
    }

    /// Every difference, one line each. `rounds` are the actions of each plan until rest; within a round
    /// they have no order.
    pub fn differences(&self, scene: &Scene, plan: &Plan, rounds: &[Vec<String>]) -> Vec<String> {
        let mut expected = self.actions.clone();
        let mut left = expected.as_mut_slice();
        for round in rounds {
            let (these, rest) = left.split_at_mut(round.len().min(left.len()));
            these.sort();
            left = rest;
        }
        let mut wrong = lists(&expected, &rounds.concat());
        let mut planned = self.planned.clone();
        planned.sort();
        wrong.extend(lists(&planned, &show::planned(plan)));
        let usual = self.statuses(plan, &mut wrong);
        self.conditions(plan, &usual, &mut wrong);
        for fact in &self.facts {
            wrong.extend(fact.difference(scene, plan));
        }
        wrong
    }

    /// Addresses that no line speaks of must be `Attached`. Returns the allocations where all are.
    fn statuses<'p>(&self, plan: &'p Plan, wrong: &mut Vec<String>) -> BTreeSet<&'p str> {
        let mut settled = BTreeSet::new();
        let mut met = 0;
        for (name, status) in &plan.statuses {
            let mut all = true;
            for entry in &status.ips {
                let Some(number) = address(&entry.address) else {
                    continue;
                };
                let line = self.statuses.iter().find(|line| line.is_about(name, number));
                met += usize::from(line.is_some());
                all &= line.is_none_or(|line| line.reasons.iter().all(|reason| ATTACHED.contains(reason)));
                wrong.extend(difference(name, number, entry, line));
            }
            if all && !status.ips.is_empty() {
                settled.insert(name.as_str());
            }
        }
        if met < self.statuses.len() {
            let spoken = self.statuses.iter().map(|line| short(line.address));
            wrong.push(format!(
                "- status lines about {:?}, of which some match no address",
                spoken.collect::<Vec<_>>()
            ));
        }
        settled
    }

    /// Without a line, Ready is True where all addresses are attached, Degraded and Conflict are False.
    fn conditions(&self, plan: &Plan, settled: &BTreeSet<&str>, wrong: &mut Vec<String>) {
        for (name, status) in &plan.statuses {
            for kind in ["Ready", "Progressing", "Degraded", "Conflict"] {
                let usual = match kind {
                    "Ready" => Some(settled.contains(name.as_str())),
                    "Progressing" => None,
                    _ => Some(false),
                };
                let line = self.conditions.iter().find(|line| {
                    line.kind == kind && line.allocation.as_ref().is_none_or(|allocation| allocation == name)
                });
                wrong.extend(condition_difference(name, kind, status, line, usual));
            }
        }
    }
}

impl Status {
    /// `status [voice] .1 WaitingForDrain [on n1]`
    fn read(words: &mut Words<'_>) -> Result<Self, String> {
        let allocation = optional_allocation(words, |word| address(word).is_some());
        Ok(Self {
            allocation,
            address: words.address()?,
            reasons: words.need("a reason")?.split('|').map(reason).collect::<Result<_, _>>()?,
            node: words.take("on").then(|| words.need("a node")).transpose()?.map(str::to_owned),
        })
    }

    fn is_about(&self, allocation: &str, address: IpAddr) -> bool {
        self.address == address && self.allocation.as_ref().is_none_or(|name| name == allocation)
    }
}

impl Condition {
    /// `condition [voice] Ready True|False|any [NoEligibleNode] ["text in the message"]`
    fn read(words: &mut Words<'_>) -> Result<Self, String> {
        let kinds = ["Ready", "Progressing", "Degraded", "Conflict"];
        let allocation = optional_allocation(words, |word| kinds.contains(&word));
        let kind = words.need("a condition")?.to_owned();
        let status = words.need("True or False")?.to_owned();
        let known = words.peek().and_then(Reason::from_name);
        if known.is_some() {
            words.next();
        }
        Ok(Self {
            allocation,
            kind,
            status,
            reason: known.map(|reason| reason.as_str().to_owned()),
            text: words.next().map(str::to_owned),
        })
    }
}

fn optional_allocation(words: &mut Words<'_>, is_next: impl Fn(&str) -> bool) -> Option<String> {
    match words.peek() {
        Some(word) if !is_next(word) => words.next().map(str::to_owned),
        _ => None,
    }
}

fn difference(name: &str, number: IpAddr, entry: &IpStatus, line: Option<&Status>) -> Option<String> {
    let attached = [Reason::Attached];
    let reasons = line.map_or(attached.as_slice(), |line| &line.reasons);
    let node = line.and_then(|line| line.node.as_ref());
    let found = entry.reason.as_deref().unwrap_or("no reason");
    let same_node = node.is_none_or(|node| entry.node.as_ref() == Some(node));
    if reasons.iter().any(|reason| found == reason.as_str()) && same_node {
        return None;
    }
    let on = |node: Option<&String>| node.map_or(String::new(), |node| format!(" on {node}"));
    Some(format!(
        "- status {name} {number} {}{}\n+ status {name} {number} {found}{} ({}; {})",
        reasons.iter().map(|reason| reason.as_str()).collect::<Vec<_>>().join("|"),
        on(node),
        on(entry.node.as_ref()),
        entry.state,
        entry.message.as_deref().unwrap_or("no message"),
        number = short(number),
    ))
}

fn condition_difference(
    name: &str,
    kind: &str,
    status: &NetIPAllocationStatus,
    line: Option<&Condition>,
    usual: Option<bool>,
) -> Option<String> {
    let found = status.conditions.iter().find(|condition| condition.type_ == kind);
    let (value, found_reason, message) = found.map_or(("absent", "", ""), |condition| {
        (condition.status.as_str(), condition.reason.as_str(), condition.message.as_str())
    });
    let usual = usual.map(|usual| if usual { "True" } else { "False" });
    let expected = line.map(|line| line.status.as_str()).or(usual)?;
    let absent_is_false = value == "absent" && expected == "False" && kind == "Conflict";
    if expected == "any" || absent_is_false {
        return None;
    }
    let reason = line.and_then(|line| line.reason.as_deref());
    let text = line.and_then(|line| line.text.as_deref());
    if value == expected
        && reason.is_none_or(|reason| reason == found_reason)
        && text.is_none_or(|text| message.contains(text))
    {
        return None;
    }
    Some(format!(
        "- condition {name} {kind} {expected} {} {}\n+ condition {name} {kind} {value} {found_reason} {message:?}",
        reason.unwrap_or_default(),
        text.unwrap_or_default(),
    ))
}

impl Fact {
    fn difference(&self, scene: &Scene, plan: &Plan) -> Option<String> {
        match self {
            Self::Wake(expected) => {
                let found = plan.wake_at.map(|at| at.millis_since(scene.now));
                let expected = expected.map(|seconds| seconds * 1000);
                (found != expected)
                    .then(|| format!("- wake after {expected:?} ms\n+ wake after {found:?} ms"))
            }
            Self::History(words) => {
                let moves: Vec<String> = plan.statuses.values().flat_map(|status| history(status)).collect();
                let words = words.join(" ");
                (!moves.contains(&words)).then(|| format!("- history {words}\n+ history {moves:?}"))
            }
            Self::Moves(expected) => {
                let found: usize = plan.statuses.values().map(|status| status.history.len()).sum();
                (found != *expected).then(|| format!("- moves {expected}\n+ moves {found}"))
            }
            Self::Since(address, expected) => {
                let all = plan.statuses.values().flat_map(|status| &status.ips);
                let mut of_this = all.filter(|ip| ip.address == address.to_string());
                let since = of_this.find_map(|ip| ip.since.as_ref()).map(|time| plan::Time::from(time.0));
                let found = since.map(|since| scene.now.millis_since(since) / 1000);
                (found != Some(*expected)).then(|| format!("- since {expected} s\n+ since {found:?} s"))
            }
            Self::Says(text) => {
                let messages = messages(plan);
                (!messages.iter().any(|message| message.contains(text)))
                    .then(|| format!("- says {text:?}\n+ says {messages:#?}"))
            }
            Self::Silent(text) => {
                let messages = messages(plan);
                messages.iter().any(|message| message.contains(text)).then(|| format!("+ says {text:?}"))
            }
            Self::Counts(reserved, attached, unattached) => {
                let expected = [*reserved, *attached, *unattached];
                let sum = |of: fn(&NetIPAllocationStatus) -> i32| {
                    plan.statuses.values().map(|status| of(status)).sum()
                };
                let found: [i32; 3] = [sum(|s| s.reserved), sum(|s| s.attached), sum(|s| s.unattached)];
                (found != expected).then(|| format!("- counts {expected:?}\n+ counts {found:?}"))
            }
            Self::Why(address, node, expected) => why(scene, *address, node.as_deref(), expected),
            Self::AlsoListed(address, expected) => {
                let explanation = plan::explain(&scene.world, scene.now, *address);
                let found = explanation.map(|found| found.also_listed_by.join(",")).unwrap_or_default();
                (found != *expected).then(|| format!("- why {address} also {expected}\n+ also {found}"))
            }
            Self::Refusals(allocation, expected) => {
                let status = plan.statuses.get(allocation);
                let told = status.into_iter().flat_map(|status| &status.refusals);
                let told = told.map(|r| format!("{} {} {}", r.reason, r.count, r.nodes.join(",")));
                let found = told.collect::<Vec<_>>().join(" ");
                (found != *expected).then(|| format!("- refusals {expected}\n+ refusals {found}"))
            }
            Self::Pool(allocation, expected) => {
                let found = pool(scene, allocation);
                (found != *expected).then(|| format!("- pool {allocation} {expected:?}\n+ {found:?}"))
            }
        }
    }
}

/// `.1 n1 n2 NodeDrained`: address, from, to (`-` for none), cause.
fn history(status: &NetIPAllocationStatus) -> impl Iterator<Item = String> {
    let side = |node: &Option<String>| node.as_deref().unwrap_or("-").to_owned();
    status.history.iter().map(move |entry| {
        let address = entry.address.parse().map_or(entry.address.clone(), short);
        format!("{address} {} {} {}", side(&entry.from), side(&entry.to), entry.cause)
    })
}

fn messages(plan: &Plan) -> Vec<&str> {
    let statuses = plan.statuses.values();
    statuses
        .flat_map(|status| {
            let conditions = status.conditions.iter().map(|condition| condition.message.as_str());
            conditions.chain(status.ips.iter().filter_map(|entry| entry.message.as_deref()))
        })
        .collect()
}

/// `why .1 Reason` is about the address, `why .1 n2 Reason` about a node (`could`: nothing is in the way).
fn why(scene: &Scene, address: IpAddr, node: Option<&str>, expected: &str) -> Option<String> {
    let explanation = plan::explain(&scene.world, scene.now, address);
    let found = match (&explanation, node) {
        (None, _) => "unexplained",
        (Some(explanation), None) => explanation.reason.as_str(),
        (Some(explanation), Some(node)) => {
            let candidate = explanation.candidates.iter().find(|candidate| candidate.node == node);
            candidate.map_or("unlisted", |found| found.refusal.map_or("could", Reason::as_str))
        }
    };
    (found != expected).then(|| format!("- why {address} {node:?} {expected}\n+ {found}, {explanation:#?}"))
}

/// The names of the nodes that an allocation selects.
fn pool(scene: &Scene, allocation: &str) -> Vec<String> {
    let pools = plan::pools(&scene.world);
    let mine = pools.into_iter().filter(|(names, _)| names.contains(&allocation));
    let is = |node: &plan::Node| {
        let named = scene.world.nodes.iter().find(|(_, other)| std::ptr::eq(*other, node));
        named.map_or("a node of another world", |(name, _)| name).to_owned()
    };
    mine.flat_map(|(_, nodes)| nodes).map(is).collect()
}

fn lists(expected: &[String], found: &[String]) -> Vec<String> {
    if expected == found {
        return Vec::new();
    }
    let missing = expected.iter().filter(|line| !found.contains(line)).map(|line| format!("- {line}"));
    let surplus = found.iter().filter(|line| !expected.contains(line)).map(|line| format!("+ {line}"));
    let mut lines: Vec<String> = missing.chain(surplus).collect();
    if lines.is_empty() {
        lines.push(format!("the order or number differs:\n- {expected:#?}\n+ {found:#?}"));
    }
    lines
}
