//! The way of a call through a simulator: faults, limits, permissions, effect, log.

use crate::exchange::Exchange;
use crate::faults::{Call, Fault};
use crate::http::{ApiError, HttpRequest, Reply};
use crate::limits::TooMany;
use crate::log::{About, Kind, Log};
use crate::model::State;
use crate::model::operations::{Failure, Pace};
use crate::model::table::Seen;
use crate::model::things::Cloud;
use crate::permissions::Need;
use crate::shared::Shared;
use std::time::Duration;

/// A cloud's API on the wire.
pub trait Api: Send + Sync + 'static {
    /// The cloud.
    const CLOUD: Cloud;
    /// A request that makes sense.
    type Request: Send;

    /// Who calls.
    fn caller(http: &HttpRequest) -> Option<String>;
    /// Makes sense of a request: its action, its target, whether it changes things, and the request.
    fn decode(http: &HttpRequest) -> Result<Decoded<Self::Request>, ApiError>;
    /// How long the vendor takes before it answers, by intention.
    fn patience(_request: &Self::Request, _state: &State) -> Duration {
        Duration::ZERO
    }
    /// The permissions that it needs, in the order in which the vendor checks them.
    fn needs(request: &Self::Request) -> Vec<Need>;
    /// How the vendor refuses a call without permission.
    fn forbidden(need: &Need, call: &Call, state: &State) -> ApiError;
    /// How the vendor refuses a call that came too often.
    fn throttled(too_many: TooMany, state: &State) -> ApiError;
    /// An error of the vendor's by its code.
    fn error(code: &str, message: Option<&str>, status: Option<u16>) -> ApiError;
    /// What a mutating request is meant to do to whom, by what is there before it.
    fn about(request: &Self::Request, state: &State) -> About;
    /// Does what was asked.
    fn answer(request: Self::Request, context: &mut Context) -> Result<Reply, ApiError>;
    /// Writes an error as the vendor does.
    fn write_error(error: &ApiError, request_id: u64) -> Reply;
}

/// A request that makes sense.
pub struct Decoded<R> {
    /// What is called.
    pub action: &'static str,
    /// On what.
    pub target: String,
    /// It changes things.
    pub mutating: bool,
    /// The request.
    pub request: R,
}

/// What a call finds when it is answered.
pub struct Context<'a> {
    /// The world.
    pub state: &'a mut State,
    /// The call.
    pub call: &'a Call,
    /// What links back to this server begin with.
    pub base_url: &'a str,
    /// When this call's reads look at the world.
    pub seen: Seen,
    /// The operation that it starts fails with this.
    pub fails_with: Option<Failure>,
    /// The operation that it starts is done then.
    pub pace: Option<Pace>,
    /// Items with these texts are left out of lists.
    pub missing: Vec<String>,
}

impl Context<'_> {
    /// Whether a list leaves anything out.
    pub fn leaves_any_out(&self) -> bool {
        !self.missing.is_empty()
    }

    /// Whether a list leaves an item out, by the texts that describe it.
    pub fn leaves_out(&self, item: &[&str]) -> bool {
        let left_out = |text: &String| item.iter().any(|part| part.contains(text.as_str()));
        self.missing.iter().any(left_out)
    }
}

/// What becomes of a connection after a call.
pub enum Outcome {
    /// The reply is sent.
    Reply(Reply),
    /// The connection is reset instead.
    Reset,
    /// The connection is closed in good order instead.
    HangUp,
    /// Nothing is sent, ever.
    Silence,
}

/// Answers a request.
pub async fn handle<A: Api>(shared: &Shared, http: &HttpRequest) -> Outcome {
    let (mut call, request) = describe::<A>(http);
    let (faults, reachable, patience) = {
        let mut state = shared.lock();
        state.settle();
        call.received = Some(state.now());
        let patience = request.as_ref().map_or(Duration::ZERO, |request| A::patience(request, &state));
        (state.faults.strike(&call), state.reaches_api(&call.caller), patience)
    };
    if !patience.is_zero() {
        tokio::time::sleep(patience).await;
    }
    for fault in &faults {
        if let Fault::Delay { seconds } = fault {
            tokio::time::sleep(Duration::try_from_secs_f64(*seconds).unwrap_or_default()).await;
        }
    }
    let mut state = shared.lock();
    state.settle();
    let outcome = if !reachable {
        let about = about::<A>(&state, &call, &request);
        log(&mut state, &call, about, None, None, &["unreachable"]);
        Outcome::Silence
    } else if faults.contains(&Fault::Reset) {
        let about = about::<A>(&state, &call, &request);
        log(&mut state, &call, about, None, None, &["reset"]);
        Outcome::Reset
    } else {
        perform::<A>(&mut state, http, &call, request, &faults)
    };
    drop(state);
    shared.notify();
    outcome
}

fn describe<A: Api>(http: &HttpRequest) -> (Call, Result<A::Request, ApiError>) {
    let named = http.named.clone().or_else(|| A::caller(http));
    let mut call = Call {
        cloud: A::CLOUD,
        action: "unknown".to_owned(),
        target: http.path.clone(),
        caller: named.unwrap_or_else(|| "anonymous".to_owned()),
        user_agent: http.header("user-agent").unwrap_or_default().to_owned(),
        mutating: false,
        received: None,
    };
    match A::decode(http) {
        Ok(decoded) => {
            decoded.action.clone_into(&mut call.action);
            call.target = decoded.target;
            call.mutating = decoded.mutating;
            (call, Ok(decoded.request))
        }
        Err(error) => (call, Err(error)),
    }
}

fn about<A: Api>(state: &State, call: &Call, request: &Result<A::Request, ApiError>) -> Option<About> {
    request.as_ref().ok().filter(|_| call.mutating).map(|request| A::about(request, state))
}

/// Has a call take effect, writes it down, and loses its reply if the script says so.
fn perform<A: Api>(
    state: &mut State,
    http: &HttpRequest,
    call: &Call,
    request: Result<A::Request, ApiError>,
    faults: &[Fault],
) -> Outcome {
    outside_changes(state, call.cloud, faults, false);
    let about = about::<A>(state, call, &request);
    let result = request
        .and_then(|request| admit::<A>(state, call, &request, faults).map(|()| request))
        .and_then(|request| A::answer(request, &mut context(state, http, call, faults)));
    let code = result.as_ref().err().map(|error| error.code.clone());
    let reply = result.unwrap_or_else(|error| A::write_error(&error, state.next_uid()));
    let hung_up = faults.contains(&Fault::HangUp);
    let lost = hung_up || faults.contains(&Fault::LostReply);
    let names: Vec<&str> = faults.iter().map(Fault::name).collect();
    log(state, call, about, (!lost).then_some(reply.status), code, &names);
    outside_changes(state, call.cloud, faults, true);
    record(state, http, call, &reply);
    match lost {
        _ if hung_up => Outcome::HangUp,
        true => Outcome::Reset,
        false => Outcome::Reply(reply),
    }
}

/// Refuses a call that the script, the limits or the role do not let through.
fn admit<A: Api>(
    state: &mut State,
    call: &Call,
    request: &A::Request,
    faults: &[Fault],
) -> Result<(), ApiError> {
    let now = state.now();
    for fault in faults {
        match fault {
            Fault::Error { code, message, status } => {
                return Err(A::error(code, message.as_deref(), *status));
            }
            Fault::Throttle { seconds } => {
                let too_many = state.limiter.block(call.cloud, call.mutating, *seconds, now);
                return Err(A::throttled(too_many, state));
            }
            _ => {}
        }
    }
    if let Err(too_many) = state.limiter.admit(call.cloud, &call.action, call.mutating, now) {
        return Err(A::throttled(too_many, state));
    }
    let mut roles = state.roles.clone();
    roles.withheld.extend(faults.iter().filter_map(|fault| match fault {
        Fault::Withhold { permission } => Some(permission.clone()),
        _ => None,
    }));
    let needs = A::needs(request);
    match roles.missing(call.cloud, &needs) {
        Some(need) => Err(A::forbidden(need, call, state)),
        None => Ok(()),
    }
}

fn context<'a>(state: &'a mut State, http: &'a HttpRequest, call: &'a Call, faults: &[Fault]) -> Context<'a> {
    let mut seen = None;
    let mut context_faults = (None, None, Vec::new());
    if call.cloud == Cloud::Aws && !call.mutating {
        seen = state.lagged(state.settings.aws.read_lag, true);
    }
    for fault in faults {
        match fault {
            Fault::Lag { seconds, jitter } => seen = state.lagged(*seconds, *jitter),
            Fault::LateFailure { code, message } => context_faults.0 = Some(Failure::new(code, message)),
            Fault::Pace { pace } => context_faults.1 = Some(*pace),
            Fault::PartialList { missing } => context_faults.2.clone_from(missing),
            _ => {}
        }
    }
    Context {
        state,
        call,
        base_url: &http.base_url,
        // Only reads lag: a cloud decides on writes by what is true.
        seen: if call.mutating { None } else { seen },
        fails_with: context_faults.0,
        pace: context_faults.1,
        missing: context_faults.2,
    }
}

fn outside_changes(state: &mut State, cloud: Cloud, faults: &[Fault], after_effect: bool) {
    for fault in faults {
        if let Fault::Outside { change, after } = fault
            && *after == after_effect
            && let Err(error) = state.change(change)
        {
            // The script was checked only for its form; what it names may be gone by now.
            state.log_background(Kind::Outside, cloud, "outside", "failed", &error.to_string(), None);
        }
    }
}

fn log(
    state: &mut State,
    call: &Call,
    about: Option<About>,
    status: Option<u16>,
    code: Option<String>,
    faults: &[&str],
) {
    let mut event = Log::event(state.now(), Kind::Call, call.cloud, &call.action, &call.target);
    event.caller.clone_from(&call.caller);
    event.user_agent.clone_from(&call.user_agent);
    event.mutating = call.mutating;
    event.received = call.received.unwrap_or(event.at);
    event.about = about;
    event.status = status;
    event.code = code;
    event.faults = faults.iter().map(|&name| name.to_owned()).collect();
    state.log.append(event);
}

fn record(state: &mut State, http: &HttpRequest, call: &Call, reply: &Reply) {
    state.exchanges.add(|| Exchange {
        cloud: call.cloud,
        action: call.action.clone(),
        method: http.method.clone(),
        path: http.path.clone(),
        request: String::from_utf8_lossy(&http.body).into_owned(),
        status: reply.status,
        headers: reply.headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        reply: reply.body.clone(),
    });
}
