//! The two ends of TLS: a certificate of our own towards those that call us, and theirs towards the API server.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// A kubeconfig of one cluster and one user, in JSON.
pub struct Kubeconfig(Value);

impl Kubeconfig {
    /// Reads one that the test kit wrote.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read(path).with_context(|| format!("{}", path.display()))?;
        let value = serde_json::from_slice(&text);
        Ok(Self(value.with_context(|| format!("{} is no kubeconfig in JSON", path.display()))?))
    }

    fn data(&self, part: &str, inner: &str, field: &str) -> Result<Option<Vec<u8>>> {
        let text = self.0[part][0][inner][field].as_str();
        Ok(text.map(|text| STANDARD.decode(text)).transpose()?)
    }

    /// Where its API server is.
    pub fn server(&self) -> Result<(SocketAddr, ServerName<'static>)> {
        let url = self.0["clusters"][0]["cluster"]["server"].as_str().context("no server")?;
        let address: SocketAddr = url.strip_prefix("https://").context("no https")?.parse()?;
        Ok((address, ServerName::from(address.ip())))
    }

    /// How its user proves who it is, towards its API server. A token is in every request already.
    pub fn connector(&self) -> Result<TlsConnector> {
        let authority = self.data("clusters", "cluster", "certificate-authority-data")?.context("no CA")?;
        let mut roots = RootCertStore::empty();
        for cert in CertificateDer::pem_slice_iter(&authority) {
            roots.add(cert?)?;
        }
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let cert = self.data("users", "user", "client-certificate-data")?;
        let key = self.data("users", "user", "client-key-data")?;
        let config = match (cert, key) {
            (Some(cert), Some(key)) => {
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&cert).collect();
                config.with_client_auth_cert(chain?, PrivateKeyDer::from_pem_slice(&key)?)?
            }
            _ => config.with_no_client_auth(),
        };
        Ok(TlsConnector::from(Arc::new(config)))
    }

    /// The same user at another server.
    pub fn at(&self, server: SocketAddr, authority: &str) -> Value {
        let mut config = self.0.clone();
        config["clusters"][0]["cluster"] = json!({
            "server": format!("https://{server}"),
            "certificate-authority-data": STANDARD.encode(authority),
        });
        config
    }
}

/// A certificate for loopback, and what serves with it.
pub fn acceptor() -> Result<(String, TlsAcceptor)> {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])?;
    let key = PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes())?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    // What kube-rs speaks, and all that the proxy speaks.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((made.cert.pem(), TlsAcceptor::from(Arc::new(config))))
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}
