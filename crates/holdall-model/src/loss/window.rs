//! How well a recording kept its loss window, as a bag states it.

use crate::time::serialize_seconds;
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};

/// Name of the record (MCAP metadata record or table row) that states in a bag how well the window was kept.
pub const DURABILITY_RECORD: &str = "holdall:durability";

/// Key in `custom_data` of `metadata.yaml` that states the same in one line: `max=2.000s achieved=1.791s
/// missed=0`.
pub(crate) const LOSS_WINDOW_KEY: &str = "holdall.loss_window";

/// How well the promise was kept so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DurabilityStatus {
    /// The promised limit; `None` when the user has turned it off.
    #[serde(rename = "window_s", serialize_with = "serialize_seconds")]
    pub window: Option<Duration>,
    /// Messages that are reported durable: the first ones of each topic, in the order of the bag, found after a power cut (unless a ring
    /// has removed them on request).
    pub durable: u64,
    /// The longest time between the arrival of a message and its sync: the most that a power cut at the worst moment
    /// would have taken.
    #[serde(rename = "achieved_s", serialize_with = "serialize_seconds")]
    pub achieved: Option<Duration>,
    /// Syncs that have ended well.
    pub syncs: u64,
    /// The duration that nearly every sync (99 of 100) stays below, as learned.
    #[serde(rename = "sync_cost_s", serialize_with = "serialize_seconds")]
    pub sync_cost: Option<Duration>,
    /// How often the window was exceeded.
    pub missed: u64,
}

impl DurabilityStatus {
    /// This status as a bag states it: the entries of its record [`DURABILITY_RECORD`].
    pub fn entries(&self) -> BTreeMap<String, String> {
        let mut entries = BTreeMap::new();
        if let Some(window) = self.window {
            entries.insert("max_loss_window_s".to_owned(), seconds(window));
            entries.insert("syncs".to_owned(), self.syncs.to_string());
            entries.insert("missed".to_owned(), self.missed.to_string());
            for (key, span) in [("achieved_s", self.achieved), ("sync_cost_s", self.sync_cost)] {
                entries.extend(span.map(|span| (key.to_owned(), seconds(span))));
            }
        }
        entries
    }

    /// The entries for `custom_data` of `metadata.yaml`.
    pub fn custom_data(&self) -> BTreeMap<String, String> {
        let Some(window) = self.window else {
            return BTreeMap::new();
        };
        let achieved = self
            .achieved
            .map_or_else(String::new, |span| format!("achieved={}s ", seconds(span)));
        let text = format!("max={}s {achieved}missed={}", seconds(window), self.missed);
        BTreeMap::from([(LOSS_WINDOW_KEY.to_owned(), text)])
    }
}

/// The statement of a bag about its loss window, as [`DurabilityStatus::custom_data`] writes it; in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct KeptWindow {
    /// The promised limit.
    pub max_s: f64,
    /// The longest time between the arrival of a message and its sync; `None` without messages.
    pub achieved_s: Option<f64>,
    /// How often the window was exceeded.
    pub missed: u64,
}

impl KeptWindow {
    /// Reads this statement; `None` if it is absent or has another form.
    pub fn from_custom_data(data: &BTreeMap<String, String>) -> Option<Self> {
        let text = data.get(LOSS_WINDOW_KEY)?;
        let value = |key: &str| {
            let mut parts = text.split(' ').filter_map(|part| part.split_once('='));
            parts.find_map(|(found, value)| (found == key).then_some(value))
        };
        let seconds = |key: &str| -> Option<f64> { value(key)?.strip_suffix('s')?.parse().ok() };
        Some(Self {
            max_s: seconds("max")?,
            achieved_s: seconds("achieved"),
            missed: value("missed")?.parse().ok()?,
        })
    }
}

/// Seconds with three decimals.
fn seconds(span: Duration) -> String {
    format!("{:.3}", span.as_secs_f64())
}
