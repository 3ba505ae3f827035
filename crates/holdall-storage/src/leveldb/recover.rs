//! Finds a database's content, even if it was left in the middle of a change, without changing it.

use super::format::{
    Malformed,
    log::LogReader,
    manifest::{TableInfo, Version},
    number_of, numbered, split_key,
    table::{BlockEntries, BlockHandle, FOOTER_BYTES, index_entries, index_handle, open_block},
};
use crate::error::{StorageError, StorageResult};
use bytes::Bytes;
use holdall_io::{disk::DiskError, fs, fs::File};
use std::path::{Path, PathBuf};

/// Prefix of a manifest's name.
const MANIFEST: &str = "MANIFEST-";
/// Largest block that is read: one with the largest value.
const BLOCK_BYTES_MAX: u64 = super::format::VALUE_BYTES_MAX + (1 << 20);

/// Content of a database.
#[derive(Debug, Default)]
pub(super) struct Database {
    /// Name of its comparator, empty when unknown.
    pub comparator: String,
    pub tables: Vec<(TableInfo, PathBuf)>,
    /// In the order of their numbers.
    pub logs: Vec<PathBuf>,
    /// The first damage.
    pub damage: Option<StorageError>,
}

/// How the writing of a database ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Our recorder has begun it, and not closed it.
    Unfinished,
    /// Our recorder has closed it.
    Closed,
    /// It is another program's.
    Unknown,
}

/// Adds the path to a format error.
pub(super) fn malformed(path: &Path, what: Malformed) -> StorageError {
    StorageError::Malformed {
        path: path.to_owned(),
        offset: what.offset,
        expected: what.expected,
        found: what.found,
    }
}

/// Finds the tables and logs of a database's directory. Newer tables than the manifest names count as well in a database that we did not
/// finish, because our recorder names them only once they are durable; in others they are left of a manifest that was cut, which is damage.
///
/// # Errors
/// The directory cannot be listed.
pub(super) fn open(directory: &Path, end: End) -> StorageResult<Database> {
    let mut tables = Vec::new();
    let mut logs = Vec::new();
    for entry in fs::list_dir(directory)? {
        match number_of(&entry.path) {
            Some((number, "ldb" | "sst")) => tables.push((number, entry.path.clone())),
            Some((number, "log")) => logs.push((number, entry.path.clone())),
            _ => {}
        }
    }
    logs.sort();
    match version(directory) {
        Ok((version, cut)) => {
            let newest = version.tables.keys().next_back().copied();
            let known = (end == End::Closed).then_some(version.last_sequence);
            let mut database = from_version(directory, version, &tables, logs);
            let cut = cut.filter(|_| end != End::Unfinished);
            if end != End::Unknown || cut.is_some() {
                tables.retain(|(number, _)| Some(*number) > newest);
                let unnamed = database.add_unnamed(tables, known);
                let unnamed = unnamed.filter(|_| end == End::Closed);
                database.damage = database.damage.or(cut).or(unnamed);
            }
            Ok(database)
        }
        // Without a manifest, all files in the directory belong to the database, as in LevelDB's own repair.
        Err(damage) => Ok(Database {
            comparator: String::new(),
            tables: tables
                .into_iter()
                .map(|(number, path)| {
                    let unknown = TableInfo {
                        number,
                        ..TableInfo::default()
                    };
                    (unknown, path)
                })
                .collect(),
            logs: logs.into_iter().map(|(_, path)| path).collect(),
            damage: Some(damage),
        }),
    }
}

impl Database {
    /// Adds complete tables; an unfinished one has no entries that counted as written. Tables without entries after the sequence `known`
    /// remain from a compaction that LevelDB gave up: their entries are in named tables, too. Returns the error for the first table added.
    fn add_unnamed(&mut self, mut tables: Vec<(u64, PathBuf)>, known: Option<u64>) -> Option<StorageError> {
        let mut first = None;
        tables.sort();
        for (number, path) in tables {
            let is_new = |table: Table| known.is_none_or(|known| table.has_after(known));
            if !Table::open(&path).is_ok_and(is_new) {
                continue;
            }
            first.get_or_insert_with(|| StorageError::Malformed {
                path: path.clone(),
                offset: 0,
                expected: "a table that the manifest names".to_owned(),
                found: "a newer one".to_owned(),
            });
            let info = TableInfo {
                number,
                ..TableInfo::default()
            };
            self.tables.push((info, path));
        }
        first
    }
}

fn from_version(
    directory: &Path,
    version: Version,
    present: &[(u64, PathBuf)],
    logs: Vec<(u64, PathBuf)>,
) -> Database {
    let mut database = Database::default();
    for (number, info) in &version.tables {
        match present.iter().find(|(found, _)| found == number) {
            Some((_, path)) => database.tables.push((info.clone(), path.clone())),
            None => {
                let missing = StorageError::Malformed {
                    path: numbered(directory, *number, "ldb"),
                    offset: 0,
                    expected: format!("a table of {} bytes", info.bytes),
                    found: "no file".into(),
                };
                database.damage.get_or_insert(missing);
            }
        }
    }
    database.logs = logs
        .into_iter()
        .filter(|(number, _)| version.has_log(*number))
        .map(|(_, path)| path)
        .collect();
    database.comparator = version.comparator;
    database
}

/// The version in the manifest, and the damage if it ends within a change.
fn version(directory: &Path) -> StorageResult<(Version, Option<StorageError>)> {
    let current = directory.join("CURRENT");
    let text = fs::read_to_string(&current, 1024)?;
    let name = text.trim_end();
    if !name.starts_with(MANIFEST) || name.contains('/') {
        let what = Malformed::at(0, "the name of a manifest", format!("{name:?}"));
        return Err(malformed(&current, what));
    }
    let path = directory.join(name);
    let file = File::open(&path)?;
    let mut reader = LogReader::new(|into: &mut [u8], offset| file.read_at(into, offset), 0);
    let mut version = Version::default();
    while let Some(record) = reader.next_record()? {
        let record = record.map_err(|what| malformed(&path, what))?;
        version
            .apply(&record.bytes)
            .map_err(|expected| malformed(&path, Malformed::at(record.offset, expected, "other bytes")))?;
    }
    if version == Version::default() {
        return Err(malformed(
            &path,
            Malformed::at(0, "a change of the database", "nothing"),
        ));
    }
    let cut = reader.is_cut().then(|| {
        let what = Malformed::at(
            file.len_bytes(),
            "the rest of a change of the database",
            "the end",
        );
        malformed(&path, what)
    });
    Ok((version, cut))
}

/// An open table.
pub(super) struct Table {
    file: File,
    /// The last key and the place of each block.
    pub blocks: Vec<(Vec<u8>, BlockHandle)>,
}

impl Table {
    /// Reads a table's index.
    ///
    /// # Errors
    /// A file that cannot be read or is not a table.
    pub fn open(path: &Path) -> StorageResult<Self> {
        let file = File::open(path)?;
        let bytes = file.len_bytes();
        let mut footer = [0; FOOTER_BYTES];
        let Some(at) = bytes.checked_sub(FOOTER_BYTES as u64) else {
            let what = Malformed::at(0, "a table", format!("{bytes} bytes"));
            return Err(malformed(path, what));
        };
        file.read_exact_at(&mut footer, at)?;
        let index = index_handle(&footer, bytes).map_err(|what| malformed(path, what))?;
        let mut table = Self {
            file,
            blocks: Vec::new(),
        };
        let block = table.read(index)?;
        table.blocks = index_entries(block, index.offset).map_err(|what| malformed(path, what))?;
        Ok(table)
    }

    fn read(&self, handle: BlockHandle) -> StorageResult<Bytes> {
        let path = self.file.path();
        let stored_bytes = handle
            .stored_bytes(self.file.len_bytes())
            .filter(|bytes| *bytes as u64 <= BLOCK_BYTES_MAX);
        let Some(stored_bytes) = stored_bytes else {
            let found = format!("one of {} bytes", handle.bytes);
            return Err(malformed(
                path,
                Malformed::at(handle.offset, "a block within the file", found),
            ));
        };
        let mut stored = vec![0; stored_bytes];
        self.file.read_exact_at(&mut stored, handle.offset)?;
        open_block(stored, handle.offset).map_err(|what| malformed(path, what))
    }

    /// The entries of a block by its index.
    ///
    /// # Errors
    /// A damaged block.
    pub fn entries(&self, number: usize) -> StorageResult<BlockEntries> {
        self.read(self.blocks[number].1).map(BlockEntries::new)
    }

    /// Whether it has an entry with a sequence after this one, or one that cannot be read.
    fn has_after(&self, sequence: u64) -> bool {
        (0..self.blocks.len()).any(|number| {
            let Ok(mut entries) = self.entries(number) else {
                return true;
            };
            std::iter::from_fn(|| {
                let entry = entries.next_entry()?;
                let key = entry.and_then(|(key, _)| split_key(key));
                Some(key.is_none_or(|(_, found, _)| found > sequence))
            })
            .any(|is_after| is_after)
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }
}

/// Reads a log record by record from an offset on.
pub(super) fn log_reader(
    file: &File,
    offset: u64,
) -> LogReader<impl FnMut(&mut [u8], u64) -> Result<usize, DiskError> + '_> {
    LogReader::new(move |into: &mut [u8], offset| file.read_at(into, offset), offset)
}
