//! Credentials as clusters give them: fetched, renewed before they expire, and their files read again.
//!
//! The SDKs find them by environment variables, so each case runs a child process of this binary with the
//! variables of a pod, `Clouds::from_env` and nothing else.

use crate::bed::{Bed, ip, node, small_world};
use cloud::{AddressState, Ask, Cloud, Clouds, Connect as _};
use rcgen::{CertificateParams, KeyPair, PKCS_RSA_SHA256};
use sim::Sim;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

const CHILD: &str = "CONFORMANCE_CHILD";

/// In a child process: reads an address for every line that comes in, and says how it is.
pub fn child() -> Option<ExitCode> {
    let name = std::env::var(CHILD).ok()?;
    let cloud = [Cloud::Gcp, Cloud::Aws, Cloud::Azure].into_iter().find(|cloud| cloud.as_str() == name)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let clouds = Clouds::from_env(Arc::new(())).expect("settings");
        let provider =
            clouds.open(&clouds.account_of(&node(cloud, 1)).expect("an account")).expect("a provider");
        let ask = Ask { addresses: BTreeSet::from([ip(1)]), instances: BTreeSet::new() };
        // Off this thread: tokens are renewed meanwhile.
        let line = || std::io::stdin().read_line(&mut String::new()).unwrap_or(0);
        while tokio::task::spawn_blocking(line).await.is_ok_and(|length| length > 0) {
            let reading = provider.read(&ask, Instant::now() + Duration::from_secs(20)).await;
            match &reading.addresses[&ip(1)] {
                AddressState::Free { .. } => println!("free"),
                other => println!("{other:?}"),
            }
        }
    });
    Some(ExitCode::SUCCESS)
}

/// A pod whose process is a child of ours.
struct Pod {
    child: Child,
    answers: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

impl Pod {
    fn start(cloud: Cloud, sim: &Sim, variables: &[(&str, String)]) -> Self {
        let endpoint = match cloud {
            Cloud::Gcp => ("GCP_COMPUTE_ENDPOINT", sim.gcp_url()),
            Cloud::Aws => ("AWS_ENDPOINT_URL_EC2", sim.aws_url()),
            Cloud::Azure => ("AZURE_ARM_ENDPOINT", sim.azure_url()),
        };
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.env_clear().env(CHILD, cloud.as_str()).env(endpoint.0, endpoint.1);
        // Nothing of the person who runs this.
        command.env("HOME", "/nonexistent").env("AWS_EC2_METADATA_DISABLED", "true");
        command.envs(variables.iter().map(|(name, value)| (*name, value.as_str())));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("a child");
        let answers = BufReader::new(child.stdout.take().expect("its answers")).lines();
        Self { child, answers }
    }

    async fn read(&mut self) -> String {
        self.child.stdin.as_mut().expect("its input").write_all(b"read\n").await.expect("a line");
        self.answers.next_line().await.expect("an answer").expect("it lives")
    }
}

/// What gives out credentials: a server on loopback that answers everything with one function.
struct Issuer {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Issuer {
    /// The function gets the request and how many came before that it answered.
    async fn start(answer: impl Fn(&str, usize) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::start_with(None, answer).await
    }

    /// With TLS, for those that insist on it.
    async fn start_with(
        tls: Option<TlsAcceptor>,
        answer: impl Fn(&str, usize) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let url = if tls.is_some() {
            format!("https://localhost:{port}")
        } else {
            format!("http://127.0.0.1:{port}")
        };
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mut stream: Box<dyn Stream> = match &tls {
                    None => Box::new(stream),
                    Some(tls) => match tls.accept(stream).await {
                        Ok(stream) => Box::new(stream),
                        Err(_) => continue,
                    },
                };
                let request = read_request(&mut *stream).await;
                let body = answer(&request, seen.lock().expect("requests").len());
                let (status, body) = match body {
                    Some(body) => {
                        seen.lock().expect("requests").push(request);
                        ("200 OK", body)
                    }
                    None => ("404 Not Found", String::new()),
                };
                let head = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {}\r\nmetadata-flavor: Google\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        Self { url, requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("requests").clone()
    }
}

/// A connection, with TLS or without.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

async fn read_request(stream: &mut dyn Stream) -> String {
    let mut text = String::new();
    let mut buffer = vec![0_u8; 65536];
    loop {
        let length = stream.read(&mut buffer).await.unwrap_or(0);
        text.push_str(&String::from_utf8_lossy(&buffer[..length]));
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            if length == 0 {
                return text;
            }
            continue;
        };
        let declared = head
            .lines()
            .find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
        if length == 0 || body.len() >= declared.unwrap_or(0_usize) {
            return text;
        }
    }
}

fn in_seconds(seconds: u64) -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs() + seconds
}

fn folder() -> PathBuf {
    std::env::temp_dir().join(format!("conformance-{}", std::process::id()))
}

/// A file that can be written anew, as a projected token is.
fn token_file(name: &str) -> PathBuf {
    std::fs::create_dir_all(folder()).expect("a folder");
    folder().join(name)
}

/// Removes what the cases wrote.
pub fn tidy() {
    let _ = std::fs::remove_dir_all(folder());
}

/// Callers by the simulator's log, in order, each once.
fn callers(sim: &Sim) -> Vec<String> {
    let mut callers: Vec<String> = sim.events(0).into_iter().map(|event| event.caller).collect();
    callers.dedup();
    callers
}

async fn world(cloud: Cloud) -> Sim {
    Bed::of(cloud, small_world(cloud)).await.sim
}

pub async fn eks_pod_identity_is_renewed() {
    let sim = world(Cloud::Aws).await;
    let issuer = Issuer::start(|_, n| {
        let expires = if n == 0 { "2000-01-01T00:00:00Z" } else { "2099-01-01T00:00:00Z" };
        Some(format!(
            r#"{{"AccessKeyId":"pod-{n}","SecretAccessKey":"s","Token":"t","Expiration":"{expires}"}}"#
        ))
    })
    .await;
    let file = token_file("pod-identity");
    std::fs::write(&file, "projected-1").unwrap();
    let mut pod = Pod::start(
        Cloud::Aws,
        &sim,
        &[
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", format!("{}/v1/credentials", issuer.url)),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file.display().to_string()),
        ],
    );
    assert_eq!(pod.read().await, "free");
    std::fs::write(&file, "projected-2").unwrap();
    assert_eq!(pod.read().await, "free");
    let asked = issuer.requests();
    assert!(asked[0].contains("projected-1"), "{}", asked[0]);
    assert!(asked.len() > 1 && asked[1].contains("projected-2"), "the file is read again: {asked:?}");
    assert_eq!(callers(&sim), ["pod-0", "pod-1"]);
}

pub async fn eks_irsa_is_renewed() {
    let sim = world(Cloud::Aws).await;
    let sts = Issuer::start(|_, n| {
        let expires = if n == 0 { "2000-01-01T00:00:00Z" } else { "2099-01-01T00:00:00Z" };
        Some(format!(
            "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
             <AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>irsa-{n}</AccessKeyId>\
             <SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>{expires}</Expiration>\
             </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
        ))
    })
    .await;
    let file = token_file("irsa");
    std::fs::write(&file, "projected-1").unwrap();
    let mut pod = Pod::start(
        Cloud::Aws,
        &sim,
        &[
            ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/ip-address-controller".to_owned()),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", file.display().to_string()),
            ("AWS_ENDPOINT_URL_STS", sts.url.clone()),
        ],
    );
    assert_eq!(pod.read().await, "free");
    std::fs::write(&file, "projected-2").unwrap();
    assert_eq!(pod.read().await, "free");
    let asked = sts.requests();
    assert!(asked[0].contains("WebIdentityToken=projected-1"), "{}", asked[0]);
    assert!(asked.len() > 1 && asked[1].contains("WebIdentityToken=projected-2"), "{asked:?}");
    assert_eq!(callers(&sim), ["irsa-0", "irsa-1"]);
}

pub async fn gke_workload_identity_is_renewed() {
    let sim = world(Cloud::Gcp).await;
    let metadata = Issuer::start(|request, n| {
        let expires = if n == 0 { 1 } else { 3600 };
        let body = format!(r#"{{"access_token":"wi-{n}","expires_in":{expires},"token_type":"Bearer"}}"#);
        request.contains("/service-accounts/default/token").then_some(body)
    })
    .await;
    let host = metadata.url.replace("http://", "");
    let mut pod = Pod::start(Cloud::Gcp, &sim, &[("GCE_METADATA_HOST", host)]);
    assert_eq!(pod.read().await, "free");
    let mut renewed = false;
    for _ in 0..100 {
        assert_eq!(pod.read().await, "free");
        renewed = callers(&sim).len() > 1;
        if renewed {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(renewed, "{:?}", callers(&sim));
    assert_eq!(callers(&sim), ["wi-0", "wi-1"]);
}

pub async fn azure_managed_identity_is_renewed() {
    let sim = world(Cloud::Azure).await;
    let issuer = Issuer::start(|_, n| {
        // Within five minutes of its end it is renewed.
        let expires = in_seconds(if n == 0 { 60 } else { 86400 });
        Some(format!(
            r#"{{"access_token":"mi-{n}","expires_on":"{expires}","resource":"x","token_type":"Bearer"}}"#
        ))
    })
    .await;
    let mut pod = Pod::start(
        Cloud::Azure,
        &sim,
        &[
            ("IDENTITY_ENDPOINT", format!("{}/msi/token", issuer.url)),
            ("IDENTITY_HEADER", "header".to_owned()),
        ],
    );
    assert_eq!(pod.read().await, "free");
    assert_eq!(pod.read().await, "free");
    let asked = issuer.requests();
    assert!(asked[0].contains("management.azure.com"), "{}", asked[0]);
    let seen: BTreeSet<String> = callers(&sim).into_iter().collect();
    assert_eq!(seen, BTreeSet::from(["mi-0".to_owned(), "mi-1".to_owned()]));
}

/// A certificate for `localhost` in a file, and what serves with it.
fn authority() -> (PathBuf, TlsAcceptor) {
    let key = KeyPair::generate().expect("a key");
    let certificate =
        CertificateParams::new(["localhost".to_owned()]).and_then(|made| made.self_signed(&key));
    let certificate = certificate.expect("a certificate");
    let file = token_file("authority.pem");
    std::fs::write(&file, certificate.pem()).expect("a file");
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("versions").with_no_client_auth().with_single_cert(
        vec![certificate.der().clone()],
        PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
    );
    (file, TlsAcceptor::from(Arc::new(config.expect("a server"))))
}

pub async fn azure_workload_identity_is_exchanged_and_renewed() {
    let sim = world(Cloud::Azure).await;
    let (trusted, tls) = authority();
    let entra = Issuer::start_with(Some(tls), |request, n| {
        // Within five minutes of its end it is renewed.
        let expires = if n == 0 { 60 } else { 86400 };
        let body = format!(r#"{{"token_type":"Bearer","expires_in":{expires},"access_token":"wi-{n}"}}"#);
        request.starts_with("POST /tenant/oauth2/v2.0/token").then_some(body)
    })
    .await;
    let file = token_file("azure");
    std::fs::write(&file, "projected-1").unwrap();
    let mut pod = Pod::start(
        Cloud::Azure,
        &sim,
        &[
            ("AZURE_TENANT_ID", "tenant".to_owned()),
            ("AZURE_CLIENT_ID", "client".to_owned()),
            ("AZURE_FEDERATED_TOKEN_FILE", file.display().to_string()),
            ("AZURE_AUTHORITY_HOST", entra.url.clone()),
            ("SSL_CERT_FILE", trusted.display().to_string()),
        ],
    );
    assert_eq!(pod.read().await, "free");
    assert_eq!(pod.read().await, "free");
    let asked = entra.requests();
    assert!(
        asked[0].contains("client_assertion=projected-1") && asked[0].contains("client_id=client"),
        "{}",
        asked[0]
    );
    let seen: BTreeSet<String> = callers(&sim).into_iter().collect();
    assert_eq!(seen, BTreeSet::from(["wi-0".to_owned(), "wi-1".to_owned()]));
}

/// A key file of a service account.
fn key_file(file: &PathBuf, id: &str) {
    let key = KeyPair::generate_for(&PKCS_RSA_SHA256).expect("a key").serialize_pem();
    let content = serde_json::json!({
        "type": "service_account", "project_id": "dev-project", "private_key_id": id, "private_key": key,
        "client_email": "controller@dev-project.iam.gserviceaccount.com", "client_id": "1",
    });
    std::fs::write(file, content.to_string()).expect("a file");
}

pub async fn a_key_file_that_was_replaced_is_read_again() {
    let sim = world(Cloud::Gcp).await;
    let file = token_file("key.json");
    key_file(&file, "one");
    let mut pod =
        Pod::start(Cloud::Gcp, &sim, &[("GOOGLE_APPLICATION_CREDENTIALS", file.display().to_string())]);
    assert_eq!(pod.read().await, "free");
    key_file(&file, "two");
    assert_eq!(pod.read().await, "free", "the old key's token is still good");
    // Until the cloud does not want the old one any more.
    let list = sim::On::action(sim::Cloud::Gcp, "addresses.aggregatedList");
    sim.fault(sim::Rule::once(list, crate::bed::error("authError")));
    let refused = pod.read().await;
    assert!(refused.contains("Denied"), "{refused}");
    assert_eq!(pod.read().await, "free");
    let headers: Vec<String> =
        callers(&sim).iter().map(|token| token.split('.').next().unwrap_or_default().to_owned()).collect();
    assert_eq!(headers.len(), 2, "two tokens");
    assert_ne!(headers[0], headers[1], "of two keys");
}
