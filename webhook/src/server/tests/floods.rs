//! Many callers, slow callers, and callers who never come to the point.

use super::kit::*;
use super::*;
use hyper::StatusCode;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Reads until the server closes.
async fn closed(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Vec<u8> {
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    rest
}

#[tokio::test]
async fn item_30_a_thousand_half_open_handshakes_while_traffic_passes() {
    // They stay for as long as the test takes, however slow the machine is.
    let served = Served::start(Limits { handshake: Duration::from_mins(10), ..Limits::default() }).await;
    let mut half_open = Vec::new();
    for number in 0..1000 {
        let mut stream = served.tcp().await;
        // Some say nothing, some begin.
        if number % 2 == 0 {
            stream.write_all(&[0x16, 3, 1, 2, 0]).await.unwrap();
        }
        half_open.push(stream);
        if number % 100 == 0 {
            served.works().await;
        }
    }
    eventually("all to be there", || served.metrics.connections.get() >= 1000).await;
    for _ in 0..20 {
        served.works().await;
    }
    drop(half_open);
    eventually("all places to be free", || served.metrics.connections.get() == 0).await;
}

#[tokio::test]
async fn item_30_when_places_run_out_who_dawdles_longest_makes_room() {
    let served = Served::start(Limits { connections: 50, ..Limits::default() }).await;
    let mut half_open = Vec::new();
    for _ in 0..200 {
        half_open.push(served.tcp().await);
        if half_open.len() % 20 == 0 {
            served.works().await;
        }
    }
    served.works().await;
    assert!(served.metrics.connections.get() <= 51, "{}", served.metrics.connections.get());
    assert!(served.metrics.evicted.with_label_values(&["handshake"]).get() >= 100);
    assert_eq!(closed(&mut half_open[0]).await, b"", "the first one was closed");
    eventually("it to be counted", || served.handshakes("evicted") >= 100).await;
}

#[tokio::test]
async fn item_30_a_handshake_that_does_not_end_is_closed() {
    let served = Served::start(Limits { handshake: Duration::from_millis(200), ..Limits::default() }).await;
    let mut stream = served.tcp().await;
    stream.write_all(&[0x16, 3, 1, 2, 0]).await.unwrap();
    closed(&mut stream).await;
    assert_eq!(served.handshakes("timeout"), 1);
}

#[tokio::test]
async fn item_30_a_header_that_trickles_is_closed_and_an_idle_connection_is_not() {
    let served = Served::start(Limits { header: Duration::from_millis(300), ..Limits::default() }).await;
    let mut idle = served.http().await;
    assert_eq!(idle.post("/echo", "1").await.unwrap().status(), StatusCode::OK);
    let unused = served.http().await;
    let (mut reader, mut writer) = tokio::io::split(served.tls().await.unwrap());
    let trickle = tokio::spawn(async move {
        for byte in b"POST /echo HTTP/1.1\r\nx: ".iter().chain(std::iter::repeat(&b'y')) {
            if writer.write_all(&[*byte]).await.is_err() || writer.flush().await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    closed(&mut reader).await;
    trickle.await.unwrap();
    // Longer than a header may take: hyper's own timeout would have closed these.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!unused.closed.is_finished(), "a connection that has not been used yet is no slow header");
    assert_eq!(idle.post("/echo", "2").await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn an_idle_connection_is_closed_in_the_end_and_the_usual_limit_is_above_the_api_servers() {
    assert!(Limits::default().idle > Duration::from_secs(90));
    let served = Served::start(Limits { idle: Duration::from_millis(200), ..Limits::default() }).await;
    let caller = served.http().await;
    caller.closed.await.unwrap();
    eventually("its place to be free", || served.metrics.connections.get() == 0).await;
}

#[tokio::test]
async fn item_30_slow_bodies_take_no_place_of_work_and_end_with_408() {
    let limits = Limits { body: Duration::from_secs(2), requests: 4, ..Limits::default() };
    let served = Served::start(limits).await;
    let mut slow = Vec::new();
    for _ in 0..100 {
        let mut stream = served.tls().await.unwrap();
        stream
            .write_all(b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n{")
            .await
            .unwrap();
        slow.push(stream);
    }
    for _ in 0..20 {
        served.works().await;
    }
    for mut stream in slow {
        let answer = closed(&mut stream).await;
        assert!(answer.starts_with(b"HTTP/1.1 408 "), "{}", String::from_utf8_lossy(&answer));
    }
    assert_eq!(served.refused("too_slow"), 100);
}

/// What the process holds: file descriptors and resident memory in KiB.
fn holds() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    (descriptors, line.split_whitespace().nth(1).unwrap().parse().unwrap())
}

/// Measured in a process of its own, where no other test opens anything.
#[test]
fn ten_thousand_connections_opened_and_dropped_leave_nothing_behind() {
    const CHILD: &str = "SERVER_TEST_CHILD";
    let name = "server::tests::floods::ten_thousand_connections_opened_and_dropped_leave_nothing_behind";
    if std::env::var_os(CHILD).is_none() {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&child.stdout);
        assert!(
            child.status.success() && text.contains("1 passed"),
            "{text}{}",
            String::from_utf8_lossy(&child.stderr)
        );
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let served = Served::start(Limits::default()).await;
        open_and_drop(&served, 2000).await;
        let before = holds();
        open_and_drop(&served, 10_000).await;
        let after = holds();
        println!("descriptors {} to {}, memory {} to {} KiB", before.0, after.0, before.1, after.1);
        assert!(after.0 <= before.0 + 5, "descriptors: {before:?} {after:?}");
        assert!(after.1 <= before.1 + 10_240, "memory: {before:?} {after:?}");
        served.works().await;
    });
}

async fn open_and_drop(served: &Served, count: usize) {
    for number in 0..count {
        let mut stream = served.tcp().await;
        match number % 3 {
            0 => {}
            1 => stream.write_all(&[0x16, 3, 1]).await.unwrap(),
            _ => drop(served.tls().await.unwrap()),
        }
    }
    eventually("all to be gone", || served.metrics.connections.get() == 0).await;
}

#[tokio::test]
async fn when_all_are_being_answered_it_is_the_newcomer_that_goes() {
    let served = Served::start(Limits { connections: 1, ..Limits::default() }).await;
    let mut caller = served.http().await;
    let slow = tokio::spawn(async move { caller.post("/slow", "").await });
    eventually("the handler to be called", || *served.calls.lock().unwrap() == 1).await;
    assert!(served.tls().await.is_err());
    assert_eq!(served.metrics.evicted.with_label_values(&["newcomer"]).get(), 1);
    served.release.notify_one();
    assert_eq!(slow.await.unwrap().unwrap().status(), StatusCode::OK);
}
