//! What a valid spec is: every mistake is found, with its path, all at once.

use libtest_mimic::{Failed, Trial};
use plan::parse::{Spec, check_name, parse, references_differ};
use serde_json::{Value, json};

type Check = fn() -> Result<(), String>;

/// `what is wrong | path of the fault | change of a good spec`
const BAD_SPECS: &str = include_str!("cases/bad-specs.txt");

/// `what is right | change of a good spec`
const GOOD_SPECS: &str = include_str!("cases/good-specs.txt");

pub fn trials() -> Vec<Trial> {
    let addresses = BAD_ADDRESSES.iter().map(|(text, word)| {
        let check = move || bad_address(text, word).map_err(Failed::from);
        Trial::test(format!("parse: refuses the address {text:?}"), check)
    });
    let lines = BAD_SPECS.lines().filter(|line| !line.starts_with('#'));
    let others = lines.map(|line| {
        let name = line.split(" | ").next().unwrap_or(line);
        Trial::test(format!("parse: refuses {name}"), move || bad_spec(line).map_err(Failed::from))
    });
    let accepted = GOOD_SPECS.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let name = line.split(" | ").next().unwrap_or(line);
        Trial::test(format!("parse: accepts {name}"), move || good_spec(line).map_err(Failed::from))
    });
    let limits = LIMITS.iter().map(|(path, most, change)| {
        let check = move || limit(path, *most, *change).map_err(Failed::from);
        Trial::test(format!("parse: the limit of {path}"), check)
    });
    let good = GOOD.iter().map(|(name, check)| {
        let check = move || check().map_err(Failed::from);
        Trial::test(format!("parse: {name}"), check)
    });
    addresses.chain(others).chain(accepted).chain(limits).chain(good).collect()
}

/// Addresses that are refused, and a word that the message must have.
const BAD_ADDRESSES: &[(&str, &str)] = &[
    ("foo", "address"),
    ("", "address"),
    ("1.2.3.4.5", "address"),
    ("010.0.0.1", "zero"),
    ("1.2.3.0/24", "range"),
    ("2001:db8::/64", "range"),
    ("gw.example.com", "address"),
    (" 203.0.113.1", "space"),
    ("203.0.113.1:80", "port"),
    ("[2001:db8::1]:80", "port"),
    ("fe80::1%eth0", "address"),
    ("127.0.0.1", "loopback"),
    ("169.254.1.1", "link-local"),
    ("224.0.0.1", "multicast"),
    ("0.0.0.0", "unspecified"),
    ("255.255.255.255", "broadcast"),
    ("10.1.2.3", "private"),
    ("172.16.0.1", "private"),
    ("172.31.255.255", "private"),
    ("192.168.1.1", "private"),
    ("100.64.0.1", "100.64"),
    ("100.127.255.255", "100.64"),
    ("::", "unspecified"),
    ("::1", "loopback"),
    ("fe80::1", "link-local"),
    ("ff02::1", "multicast"),
    ("fc00::1", "private"),
    ("fd12::1", "private"),
    ("::ffff:10.0.0.1", "private"),
    ("::ffff:127.0.0.1", "loopback"),
];

/// Where a limit is, the most that is taken, and a change that makes so many.
type Limit = (&'static str, usize, fn(usize) -> Value);

const LIMITS: &[Limit] = &[
    (
        "spec.reservedIPs",
        256,
        |n| json!({"reservedIPs": (0..n).map(|i| format!("2001:db8::{i:x}")).collect::<Vec<_>>()}),
    ),
    ("spec.cloud.region", 63, |n| json!({"cloud": {"provider": "gcp", "region": "r".repeat(n)}})),
    (
        "spec.cloud.zones",
        64,
        |n| json!({"cloud": {"provider": "gcp", "zones": (0..n).map(|i| format!("z{i}")).collect::<Vec<_>>()}}),
    ),
    ("spec.cloud.zones[0]", 63, |n| json!({"cloud": {"provider": "gcp", "zones": ["z".repeat(n)]}})),
    ("spec.workloadRef.name", 253, |n| json!({"workloadRef": {"kind": "DaemonSet", "name": "w".repeat(n)}})),
    (
        "spec.workloadRef.namespace",
        63,
        |n| json!({"workloadRef": {"kind": "DaemonSet", "name": "w", "namespace": "n".repeat(n)}}),
    ),
    ("spec.nodeSelector.role", 63, |n| json!({"nodeSelector": {"role": "v".repeat(n)}})),
    ("spec.nodeSelectorTerms[0].matchExpressions[0].key", 63, |n| label_key(&"k".repeat(n))),
    ("spec.nodeSelectorTerms[0].matchExpressions[0].key", 253 + 2, |n| {
        label_key(&format!("{}/k", "p".repeat(n - 2)))
    }),
    ("spec.failover.stormThresholdPercent", 100, |n| json!({"failover": {"stormThresholdPercent": n}})),
    ("spec.reconcileInterval", 2_147_483_647, |n| json!({"reconcileInterval": n})),
];

fn label_key(key: &str) -> Value {
    json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "Exists"}]}]})
}

fn limit(path: &str, most: usize, change: fn(usize) -> Value) -> Result<(), String> {
    parsed(&change(most))?;
    refused(&change(most + 1), path)
}

const GOOD: &[(&str, Check)] = &[
    ("fills in the defaults", defaults),
    ("takes 256 addresses of both families", largest),
    ("reads an IPv4-mapped address as IPv4 and IPv6 in any spelling", canonical),
    ("accepts the documentation ranges", documentation),
    ("counts maxUnavailable 0 as 1 and accepts maxSurge", max_unavailable),
    ("reads deploymentRef as a Deployment in namespace default", deployment_ref),
    ("lets workloadRef count where a stored object has both", both_references),
    ("tells references that differ", differing_references),
    ("takes null for absent everywhere", nulls),
    ("tells an empty list of tolerations from none", tolerations),
    ("finds all faults at once, each with its path", all_at_once),
    ("refuses what is no object without a panic", no_object),
    ("says what a number has to be", numbers),
    ("says what was found in place of what", kinds),
    ("says what would be right in a name", hints),
    ("quotes no more of a text than a person reads", long_texts),
    ("takes an allocation's name for a label", allocation_names),
];

fn good() -> Value {
    json!({"reservedIPs": ["203.0.113.1"], "cloud": {"provider": "gcp"}})
}

fn with(change: &Value) -> Value {
    let mut spec = good();
    if let (Some(spec), Some(change)) = (spec.as_object_mut(), change.as_object()) {
        spec.extend(change.clone());
    }
    spec
}

fn parsed(change: &Value) -> Result<Spec, String> {
    parse(&with(change)).map_err(|faults| format!("{change} is refused: {faults:?}"))
}

fn same<T: PartialEq + std::fmt::Debug>(found: &T, expected: &T) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    Err(format!("- {expected:?}\n+ {found:?}"))
}

fn bad_spec(line: &str) -> Result<(), String> {
    let mut parts = line.splitn(3, " | ").skip(1);
    let (Some(path), Some(change)) = (parts.next(), parts.next()) else {
        return Err(format!("{line:?} has no path or no change"));
    };
    let change = serde_json::from_str(change).map_err(|why| format!("{change}: {why}"))?;
    refused(&change, path)
}

fn good_spec(line: &str) -> Result<(), String> {
    let change = line.split_once(" | ").ok_or_else(|| format!("{line:?} has no change"))?.1;
    let change = serde_json::from_str(change).map_err(|why| format!("{change}: {why}"))?;
    parsed(&change).map(drop)
}

/// Exactly one fault, at that path, with a message that is a sentence.
fn refused(change: &Value, path: &str) -> Result<(), String> {
    match parse(&with(change)) {
        Err(faults) if faults.len() == 1 && faults[0].path == path && faults[0].message.len() > 5 => Ok(()),
        other => Err(format!("{change}: one fault at {path} expected, not {other:?}")),
    }
}

fn bad_address(text: &str, word: &str) -> Result<(), String> {
    let change = json!({"reservedIPs": ["203.0.113.9", text]});
    refused(&change, "spec.reservedIPs[1]")?;
    let faults = parse(&with(&change)).err().unwrap_or_default();
    if faults.iter().any(|fault| fault.message.contains(word)) {
        return Ok(());
    }
    Err(format!("no {word:?} in {faults:?}"))
}

fn defaults() -> Result<(), String> {
    let spec = parsed(&json!({}))?;
    same(&spec.failover, &crds::Failover::default())?;
    same(&spec.failover.not_ready_grace_seconds, &30)?;
    same(&spec.failover.drain_timeout_seconds, &0)?;
    same(&spec.failover.min_hold_seconds, &0)?;
    same(&spec.failover.storm_threshold_percent, &55)?;
    same(&(spec.reconcile_interval, spec.max_unavailable), &(30, 1))?;
    same(&(spec.evict, spec.paused), &(true, false))?;
    same(&spec.release, &crds::ReleasePolicy::Detach)?;
    same(&spec.mode, &crds::Mode::Enforce)?;
    same(&(spec.workload, spec.tolerations), &(None, None))
}

fn largest() -> Result<(), String> {
    let v4 = (0..128).map(|n| format!("203.0.113.{n}"));
    let v6 = (0..128).map(|n| format!("2001:db8::{n:x}"));
    let spec = parsed(&json!({"reservedIPs": v4.chain(v6).collect::<Vec<_>>()}))?;
    same(&spec.addresses.len(), &256)
}

fn canonical() -> Result<(), String> {
    let spec = parsed(&json!({"reservedIPs": ["::ffff:203.0.113.7", "2001:DB8:0:0::00A"]}))?;
    let texts: Vec<String> = spec.addresses.iter().map(ToString::to_string).collect();
    same(&texts, &vec!["203.0.113.7".to_owned(), "2001:db8::a".to_owned()])
}

fn documentation() -> Result<(), String> {
    let all =
        ["192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "172.32.0.1", "100.128.0.1", "8.8.8.8"];
    same(&parsed(&json!({"reservedIPs": all}))?.addresses.len(), &all.len())
}

fn max_unavailable() -> Result<(), String> {
    let strategy = json!({"strategy": {"maxUnavailable": 0, "maxSurge": 1}});
    same(&parsed(&strategy)?.max_unavailable, &1)?;
    same(&parsed(&json!({"strategy": {"maxUnavailable": 3}}))?.max_unavailable, &3)
}

fn deployment_ref() -> Result<(), String> {
    let spec = parsed(&json!({"deploymentRef": {"name": "sip"}}))?;
    same(&spec.workload, &crate::vocabulary::workload_key("Deployment/sip").ok())?;
    let spec = parsed(&json!({"deploymentRef": {"name": "sip", "namespace": "media"}}))?;
    same(&spec.workload, &crate::vocabulary::workload_key("Deployment/media/sip").ok())
}

fn both_references() -> Result<(), String> {
    let workload = json!({"kind": "StatefulSet", "name": "new", "namespace": "media"});
    let spec = parsed(&json!({"deploymentRef": {"name": "old"}, "workloadRef": workload}))?;
    same(&spec.workload, &crate::vocabulary::workload_key("StatefulSet/media/new").ok())
}

fn differing_references() -> Result<(), String> {
    let pair = |workload: Value, deployment: Value| {
        references_differ(&json!({"workloadRef": workload, "deploymentRef": deployment}))
    };
    let named = |kind: &str, name: &str| json!({"kind": kind, "name": name});
    same(&pair(named("Deployment", "a"), json!({"name": "a"})), &false)?;
    same(&pair(named("Deployment", "a"), json!({"name": "a", "namespace": "default"})), &false)?;
    same(&pair(named("Deployment", "a"), Value::Null), &false)?;
    same(&pair(named("Deployment", "a"), json!({"name": "b"})), &true)?;
    same(&pair(named("Deployment", "a"), json!({"name": "a", "namespace": "b"})), &true)?;
    same(&pair(named("DaemonSet", "a"), json!({"name": "a"})), &true)
}

fn nulls() -> Result<(), String> {
    let fields = json!({
        "workloadRef": null, "deploymentRef": null, "nodeSelector": null, "nodeSelectorTerms": null,
        "tolerations": null, "reconcileInterval": null, "failover": null, "strategy": null, "eviction": null,
        "releasePolicy": null, "mode": null, "paused": null,
    });
    same(&parsed(&fields)?, &parsed(&json!({}))?)?;
    let inner = json!({
        "cloud": {"provider": "gcp", "region": null, "zones": null},
        "failover": {"notReadyGraceSeconds": null}, "strategy": {"maxUnavailable": null, "maxSurge": null},
    });
    same(&parsed(&inner)?, &parsed(&json!({}))?)
}

fn tolerations() -> Result<(), String> {
    let spec = parsed(&json!({"tolerations": []}))?;
    same(&spec.tolerations, &Some(Vec::new()))
}

fn all_at_once() -> Result<(), String> {
    let spec = json!({
        "reservedIPs": ["foo", "203.0.113.1", "10.0.0.1", "203.0.113.1"],
        "cloud": {"provider": "ovh"},
        "workloadRef": {"kind": "Job"},
        "reconcileInterval": 4,
        "failover": {"notReadyGraceSeconds": -1, "stormThresholdPercent": 0},
        "releasePolicy": "Delete",
        "mode": "DryRun",
        "eviction": "Maybe",
    });
    let faults = parse(&spec).err().ok_or("it is accepted")?;
    let mut paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
    paths.sort_unstable();
    let expected = vec![
        "spec.cloud.provider",
        "spec.eviction",
        "spec.failover.notReadyGraceSeconds",
        "spec.failover.stormThresholdPercent",
        "spec.mode",
        "spec.reconcileInterval",
        "spec.releasePolicy",
        "spec.reservedIPs[0]",
        "spec.reservedIPs[2]",
        "spec.reservedIPs[3]",
        "spec.workloadRef.kind",
        "spec.workloadRef.name",
    ];
    same(&paths, &expected)
}

fn no_object() -> Result<(), String> {
    for value in [Value::Null, json!([]), json!("x"), json!(7), json!(true)] {
        parse(&value).err().filter(|faults| !faults.is_empty()).ok_or(format!("{value} is accepted"))?;
    }
    Ok(())
}

fn numbers() -> Result<(), String> {
    says(&json!({"reconcileInterval": 4}), "spec.reconcileInterval: is 4; it must be 5 or more")?;
    says(
        &json!({"reconcileInterval": 4_294_967_301_i64}),
        "spec.reconcileInterval: is 4294967301; it must be from 5 to 2147483647",
    )?;
    says(
        &json!({"failover": {"stormThresholdPercent": 0}}),
        "spec.failover.stormThresholdPercent: is 0; it must be from 1 to 100",
    )
}

fn kinds() -> Result<(), String> {
    let found = [
        (json!("x"), "the string \"x\""),
        (json!(7), "the number 7"),
        (json!(true), "a boolean"),
        (json!({}), "an object"),
    ];
    for (value, words) in found {
        let sentence =
            format!("spec.reservedIPs: must be a list of addresses, e.g. [\"203.0.113.10\"], not {words}");
        says(&json!({"reservedIPs": value}), &sentence)?;
    }
    says(&json!({"paused": []}), "spec.paused: must be true or false, not a list")?;
    says(&json!({"reservedIPs": [null]}), "spec.reservedIPs[0]: must be a string, not null")
}

/// The only fault is this sentence.
fn says(change: &Value, sentence: &str) -> Result<(), String> {
    let faults = parse(&with(change)).err().unwrap_or_default();
    same(&faults.iter().map(ToString::to_string).collect::<Vec<_>>(), &vec![sentence.to_owned()])
}

fn hints() -> Result<(), String> {
    let namespace =
        |text: &str| json!({"workloadRef": {"kind": "DaemonSet", "name": "w", "namespace": text}});
    let name = |text: &str| json!({"workloadRef": {"kind": "DaemonSet", "name": text}});
    for (text, hint) in [
        ("prod ", "remove the white space"),
        ("prod/web", "leave out the slash and what follows: the workload's name is a field of its own"),
        ("{{ .Values.ns }}", "this is a template that was not rendered"),
        ("Prod", "write it in lower case"),
        ("my_ns", "write '-' in place of '_'"),
        ("a.b", "a namespace has no dots"),
        ("a,b", "only one can be named here"),
        ("-a", "it has up to 63 lower-case letters, digits and '-', with a letter or digit at both ends"),
    ] {
        let sentence = format!("spec.workloadRef.namespace: {text:?} is not a valid namespace; {hint}");
        says(&namespace(text), &sentence)?;
    }
    for (text, hint) in [
        ("web,x=y", "only one can be named here"),
        ("prod/web", "leave out what stands before the slash: kind and namespace are fields of their own"),
        ("$(APP)", "this is a template that was not rendered"),
        ("a..b", "letters or digits have to be on both sides of every dot"),
        (
            "web.",
            "it has up to 253 lower-case letters, digits, '-' and '.', with a letter or digit at both ends",
        ),
    ] {
        says(&name(text), &format!("spec.workloadRef.name: {text:?} is not a valid name; {hint}"))?;
    }
    says(
        &json!({"cloud": {"provider": "gcp", "zones": ["a b"]}}),
        "spec.cloud.zones[0]: \"a b\" is not a valid label value, which a zone or region is on nodes; \
         remove the white space",
    )
}

fn long_texts() -> Result<(), String> {
    let change = json!({"workloadRef": {"kind": "DaemonSet", "name": "W".repeat(1 << 20)}});
    let faults = parse(&with(&change)).err().unwrap_or_default();
    match faults.as_slice() {
        [fault] if fault.message.len() < 300 => Ok(()),
        other => Err(format!("{} faults, {} bytes", other.len(), format!("{other:?}").len())),
    }
}

fn allocation_names() -> Result<(), String> {
    same(&check_name(&"n".repeat(63)), &Ok(()))?;
    same(&check_name("a.b-c"), &Ok(()))?;
    let says = |name: &str| check_name(name).err().map(|fault| fault.to_string()).unwrap_or_default();
    same(
        &says(&"n".repeat(64)),
        &"metadata.name: has 64 characters; at most 63 are allowed, since it becomes a label value"
            .to_owned(),
    )?;
    same(&says("A"), &"metadata.name: \"A\" is not a valid name; write it in lower case".to_owned())
}
