//! How often watches ask: how long each pauses after a failure, and how many lists there are at once.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// After the first failure.
const FIRST: Duration = Duration::from_millis(100);
/// Of watches that every allocation needs: they are few, and an API server that comes back is noticed within
/// seconds.
pub const LONGEST_OF_ALL: Duration = Duration::from_secs(2);
/// Of watches of one workload: hundreds of them may fail at once.
pub const LONGEST_OF_ONE: Duration = Duration::from_secs(30);
/// Between lists of one watch that lists well and cannot be watched.
pub const LONGEST_OF_LISTS: Duration = Duration::from_secs(10);
/// Whoever asks for an hour is asked again before.
const LONGEST_ASKED: Duration = Duration::from_mins(1);

/// The pauses of one watch: each is about twice as long as the one before.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    pub fn new(longest: Duration) -> Self {
        Self { next: FIRST, longest }
    }

    /// The pause after a failure: between half of it and all of it, so that many who failed at once do not
    /// come back at once. `asked` is what the API server asks for, `luck` is between 0 and 1.
    pub fn pause(&mut self, asked: Option<Duration>, luck: f64) -> Duration {
        let pause = self.next.mul_f64(0.5 + 0.5 * luck);
        self.next = (self.next * 2).min(self.longest);
        let asked = asked.unwrap_or_default().min(LONGEST_ASKED);
        pause.max(asked.mul_f64(1.0 + 0.5 * luck))
    }

    /// The watch works: the next failure is the first again.
    pub fn worked(&mut self) {
        self.next = FIRST;
    }
}

/// Lists at once of workloads that did not fail before.
const FIRST_TRIES: usize = 8;
/// And of those that did: whoever fails waits behind others who do.
const RETRIES: usize = 4;
/// A list that takes longer makes way for the next one: hanging lists must not hold up the rest.
const MAKES_WAY: Duration = Duration::from_secs(1);

/// The limit of lists at once that all workloads share. Clones are the same limit.
#[derive(Clone, Debug)]
pub struct Lists {
    first_tries: Arc<Semaphore>,
    retries: Arc<Semaphore>,
}

impl Default for Lists {
    fn default() -> Self {
        let limit = |lists| Arc::new(Semaphore::new(lists));
        Self { first_tries: limit(FIRST_TRIES), retries: limit(RETRIES) }
    }
}

impl Lists {
    /// Makes a call when it is its turn.
    pub async fn in_turn<T>(&self, retry: bool, call: impl Future<Output = T>) -> T {
        let queue = if retry { &self.retries } else { &self.first_tries };
        let turn = queue.acquire().await;
        let mut call = pin!(call);
        if let Ok(answer) = timeout(MAKES_WAY, &mut call).await {
            return answer;
        }
        drop(turn);
        call.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn pauses_grow_to_their_limit_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::new(LONGEST_OF_ONE);
        let pauses: Vec<u128> = (0..11).map(|_| backoff.pause(None, 1.0).as_millis()).collect();
        let limit = 30_000;
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, limit, limit]);
        assert_eq!(backoff.pause(None, 0.0), SECOND * 15, "by luck, half of it");
        backoff.worked();
        assert_eq!(backoff.pause(None, 0.0), FIRST / 2);
        let mut backoff = Backoff::new(LONGEST_OF_ALL);
        let longest = (0..20).map(|_| backoff.pause(None, 1.0)).max();
        assert_eq!(longest, Some(SECOND * 2), "what everybody needs is tried again soon");
    }

    #[test]
    fn what_the_api_server_asks_for_is_the_least_and_no_two_come_back_at_once() {
        let mut backoff = Backoff::new(LONGEST_OF_ONE);
        assert_eq!(backoff.pause(Some(SECOND * 8), 0.0), SECOND * 8);
        assert_eq!(backoff.pause(Some(SECOND * 8), 1.0), SECOND * 12);
        assert_eq!(backoff.pause(Some(SECOND * 3600), 0.0), SECOND * 60, "an hour is too long");
        for _ in 0..10 {
            backoff.pause(None, 1.0);
        }
        assert_eq!(
            backoff.pause(Some(SECOND), 1.0),
            LONGEST_OF_ONE,
            "nor is it tried sooner than it would be"
        );
    }

    /// Makes so many calls at once; the most of them that were under way together.
    async fn most_at_once(calls: usize, retry: bool) -> usize {
        let (lists, now, most) = (Lists::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        let call = async || {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            now.fetch_sub(1, Ordering::SeqCst);
        };
        futures::future::join_all((0..calls).map(|_| lists.in_turn(retry, call()))).await;
        most.into_inner()
    }

    #[tokio::test]
    async fn few_lists_are_made_at_once() {
        assert_eq!(most_at_once(100, false).await, FIRST_TRIES);
        assert_eq!(most_at_once(100, true).await, RETRIES);
        assert_eq!(most_at_once(3, false).await, 3);
    }

    /// Whether a first try gets its turn, with so many hanging calls before it.
    async fn passes_hanging_ones(hanging: usize, retries: bool) -> bool {
        let lists = Lists::default();
        let hanging = (0..hanging).map(|_| lists.in_turn(retries, std::future::pending::<()>()));
        let hanging = futures::future::join_all(hanging);
        tokio::select! {
            biased;
            _ = hanging => false,
            () = lists.in_turn(false, async {}) => true,
            () = tokio::time::sleep(SECOND * 20) => false,
        }
    }

    #[tokio::test]
    async fn lists_that_hang_hold_up_nobody_for_long() {
        assert!(passes_hanging_ones(FIRST_TRIES * 3, false).await);
    }

    #[tokio::test]
    async fn who_fails_waits_behind_others_who_fail() {
        assert!(passes_hanging_ones(RETRIES * 1000, true).await);
    }
}
