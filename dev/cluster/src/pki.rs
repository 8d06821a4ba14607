//! The cluster's own certificate authority, its certificates and its kubeconfigs.

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A certificate authority whose files lie in one folder.
pub struct Pki {
    folder: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
pub struct Identity {
    /// The certificate.
    pub cert: String,
    /// Its private key.
    pub key: String,
}

impl Pki {
    /// Makes the authority, the API server's certificate and the service-account key.
    pub fn create(folder: &Path) -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, "dev-cluster");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let pki = Self { folder: folder.to_owned(), issuer };
        std::fs::write(pki.ca_file(), pki.ca_pem())?;
        pki.write("server", &pki.server()?)?;
        let key = KeyPair::generate()?;
        std::fs::write(pki.service_account_key_file(), key.serialize_pem())?;
        std::fs::write(pki.service_account_public_key_file(), key.public_key_pem())?;
        Ok(pki)
    }

    /// The authority's certificate, in PEM.
    pub fn ca_pem(&self) -> String {
        self.issuer.pem()
    }

    /// File with the authority's certificate.
    pub fn ca_file(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// File with the key that signs service-account tokens.
    pub fn service_account_key_file(&self) -> PathBuf {
        self.folder.join("service-account.key")
    }

    /// File with the key that checks them.
    pub fn service_account_public_key_file(&self) -> PathBuf {
        self.folder.join("service-account.pub")
    }

    /// Certificate and key files of the serving certificate.
    pub fn server_files(&self) -> (PathBuf, PathBuf) {
        (self.folder.join("server.crt"), self.folder.join("server.key"))
    }

    /// A client certificate for a user and its groups.
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<Identity> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, user);
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    fn server(&self) -> Result<Identity> {
        let names = ["localhost", "127.0.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        let mut params = CertificateParams::new(names.map(str::to_owned))?;
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Result<Identity> {
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &*self.issuer)?;
        Ok(Identity { cert: cert.pem(), key: key.serialize_pem() })
    }

    fn write(&self, name: &str, identity: &Identity) -> Result<()> {
        std::fs::write(self.folder.join(format!("{name}.crt")), &identity.cert)?;
        std::fs::write(self.folder.join(format!("{name}.key")), &identity.key)?;
        Ok(())
    }
}

/// How a kubeconfig's user proves who it is.
pub enum Credentials {
    /// By a client certificate.
    Certificate(Identity),
    /// By a bearer token.
    Token(String),
}

/// A kubeconfig for one server and one user. JSON, which is YAML as well.
pub fn kubeconfig(server: &str, ca_pem: &str, credentials: &Credentials) -> Value {
    let user = match credentials {
        Credentials::Certificate(identity) => json!({
            "client-certificate-data": base64(identity.cert.as_bytes()),
            "client-key-data": base64(identity.key.as_bytes()),
        }),
        Credentials::Token(token) => json!({ "token": token }),
    };
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "dev", "cluster": {
            "server": server,
            "certificate-authority-data": base64(ca_pem.as_bytes()),
        }}],
        "users": [{ "name": "dev", "user": user }],
        "contexts": [{ "name": "dev", "context": { "cluster": "dev", "user": "dev" } }],
        "current-context": "dev",
    })
}

/// `ByteString` is Kubernetes' own base64 type, so its serialisation serves here too.
fn base64(bytes: &[u8]) -> Value {
    json!(k8s_openapi::ByteString(bytes.to_vec()))
}
