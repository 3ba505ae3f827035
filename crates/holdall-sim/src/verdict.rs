//! The invariants, and reports of broken ones.

use std::fmt;

/// Something that must hold after every recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// The recorder starts and ends without a panic.
    Runs,
    /// The bag opens, a torn one too, and every file can be read to its end.
    Opens,
    /// The structural check finds nothing, after a repair too.
    Sound,
    /// Other readers read the same messages.
    Foreign,
    /// Only messages that were sent and arrived are in the bag, each once, byte by byte, with its times.
    Exact,
    /// Messages of a publisher are in the order in which they arrived.
    Order,
    /// Every message that was sent is in the bag or in the ledger, at the right stage; nothing else is in the ledger.
    Accounted,
    /// The account claims to know a publisher's last message only if it does, and always if it can.
    Ends,
    /// The recorder's own audit of its account finds nothing.
    Balanced,
    /// Messages reported durable survive.
    Durable,
    /// The losses of a crash are within the loss window.
    Window,
    /// Messages that a dead process had received are in the repaired bag.
    Rescued,
    /// A repair keeps everything that could be read before, and a second one changes nothing.
    Repair,
    /// Memory stays below its bound.
    Memory,
    /// A failed disk is reported, and nothing else is.
    Reported,
    /// Messages during the user's pause are not recorded.
    Paused,
    /// A copy of a part of a ring has all that the ring had when it was asked for, and says what had expired before.
    Promoted,
    /// Jumps of the clock that stamps messages are said, and no others.
    Clocks,
}

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// How: one sentence.
    pub what: String,
}

impl Violation {
    /// A broken invariant.
    pub fn new(invariant: Invariant, what: impl Into<String>) -> Self {
        Self {
            invariant,
            what: what.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.what)
    }
}
