//! Health: alive is who answers; ready is who has all that it needs, and says what is missing.
//!
//! A process of several parts has a readiness for each (`/readyz/PART`). What `/readyz` says is what the
//! process gets requests for: the parts that serve nobody are told there and do not count.

use super::Shutdown;
use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::get;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Named conditions of readiness. Clones are the same registry.
#[derive(Clone, Debug)]
pub struct Health {
    checks: Arc<Mutex<BTreeMap<Key, Result<(), String>>>>,
    hearts: Arc<Mutex<Vec<Heart>>>,
    shutdown: Shutdown,
    part: Part,
}

/// A condition by its part and its name.
type Key = (Part, String);

/// A part of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    /// Empty: the whole process.
    name: &'static str,
    /// Does not count for the readiness of the process.
    aside: bool,
}

impl Health {
    /// Ready until somebody asks for a check, or the drain begins.
    pub fn new(shutdown: &Shutdown) -> Self {
        let (checks, hearts, part) = (Arc::default(), Arc::default(), Part::default());
        Self { checks, hearts, shutdown: shutdown.clone(), part }
    }

    /// The same registry for a part of the process that serves requests.
    #[must_use]
    pub fn part(&self, name: &'static str) -> Self {
        Self { part: Part { name, aside: false }, ..self.clone() }
    }

    /// The same registry for a part of the process that serves nobody: no request need be kept from the
    /// process because this part is not ready.
    #[must_use]
    pub fn part_aside(&self, name: &'static str) -> Self {
        Self { part: Part { name, aside: true }, ..self.clone() }
    }

    /// Adds a condition, which does not hold yet.
    pub fn check(&self, name: &str) -> Check {
        let check = Check { name: name.to_owned(), health: self.clone() };
        check.not_ready("has not started yet");
        check
    }

    /// Whether everything that counts holds, and a line for each condition.
    pub fn readiness(&self) -> (bool, String) {
        self.readiness_of(None)
    }

    /// The same for one part.
    fn readiness_of(&self, part: Option<&str>) -> (bool, String) {
        let all = self.lock();
        let asked = |of: &Part| part.is_none_or(|part| of.name == part);
        let counts = |of: &Part| part.is_some() || !of.aside;
        let checks: Vec<_> = all.iter().filter(|((of, _), _)| asked(of)).collect();
        let draining = self.shutdown.is_draining();
        let mut text = String::new();
        for ((of, name), state) in &checks {
            let name = if of.name.is_empty() { name.clone() } else { format!("{}/{name}", of.name) };
            let _ = match state {
                Ok(()) => writeln!(text, "[+] {name}"),
                Err(reason) if counts(of) => writeln!(text, "[-] {name}: {reason}"),
                Err(reason) => writeln!(text, "[i] {name}: {reason} (counts for /readyz/{} only)", of.name),
            };
        }
        if draining {
            text.push_str("[-] shutdown: draining\n");
        }
        // The port is open before there is anything to ask about.
        if checks.is_empty() {
            text.push_str("[-] nothing has started yet\n");
        }
        let holds = |((of, _), state): &(&Key, &Result<(), String>)| state.is_ok() || !counts(of);
        let ready = !draining && !checks.is_empty() && checks.iter().all(holds);
        text.push_str(if ready { "ready\n" } else { "not ready\n" });
        (ready, text)
    }

    /// Adds a loop that has to turn: one that stands still for so long is hung.
    pub fn heart(&self, name: &str, limit: Duration) -> Heart {
        let heart = Heart { name: name.to_owned(), limit, last: Arc::new(Mutex::new(Instant::now())) };
        self.hearts.lock().unwrap_or_else(PoisonError::into_inner).push(heart.clone());
        heart
    }

    /// The loops that stand still.
    fn hung(&self) -> Vec<String> {
        let hearts = self.hearts.lock().unwrap_or_else(PoisonError::into_inner);
        let hung = hearts.iter().filter(|heart| heart.silent() > heart.limit);
        hung.map(|heart| format!("[-] {}: has not turned for {:?}\n", heart.name, heart.silent())).collect()
    }

    /// `/healthz`, `/readyz` and `/readyz/PART`.
    pub fn router(&self) -> Router {
        let answer = |(ready, text): (bool, String)| {
            (if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, text)
        };
        let health = self.clone();
        let readyz = async move || answer(health.readiness());
        let health = self.clone();
        let of_part = async move |Path(part): Path<String>| {
            if health.has_part(&part) {
                answer(health.readiness_of(Some(&part)))
            } else {
                (StatusCode::NOT_FOUND, "there is no such part here\n".to_owned())
            }
        };
        let health = self.clone();
        let healthz = async move || match health.hung() {
            hung if hung.is_empty() => (StatusCode::OK, "ok\n".to_owned()),
            hung => (StatusCode::INTERNAL_SERVER_ERROR, hung.concat()),
        };
        let router = Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz));
        router.route("/readyz/{part}", get(of_part))
    }

    fn has_part(&self, part: &str) -> bool {
        !part.is_empty() && self.lock().keys().any(|(of, _)| of.name == part)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Result<(), String>>> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A loop that has to turn, in the hands of the loop.
#[derive(Clone, Debug)]
pub struct Heart {
    name: String,
    limit: Duration,
    last: Arc<Mutex<Instant>>,
}

impl Heart {
    /// It has turned.
    pub fn beat(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn silent(&self) -> Duration {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }
}

/// One condition of readiness, in the hands of the part that knows.
#[derive(Clone, Debug)]
pub struct Check {
    name: String,
    health: Health,
}

impl Check {
    /// It holds.
    pub fn ready(&self) {
        self.health.lock().insert(self.key(), Ok(()));
    }

    /// It does not hold, and why.
    pub fn not_ready(&self, reason: impl Into<String>) {
        self.health.lock().insert(self.key(), Err(reason.into()));
    }

    fn key(&self) -> Key {
        (self.health.part, self.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_names_what_is_missing() {
        let shutdown = Shutdown::default();
        let health = Health::new(&shutdown);
        assert_eq!(health.readiness(), (false, "[-] nothing has started yet\nnot ready\n".to_owned()));
        let (index, certificates) = (health.check("index"), health.check("certificates"));
        certificates.ready();
        assert_eq!(
            health.readiness(),
            (false, "[+] certificates\n[-] index: has not started yet\nnot ready\n".to_owned())
        );
        index.ready();
        assert_eq!(health.readiness(), (true, "[+] certificates\n[+] index\nready\n".to_owned()));
        index.not_ready("the watch is broken");
        assert!(health.readiness().1.contains("[-] index: the watch is broken"));
        index.ready();
        shutdown.drain();
        assert!(!health.readiness().0, "a draining server is not ready");
    }

    #[test]
    fn a_part_that_serves_nobody_is_told_and_does_not_count() {
        let health = Health::new(&Shutdown::default());
        let (serving, controlling) = (health.part("webhook"), health.part_aside("controller"));
        let (index, election) = (serving.check("index"), controlling.check("election"));
        assert!(!health.readiness().0);
        index.ready();
        let (ready, text) = health.readiness();
        assert!(ready, "{text}");
        assert!(text.contains("[i] controller/election: has not started yet"), "{text}");
        assert!(health.readiness_of(Some("webhook")).0);
        let (ready, text) = health.readiness_of(Some("controller"));
        assert!(!ready && !text.contains("index"), "{text}");
        election.ready();
        index.not_ready("no");
        assert!(!health.readiness().0 && health.readiness_of(Some("controller")).0);
        assert!(health.has_part("webhook") && !health.has_part("") && !health.has_part("x"));
    }

    #[test]
    fn a_loop_that_stands_still_is_named() {
        let health = Health::new(&Shutdown::default());
        let heart = health.heart("controller", Duration::from_millis(1));
        std::thread::sleep(Duration::from_millis(20));
        assert!(health.hung().concat().starts_with("[-] controller: has not turned for"));
        let patient = Health::new(&Shutdown::default());
        patient.heart("controller", Duration::from_hours(1)).beat();
        heart.beat();
        assert!(patient.hung().is_empty());
    }
}
