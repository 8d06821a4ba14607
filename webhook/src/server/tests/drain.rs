//! The end of a server, as callers see it.

use super::kit::*;
use super::*;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn quick() -> Limits {
    Limits { drain_grace: Duration::from_millis(300), ..Limits::default() }
}

#[tokio::test]
async fn answers_under_way_finish_and_tell_the_caller_to_dial_anew() {
    let served = Served::start(quick()).await;
    let mut caller = served.http().await;
    let slow = tokio::spawn(async move { (caller.post("/slow", "").await, caller) });
    eventually("the handler to be called", || *served.calls.lock().unwrap() == 1).await;
    served.shutdown.drain();
    // The listener stays open for the grace.
    served.works().await;
    eventually("the listener to be closed", || std::net::TcpStream::connect(served.address).is_err()).await;
    assert!(!served.done.is_finished(), "an answer is still under way");
    served.release.notify_one();
    let (answer, _) = slow.await.unwrap();
    let answer = answer.unwrap();
    assert_eq!(answer.body().as_ref(), b"at last");
    assert_eq!(answer.headers()["connection"], "close");
    assert_eq!(served.done.await.unwrap().unwrap(), Drained { cut_off: 0 });
}

#[tokio::test]
async fn idle_connections_are_closed_last_and_one_that_is_used_meanwhile_is_answered() {
    let served = Served::start(quick()).await;
    let (mut used, idle, mut busy) = (served.http().await, served.http().await, served.http().await);
    let slow = tokio::spawn(async move { busy.post("/slow", "").await });
    eventually("the handler to be called", || *served.calls.lock().unwrap() == 1).await;
    served.shutdown.drain();
    eventually("the listener to be closed", || std::net::TcpStream::connect(served.address).is_err()).await;
    assert!(!idle.closed.is_finished(), "an answer is still under way");
    let answer = used.post("/echo", "late").await.unwrap();
    assert_eq!(
        (answer.body().as_ref(), &answer.headers()["connection"]),
        (&b"late"[..], &"close".parse().unwrap())
    );
    served.release.notify_one();
    slow.await.unwrap().unwrap();
    idle.closed.await.unwrap();
    assert_eq!(served.done.await.unwrap().unwrap(), Drained { cut_off: 0 });
}

#[tokio::test]
async fn a_second_signal_cuts_off_what_is_under_way() {
    let served = Served::start(Limits::default()).await;
    let mut caller = served.http().await;
    let slow = tokio::spawn(async move { caller.post("/slow", "").await });
    eventually("the handler to be called", || *served.calls.lock().unwrap() == 1).await;
    served.shutdown.drain();
    served.shutdown.abort();
    assert_eq!(served.done.await.unwrap().unwrap(), Drained { cut_off: 1 });
    assert!(slow.await.unwrap().is_err());
}

#[tokio::test]
async fn item_11_the_first_sigterm_drains_and_the_second_aborts() {
    let me = rustix::process::getpid();
    let shutdown = Shutdown::on_signals().unwrap();
    assert!(!shutdown.is_draining());
    rustix::process::kill_process(me, rustix::process::Signal::TERM).unwrap();
    shutdown.draining().await;
    let aborted = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { shutdown.aborted().await }
    });
    assert!(!aborted.is_finished());
    rustix::process::kill_process(me, rustix::process::Signal::TERM).unwrap();
    aborted.await.unwrap();
}

#[tokio::test]
async fn answers_that_take_too_long_are_cut_off() {
    let limits = Limits { drain_timeout: Duration::from_millis(200), ..quick() };
    let served = Served::start(limits).await;
    let mut caller = served.http().await;
    let slow = tokio::spawn(async move { caller.post("/slow", "").await });
    eventually("the handler to be called", || *served.calls.lock().unwrap() == 1).await;
    served.shutdown.drain();
    assert_eq!(served.done.await.unwrap().unwrap(), Drained { cut_off: 1 });
    assert!(slow.await.unwrap().is_err());
}

#[tokio::test]
async fn a_call_that_crosses_with_the_close_of_its_idle_connection_gets_an_answer_to_try_again() {
    let served = Served::start(quick()).await;
    let mut crossing = served.tls().await.unwrap();
    served.shutdown.drain();
    eventually("the listener to be closed", || std::net::TcpStream::connect(served.address).is_err()).await;
    assert_eq!(served.done.await.unwrap().unwrap(), Drained { cut_off: 0 });
    // For the caller it is still open: what it sends now was on its way when the server closed.
    let _ = crossing.write_all(b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello").await;
    let mut answer = Vec::new();
    let _ = crossing.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: 1\r\nconnection: close"),
        "{answer}"
    );
}
