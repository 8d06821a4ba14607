//! Steps that panic, are fenced, or must not begin.

use super::*;
use async_trait::async_trait;
use cloud::{Ask, Reading};
use plan::{Place, Reason};
use std::sync::atomic::{AtomicU32, Ordering};

/// A cloud in which everything that is asked for ends in a panic; what gives an address back does so once.
#[derive(Debug, Default)]
struct Buggy {
    restored: AtomicU32,
}

#[async_trait]
#[allow(clippy::panic)]
impl Provider for Buggy {
    async fn read(&self, _: &Ask, _: Instant) -> Reading {
        panic!("read")
    }
    async fn preflight(&self, _: IpAddr, _: &str, _: Instant) -> Result<(), cloud::Error> {
        panic!("preflight")
    }
    async fn attach(&self, _: IpAddr, _: &str, _: &str, _: &Call<'_>) -> Result<(), cloud::Error> {
        tokio::task::yield_now().await;
        panic!("attach")
    }
    async fn detach(&self, _: IpAddr, _: &str, _: &str, _: &Call<'_>) -> Result<(), cloud::Error> {
        panic!("detach")
    }
    async fn restore(&self, _: &str, _: Option<&str>, _: &Call<'_>) -> Result<(), cloud::Error> {
        assert!(self.restored.fetch_add(1, Ordering::Relaxed) > 0, "restore");
        Ok(())
    }
}

fn place(name: &str) -> Place {
    Place { node: Some(name.to_owned()), provider_id: format!("gce://p/z/{name}") }
}

fn address() -> IpAddr {
    IpAddr::from([203, 0, 113, 1])
}

/// Carries a step out in a cloud where everything panics; how it ended.
async fn outcome(action: Action) -> Outcome {
    let (mailbox, mut messages) = mpsc::channel(1);
    carry_out(step(action), Arc::new(Buggy::default()), LeaderToken::default(), mailbox, Clock::new()).await;
    match messages.recv().await {
        Some(Message::StepEnded(outcome)) => outcome,
        _ => unreachable!("nothing else is sent"),
    }
}

#[tokio::test]
async fn a_step_that_panics_fails_and_may_have_been_done() {
    let token = || "t".to_owned();
    let (n1, n2) = (place("n1"), place("n2"));
    let cases = [
        ("attach", Action::Attach { to: n2.clone(), token: token() }, &n2, WriteKind::Attach),
        ("detach", Action::Detach { from: n1.clone(), token: token(), target: None }, &n1, WriteKind::Detach),
        (
            "preflight",
            Action::Detach { from: n1.clone(), token: token(), target: Some(n2.clone()) },
            &n1,
            WriteKind::Detach,
        ),
    ];
    for (name, action, on, kind) in cases {
        let outcome = outcome(action).await;
        let mut world = World::default();
        begin(&mut world, address(), &on.provider_id);
        end(&mut world, &outcome);
        assert!(world.in_flight.is_empty(), "{name}: it is over");
        let failure = &world.failures[&(address(), on.provider_id.clone())];
        assert_eq!((failure.class, failure.attempts), (FailureClass::Transient, 1), "{name}");
        assert_eq!(failure.message, format!("a bug in this program: {name}"));
        let write = &world.last_write[&address()];
        assert_eq!((write.at, write.kind, write.succeeded), (outcome.at, kind, false), "{name} is read back");
    }
}

#[tokio::test]
async fn an_address_that_is_given_back_with_a_panic_is_given_back_again() {
    let buggy = Arc::new(Buggy::default());
    let restoration = Restoration {
        operation: "1".to_owned(),
        provider_id: "gce://p/z/n1".to_owned(),
        token: Some("t".to_owned()),
    };
    restore(restoration, buggy.clone(), LeaderToken::default()).await;
    assert_eq!(buggy.restored.load(Ordering::Relaxed), 2);
}

/// A cloud that does what it is told, as far as it may, and writes it down. Its targets take nothing.
#[derive(Debug, Default)]
struct Obedient {
    done: std::sync::Mutex<Vec<&'static str>>,
}

impl Obedient {
    fn told(&self, what: &'static str, call: &Call<'_>) -> Result<(), cloud::Error> {
        call.check()?;
        self.done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(what);
        Ok(())
    }

    fn done(&self) -> Vec<&'static str> {
        self.done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl Provider for Obedient {
    async fn read(&self, _: &Ask, _: Instant) -> Reading {
        Reading::default()
    }
    async fn preflight(&self, _: IpAddr, _: &str, _: Instant) -> Result<(), cloud::Error> {
        Err(cloud::Error::new(Class::Permanent, "it has no room"))
    }
    async fn attach(&self, _: IpAddr, _: &str, _: &str, call: &Call<'_>) -> Result<(), cloud::Error> {
        self.told("attach", call)
    }
    async fn detach(&self, _: IpAddr, _: &str, _: &str, call: &Call<'_>) -> Result<(), cloud::Error> {
        self.told("detach", call)
    }
    async fn restore(&self, _: &str, _: Option<&str>, call: &Call<'_>) -> Result<(), cloud::Error> {
        self.told("restore", call)
    }
}

fn step(action: Action) -> Step {
    Step {
        allocation: "voice".to_owned(),
        address: address(),
        action,
        cause: Reason::NodeDrained,
        operation: "1".to_owned(),
        key: "k".to_owned(),
    }
}

#[tokio::test]
async fn nothing_is_sent_without_the_lease() {
    let (cloud, nobody) = (Obedient::default(), LeaderToken::default());
    let deadline = Instant::now() + STEP_TIMEOUT;
    let token = || "t".to_owned();
    for action in [
        Action::Attach { to: place("n2"), token: token() },
        Action::Detach { from: place("n1"), token: token(), target: None },
    ] {
        let fenced = perform(&step(action), &cloud, &nobody, deadline).await.unwrap_err();
        assert_eq!((fenced.error.class, fenced.written), (Class::Fenced, false), "{fenced:?}");
    }
    let cloud = Arc::new(cloud);
    let provider_id = "gce://p/z/n1".to_owned();
    let restoration = Restoration { operation: "1".to_owned(), provider_id, token: Some(token()) };
    restore(restoration, cloud.clone(), nobody).await;
    assert!(cloud.done().is_empty(), "{:?}", cloud.done());
}

/// No target, no detach: an address stays where it works.
#[tokio::test]
async fn nothing_is_detached_for_a_target_that_cannot_take_it() {
    let cloud = Obedient::default();
    let deadline = Instant::now() + STEP_TIMEOUT;
    let action = Action::Detach { from: place("n1"), token: "t".to_owned(), target: Some(place("n2")) };
    let refused = perform(&step(action), &cloud, &LeaderToken::leading(), deadline).await.unwrap_err();
    assert_eq!((refused.provider_id.as_str(), refused.written), ("gce://p/z/n2", false), "{refused:?}");
    assert!(cloud.done().is_empty(), "{:?}", cloud.done());
    let action = Action::Detach { from: place("n1"), token: "t".to_owned(), target: None };
    perform(&step(action), &cloud, &LeaderToken::leading(), deadline).await.unwrap();
    assert_eq!(cloud.done(), ["detach"], "the leader's calls are sent");
}
