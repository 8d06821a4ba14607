//! Random histories of two processes that know old things, in a cloud that loses replies, fails late and shows
//! the past. Nobody is robbed, no newer attachment ends by an older token, and no node is left as it was not.

use crate::bed::{Bed, call, in_sim, ip, settings, within};
use cloud::{AddressState, Cloud, Clouds, Connect as _, Limits, Provider, Rate};
use sim::{Fault, InstanceSpec, Kind, On, Pace, Rule};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// `CLOUD_HISTORIES=1000` plays more of them.
fn how_many() -> u64 {
    std::env::var("CLOUD_HISTORIES").ok().and_then(|text| text.parse().ok()).unwrap_or(6)
}

/// Numbers that depend on a seed alone (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// A process: what it has read, whenever that was.
struct Process {
    provider: Arc<dyn Provider>,
    view: BTreeMap<u8, AddressState>,
    ended: Vec<(String, String)>,
}

struct History {
    bed: Bed,
    processes: Vec<Process>,
    random: Random,
    step: u64,
}

fn process(bed: &Bed) -> Process {
    let rate = Rate { burst: 1e6, per_second: 1e6 };
    let limits = Some(Limits { reads: rate, writes: rate, concurrent: 16 });
    let clouds = Clouds::new(cloud::Settings { limits, ..settings(&bed.sim) }, Arc::new(())).unwrap();
    let provider = clouds.open(&clouds.account_of(&bed.node(1)).unwrap()).unwrap();
    Process { provider, view: BTreeMap::new(), ended: Vec::new() }
}

impl History {
    async fn new(cloud: Cloud, seed: u64) -> Self {
        let mut bed = Bed::new(cloud).await;
        bed.provider = process(&bed).provider;
        bed.sim.set(|settings| {
            settings.gcp.operation = Pace::Seconds(0.02);
            settings.azure.operation = Pace::Seconds(0.02);
        });
        let private = InstanceSpec { ephemeral: false, ..InstanceSpec::of(&crate::bed::node(cloud, 4)) };
        bed.sim.change(&sim::Change::AddInstance { instance: private }).unwrap();
        let processes = vec![process(&bed), process(&bed)];
        Self { bed, processes, random: Random(seed), step: 0 }
    }

    /// Something goes wrong with one of the next calls, perhaps.
    fn misfortune(&mut self) {
        let mutating = Some(self.random.below(2) == 0);
        let on = On { cloud: Some(in_sim(self.bed.cloud)), mutating, ..On::default() };
        let code = match self.bed.cloud {
            Cloud::Gcp => "IP_IN_USE_BY_ANOTHER_RESOURCE",
            _ => "AnotherOperationInProgress",
        };
        let fault = match self.random.below(8) {
            0 => Fault::LostReply,
            1 => Fault::Reset,
            2 => Fault::LateFailure { code: code.to_owned(), message: String::new() },
            3 => Fault::Lag { seconds: 60.0, jitter: true },
            _ => return,
        };
        self.bed.sim.fault(Rule::once(on, fault).after(u32::try_from(self.random.below(3)).unwrap()));
    }

    async fn act(&mut self) {
        self.step += 1;
        let who = usize::try_from(self.random.below(2)).unwrap();
        let (n, to) = (
            u8::try_from(self.random.below(3)).unwrap() + 1,
            usize::try_from(self.random.below(4)).unwrap() + 1,
        );
        let key = format!("step {}", self.step);
        let node = self.bed.node_or_fourth(to);
        let before = self.bed.holder(n).await;
        let fresh = self.bed.state(n).await;
        let misfortune = self.random.below(3) > 0;
        if misfortune {
            self.misfortune();
        }
        let process = &mut self.processes[who];
        match (process.view.get(&n).cloned(), self.random.below(4)) {
            (None, _) | (_, 0) => {
                let mut ask = self.bed.ask();
                ask.instances.insert(self.bed.node_or_fourth(4));
                let reading = process.provider.read(&ask, within(10)).await;
                process.view = (1..=3).map(|n| (n, reading.addresses[&ip(n)].clone())).collect();
            }
            (Some(AddressState::Free { token }), _) => {
                let result = process.provider.attach(ip(n), &node, &token, &call(&key)).await;
                if result.is_ok() && !misfortune {
                    assert_eq!(self.bed.holder(n).await, Some(node), "attached is attached");
                }
            }
            (Some(AddressState::Attached { provider_id, token }), _) => {
                let result = process.provider.detach(ip(n), &provider_id, &token, &call(&key)).await;
                let after = self.bed.holder(n).await;
                let same = matches!(&fresh, AddressState::Attached { token: now, .. } if *now == token);
                if !same && before.is_some() && !matches!(fresh, AddressState::Unknown(_)) {
                    assert_eq!(after, before, "ended by an old token: {result:?}");
                }
                process.ended.push((provider_id, token));
            }
            _ => {
                if let Some((provider_id, token)) = process.ended.pop() {
                    let _ = process.provider.restore(&provider_id, Some(&token), &call(&key)).await;
                }
            }
        }
        self.bed.sim.clear_faults();
    }

    /// Everything is taken off by one who tries until it is done, and every node has been used once.
    async fn settle(&mut self) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        for round in 0..5 {
            for n in 1..=3 {
                self.free(n, round).await;
            }
            let to = usize::try_from(round).unwrap();
            if (1..=4).contains(&to) {
                let token = self.bed.free_token(1).await;
                let node = self.bed.node_or_fourth(to);
                self.bed
                    .provider
                    .attach(ip(1), &node, &token, &call(&format!("settle {round}")))
                    .await
                    .unwrap();
            }
        }
        self.free(1, 9).await;
    }

    async fn free(&mut self, n: u8, round: u64) {
        for attempt in 0..20 {
            let key = format!("free {n} {round} {attempt}");
            let AddressState::Attached { provider_id, token } = self.bed.state(n).await else { return };
            let done = self.bed.provider.detach(ip(n), &provider_id, &token, &call(&key)).await;
            if done.is_ok()
                && self.bed.provider.restore(&provider_id, Some(&token), &call(&key)).await.is_ok()
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{} is never free", ip(n));
    }
}

pub async fn random_histories_rob_nobody(cloud: Cloud) {
    for seed in 0..how_many() {
        println!("{} history {seed}", cloud.as_str());
        let mut history = History::new(cloud, seed).await;
        for _ in 0..14 {
            history.act().await;
        }
        history.settle().await;
        let bed = &history.bed;
        for event in bed.sim.events(0) {
            for change in &event.changes {
                let robbed = event.kind != Kind::Outside && change.before.is_some() && change.after.is_some();
                assert!(!robbed, "seed {seed}: {change:?} by {}", event.action);
            }
        }
        assert!(bed.sim.snapshot().holds.is_empty(), "seed {seed}: all free at the end");
        if cloud == Cloud::Gcp {
            for n in 1..=3 {
                let own = crate::gcp::access_config(bed, n).await;
                assert!(own["natIP"].is_string(), "seed {seed}: node {n} has its own address again: {own}");
            }
            let own = crate::gcp::access_config(bed, 4).await;
            assert!(own.is_null(), "seed {seed}: the private one has none: {own}");
        }
    }
}
