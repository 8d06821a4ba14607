//! The end of a process, in steps that everybody can wait for.

use std::io;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Serving,
    Draining,
    Aborted,
}

/// Tells all parts of the process that it ends: first [`drain`](Self::drain), then, for the impatient,
/// [`abort`](Self::abort). Clones are the same shutdown.
#[derive(Clone, Debug)]
pub struct Shutdown(Arc<watch::Sender<Step>>);

impl Default for Shutdown {
    fn default() -> Self {
        Self(Arc::new(watch::channel(Step::Serving).0))
    }
}

impl Shutdown {
    /// A shutdown that SIGTERM or SIGINT starts; a second signal aborts what is still being drained.
    pub fn on_signals() -> io::Result<Self> {
        let shutdown = Self::default();
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let told = shutdown.clone();
        tokio::spawn(async move {
            loop {
                let name = tokio::select! {
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                };
                if told.is_draining() {
                    tracing::warn!(signal = name, "a second signal: not waiting any longer");
                    told.abort();
                } else {
                    tracing::info!(signal = name, "draining; a second signal ends at once");
                    told.drain();
                }
            }
        });
        Ok(shutdown)
    }

    /// Starts the drain.
    pub fn drain(&self) {
        self.reach(Step::Draining);
    }

    /// Ends at once.
    pub fn abort(&self) {
        self.reach(Step::Aborted);
    }

    /// Whether the drain has begun.
    pub fn is_draining(&self) -> bool {
        *self.0.borrow() >= Step::Draining
    }

    /// Waits for the drain to begin.
    pub async fn draining(&self) {
        self.wait(Step::Draining).await;
    }

    /// Waits until the drain is cut short.
    pub async fn aborted(&self) {
        self.wait(Step::Aborted).await;
    }

    /// Never goes back.
    fn reach(&self, step: Step) {
        self.0.send_if_modified(|now| {
            let further = *now < step;
            *now = (*now).max(step);
            further
        });
    }

    async fn wait(&self, step: Step) {
        // The sender is alive as long as this is borrowed, so there is no error to come.
        let _ = self.0.subscribe().wait_for(|now| *now >= step).await;
    }
}
