//! What a reserved address may be.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Parses a public unicast address; the error says what is wrong and what would be right.
///
/// An IPv4-mapped IPv6 address is the IPv4 address. The documentation ranges count as public: examples
/// and tests are made of them.
pub fn parse(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr = text.parse().map_err(|_| not_an_address(text))?;
    let address = address.to_canonical();
    match not_public(address) {
        Some(what) => Err(format!("is {what}; only public unicast addresses can be reserved in a cloud")),
        None => Ok(address),
    }
}

fn not_an_address(text: &str) -> String {
    let hint = if text.contains('/') {
        "; list single addresses, not ranges"
    } else if text.split('.').count() == 4
        && text.split('.').any(|octet| octet.len() > 1 && octet.starts_with('0'))
    {
        "; write the numbers without leading zeros"
    } else if text.trim() != text {
        "; remove the white space"
    } else if text.parse::<std::net::SocketAddr>().is_ok() {
        "; leave out the port"
    } else {
        ", e.g. 203.0.113.10 or 2001:db8::10"
    };
    format!("is not an IPv4 or IPv6 address{hint}")
}

fn not_public(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => not_public_v4(v4),
        IpAddr::V6(v6) => not_public_v6(v6),
    }
}

fn not_public_v4(address: Ipv4Addr) -> Option<&'static str> {
    let [a, b, ..] = address.octets();
    if address.is_unspecified() {
        Some("the unspecified address")
    } else if address.is_loopback() {
        Some("a loopback address")
    } else if address.is_link_local() {
        Some("a link-local address")
    } else if address.is_multicast() {
        Some("a multicast address")
    } else if address.is_broadcast() {
        Some("the broadcast address")
    } else if address.is_private() {
        Some("a private address (RFC 1918)")
    } else if a == 100 && (64..128).contains(&b) {
        Some("a shared address (100.64.0.0/10)")
    } else {
        None
    }
}

fn not_public_v6(address: Ipv6Addr) -> Option<&'static str> {
    if address.is_unspecified() {
        Some("the unspecified address")
    } else if address.is_loopback() {
        Some("a loopback address")
    } else if address.is_unicast_link_local() {
        Some("a link-local address")
    } else if address.is_multicast() {
        Some("a multicast address")
    } else if address.is_unique_local() {
        Some("a private address (fc00::/7)")
    } else {
        None
    }
}
