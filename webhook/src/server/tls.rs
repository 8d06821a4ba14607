//! The TLS side of a connection.

use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use rustls::{AlertDescription, Error, ServerConfig};
use std::io;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// TLS 1.3 and 1.2, HTTP/1.1, no client certificates, no resumption (the API server never resumes).
pub fn acceptor(certificates: Arc<dyn ResolvesServerCert>) -> Result<TlsAcceptor, Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_no_client_auth()
        .with_cert_resolver(certificates);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The metric's word for a handshake that failed.
pub fn outcome(error: &io::Error) -> &'static str {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match tls {
        None => "gone",
        Some(Error::AlertReceived(
            AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            // Another CA of the same name: its key does not fit the signature.
            | AlertDescription::DecryptError,
        )) => "rejected",
        Some(Error::PeerIncompatible(_) | Error::NoApplicationProtocol) => "unsupported",
        Some(_) => "malformed",
    }
}
