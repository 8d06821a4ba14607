//! The one way out to a cloud: budget, leadership, deadline and metrics of every request.

use crate::budget::{Budget, Kind};
use crate::forms::Forms;
use crate::{Account, Call, Class, Error, Meter};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};

/// What every request to an account goes through.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    pub account: Account,
    pub budget: Arc<Budget>,
    pub meter: Arc<dyn Meter>,
    pub forms: Arc<Forms>,
}

impl Gate {
    /// Sends a request that only reads.
    pub fn read<'a, T: 'a>(
        &'a self,
        operation: &'static str,
        deadline: Instant,
        request: impl Future<Output = Result<T, Error>> + Send + 'a,
    ) -> impl Future<Output = Result<T, Error>> + Send + 'a {
        let request = Box::pin(request); // those of SDKs are tens of kilobytes
        async move { self.send(Kind::Read, operation, deadline, &|| Ok(()), request).await }
    }

    /// Sends a request that changes things, if we may still write when its turn has come.
    pub fn write<'a, T: 'a>(
        &'a self,
        operation: &'static str,
        call: &'a Call<'a>,
        request: impl Future<Output = Result<T, Error>> + Send + 'a,
    ) -> impl Future<Output = Result<T, Error>> + Send + 'a {
        let request = Box::pin(request);
        async move { self.send(Kind::Write, operation, call.deadline, &|| call.check(), request).await }
    }

    async fn send<T>(
        &self,
        kind: Kind,
        operation: &'static str,
        deadline: Instant,
        allowed: &(dyn Fn() -> Result<(), Error> + Sync),
        request: Pin<Box<dyn Future<Output = Result<T, Error>> + Send + '_>>,
    ) -> Result<T, Error> {
        // The turn is kept until the answer is there: it is what bounds the calls under way.
        let turn = self.budget.admit(kind, deadline).await;
        let start = Instant::now();
        let result = match turn.and_then(|turn| allowed().map(|()| turn)) {
            Err(error) => Err(error),
            Ok(_turn) => {
                let answer = timeout_at(deadline, request).await.unwrap_or_else(|_| Err(late(operation)));
                self.learn(kind, &answer);
                answer
            }
        };
        let outcome = result.as_ref().map(|_| ()).map_err(|error| error.class);
        self.meter.called(&self.account, operation, outcome, start.elapsed());
        if let Err(error) = &result {
            let class = error.class.as_str();
            tracing::debug!(account = %self.account, operation, class, "call failed: {error}");
        }
        result
    }

    fn learn<T>(&self, kind: Kind, answer: &Result<T, Error>) {
        match answer {
            Err(error) if error.class == Class::Throttled => self.budget.throttled(kind, error.retry_after),
            // Silence says nothing about the rate.
            Err(error) if error.class == Class::Transient => {}
            _ => self.budget.answered(kind),
        }
    }
}

fn late(operation: &str) -> Error {
    let message = format!("{operation}: no answer before the deadline; it may or may not have been done");
    Error::new(Class::Transient, message)
}
