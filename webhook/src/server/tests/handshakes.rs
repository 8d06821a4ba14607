//! TLS: what is spoken, and what is not.

use super::kit::*;
use super::*;
use rustls::ProtocolVersion;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[tokio::test]
async fn item_36_tls_1_3_and_1_2_are_spoken() {
    let served = Served::start(Limits::default()).await;
    for (version, expected) in [
        (&rustls::version::TLS13, ProtocolVersion::TLSv1_3),
        (&rustls::version::TLS12, ProtocolVersion::TLSv1_2),
    ] {
        let stream = served.tls_with(served.client_config(&[version])).await.unwrap();
        assert_eq!(stream.get_ref().1.protocol_version(), Some(expected));
    }
    assert_eq!(served.handshakes("ok"), 2);
}

/// A `ClientHello` without extensions.
fn client_hello(version: [u8; 2], ciphers: &[[u8; 2]]) -> Vec<u8> {
    let mut hello = version.to_vec();
    hello.extend([7; 32]);
    hello.push(0);
    hello.extend(u16::try_from(ciphers.len() * 2).unwrap().to_be_bytes());
    hello.extend(ciphers.concat());
    hello.extend([1, 0]);
    let length = u16::try_from(hello.len()).unwrap();
    let mut record = vec![0x16, 3, 1];
    record.extend((length + 4).to_be_bytes());
    record.extend([1, 0]);
    record.extend(length.to_be_bytes());
    record.extend(hello);
    record
}

/// Sends bytes to the port and reads until it is closed.
async fn answer_to(served: &Served, bytes: &[u8]) -> Vec<u8> {
    let mut stream = served.tcp().await;
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    answer
}

#[tokio::test]
async fn item_36_tls_1_1_and_older_ciphers_are_refused_with_an_alert() {
    let served = Served::start(Limits::default()).await;
    // TLS_RSA_WITH_AES_128_CBC_SHA, TLS_RSA_WITH_3DES_EDE_CBC_SHA, TLS_RSA_WITH_RC4_128_SHA.
    let old_ciphers = [[0, 0x2f], [0, 0x0a], [0, 0x05]];
    for version in [[3, 1], [3, 2], [3, 3]] {
        let answer = answer_to(&served, &client_hello(version, &old_ciphers)).await;
        assert_eq!(answer.first(), Some(&0x15), "an alert, not a ServerHello: {answer:?}");
        assert_eq!(answer.get(5), Some(&2), "a fatal one: {answer:?}");
    }
    assert_eq!(served.handshakes("unsupported"), 3);
    assert_eq!(served.handshakes("ok"), 0);
    served.works().await;
}

#[tokio::test]
async fn plain_http_and_garbage_end_the_connection_and_nothing_else() {
    let served = Served::start(Limits::default()).await;
    for bytes in
        [b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".as_slice(), &[0xff; 3000], &[0; 64], b"\x16\x03\x01\xff\xff"]
    {
        let answer = answer_to_half_closed(&served, bytes).await;
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    }
    eventually("all to be counted", || served.handshakes("malformed") + served.handshakes("gone") == 4).await;
    assert!(served.handshakes("malformed") >= 2);
    served.works().await;
}

/// The same from a client that says that it is done.
async fn answer_to_half_closed(served: &Served, bytes: &[u8]) -> Vec<u8> {
    let mut stream = served.tcp().await;
    stream.write_all(bytes).await.unwrap();
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    answer
}

#[tokio::test]
async fn item_31_http_1_1_is_chosen_and_http_2_alone_is_refused() {
    let served = Served::start(Limits::default()).await;
    let mut config = served.client_config(&[&rustls::version::TLS13]);
    // As the API server offers it to a loopback URL.
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let stream = served.tls_with(config.clone()).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    config.alpn_protocols = vec![b"h2".to_vec()];
    assert!(served.tls_with(config).await.is_err());
    assert_eq!(served.handshakes("unsupported"), 1);
    // One who does not ask and speaks HTTP/2 anyway.
    let mut stream = served.tls().await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400 "), "{answer:?}");
}

#[tokio::test]
async fn no_session_is_resumed_so_no_ticket_can_outlive_a_certificate() {
    let served = Served::start(Limits::default()).await;
    let config = served.client_config(&[&rustls::version::TLS13]);
    for _ in 0..2 {
        let mut stream = served.tls_with(config.clone()).await.unwrap();
        stream
            .write_all(b"POST /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            .await
            .unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert_eq!(stream.get_ref().1.handshake_kind(), Some(rustls::HandshakeKind::Full));
    }
}

#[tokio::test]
async fn a_client_that_does_not_trust_us_is_counted() {
    let served = Served::start(Limits::default()).await;
    let other = Served::start(Limits::default()).await;
    assert!(served.tls_with(other.client_config(&[&rustls::version::TLS13])).await.is_err());
    eventually("it to be counted", || served.handshakes("rejected") == 1).await;
}
