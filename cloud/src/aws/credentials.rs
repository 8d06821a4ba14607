//! Who we are: the SDK's own chain, which has IRSA, Pod Identity and the node's role, and refreshes them.

use crate::AwsSettings;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{AppName, BehaviorVersion, Region};
use aws_sdk_ec2::Client;
use aws_sdk_ec2::config::Credentials;
use std::time::Duration;

const CONNECT: Duration = Duration::from_secs(5);

/// A client for a region. Retries are the caller's: one that nobody decided on would not be fenced.
pub async fn client(settings: &AwsSettings, region: &str) -> Client {
    let timeouts = TimeoutConfig::builder().connect_timeout(CONNECT).build();
    let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12())
        .region(Region::new(region.to_owned()))
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts);
    if let Ok(name) = AppName::new("ip-address-controller") {
        loader = loader.app_name(name);
    }
    if let Some(keys) = &settings.keys {
        let credentials = Credentials::new(&keys.id, &keys.secret, None, None, "settings");
        loader = loader.credentials_provider(credentials);
    }
    let config = loader.load().await;
    let mut ec2 = aws_sdk_ec2::config::Builder::from(&config);
    if let Some(endpoint) = &settings.endpoint {
        ec2 = ec2.endpoint_url(endpoint);
    }
    Client::from_conf(ec2.build())
}
