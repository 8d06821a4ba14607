//! How the clouds behave where their documentation leaves it open, or where it can be set in reality.

use crate::model::operations::Pace;
use serde::{Deserialize, Serialize};

/// Settings of all clouds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct Settings {
    pub gcp: GcpSettings,
    pub aws: AwsSettings,
    pub azure: AzureSettings,
}

/// When a cloud finds out that an address is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Found {
    /// The request is refused.
    AtOnce,
    /// The request is accepted and its operation fails.
    Late,
}

/// Settings of GCP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct GcpSettings {
    /// When operations are done.
    pub operation: Pace,
    /// When an address in use is found out.
    pub in_use_found: Found,
    /// Host in the links that replies contain.
    pub link_host: String,
    /// Network tier of access configs and addresses that name none.
    pub default_tier: String,
    /// How many external addresses may be in use in a region.
    pub in_use_quota: Option<usize>,
    /// The organisation forbids external addresses on instances.
    pub external_ip_forbidden: bool,
}

/// Settings of AWS.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct AwsSettings {
    /// What `AssociateAddress` assumes when `AllowReassociation` is left out; false on old accounts.
    pub reassociate_by_default: bool,
    /// Answer to `AssociateAddress` with `AllowReassociation=false` onto what has the address already.
    pub repeated_associate: Repeated,
    /// Reads are behind by up to so many seconds, each by another number of them.
    pub read_lag: f64,
    /// Seconds until the addresses of a terminated instance are free.
    pub free_after_terminate: f64,
    /// Seconds until an instance that lost its public address gets another one.
    pub ephemeral_after: f64,
    /// How the fields about an association look on an address that has none.
    pub unassociated: Unassociated,
    /// How many addresses an account may have in a region.
    pub address_quota: usize,
    /// The account.
    pub account: String,
}

/// Answer to a repeated association.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Repeated {
    /// `Resource.AlreadyAssociated`.
    Refused,
    /// The association that exists.
    SameAssociation,
}

/// How fields without a value look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub enum Unassociated {
    Absent,
    Empty,
}

/// Settings of Azure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct AzureSettings {
    /// When operations are done.
    pub operation: Pace,
    /// When an address in use is found out.
    pub in_use_found: Found,
    /// What happens to a write of an interface that is being written.
    pub busy: Busy,
    /// Which references an interface shows while it is being written.
    pub while_updating: WhileUpdating,
    /// Items on a page of a list.
    pub page_size: usize,
    /// The compute API writes resource groups in capitals, the network API as they were created.
    pub mixed_case_ids: bool,
    /// Instances say which of their interfaces is the primary one.
    pub primary_flag: bool,
    /// SKU of the load balancer that the nodes are behind.
    pub load_balancer_sku: String,
    /// `Retry-After` of operations, in seconds.
    pub retry_after: u64,
    /// AKS has locked the node resource group: writes are refused by a deny assignment.
    pub deny_writes: bool,
}

/// What happens to a write of something that is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Busy {
    /// It is refused.
    Refuse,
    /// It is accepted, and its operation fails.
    FailLate,
    /// It is done, and the earlier one is given up.
    Supersede,
}

/// What is shown while a write is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub enum WhileUpdating {
    Old,
    New,
}

impl Default for GcpSettings {
    fn default() -> Self {
        Self {
            operation: Pace::Seconds(0.2),
            in_use_found: Found::AtOnce,
            link_host: "www.googleapis.com".to_owned(),
            default_tier: "PREMIUM".to_owned(),
            in_use_quota: None,
            external_ip_forbidden: false,
        }
    }
}

impl Default for AwsSettings {
    fn default() -> Self {
        Self {
            reassociate_by_default: true,
            repeated_associate: Repeated::Refused,
            read_lag: 0.0,
            free_after_terminate: 0.2,
            ephemeral_after: 1.0,
            unassociated: Unassociated::Absent,
            address_quota: 5,
            account: "123456789012".to_owned(),
        }
    }
}

impl Default for AzureSettings {
    fn default() -> Self {
        Self {
            operation: Pace::Seconds(0.2),
            in_use_found: Found::AtOnce,
            busy: Busy::Refuse,
            while_updating: WhileUpdating::New,
            page_size: 100,
            mixed_case_ids: true,
            primary_flag: true,
            load_balancer_sku: "Standard".to_owned(),
            retry_after: 1,
            deny_writes: false,
        }
    }
}
