//! The places for connections: what each one is at, since when, and who goes when they run out.

use super::Limits;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What a connection is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The TLS handshake.
    Handshake,
    /// Waiting for the next request.
    Idle,
    /// A request's header has begun.
    Header,
    /// The header is there, the body is not.
    Body,
    /// The request is there, the answer has not been sent.
    Answer,
}

impl Phase {
    /// The metric's word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Idle => "idle",
            Self::Header => "header",
            Self::Body => "body",
            Self::Answer => "answer",
        }
    }

    fn limit(self, limits: &Limits) -> Duration {
        match self {
            Self::Handshake => limits.handshake,
            Self::Idle => limits.idle,
            Self::Header => limits.header,
            // These two are ended with an answer, where they are awaited. If even that does not get
            // through, the connection is closed.
            Self::Body => limits.body + limits.answer,
            Self::Answer => 2 * limits.answer,
        }
    }
}

/// One connection's place.
#[derive(Debug)]
pub struct Place {
    number: u64,
    at: Mutex<(Phase, Instant)>,
    /// Cancelled when the connection has to make room.
    pub evicted: CancellationToken,
}

impl Place {
    fn new(number: u64, phase: Phase) -> Self {
        Self { number, at: Mutex::new((phase, Instant::now())), evicted: CancellationToken::new() }
    }

    /// The connection is at something else now.
    pub fn enter(&self, phase: Phase) {
        *lock(&self.at) = (phase, Instant::now());
    }

    /// What the connection is at.
    pub fn phase(&self) -> Phase {
        lock(&self.at).0
    }

    /// Bytes arrived: if nothing was under way, a header has begun.
    pub fn bytes_arrived(&self) {
        let mut at = lock(&self.at);
        if at.0 == Phase::Idle {
            *at = (Phase::Header, Instant::now());
        }
    }

    /// When the connection has taken too long for what it is at.
    pub fn deadline(&self, limits: &Limits) -> Instant {
        let (phase, since) = *lock(&self.at);
        since + phase.limit(limits)
    }
}

/// All places of a server.
#[derive(Debug, Default)]
pub struct Places {
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    places: HashMap<u64, Arc<Place>>,
}

impl Places {
    /// A place for a new connection. If there is none, the connection that has been at the same thing
    /// longest makes room, unless it is an answer that is being worked on: the honest caller is done
    /// with a handshake, a header or a body within milliseconds, and dials anew when an idle connection
    /// goes. The second value is what the evicted one was at.
    pub fn take(&self, phase: Phase, limit: usize) -> Result<(Arc<Place>, Option<Phase>), Full> {
        let mut taken = lock(&self.taken);
        let evicted = if taken.places.len() < limit { None } else { Some(evict(&mut taken).ok_or(Full)?) };
        let place = Arc::new(Place::new(taken.next, phase));
        taken.next += 1;
        taken.places.insert(place.number, Arc::clone(&place));
        Ok((place, evicted))
    }

    /// Whether a request is under way on any connection.
    pub fn busy(&self) -> bool {
        let under_way = |place: &Arc<Place>| !matches!(lock(&place.at).0, Phase::Handshake | Phase::Idle);
        lock(&self.taken).places.values().any(under_way)
    }

    /// The connection has ended.
    pub fn free(&self, place: &Place) {
        lock(&self.taken).places.remove(&place.number);
    }
}

/// Every connection is waiting for its answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

fn evict(taken: &mut Taken) -> Option<Phase> {
    let states = taken.places.values().map(|place| (*lock(&place.at), place.number));
    let ((phase, _), number) =
        states.filter(|((phase, _), _)| *phase != Phase::Answer).min_by_key(|((_, since), _)| *since)?;
    taken.places.remove(&number)?.evicted.cancel();
    Some(phase)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_one_that_dawdles_longest_makes_room_and_answers_are_spared() {
        let places = Places::default();
        let (working, _) = places.take(Phase::Idle, 3).unwrap();
        working.enter(Phase::Answer);
        let mut others = Vec::new();
        for phase in [Phase::Handshake, Phase::Handshake] {
            tokio::time::sleep(Duration::from_millis(2)).await;
            others.push(places.take(phase, 3).unwrap().0);
        }
        // The older one moves on, so the younger one is now the one that dawdles.
        tokio::time::sleep(Duration::from_millis(2)).await;
        others[0].enter(Phase::Idle);
        assert_eq!(places.take(Phase::Handshake, 3).unwrap().1, Some(Phase::Handshake));
        assert!(others[1].evicted.is_cancelled() && !others[0].evicted.is_cancelled());
        assert!(!working.evicted.is_cancelled());
    }

    #[tokio::test]
    async fn nobody_who_waits_for_an_answer_is_evicted() {
        let places = Places::default();
        let (working, _) = places.take(Phase::Answer, 1).unwrap();
        assert_eq!(places.take(Phase::Handshake, 1).err(), Some(Full));
        places.free(&working);
        assert!(places.take(Phase::Handshake, 1).is_ok());
    }

    #[tokio::test]
    async fn the_clock_of_a_header_starts_with_its_first_byte() {
        let limits = Limits::default();
        let place = Place::new(0, Phase::Idle);
        let idle = place.deadline(&limits);
        place.bytes_arrived();
        let deadline = place.deadline(&limits);
        assert!(deadline < idle, "a header has less time than silence");
        tokio::time::sleep(Duration::from_millis(2)).await;
        place.bytes_arrived();
        assert_eq!(place.deadline(&limits), deadline, "later bytes buy no time");
    }
}
