//! Links, times and fingerprints as the Compute API writes them.

use crate::model::State;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The link of a thing by its key.
pub fn link(state: &State, key: &str) -> String {
    format!("https://{}/compute/v1/{key}", state.settings.gcp.link_host)
}

/// A time in the API's form, which is of California.
pub fn time(time: Timestamp) -> String {
    let offset = jiff::tz::offset(-8);
    let there = time.to_zoned(TimeZone::fixed(offset));
    there.strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string()
}

/// The fingerprint of a version. Bytes are web-safe base64 in Google's JSON (discovery, type "byte").
pub fn fingerprint(version: u64) -> String {
    URL_SAFE.encode((version ^ 0x5bd1_e995_7b93_d1a5).to_be_bytes())
}

/// The project in a key.
pub fn project(key: &str) -> &str {
    key.split('/').nth(1).unwrap_or_default()
}
