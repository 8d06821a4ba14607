//! What is to go wrong, and when.

use crate::changes::Change;
use crate::model::operations::Pace;
use crate::model::things::Cloud;
use serde::{Deserialize, Serialize};

/// Something that goes wrong with a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// The call is answered so many seconds later; its effect waits too.
    Delay {
        /// Real seconds, whatever the simulated clock does.
        seconds: f64,
    },
    /// The call has no effect and is answered with an error of the vendor's.
    Error {
        /// The vendor's code, such as `backendError`, `InternalError` or `InternalServerError`.
        code: String,
        /// The message, if it matters.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// The HTTP status, for codes that the simulator does not know.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
    },
    /// The call has its effect, but its reply never arrives.
    LostReply,
    /// The call has its effect, and the connection is closed in good order without a reply.
    HangUp,
    /// The connection is reset before the call has any effect.
    Reset,
    /// The cloud says that it is called too often, in its own way.
    Throttle {
        /// For how long; without it just this call, or to the end of the minute on GCP.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seconds: Option<f64>,
    },
    /// A read shows the world as it was a while ago.
    Lag {
        /// By how many seconds.
        seconds: f64,
        /// By anything up to that, each read differently.
        #[serde(default)]
        jitter: bool,
    },
    /// The operation that the call starts is accepted and fails.
    LateFailure {
        /// The vendor's code.
        code: String,
        /// The message.
        #[serde(default)]
        message: String,
    },
    /// The operation that the call starts takes this long.
    Pace {
        /// When it is done.
        pace: Pace,
    },
    /// A list leaves out every item whose name, address or place contains one of these texts.
    PartialList {
        /// The texts.
        missing: Vec<String>,
    },
    /// Somebody else changes the world at the same time.
    Outside {
        /// What he does.
        change: Change,
        /// Just after the call had its effect instead of just before.
        #[serde(default)]
        after: bool,
    },
    /// A permission is withheld.
    Withhold {
        /// The permission or action; `*` stands for any text.
        permission: String,
    },
}

/// Which calls a fault is for. What is left out fits all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct On {
    /// Calls of this cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud: Option<Cloud>,
    /// Calls of this action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Calls whose target contains this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Calls of this caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// Only calls that change things, or only those that do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mutating: Option<bool>,
}

impl On {
    /// Calls of one action of one cloud.
    pub fn action(cloud: Cloud, action: &str) -> Self {
        Self { cloud: Some(cloud), action: Some(action.to_owned()), ..Self::default() }
    }

    fn fits(&self, call: &Call) -> bool {
        let same =
            |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
        self.cloud.is_none_or(|cloud| cloud == call.cloud)
            && same(&self.action, &call.action)
            && same(&self.caller, &call.caller)
            && self.target.as_ref().is_none_or(|text| call.target.contains(text))
            && self.mutating.is_none_or(|mutating| mutating == call.mutating)
    }
}

/// A fault and the calls it is for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The calls.
    #[serde(default)]
    pub on: On,
    /// So many of them go well first.
    #[serde(default)]
    pub skip: u32,
    /// So many of them go wrong then; all, if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// What goes wrong.
    pub fault: Fault,
}

impl Rule {
    /// A fault on every call that fits.
    pub fn always(on: On, fault: Fault) -> Self {
        Self { on, skip: 0, times: None, fault }
    }

    /// A fault on the next call that fits.
    pub fn once(on: On, fault: Fault) -> Self {
        Self { times: Some(1), ..Self::always(on, fault) }
    }

    /// The same after so many calls that go well.
    #[must_use]
    pub fn after(mut self, calls: u32) -> Self {
        self.skip = calls;
        self
    }
}

/// A call as far as faults and the log are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The cloud that is called.
    pub cloud: Cloud,
    /// What is called.
    pub action: String,
    /// On what.
    pub target: String,
    /// Who calls.
    pub caller: String,
    /// With which program.
    pub user_agent: String,
    /// The call changes things.
    pub mutating: bool,
    /// When it came; none before that is known.
    pub received: Option<jiff::Timestamp>,
}

/// All rules that are in force.
#[derive(Clone, Debug, Default)]
pub struct Script {
    rules: Vec<(u64, Rule)>,
    last: u64,
}

impl Script {
    /// Adds a rule and gives its number.
    pub fn add(&mut self, rule: Rule) -> u64 {
        self.last += 1;
        self.rules.push((self.last, rule));
        self.last
    }

    /// Takes a rule away; false if there is none of that number.
    pub fn remove(&mut self, id: u64) -> bool {
        let before = self.rules.len();
        self.rules.retain(|(number, _)| *number != id);
        self.rules.len() < before
    }

    /// Takes all rules away.
    pub fn clear(&mut self) {
        self.rules.clear();
    }

    /// The rules that are left, with what is left of their counts.
    pub fn rules(&self) -> &[(u64, Rule)] {
        &self.rules
    }

    /// What goes wrong with a call. Counts it.
    pub fn strike(&mut self, call: &Call) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (_, rule) in self.rules.iter_mut().filter(|(_, rule)| rule.on.fits(call)) {
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            if let Some(times) = &mut rule.times {
                *times = times.saturating_sub(1);
            }
            faults.push(rule.fault.clone());
        }
        self.rules.retain(|(_, rule)| rule.times != Some(0));
        faults
    }
}

impl Fault {
    /// Its name in the log.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Delay { .. } => "delay",
            Self::Error { .. } => "error",
            Self::LostReply => "lost_reply",
            Self::HangUp => "hang_up",
            Self::Reset => "reset",
            Self::Throttle { .. } => "throttle",
            Self::Lag { .. } => "lag",
            Self::LateFailure { .. } => "late_failure",
            Self::Pace { .. } => "pace",
            Self::PartialList { .. } => "partial_list",
            Self::Outside { .. } => "outside",
            Self::Withhold { .. } => "withhold",
        }
    }
}
