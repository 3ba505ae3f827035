//! Statements of a bag about the losses of its recording.

use super::{Bag, BagFile};
use crate::reader::error::ReadError;
use holdall_model::loss::{
    LossStage,
    ledger::{CHECKPOINT_RECORD, LEDGER_CUSTOM_KEY, LEDGER_KEY, LEDGER_RECORD, Ledger},
};
use std::{collections::BTreeMap, path::Path};

/// Prefixes of the entries of `custom_data` that have sums of an account.
const SUM_KEYS: [&str; 2] = ["holdall.lost", "holdall.end_unknown"];

/// Whether an entry of `custom_data` has sums of an account: each bag gets separate ones.
pub fn is_account_sum(key: &str) -> bool {
    SUM_KEYS.iter().any(|prefix| key.starts_with(prefix))
}

/// Messages that a recording lost, by topic and stage; topics without a loss are absent.
pub type LostByTopic = BTreeMap<String, BTreeMap<LossStage, u64>>;

impl BagFile {
    fn ledger(&self, record: &str) -> Result<Option<Ledger>, ReadError> {
        let reader = self.open()?;
        let entries = reader.summary().last_metadata(record);
        let text = entries.and_then(|entries| entries.get(LEDGER_KEY));
        text.map(|text| parse_ledger(&self.path, text)).transpose()
    }
}

impl Bag {
    /// The ledger that the recording stored in the bag: recorded and lost messages, by topic and publisher.
    /// `None` if another recorder wrote the bag, or holdall was killed before it could write one.
    ///
    /// # Errors
    /// The last storage file, which contains it, cannot be read.
    pub fn ledger(&self) -> Result<Option<Ledger>, ReadError> {
        let Some(last) = self.files.last() else {
            return Ok(None);
        };
        last.ledger(LEDGER_RECORD)
    }

    /// The best account of losses in the bag: the [`Bag::ledger`]; the one in `metadata.yaml`, of a recording that ended with a failure, or
    /// a bag with missing storage files; or, after a crash, the ledger's last checkpoint, which is marked
    /// as one. It counts as lost the messages that were in the bag's files according to its metadata and are gone. `None` if another recorder wrote
    /// the bag.
    ///
    /// # Errors
    /// A storage file cannot be read, or its ledger is not valid.
    pub fn any_ledger(&self) -> Result<Option<Ledger>, ReadError> {
        let kept = self.kept_ledger()?;
        if self.gone.is_none() {
            return Ok(kept);
        }
        let mut ledger = kept.unwrap_or_else(|| self.account_of_files());
        self.gone.charge(&mut ledger, &self.originals_by_topic());
        Ok(Some(ledger))
    }

    /// The account of the whole recording: in `metadata.yaml` or the last storage file. That of a repaired bag may still be a checkpoint.
    pub fn last_ledger(&self) -> Result<Option<Ledger>, ReadError> {
        let described = self.metadata.custom_data.get(LEDGER_CUSTOM_KEY);
        let described = described.map(|text| parse_ledger(&self.path, text)).transpose()?;
        // A file that has its end takes no more records, and its ledger does not have later losses.
        let is_newer = |ledger: &Ledger| !ledger.missing_files.is_empty();
        match described.as_ref().is_some_and(is_newer) {
            true => Ok(described),
            false => Ok(self.ledger()?.or(described)),
        }
    }

    /// The sums of an account in the bag's metadata.
    pub fn account_sums(&self) -> BTreeMap<String, String> {
        let sums = self.metadata.custom_data.iter();
        let sums = sums.filter(|(key, _)| is_account_sum(key));
        sums.map(|(key, text)| (key.clone(), text.clone())).collect()
    }

    /// Whether the sums in the metadata are those of an account that the bag carries; true if it carries none.
    pub fn has_own_sums(&self) -> Result<bool, ReadError> {
        let described = self.metadata.custom_data.get(LEDGER_CUSTOM_KEY);
        let described = described.map(|text| parse_ledger(&self.path, text)).transpose()?;
        let sums = self.account_sums();
        let accounts = [self.ledger()?, described];
        let mut accounts = accounts.iter().flatten().peekable();
        Ok(accounts.peek().is_none() || accounts.any(|ledger| ledger.custom_data() == sums))
    }

    /// The best account as the bag carries it.
    pub fn kept_ledger(&self) -> Result<Option<Ledger>, ReadError> {
        if let Some(ledger) = self.last_ledger()? {
            return Ok(Some(ledger));
        }
        for file in self.files.iter().rev() {
            if let Some(mut ledger) = file.ledger(CHECKPOINT_RECORD)? {
                self.gone.note_expired(&mut ledger);
                return Ok(Some(ledger));
            }
        }
        Ok(None)
    }

    /// The losses in the best account of the bag; `None` if there is none. [`Bag::state`] has whether these are all.
    ///
    /// # Errors
    /// As [`Bag::any_ledger`].
    pub fn lost(&self) -> Result<Option<LostByTopic>, ReadError> {
        Ok(self.state()?.lost)
    }

    /// True if the file with the ledger is packed, and not unpacked yet.
    pub(in crate::reader) fn is_account_packed(&self) -> bool {
        self.files
            .last()
            .is_some_and(|last| last.is_packed() && last.reader.is_none())
    }

    /// The losses in the metadata's `custom_data`; `None` if it has none.
    pub fn lost_by_metadata(&self) -> Option<LostByTopic> {
        let data = &self.metadata.custom_data;
        data.get("holdall.lost")?;
        let topics = data.iter().filter_map(|(key, text)| {
            let topic = key.strip_prefix("holdall.lost.")?;
            let counts = text.split(' ').filter_map(|count| {
                let (stage, count) = count.split_once('=')?;
                let stage = LossStage::ALL.into_iter().find(|known| known.as_str() == stage)?;
                Some((stage, count.parse().ok()?))
            });
            Some((topic.to_owned(), counts.collect()))
        });
        Some(topics.collect())
    }
}

fn parse_ledger(path: &Path, text: &str) -> Result<Ledger, ReadError> {
    Ledger::from_json(text).map_err(|error| ReadError::Unsupported {
        path: path.to_owned(),
        what: "its loss ledger".to_owned(),
        reason: error.to_string(),
    })
}
