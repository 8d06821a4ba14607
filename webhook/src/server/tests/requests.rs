//! One request at a time: what is answered, and what is refused and how.

use super::kit::*;
use super::*;
use hyper::StatusCode;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

#[tokio::test]
async fn a_review_of_six_megabytes_is_answered_on_a_connection_that_is_kept() {
    let served = Served::start(Limits::default()).await;
    let mut caller = served.http().await;
    let review = vec![b'<'; 6_300_000];
    for _ in 0..3 {
        let answer = caller.post("/echo", review.clone()).await.unwrap();
        assert_eq!((answer.status(), answer.body().len()), (StatusCode::OK, review.len()));
        assert!(!answer.headers().contains_key("connection"));
    }
    assert_eq!(served.handshakes("ok"), 1);
}

#[tokio::test]
async fn item_34_a_panic_is_one_500_and_the_connection_lives() {
    let served = Served::start(Limits::default()).await;
    let mut caller = served.http().await;
    let answer = caller.post("/panic", "").await.unwrap();
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(served.refused("panic"), 1);
    assert_eq!(caller.post("/echo", "still here").await.unwrap().body().as_ref(), b"still here");
}

/// Sends raw bytes and reads until the server closes.
async fn raw(served: &Served, bytes: &[u8]) -> String {
    let mut stream = served.tls().await.unwrap();
    stream.write_all(bytes).await.unwrap();
    read_all(&mut stream).await
}

async fn read_all(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut text = Vec::new();
    // An end without a farewell is an end.
    let _ = stream.read_to_end(&mut text).await;
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test]
async fn item_27_an_announced_body_above_the_limit_is_413_before_it_is_sent() {
    let served = Served::start(Limits::default()).await;
    let head = format!("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", (8 << 20) + 1);
    let answer = raw(&served, head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("connection: close"), "{answer}");
    assert_eq!(served.refused("too_large"), 1);
    let mut caller = served.http().await;
    let largest = caller.post("/echo", vec![b'x'; 8 << 20]).await.unwrap();
    assert_eq!(largest.status(), StatusCode::OK);
}

#[tokio::test]
async fn item_27_an_endless_chunked_body_is_413_and_ends() {
    let limits = Limits { body_bytes: 100_000, ..Limits::default() };
    let served = Served::start(limits).await;
    let (mut reader, mut writer) = tokio::io::split(served.tls().await.unwrap());
    let endless = tokio::spawn(async move {
        let head = b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
        writer.write_all(head).await.unwrap();
        let chunk = [b"1000\r\n".as_slice(), &[b'x'; 0x1000], b"\r\n"].concat();
        let mut sent = 0_usize;
        while writer.write_all(&chunk).await.is_ok() {
            sent += 0x1000;
        }
        sent
    });
    let answer = read_all(&mut reader).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(endless.await.unwrap() > 100_000);
    assert_eq!(served.refused("too_large"), 1);
    served.works().await;
}

#[tokio::test]
async fn all_bodies_together_are_bounded_and_small_ones_pass() {
    let limits = Limits { all_bodies_bytes: 1 << 20, ..Limits::default() };
    let served = Served::start(limits).await;
    let mut first = served.http().await;
    let slow = tokio::spawn(async move { first.post("/slow", vec![b'x'; 1 << 20]).await });
    eventually("the first body to be there", || *served.calls.lock().unwrap() == 1).await;
    let mut second = served.http().await;
    let answer = second.post("/echo", vec![b'x'; 200_000]).await.unwrap();
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.headers()["retry-after"], "1");
    let mut third = served.http().await;
    assert_eq!(third.post("/echo", vec![b'x'; 10_000]).await.unwrap().status(), StatusCode::OK);
    served.release.notify_one();
    assert_eq!(slow.await.unwrap().unwrap().status(), StatusCode::OK);
    assert_eq!(third.post("/echo", vec![b'x'; 200_000]).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn item_32_compressed_bodies_are_415() {
    let served = Served::start(Limits::default()).await;
    let answer = raw(
        &served,
        b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}",
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 415 "), "{answer}");
    assert_eq!(served.refused("encoding"), 1);
}

#[tokio::test]
async fn item_33_too_many_requests_are_503_at_once_with_retry_after_on_a_kept_connection() {
    let served = Served::start(Limits { requests: 2, ..Limits::default() }).await;
    let mut slow = Vec::new();
    for _ in 0..2 {
        let mut caller = served.http().await;
        slow.push(tokio::spawn(async move { caller.post("/slow", "").await }));
    }
    eventually("both places to be taken", || *served.calls.lock().unwrap() == 2).await;
    let mut caller = served.http().await;
    for _ in 0..3 {
        let answer = caller.post("/echo", "hello").await.unwrap();
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.headers()["retry-after"], "1");
    }
    assert_eq!(served.refused("overloaded"), 3);
    served.release.notify_waiters();
    for task in slow {
        assert_eq!(task.await.unwrap().unwrap().status(), StatusCode::OK);
    }
    assert_eq!(caller.post("/echo", "hello").await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_handler_that_hangs_is_503_that_may_be_tried_again() {
    let served = Served::start(Limits { answer: Duration::from_millis(200), ..Limits::default() }).await;
    let mut caller = served.http().await;
    let answer = caller.post("/slow", "").await.unwrap();
    assert_eq!(
        (answer.status(), &answer.headers()["retry-after"]),
        (StatusCode::SERVICE_UNAVAILABLE, &"1".parse().unwrap())
    );
    assert_eq!(served.refused("timeout"), 1);
}

#[tokio::test]
async fn a_header_above_64_kib_is_refused_and_one_of_16_kib_is_not() {
    let served = Served::start(Limits::default()).await;
    let ask = |bytes: usize| {
        format!(
            "POST /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\nx: {}\r\n\r\n",
            "y".repeat(bytes)
        )
    };
    assert!(raw(&served, ask(16 << 10).as_bytes()).await.starts_with("HTTP/1.1 200 "));
    let answer = raw(&served, ask(80 << 10).as_bytes()).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    served.works().await;
}

#[tokio::test]
async fn item_42_nothing_is_redirected() {
    let served = Served::start(Limits::default()).await;
    let mut caller = served.http().await;
    for path in ["/", "/echo/", "//echo", "/../echo", "/nowhere"] {
        let answer = caller.post(path, "").await.unwrap();
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
    }
}
