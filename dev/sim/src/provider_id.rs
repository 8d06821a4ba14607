//! Provider IDs of Kubernetes nodes, and the instances they name.

use crate::model::things::Cloud;

/// A provider ID taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ProviderId {
    Gcp {
        project: String,
        zone: String,
        name: String,
    },
    Aws {
        zone: String,
        id: String,
    },
    Azure {
        subscription: String,
        group: String,
        /// The scale set of an instance that has no resource of its own.
        scale_set: Option<String>,
        name: String,
    },
}

/// Takes a provider ID apart; none if it is not one of a simulated cloud.
pub fn parse(text: &str) -> Option<ProviderId> {
    if let Some(rest) = text.strip_prefix("gce://") {
        let [project, zone, name] = parts(rest)?;
        return Some(ProviderId::Gcp { project, zone, name });
    }
    if let Some(rest) = text.strip_prefix("aws:///") {
        let [zone, id] = parts(rest)?;
        return id.starts_with("i-").then_some(ProviderId::Aws { zone, id });
    }
    parse_azure(text.strip_prefix("azure:///")?)
}

fn parse_azure(path: &str) -> Option<ProviderId> {
    let segments: Vec<&str> = path.split('/').collect();
    let is = |n: usize, word: &str| segments.get(n).is_some_and(|found| found.eq_ignore_ascii_case(word));
    let of_provider = is(0, "subscriptions") && is(2, "resourceGroups") && is(5, "Microsoft.Compute");
    let text = |n: usize| segments.get(n).map(|&found| found.to_owned());
    let (scale_set, name) = match segments.len() {
        8 if of_provider && is(6, "virtualMachines") => (None, text(7)?),
        10 if of_provider && is(6, "virtualMachineScaleSets") && is(8, "virtualMachines") => {
            (text(7), text(9)?)
        }
        _ => return None,
    };
    Some(ProviderId::Azure { subscription: text(1)?, group: text(3)?, scale_set, name })
}

fn parts<const N: usize>(path: &str) -> Option<[String; N]> {
    let parts: Vec<String> = path.split('/').map(str::to_owned).collect();
    let parts: [String; N] = parts.try_into().ok()?;
    parts.iter().all(|part| !part.is_empty()).then_some(parts)
}

impl ProviderId {
    /// The cloud.
    pub fn cloud(&self) -> Cloud {
        match self {
            Self::Gcp { .. } => Cloud::Gcp,
            Self::Aws { .. } => Cloud::Aws,
            Self::Azure { .. } => Cloud::Azure,
        }
    }

    /// The key of the instance in the model.
    pub fn key(&self) -> String {
        match self {
            Self::Gcp { project, zone, name } => format!("projects/{project}/zones/{zone}/instances/{name}"),
            Self::Aws { id, .. } => id.clone(),
            Self::Azure { .. } => self.arm_id().to_lowercase(),
        }
    }

    /// Azure: the id of the instance in the resource manager; the key elsewhere.
    pub fn arm_id(&self) -> String {
        let Self::Azure { subscription, group, scale_set, name } = self else {
            return self.key();
        };
        let compute =
            format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Compute");
        match scale_set {
            Some(set) => format!("{compute}/virtualMachineScaleSets/{set}/virtualMachines/{name}"),
            None => format!("{compute}/virtualMachines/{name}"),
        }
    }

    /// The name of the instance; on AWS its id.
    pub fn name(&self) -> &str {
        match self {
            Self::Gcp { name, .. } | Self::Azure { name, .. } => name,
            Self::Aws { id, .. } => id,
        }
    }

    /// The zone, where the provider ID has one.
    pub fn zone(&self) -> Option<&str> {
        match self {
            Self::Gcp { zone, .. } | Self::Aws { zone, .. } => Some(zone),
            Self::Azure { .. } => None,
        }
    }

    /// The region that the zone is in.
    pub fn region(&self) -> String {
        match self {
            Self::Gcp { zone, .. } => {
                zone.rsplit_once('-').map_or_else(|| zone.clone(), |(region, _)| region.to_owned())
            }
            Self::Aws { zone, .. } => zone.trim_end_matches(|c: char| c.is_ascii_lowercase()).to_owned(),
            Self::Azure { .. } => "westeurope".to_owned(),
        }
    }
}

/// A number that depends on a text alone (FNV-1a), for ids.
pub fn fingerprint(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_ids_name_instances() {
        let key = |id: &str| parse(id).map(|id| id.key());
        assert_eq!(
            key("gce://dev-project/us-central1-a/node-1").as_deref(),
            Some("projects/dev-project/zones/us-central1-a/instances/node-1")
        );
        assert_eq!(key("aws:///eu-west-1a/i-0123").as_deref(), Some("i-0123"));
        let azure = "azure:///subscriptions/S/resourceGroups/G/providers/Microsoft.Compute/virtualMachines/N";
        let expected = "/subscriptions/s/resourcegroups/g/providers/microsoft.compute/virtualmachines/n";
        assert_eq!(key(azure).as_deref(), Some(expected));
        for bad in
            ["", "k3s://node", "gce://project/zone", "aws:///eu-west-1a/fargate-10.0.0.1", "azure:///x"]
        {
            assert_eq!(key(bad), None, "{bad}");
        }
    }
}
