//! Binding.

use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use tokio::net::TcpListener;

/// `EAFNOSUPPORT` of Linux: the kernel has no IPv6 at all. std has no name for it.
const NO_SUCH_ADDRESS_FAMILY: i32 = 97;

/// Binds a port and logs which. `[::]` means every address, and falls back to `0.0.0.0` on a machine
/// without IPv6; port 0 picks a free one.
pub async fn listen(what: &str, address: SocketAddr) -> Result<TcpListener> {
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) => match without_ipv6(address, &error) {
            Some(fallback) => TcpListener::bind(fallback).await,
            None => Err(error),
        }
        .map_err(|error| {
            Error::new(error.kind(), format!("cannot listen on {address} for {what}: {error}"))
        })?,
    };
    tracing::info!(what, address = %listener.local_addr()?, "listening");
    Ok(listener)
}

/// Where to listen instead, if the error is that there is no IPv6.
fn without_ipv6(address: SocketAddr, error: &Error) -> Option<SocketAddr> {
    let no_ipv6 =
        error.kind() == ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(NO_SUCH_ADDRESS_FAMILY);
    let every_address = address.is_ipv6() && address.ip().is_unspecified();
    (no_ipv6 && every_address).then(|| SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_falls_back_to_ipv4_where_there_is_no_ipv6() {
        let no_family = Error::from_raw_os_error(NO_SUCH_ADDRESS_FAMILY);
        let disabled = Error::from(ErrorKind::AddrNotAvailable);
        let every: SocketAddr = "[::]:9443".parse().unwrap();
        assert_eq!(without_ipv6(every, &no_family), Some("0.0.0.0:9443".parse().unwrap()));
        assert_eq!(without_ipv6(every, &disabled), Some("0.0.0.0:9443".parse().unwrap()));
        assert_eq!(
            without_ipv6(every, &Error::from(ErrorKind::AddrInUse)),
            None,
            "a taken port stays an error"
        );
        assert_eq!(without_ipv6("[::1]:9443".parse().unwrap(), &disabled), None, "one address was asked for");
        assert_eq!(without_ipv6("10.0.0.1:9443".parse().unwrap(), &disabled), None);
    }

    #[tokio::test]
    async fn port_0_picks_a_free_one_and_a_taken_port_is_named() {
        let first = listen("test", "127.0.0.1:0".parse().unwrap()).await.unwrap();
        let taken = first.local_addr().unwrap();
        assert_ne!(taken.port(), 0);
        let error = listen("health", taken).await.unwrap_err().to_string();
        assert!(error.contains(&taken.to_string()) && error.contains("health"), "{error}");
    }
}
