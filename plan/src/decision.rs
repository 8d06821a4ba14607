//! What was decided about one address, and the words for it.

use crate::Reason;
use crate::leave::Verdict;
use crate::tally::Tally;
use std::borrow::Cow;
use std::fmt;

/// What was decided about one slot.
#[derive(Clone, Debug)]
pub struct Decision<'w> {
    /// Why it is where it is.
    pub reason: Reason,
    /// What is in the way, or what was said, in words; see [`Decision::detail`].
    pub said: Cow<'w, str>,
    pub verdict: Verdict,
    /// Another address may stay on its node, and has the marks.
    pub second: bool,
    /// The node that it is to go to.
    pub target: Option<usize>,
    /// Its node should carry the marks.
    pub marked: bool,
    /// It is on the move (or being released), with this cause.
    pub moving: Option<Reason>,
    /// Nothing can go on without the cloud's answer or an operator.
    pub degraded: bool,
    /// Why no node can take it, where it waits for one.
    pub tally: Option<Tally>,
}

impl Decision<'_> {
    /// What was said, why no node can take it, and what the cloud said of that.
    pub fn detail(&self) -> Detail<'_> {
        Detail(self)
    }
}

/// The words of a decision. They are written where they are needed, since thousands may say the same.
pub struct Detail<'d>(&'d Decision<'d>);

impl Detail<'_> {
    pub fn is_empty(&self) -> bool {
        self.0.said.is_empty() && self.0.tally.is_none()
    }
}

impl fmt::Display for Detail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = Some(&*self.0.said).filter(|said| !said.is_empty());
        let sentence = self.0.tally.as_ref().map(Tally::sentence);
        let cloud = self.0.tally.as_ref().and_then(Tally::cloud_error);
        let parts = [said, sentence.as_deref(), cloud];
        for (number, part) in parts.into_iter().flatten().enumerate() {
            write!(f, "{}{part}", if number == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}
