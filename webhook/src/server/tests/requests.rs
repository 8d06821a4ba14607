//! One request at a time: what is answered, and what is refused and how.

use super::kit::*;
use super::*;
use hyper::StatusCode;

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
