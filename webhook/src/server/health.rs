//! Health: alive is who answers; ready is who has all that it needs, and says what is missing.

use super::Shutdown;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Named conditions of readiness. Clones are the same registry.
#[derive(Clone, Debug)]
pub struct Health {
    checks: Arc<Mutex<BTreeMap<String, Result<(), String>>>>,
    hearts: Arc<Mutex<Vec<Heart>>>,
    shutdown: Shutdown,
}

impl Health {
    /// Ready until somebody asks for a check, or the drain begins.
    pub fn new(shutdown: &Shutdown) -> Self {
        Self { checks: Arc::default(), hearts: Arc::default(), shutdown: shutdown.clone() }
    }

    /// Adds a condition, which does not hold yet.
    pub fn check(&self, name: &str) -> Check {
        let check = Check { name: name.to_owned(), health: self.clone() };
        check.not_ready("has not started yet");
        check
    }

    /// Whether everything holds, and a line for each condition.
    pub fn readiness(&self) -> (bool, String) {
        let checks = self.lock();
        let draining = self.shutdown.is_draining();
        let mut text = String::new();
        for (name, state) in checks.iter() {
            let _ = match state {
                Ok(()) => writeln!(text, "[+] {name}"),
                Err(reason) => writeln!(text, "[-] {name}: {reason}"),
            };
        }
        if draining {
            text.push_str("[-] shutdown: draining\n");
        }
        // The port is open before there is anything to ask about.
        if checks.is_empty() {
            text.push_str("[-] nothing has started yet\n");
        }
        let ready = !draining && !checks.is_empty() && checks.values().all(Result::is_ok);
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

    /// `/healthz` and `/readyz`.
    pub fn router(&self) -> Router {
        let health = self.clone();
        let readyz = async move || {
            let (ready, text) = health.readiness();
            (if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, text)
        };
        let health = self.clone();
        let healthz = async move || match health.hung() {
            hung if hung.is_empty() => (StatusCode::OK, "ok\n".to_owned()),
            hung => (StatusCode::INTERNAL_SERVER_ERROR, hung.concat()),
        };
        Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Result<(), String>>> {
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
        self.health.lock().insert(self.name.clone(), Ok(()));
    }

    /// It does not hold, and why.
    pub fn not_ready(&self, reason: impl Into<String>) {
        self.health.lock().insert(self.name.clone(), Err(reason.into()));
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
