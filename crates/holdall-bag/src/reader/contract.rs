//! The contract that a recording was judged by, as its bag has it.

use super::{Bag, ReadError};
use holdall_model::contract::{CONTRACT_RECORD, ContractRecord};

impl Bag {
    /// The record of the contract: the one with the verdict, in the last file, else the last one that has when the recording began. `None` of
    /// a recording without one.
    ///
    /// # Errors
    /// A storage file cannot be read.
    pub fn contract_record(&self) -> Result<Option<ContractRecord>, ReadError> {
        // The last file of a recording that was killed may be one of another class, which has no records.
        for file in self.files().iter().rev() {
            let reader = file.open()?;
            let entries = reader.summary().last_metadata(CONTRACT_RECORD);
            if let Some(found) = entries.and_then(ContractRecord::from_entries) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}
