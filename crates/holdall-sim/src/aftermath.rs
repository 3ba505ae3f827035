//! The remains of a simulated recording, for the judges.

use crate::{clocks::Clocks, death::Death, ends::ExpectedEnds, network::Life, promote::Promoter};
use holdall::record::status::{RecordReport, RecordStatus};
use holdall_model::loss::ledger::Ledger;
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// The recorder's last reports before a crash.
pub struct Crashed {
    /// Its status.
    pub status: RecordStatus,
    /// Its account.
    pub ledger: Ledger,
    /// Monotonic time of the drain's last step.
    pub last_drain: Duration,
    /// It had reported that nothing more is stored.
    pub has_failed: bool,
}

/// The remains when everything is over.
pub struct Aftermath {
    /// The truth about every message.
    pub lives: Vec<Life>,
    /// The remaining files with their content.
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    /// Monotonic time of the recording's start.
    pub started: Duration,
    /// Monotonic time of the end.
    pub ended: Duration,
    /// Times from which on the recording was paused or not, in order.
    pub pauses: Vec<(Duration, bool)>,
    /// The recorder's report and ledger, when it was stopped.
    pub stopped: Option<(RecordReport, Ledger)>,
    /// Its last reports, when it was not stopped.
    pub crashed: Option<Crashed>,
    /// Its remains, when its process died.
    pub death: Option<Death>,
    /// Memory that was held beyond the bound: where, how much, and how much was allowed, in bytes.
    pub memory_excess: Option<(&'static str, usize, usize)>,
    /// A failure that was planned for the disk has happened.
    pub disk_failed: bool,
    /// The truth about its clocks.
    pub clocks: Clocks,
    /// The ends of publishers at the end of a recording that was stopped.
    pub ends: Option<ExpectedEnds>,
    /// Parts of the ring that were copied, if any were asked for.
    pub promoter: Option<Promoter>,
}
