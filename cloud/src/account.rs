//! What is read in one batch and shares one rate limit.

use std::fmt;

/// A cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cloud {
    /// Google Compute Engine.
    Gcp,
    /// Amazon EC2.
    Aws,
    /// Microsoft Azure.
    Azure,
}

impl Cloud {
    /// As in `spec.cloud.provider` and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gcp => "gcp",
            Self::Aws => "aws",
            Self::Azure => "azure",
        }
    }
}

/// A project of GCP, a region of AWS, a subscription of Azure.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    /// The cloud.
    pub cloud: Cloud,
    /// The project, region or subscription.
    pub scope: String,
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cloud.as_str(), self.scope)
    }
}
