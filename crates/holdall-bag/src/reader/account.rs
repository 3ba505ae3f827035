//! A summary of the account in a bag: the sums of its ledger, where it ends, and how well the loss window was
//! kept.

use super::{Bag, ReadError};
use holdall_model::{
    loss::{
        KeptWindow, LossSums,
        ledger::{Ledger, Restart, TopicAccount},
    },
    time::Timestamp,
};
use serde::Serialize;

/// A summary of a recording's account.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AccountSummary {
    /// Messages that were written into the bag; where the account was cut off, those that the bag holds.
    pub recorded: u64,
    /// Lost messages.
    pub lost: u64,
    /// Messages that were sent before their publisher was matched, which are not lost.
    #[serde(rename = "sent_before_match")]
    pub before_match: u64,
    /// Messages left out on request, by the recording or by a tool that made this bag from others.
    pub left_out: u64,
    /// Messages that the ring of files removed (`--ring`, `--max-bag-files`).
    pub expired: u64,
    /// Number of topics whose losses in transit are unknown.
    pub topics_unknown: u64,
    /// The account has no end: the recording was cut off, or is still running.
    #[serde(rename = "cut_off")]
    pub is_cut_off: bool,
    /// If it was: log time of the last message that the account covers; `None` if it covers none.
    #[serde(rename = "cut_off_after")]
    pub checkpoint: Option<Timestamp>,
    /// Times at which the recording continued in a new file because the old one made no progress.
    pub restarts: Vec<Restart>,
    /// Number of further restarts.
    pub restarts_left_out: u64,
    /// How well the loss window was kept, if one was set and the recording was ended.
    #[serde(rename = "loss_window")]
    pub window: Option<KeptWindow>,
}

impl AccountSummary {
    /// The sums of a ledger.
    fn of(ledger: &Ledger) -> Self {
        let topics = || ledger.topics.iter();
        let sums = LossSums::of_all(topics().map(|topic| &topic.missing));
        Self {
            recorded: ledger.recorded(),
            lost: sums.lost,
            before_match: sums.before_match,
            left_out: topics().map(TopicAccount::left_out_in_all).sum(),
            expired: topics().map(|topic| topic.expired).sum(),
            topics_unknown: topics().filter(|topic| topic.loss_unknown).count() as u64,
            is_cut_off: ledger.checkpoint.is_some(),
            // The first checkpoint may be older than the first message.
            checkpoint: ledger.checkpoint.filter(|_| ledger.recorded() > 0),
            restarts: ledger.restarts.clone(),
            restarts_left_out: ledger.restarts_left_out,
            window: None,
        }
    }
}

impl Bag {
    /// The account's summary; `None` if another recorder wrote the bag, or when its file would have to be
    /// unpacked first.
    ///
    /// # Errors
    /// As [`Bag::any_ledger`].
    pub fn account(&self) -> Result<Option<AccountSummary>, ReadError> {
        Ok(self.state()?.account)
    }

    pub(super) fn summary_of(&self, ledger: &Ledger) -> AccountSummary {
        let mut summary = AccountSummary::of(ledger);
        summary.window = KeptWindow::from_custom_data(&self.metadata().custom_data);
        if summary.is_cut_off {
            summary.recorded = self.metadata().message_count;
        }
        summary
    }
}
