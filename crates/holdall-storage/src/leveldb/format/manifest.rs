//! LevelDB's manifest: the tables and logs of a database, as a sequence of changes.

use super::{put_bytes, put_varint, take_bytes, take_varint};
use std::collections::BTreeMap;

/// Tags of a change's fields.
const COMPARATOR: u64 = 1;
const LOG_NUMBER: u64 = 2;
const NEXT_FILE: u64 = 3;
const LAST_SEQUENCE: u64 = 4;
const COMPACT_POINTER: u64 = 5;
const DELETED_FILE: u64 = 6;
const NEW_FILE: u64 = 7;
const PREVIOUS_LOG: u64 = 9;

/// A table of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableInfo {
    /// Its number, which is its file name.
    pub number: u64,
    /// Tables of level 0 may overlap.
    pub level: u32,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its first key with tag.
    pub smallest: Vec<u8>,
    /// Its last key with tag.
    pub largest: Vec<u8>,
}

/// Content of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// Name of the comparator that orders the keys.
    pub comparator: String,
    /// Logs from this number on belong to the database.
    pub log_number: u64,
    /// One log before those, in very old databases.
    pub previous_log: u64,
    /// The largest sequence in the tables.
    pub last_sequence: u64,
    /// Tables by number.
    pub tables: BTreeMap<u64, TableInfo>,
}

impl Version {
    /// Applies a change.
    ///
    /// # Errors
    /// One clause about the expected bytes.
    pub fn apply(&mut self, mut edit: &[u8]) -> Result<(), &'static str> {
        while !edit.is_empty() {
            self.apply_field(&mut edit).ok_or("a change of the database")?;
        }
        Ok(())
    }

    fn apply_field(&mut self, edit: &mut &[u8]) -> Option<()> {
        match take_varint(edit)? {
            COMPARATOR => self.comparator = String::from_utf8_lossy(take_bytes(edit)?).into_owned(),
            LOG_NUMBER => self.log_number = take_varint(edit)?,
            PREVIOUS_LOG => self.previous_log = take_varint(edit)?,
            NEXT_FILE => drop(take_varint(edit)?),
            LAST_SEQUENCE => self.last_sequence = take_varint(edit)?,
            COMPACT_POINTER => {
                take_varint(edit)?;
                take_bytes(edit)?;
            }
            DELETED_FILE => {
                take_varint(edit)?;
                let number = take_varint(edit)?;
                self.tables.remove(&number);
            }
            NEW_FILE => {
                let level = u32::try_from(take_varint(edit)?).ok()?;
                let (number, bytes) = (take_varint(edit)?, take_varint(edit)?);
                let table = TableInfo {
                    number,
                    level,
                    bytes,
                    smallest: take_bytes(edit)?.to_vec(),
                    largest: take_bytes(edit)?.to_vec(),
                };
                self.tables.insert(number, table);
            }
            _ => return None,
        }
        Some(())
    }

    /// True for a log that belongs to the database.
    pub(crate) fn has_log(&self, number: u64) -> bool {
        number >= self.log_number || number == self.previous_log
    }
}

/// The change that creates a database.
pub(crate) fn first_edit(comparator: &str, log_number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, COMPARATOR);
    put_bytes(&mut out, comparator.as_bytes());
    for (tag, value) in [
        (LOG_NUMBER, log_number),
        (NEXT_FILE, log_number + 1),
        (LAST_SEQUENCE, 0),
    ] {
        put_varint(&mut out, tag);
        put_varint(&mut out, value);
    }
    out
}

/// The change that adds tables, and removes the logs before `log_number`.
pub(crate) fn tables_edit(
    tables: &[TableInfo],
    log_number: u64,
    next_file: u64,
    last_sequence: u64,
) -> Vec<u8> {
    let mut out = Vec::new();
    for (tag, value) in [
        (LOG_NUMBER, log_number),
        (NEXT_FILE, next_file),
        (LAST_SEQUENCE, last_sequence),
    ] {
        put_varint(&mut out, tag);
        put_varint(&mut out, value);
    }
    for table in tables {
        put_varint(&mut out, NEW_FILE);
        put_varint(&mut out, u64::from(table.level));
        put_varint(&mut out, table.number);
        put_varint(&mut out, table.bytes);
        put_bytes(&mut out, &table.smallest);
        put_bytes(&mut out, &table.largest);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applied_changes_result_in_the_database() {
        let table = |number| TableInfo {
            number,
            level: 6,
            bytes: 100 + number,
            smallest: b"a".to_vec(),
            largest: b"b".to_vec(),
        };
        let mut version = Version::default();
        version.apply(&first_edit("c", 2)).unwrap();
        version
            .apply(&tables_edit(&[table(3), table(4)], 5, 6, 77))
            .unwrap();
        let mut deletion = Vec::new();
        for value in [DELETED_FILE, 6, 3] {
            put_varint(&mut deletion, value);
        }
        version.apply(&deletion).unwrap();
        let expected = Version {
            comparator: "c".into(),
            log_number: 5,
            previous_log: 0,
            last_sequence: 77,
            tables: BTreeMap::from([(4, table(4))]),
        };
        assert_eq!(version, expected);
        assert!(version.has_log(5) && !version.has_log(4));
    }

    #[test]
    fn damaged_changes_are_refused() {
        let whole = tables_edit(&[TableInfo::default()], 1, 2, 3);
        for cut in 1..whole.len() {
            // A change may end between two fields.
            let _ = Version::default().apply(&whole[..cut]);
        }
        assert!(Version::default().apply(&[8, 1]).is_err(), "no such tag");
        assert!(Version::default().apply(&whole[..whole.len() - 1]).is_err());
    }
}
