//! Roles: what a caller may do, so that a documented minimal role can be proven to be enough.

use crate::model::things::Cloud;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The role that calls have in each cloud. No role for a cloud: everything is allowed there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Roles {
    /// Permissions of GCP, such as `compute.instances.get`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gcp: Option<Vec<String>>,
    /// Actions of AWS, such as `ec2:DescribeAddresses`; `*` stands for any text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws: Option<Vec<String>>,
    /// Actions of Azure, such as `Microsoft.Network/networkInterfaces/read`; `*` stands for any text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure: Option<Vec<String>>,
    /// Permissions that are refused whatever the role says.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub withheld: BTreeSet<String>,
}

/// A permission that a call needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The permission or action.
    pub permission: String,
    /// What it is needed on.
    pub resource: String,
    /// Azure: it is needed on something that the request only refers to.
    pub linked: bool,
}

impl Need {
    /// A permission on the thing that is called.
    pub fn new(permission: impl Into<String>, resource: impl Into<String>) -> Self {
        Self { permission: permission.into(), resource: resource.into(), linked: false }
    }

    /// A permission on a thing that the request refers to.
    pub fn linked(permission: impl Into<String>, resource: impl Into<String>) -> Self {
        Self { linked: true, ..Self::new(permission, resource) }
    }
}

impl Roles {
    /// The first need that the role does not cover.
    pub fn missing<'a>(&self, cloud: Cloud, needs: &'a [Need]) -> Option<&'a Need> {
        needs.iter().find(|need| !self.allows(cloud, &need.permission))
    }

    /// Whether the role has a permission.
    pub fn allows(&self, cloud: Cloud, permission: &str) -> bool {
        if self.withheld.iter().any(|pattern| matches(pattern, permission)) {
            return false;
        }
        let role = match cloud {
            Cloud::Gcp => &self.gcp,
            Cloud::Aws => &self.aws,
            Cloud::Azure => &self.azure,
        };
        role.as_ref().is_none_or(|allowed| allowed.iter().any(|pattern| matches(pattern, permission)))
    }
}

/// Whether a text fits a pattern in which `*` stands for any text and `?` for any character.
pub fn matches(pattern: &str, text: &str) -> bool {
    fn fits(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), _) => {
                fits(rest, text) || text.split_first().is_some_and(|(_, text)| fits(pattern, text))
            }
            (Some((b'?', pattern)), Some((_, text))) => fits(pattern, text),
            (Some((p, pattern)), Some((t, text))) => p.eq_ignore_ascii_case(t) && fits(pattern, text),
            _ => false,
        }
    }
    fits(pattern.as_bytes(), text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit() {
        let cases = [
            ("ec2:Describe*", "ec2:DescribeAddresses", true),
            ("*", "anything", true),
            ("*/read", "Microsoft.Network/publicIPAddresses/read", true),
            ("ec2:describeaddresses", "ec2:DescribeAddresses", true),
            ("ec2:Describe", "ec2:DescribeAddresses", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
        ];
        for (pattern, text, fits) in cases {
            assert_eq!(matches(pattern, text), fits, "{pattern} on {text}");
        }
    }
}
