//! Where the clouds are and who we are there.

use crate::{Cloud, Limits};
use std::net::{Ipv4Addr, Ipv6Addr};

/// How clouds are reached. The default is the real ones, with the identity that the platform gives.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Google.
    pub gcp: GcpSettings,
    /// Amazon.
    pub aws: AwsSettings,
    /// Microsoft.
    pub azure: AzureSettings,
    /// How often an account may be called, instead of half of what its cloud documents.
    pub limits: Option<Limits>,
}

/// How GCP is reached.
#[derive(Clone, Debug, Default)]
pub struct GcpSettings {
    /// `GCP_COMPUTE_ENDPOINT`.
    pub endpoint: Option<String>,
    /// `GCP_CREDENTIALS=anonymous`.
    pub anonymous: bool,
    /// `GCP_PROJECT`: the project of the addresses, whatever provider IDs say.
    pub project: Option<String>,
}

/// How AWS is reached.
#[derive(Clone, Debug, Default)]
pub struct AwsSettings {
    /// `AWS_ENDPOINT_URL_EC2` or `AWS_ENDPOINT_URL`.
    pub endpoint: Option<String>,
    /// `AWS_REGION`: the region, whatever provider IDs say.
    pub region: Option<String>,
    /// Keys instead of the chain of the SDK; never read from the environment by us, which is the chain's.
    pub keys: Option<AwsKeys>,
}

/// An access key.
#[derive(Clone)]
pub struct AwsKeys {
    /// Its id, which is no secret.
    pub id: String,
    /// The secret.
    pub secret: String,
}

impl std::fmt::Debug for AwsKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AwsKeys").field("id", &self.id).finish_non_exhaustive()
    }
}

/// How Azure is reached.
#[derive(Clone, Debug, Default)]
pub struct AzureSettings {
    /// `AZURE_ARM_ENDPOINT`. The authority, `AZURE_AUTHORITY_HOST`, is read by the SDK.
    pub endpoint: Option<String>,
    /// `AZURE_CREDENTIALS=anonymous`.
    pub anonymous: bool,
    /// `AZURE_SUBSCRIPTION_ID`: the subscription of the addresses, whatever provider IDs say.
    pub subscription: Option<String>,
}

/// Settings that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// No credentials and no simulator.
    #[error(
        "{name}=anonymous is for simulators: set {endpoint} to an endpoint on loopback, or take {name} away"
    )]
    Anonymous {
        /// The variable.
        name: &'static str,
        /// The variable of the endpoint.
        endpoint: &'static str,
    },
    /// Neither anonymous nor left out.
    #[error("{name}={value} is not known: it is `anonymous`, for simulators, or left out")]
    Credentials {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// Credentials would go over the wire in the clear.
    #[error("{name}={value} is no https:// endpoint, and not on loopback either")]
    Endpoint {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
    },
}

impl Settings {
    /// Reads the process's environment.
    pub fn from_env() -> Result<Self, SettingsError> {
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    /// Reads the variables that a function knows. An empty one counts as left out.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let get = |name: &str| lookup(name).filter(|value| !value.trim().is_empty());
        let settings = Self {
            gcp: GcpSettings {
                endpoint: get("GCP_COMPUTE_ENDPOINT"),
                anonymous: anonymous("GCP_CREDENTIALS", get("GCP_CREDENTIALS"))?,
                project: get("GCP_PROJECT"),
            },
            aws: AwsSettings {
                endpoint: get("AWS_ENDPOINT_URL_EC2").or_else(|| get("AWS_ENDPOINT_URL")),
                region: get("AWS_REGION"),
                keys: None,
            },
            azure: AzureSettings {
                endpoint: get("AZURE_ARM_ENDPOINT"),
                anonymous: anonymous("AZURE_CREDENTIALS", get("AZURE_CREDENTIALS"))?,
                subscription: get("AZURE_SUBSCRIPTION_ID").map(|id| id.to_ascii_lowercase()),
            },
            limits: None,
        };
        settings.check()?;
        Ok(settings)
    }

    /// Refuses anonymous calls to anything but loopback, and credentials in the clear.
    pub fn check(&self) -> Result<(), SettingsError> {
        let endpoints = [
            ("GCP_COMPUTE_ENDPOINT", self.gcp.endpoint.as_deref()),
            ("AWS_ENDPOINT_URL_EC2", self.aws.endpoint.as_deref()),
            ("AZURE_ARM_ENDPOINT", self.azure.endpoint.as_deref()),
        ];
        for (name, value) in endpoints {
            let bad = value.filter(|value| !value.starts_with("https://") && !on_loopback(value));
            if let Some(value) = bad.map(str::to_owned) {
                return Err(SettingsError::Endpoint { name, value });
            }
        }
        let anonymous = [
            (self.gcp.anonymous, "GCP_CREDENTIALS", endpoints[0]),
            (self.azure.anonymous, "AZURE_CREDENTIALS", endpoints[2]),
        ];
        for (wanted, name, (endpoint, value)) in anonymous {
            if wanted && !value.is_some_and(on_loopback) {
                return Err(SettingsError::Anonymous { name, endpoint });
            }
        }
        Ok(())
    }

    /// The project, region or subscription that wins over what provider IDs say.
    pub(crate) fn scope(&self, cloud: Cloud) -> Option<&str> {
        match cloud {
            Cloud::Gcp => self.gcp.project.as_deref(),
            Cloud::Aws => self.aws.region.as_deref(),
            Cloud::Azure => self.azure.subscription.as_deref(),
        }
    }
}

fn anonymous(name: &'static str, value: Option<String>) -> Result<bool, SettingsError> {
    match value {
        None => Ok(false),
        Some(value) if value == "anonymous" => Ok(true),
        Some(value) => Err(SettingsError::Credentials { name, value }),
    }
}

/// Whether a URL can only be a server on this machine.
pub(crate) fn on_loopback(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")) else {
        return false;
    };
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(bracketed) => match bracketed.split_once(']') {
            Some((host, port)) if port.is_empty() || port.starts_with(':') => host,
            _ => return false,
        },
        None => authority.split_once(':').map_or(authority, |(host, _)| host),
    };
    let port = authority.rsplit_once(':').map(|(_, port)| port).filter(|_| !authority.ends_with(']'));
    let port_formed = port.is_none_or(|port| port.parse::<u16>().is_ok());
    let loopback = host.eq_ignore_ascii_case("localhost")
        || host.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
        || host.parse::<Ipv6Addr>().is_ok_and(|ip| ip.is_loopback());
    port_formed && loopback
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        let find = |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, v)| (*v).to_owned());
        Settings::from_lookup(find)
    }

    #[test]
    fn anonymous_is_for_loopback_only() {
        let gcp = |endpoint| of(&[("GCP_CREDENTIALS", "anonymous"), ("GCP_COMPUTE_ENDPOINT", endpoint)]);
        for good in ["http://127.0.0.1:8081", "https://localhost", "http://[::1]:80/x", "http://127.9.9.9"] {
            assert!(gcp(good).is_ok_and(|settings| settings.gcp.anonymous), "{good}");
        }
        let bad = [
            "https://compute.googleapis.com",
            "https://127.0.0.1.example.com",
            "https://localhost@example.com",
            "https://127.0.0.1:80@example.com",
            "https://[::1]example.com",
            "https://[::2]",
            "https://10.0.0.1",
        ];
        for bad in bad {
            assert!(matches!(gcp(bad), Err(SettingsError::Anonymous { .. })), "{bad}");
        }
        assert!(matches!(of(&[("AZURE_CREDENTIALS", "anonymous")]), Err(SettingsError::Anonymous { .. })));
        assert!(matches!(of(&[("GCP_CREDENTIALS", "none")]), Err(SettingsError::Credentials { .. })));
    }

    #[test]
    fn credentials_never_travel_in_the_clear() {
        for name in ["GCP_COMPUTE_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_EC2", "AZURE_ARM_ENDPOINT"]
        {
            assert!(
                matches!(of(&[(name, "http://proxy.internal")]), Err(SettingsError::Endpoint { .. })),
                "{name}"
            );
            assert!(of(&[(name, "https://proxy.internal")]).is_ok(), "{name}");
            assert!(of(&[(name, "http://127.0.0.1:1")]).is_ok(), "{name}");
            assert!(of(&[(name, "")]).is_ok(), "{name}");
        }
    }

    #[test]
    fn an_endpoint_of_ec2_alone_wins() {
        let both = [("AWS_ENDPOINT_URL", "https://a"), ("AWS_ENDPOINT_URL_EC2", "https://b")];
        assert_eq!(of(&both).unwrap().aws.endpoint.as_deref(), Some("https://b"));
    }

    #[test]
    fn secrets_are_not_printed() {
        let keys = AwsKeys { id: "AKIA".to_owned(), secret: "hush".to_owned() };
        let printed = format!(
            "{:?}",
            Settings {
                aws: AwsSettings { keys: Some(keys), ..AwsSettings::default() },
                ..Settings::default()
            }
        );
        assert!(printed.contains("AKIA") && !printed.contains("hush"), "{printed}");
    }
}
