//! Calls are counted, printed, and equal to what docs/clouds says.

use crate::bed::{Bed, call, ip, node, small_world, within};
use crate::permissions::page;
use cloud::Cloud;

/// The row of the page about an operation.
fn documented(cloud: Cloud, operation: &str) -> Option<String> {
    let page = page(cloud);
    let row = page.lines().find(|line| line.starts_with(&format!("| {operation} |")))?;
    row.split('|').nth(2).map(|calls| calls.trim().replace('`', ""))
}

struct Counted {
    bed: Bed,
    wrong: Vec<String>,
}

impl Counted {
    /// Holds the calls since an event against the page.
    fn check(&mut self, operation: &str, since: u64) {
        let mut calls: Vec<String> = self.bed.calls(since).into_iter().map(|event| event.action).collect();
        if operation.starts_with("audit") {
            calls.sort(); // they are sent at the same time
        }
        let found = if calls.is_empty() { "none".to_owned() } else { calls.join(", ") };
        let cloud = self.bed.cloud;
        println!("{:5} {operation}: {} ({found})", cloud.as_str(), calls.len());
        let written = documented(cloud, operation);
        if written.as_deref() != Some(found.as_str()) {
            self.wrong.push(format!("| {operation} | {found} |, and the page has {written:?}"));
        }
    }
}

pub async fn every_operation_does_the_documented_calls(cloud: Cloud) {
    let mut world = small_world(cloud);
    world.instances[2].ephemeral = false;
    let mut counted = Counted { bed: Bed::of(cloud, world).await, wrong: Vec::new() };
    let node_1 = node(cloud, 1);
    let mut since = 0;
    macro_rules! count {
        ($operation:expr, $done:expr) => {{
            let done = $done;
            counted.check($operation, since);
            since = counted.bed.last_event();
            done
        }};
    }
    let free = count!("audit", counted.bed.free_token(1).await);
    count!("preflight", counted.bed.provider.preflight(ip(1), &node_1, within(20)).await.unwrap());
    count!("attach", counted.bed.provider.attach(ip(1), &node_1, &free, &call("a")).await.unwrap());
    count!("attach again", counted.bed.provider.attach(ip(1), &node_1, &free, &call("a")).await.unwrap());
    let held = count!("audit with attached addresses", counted.bed.attached_token(1).await);
    count!("detach", counted.bed.detach(1, 1, &held, "d").await.unwrap());
    count!("restore", counted.bed.provider.restore(&node_1, Some(&held), &call("r")).await.unwrap());
    count!("restore again", counted.bed.provider.restore(&node_1, Some(&held), &call("r")).await.unwrap());
    count!("detach again", counted.bed.detach(1, 1, &held, "d").await.unwrap());
    let node_3 = node(cloud, 3);
    count!(
        "attach to a node without an address",
        counted.bed.provider.attach(ip(1), &node_3, &free, &call("b")).await.unwrap()
    );
    let _ = since;
    assert!(
        counted.wrong.is_empty(),
        "docs/clouds/{}.md should have\n{}",
        cloud.as_str(),
        counted.wrong.join("\n")
    );
}
