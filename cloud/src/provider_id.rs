//! Provider IDs of Kubernetes nodes, and the instances they name.

use crate::{Account, Cloud};

/// A provider ID taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderId {
    /// `gce://project/zone/name`.
    Gcp {
        /// The project; one of a domain has a colon in it.
        project: String,
        /// The zone.
        zone: String,
        /// The name of the instance.
        name: String,
    },
    /// `aws:///zone/i-…`, and forms without the zone.
    Aws {
        /// The availability zone, if the form has one.
        zone: Option<String>,
        /// The instance id.
        id: String,
    },
    /// `aws:///zone/…/fargate-…`: a pod that looks like a node. It has no instance.
    Fargate {
        /// The availability zone, if the form has one.
        zone: Option<String>,
    },
    /// `azure:///subscriptions/…/virtualMachines/name`: a machine with interfaces of its own.
    Azure {
        /// The subscription.
        subscription: String,
        /// The resource group.
        group: String,
        /// The name of the machine.
        name: String,
    },
    /// `azure:///…/virtualMachineScaleSets/set/virtualMachines/N`: its interfaces cannot be written.
    AzureUniform {
        /// The subscription.
        subscription: String,
        /// The resource group.
        group: String,
        /// The scale set.
        set: String,
        /// The number of the instance in it.
        number: String,
    },
}

impl ProviderId {
    /// Takes a provider ID apart; none if it is not one of a cloud that is known here.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(path) = text.strip_prefix("gce://") {
            return gcp(path);
        }
        if let Some(path) = text.strip_prefix("aws://") {
            return aws(path);
        }
        if let Some(path) = text.strip_prefix("azure://") {
            return azure(path);
        }
        instance_id(text).map(|id| Self::Aws { zone: None, id })
    }

    /// The cloud.
    pub fn cloud(&self) -> Cloud {
        match self {
            Self::Gcp { .. } => Cloud::Gcp,
            Self::Aws { .. } | Self::Fargate { .. } => Cloud::Aws,
            Self::Azure { .. } | Self::AzureUniform { .. } => Cloud::Azure,
        }
    }

    /// The project, region or subscription, if the ID says it.
    pub fn scope(&self) -> Option<String> {
        match self {
            Self::Gcp { project, .. } => Some(project.clone()),
            Self::Aws { zone, .. } | Self::Fargate { zone } => region_of_zone(zone.as_deref()?),
            Self::Azure { subscription, .. } | Self::AzureUniform { subscription, .. } => {
                Some(subscription.to_ascii_lowercase())
            }
        }
    }

    /// The account that it is in, if the ID says it.
    pub fn account(&self) -> Option<Account> {
        Some(Account { cloud: self.cloud(), scope: self.scope()? })
    }

    /// Equal for two forms of the ID of one instance.
    pub fn key(&self) -> String {
        match self {
            Self::Gcp { project, zone, name } => format!("{project}/{zone}/{name}"),
            Self::Aws { id, .. } => id.clone(),
            Self::Fargate { zone } => format!("fargate/{}", zone.as_deref().unwrap_or_default()),
            Self::Azure { subscription, group, name } => {
                format!("{subscription}/{group}/{name}").to_ascii_lowercase()
            }
            Self::AzureUniform { subscription, group, set, number } => {
                format!("{subscription}/{group}/{set}/{number}").to_ascii_lowercase()
            }
        }
    }
}

fn gcp(path: &str) -> Option<ProviderId> {
    let mut parts = path.split('/');
    let (project, zone, name) = (parts.next()?, parts.next()?, parts.next()?);
    let formed = parts.next().is_none() && word(project, ".:-") && word(zone, "-") && word(name, "-");
    formed.then(|| ProviderId::Gcp {
        project: project.to_owned(),
        zone: zone.to_owned(),
        name: name.to_owned(),
    })
}

/// Behind `aws://`: `/zone/id`, `//id`, `zone/id`; Fargate has the id of its pod's interface in between.
fn aws(path: &str) -> Option<ProviderId> {
    let (rest, last) = path.rsplit_once('/')?;
    let zone = rest.strip_prefix('/').unwrap_or(rest);
    let zone = zone.split('/').next().filter(|zone| !zone.is_empty());
    if zone.is_some_and(|zone| !word(zone, "-")) || path.matches('/').count() > 3 {
        return None;
    }
    let zone = zone.map(str::to_owned);
    if last.strip_prefix("fargate-").is_some_and(|host| word(host, ".-")) {
        return Some(ProviderId::Fargate { zone });
    }
    let plain = rest.trim_start_matches('/').split('/').count() == 1;
    instance_id(last).filter(|_| plain).map(|id| ProviderId::Aws { zone, id })
}

fn instance_id(text: &str) -> Option<String> {
    text.strip_prefix("i-").filter(|rest| word(rest, "")).map(|_| text.to_owned())
}

fn azure(path: &str) -> Option<ProviderId> {
    let segments: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
    let is = |n: usize, name: &str| segments.get(n).is_some_and(|found| found.eq_ignore_ascii_case(name));
    let named = |n: usize| segments.get(n).filter(|text| word(text, "-_.()")).map(|&text| text.to_owned());
    let compute =
        is(0, "subscriptions") && is(2, "resourceGroups") && is(4, "providers") && is(5, "Microsoft.Compute");
    let (subscription, group) = (named(1)?, named(3)?);
    match segments.len() {
        8 if compute && is(6, "virtualMachines") => {
            Some(ProviderId::Azure { subscription, group, name: named(7)? })
        }
        10 if compute && is(6, "virtualMachineScaleSets") && is(8, "virtualMachines") => {
            let number = named(9).filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()))?;
            Some(ProviderId::AzureUniform { subscription, group, set: named(7)?, number })
        }
        _ => None,
    }
}

/// Letters, digits and the characters given: nothing that has a meaning in a path of the cloud's API.
fn word(text: &str, also: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || also.contains(c);
    !text.is_empty() && text != "." && text != ".." && text.chars().all(allowed)
}

/// The region of an availability zone: `eu-west-1a`, `us-gov-west-1a`, and of local and wavelength zones,
/// such as `us-west-2-lax-1a` and `us-east-1-wl1-bos-wlz-1`, everything up to the first number.
pub(crate) fn region_of_zone(zone: &str) -> Option<String> {
    let mut region: Vec<&str> = Vec::new();
    for part in zone.split('-') {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            region.push(&part[..digits]);
            return (region.len() > 2).then(|| region.join("-"));
        }
        region.push(part);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AZURE: &str = "azure:///subscriptions/S/resourceGroups/Rg_1/providers/Microsoft.Compute";

    fn account(text: &str) -> Option<String> {
        Some(ProviderId::parse(text)?.account()?.to_string())
    }

    #[test]
    fn every_form_is_understood() {
        let cases = [
            ("gce://my-project/us-central1-a/node-1", Some("gcp/my-project")),
            ("gce://example.com:proj/europe-west4-b/n", Some("gcp/example.com:proj")),
            ("aws:///eu-west-1a/i-0abc", Some("aws/eu-west-1")),
            ("aws://eu-west-1a/i-0abc", Some("aws/eu-west-1")),
            ("aws:///us-gov-west-1b/i-0abc", Some("aws/us-gov-west-1")),
            ("aws:///us-west-2-lax-1a/i-0abc", Some("aws/us-west-2")),
            ("aws:///us-east-1-wl1-bos-wlz-1/i-0abc", Some("aws/us-east-1")),
            ("aws:////i-0abc", None),
            ("i-0abc", None),
        ];
        for (text, expected) in cases {
            assert!(ProviderId::parse(text).is_some(), "{text}");
            assert_eq!(account(text).as_deref(), expected, "{text}");
        }
        let fargate = "aws:///eu-west-1a/7c9dab/fargate-ip-10-0-0-1.eu-west-1.compute.internal";
        assert!(matches!(ProviderId::parse(fargate), Some(ProviderId::Fargate { .. })));
        let machine = ProviderId::parse(&format!("{AZURE}/virtualMachines/node-1"));
        assert!(matches!(machine, Some(ProviderId::Azure { name, .. }) if name == "node-1"));
        let uniform = ProviderId::parse(&format!("{AZURE}/virtualMachineScaleSets/pool/virtualMachines/12"));
        assert!(matches!(uniform, Some(ProviderId::AzureUniform { number, .. }) if number == "12"));
    }

    #[test]
    fn what_is_none_is_none() {
        let named = format!("{AZURE}/virtualMachineScaleSets/pool/virtualMachines/pool_1");
        let dots = format!("{AZURE}/virtualMachines/..");
        let query = format!("{AZURE}/virtualMachines/a?b");
        let bad = [
            "",
            "k3s://node",
            "kind://docker/kind/kind-control-plane",
            "digitalocean://12",
            "gce://p/z",
            "gce://p/z/n/x",
            "gce://p//n",
            "gce://p/z/../n",
            "aws:///",
            "aws://i-0abc",
            "aws:///eu-west-1a/vm-1",
            "aws:///eu-west-1a/x/i-0abc",
            "i-",
            "i-0a/b",
            "azure:///x",
            "azure://subscriptions/s",
            &named,
            &dots,
            &query,
        ];
        for text in bad {
            assert_eq!(ProviderId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn case_and_form_do_not_make_another_instance() {
        let key = |text: &str| ProviderId::parse(text).map(|id| id.key());
        let lower = format!("{AZURE}/virtualMachines/node").to_lowercase();
        assert_eq!(key(&format!("{AZURE}/virtualMachines/Node")), key(&lower));
        assert_eq!(key("aws:///eu-west-1a/i-0abc"), key("i-0abc"));
        assert_ne!(key("gce://p/z-a/n"), key("gce://p/z-b/n"));
    }

    proptest! {
        #[test]
        fn no_text_is_taken_for_a_path(text in "(gce|aws|azure)://[/a-zA-Z0-9%?#&.:_()\\\\ -]{0,80}|\\PC{0,60}") {
            if let Some(id) = ProviderId::parse(&text) {
                let key = id.key();
                prop_assert!(!key.contains(['%', '?', '#', '&', '\\', ' ']), "{key}");
                prop_assert!(key.split('/').all(|part| part != ".."), "{key}");
            }
        }

        #[test]
        fn what_was_put_together_is_taken_apart(
            project in "[a-z][a-z0-9-]{3,20}", zone in "[a-z]{2}-[a-z]{4}[0-9]-[a-f]", name in "[a-z][a-z0-9-]{0,30}",
        ) {
            let expected = ProviderId::Gcp { project: project.clone(), zone: zone.clone(), name: name.clone() };
            prop_assert_eq!(ProviderId::parse(&format!("gce://{project}/{zone}/{name}")), Some(expected));
        }

        #[test]
        fn every_segment_of_an_azure_id_counts(cut in 0_usize..8) {
            let text = format!("{AZURE}/virtualMachines/node");
            let path: Vec<&str> = text.strip_prefix("azure:///").unwrap().split('/').collect();
            let without: Vec<&str> = path.iter().enumerate().filter(|(n, _)| *n != cut).map(|(_, part)| *part).collect();
            prop_assert_eq!(ProviderId::parse(&format!("azure:///{}", without.join("/"))), None);
        }
    }
}
