//! All clouds, opened as accounts turn up.

use crate::budget::Budget;
use crate::gate::Gate;
use crate::{
    Account, Class, Cloud, Connect, Error, Limits, Meter, Provider, ProviderId, Settings, SettingsError,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// The clouds that this build knows, by their settings.
#[derive(Debug)]
pub struct Clouds {
    settings: Settings,
    meter: Arc<dyn Meter>,
    opened: Mutex<BTreeMap<Account, Opened>>,
}

#[derive(Clone, Debug)]
struct Opened {
    provider: Arc<dyn Provider>,
    budget: Arc<Budget>,
}

impl Clouds {
    /// Clouds with these settings. The meter is told about every request.
    pub fn new(settings: Settings, meter: Arc<dyn Meter>) -> Result<Self, SettingsError> {
        settings.check()?;
        Ok(Self { settings, meter, opened: Mutex::default() })
    }

    /// Clouds with the settings of the process's environment.
    pub fn from_env(meter: Arc<dyn Meter>) -> Result<Self, SettingsError> {
        Self::new(Settings::from_env()?, meter)
    }

    /// The share of its rate that each account is called with, as [`Budget::level`] has it.
    pub fn levels(&self) -> Vec<(Account, f64)> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.iter().map(|(account, opened)| (account.clone(), opened.budget.level())).collect()
    }

    fn account(&self, id: &ProviderId) -> Option<Account> {
        let cloud = id.cloud();
        let wins = self.settings.scope(cloud).map(str::to_owned);
        Some(Account { cloud, scope: wins.or_else(|| id.scope())? })
    }

    fn make(&self, account: &Account, budget: Arc<Budget>) -> Result<Arc<dyn Provider>, Error> {
        let gate =
            Gate { account: account.clone(), budget, meter: self.meter.clone(), forms: Arc::default() };
        match account.cloud {
            #[cfg(feature = "gcp")]
            Cloud::Gcp => Ok(Arc::new(crate::gcp::Gcp::new(gate, self.settings.gcp.clone()))),
            #[cfg(feature = "aws")]
            Cloud::Aws => Ok(Arc::new(crate::aws::Aws::new(gate, self.settings.aws.clone()))),
            #[cfg(feature = "azure")]
            Cloud::Azure => Ok(Arc::new(crate::azure::Azure::new(gate, &self.settings.azure))),
            #[allow(unreachable_patterns)]
            cloud => {
                drop(gate);
                let message = format!("this build has no {}; build it with that feature", cloud.as_str());
                Err(Error::new(Class::Unsupported, message))
            }
        }
    }
}

impl Connect for Clouds {
    fn accounts(&self, cloud: Cloud, provider_ids: &[&str], region: Option<&str>) -> BTreeSet<Account> {
        if let Some(scope) = self.settings.scope(cloud) {
            return BTreeSet::from([Account { cloud, scope: scope.to_owned() }]);
        }
        let ids = provider_ids.iter().filter_map(|id| ProviderId::parse(id));
        let mut accounts: BTreeSet<Account> =
            ids.filter(|id| id.cloud() == cloud).filter_map(|id| id.account()).collect();
        // Elsewhere a region is only a part of an account.
        if let (Cloud::Aws, Some(region)) = (cloud, region) {
            accounts.insert(Account { cloud, scope: region.to_owned() });
        }
        accounts
    }

    fn account_of(&self, provider_id: &str) -> Option<Account> {
        self.account(&ProviderId::parse(provider_id)?)
    }

    fn open(&self, account: &Account) -> Result<Arc<dyn Provider>, Error> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = opened.get(account) {
            return Ok(opened.provider.clone());
        }
        let limits = self.settings.limits.unwrap_or_else(|| Limits::of(account.cloud));
        let budget = Arc::new(Budget::new(limits));
        let provider = self.make(account, budget.clone())?;
        opened.insert(account.clone(), Opened { provider: provider.clone(), budget });
        Ok(provider)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AwsSettings, GcpSettings};

    fn clouds(settings: Settings) -> Clouds {
        Clouds::new(settings, Arc::new(())).unwrap()
    }

    fn names(accounts: &BTreeSet<Account>) -> Vec<String> {
        accounts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn accounts_come_from_provider_ids_and_regions() {
        let clouds = clouds(Settings::default());
        let ids = ["gce://a/z-1/n", "gce://b/z-1/n", "gce://a/z-2/m", "aws:///eu-west-1a/i-1", "k3s://x", ""];
        assert_eq!(names(&clouds.accounts(Cloud::Gcp, &ids, Some("us-central1"))), ["gcp/a", "gcp/b"]);
        let aws = clouds.accounts(Cloud::Aws, &ids, Some("us-east-1"));
        assert_eq!(names(&aws), ["aws/eu-west-1", "aws/us-east-1"]);
        assert_eq!(clouds.accounts(Cloud::Azure, &ids, None), BTreeSet::new());
        assert_eq!(clouds.account_of("k3s://x"), None);
        assert_eq!(clouds.account_of("i-1"), None, "no zone, no region");
    }

    #[test]
    fn overrides_win() {
        let clouds = clouds(Settings {
            gcp: GcpSettings { project: Some("p".to_owned()), ..GcpSettings::default() },
            aws: AwsSettings { region: Some("eu-west-3".to_owned()), ..AwsSettings::default() },
            ..Settings::default()
        });
        assert_eq!(names(&clouds.accounts(Cloud::Gcp, &["gce://a/z-1/n"], None)), ["gcp/p"]);
        assert_eq!(names(&clouds.accounts(Cloud::Aws, &[], Some("us-east-1"))), ["aws/eu-west-3"]);
        assert_eq!(
            clouds.account_of("i-1").map(|account| account.to_string()).as_deref(),
            Some("aws/eu-west-3")
        );
    }
}
