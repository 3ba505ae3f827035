//! The contract that a recording was judged by, as its bag has it.

use super::{Bag, ReadError};
use holdall_model::contract::{CONTRACT_RECORD, ContractRecord};

impl Bag {
    /// The record of the contract: from the last file, which has the verdict, else from the first one, which has when the recording began.
    /// `None` of a recording without one.
    ///
    /// # Errors
    /// A storage file cannot be read.
    pub fn contract_record(&self) -> Result<Option<ContractRecord>, ReadError> {
        let (files, mut found) = (self.files(), None);
        let first = files.first().filter(|_| files.len() > 1);
        for file in files.last().into_iter().chain(first) {
            let reader = file.open()?;
            let entries = reader.summary().last_metadata(CONTRACT_RECORD);
            found = entries.and_then(ContractRecord::from_entries);
            if found.is_some() {
                break;
            }
        }
        Ok(found)
    }
}
