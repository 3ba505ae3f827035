//! rosbag2's settings of the SQLite3 storage: presets and pragmas.

use super::format::STORAGE_ID;
use crate::error::{StorageError, StorageResult};
use holdall_io::block::BLOCK_ALIGNMENT;
use serde::Deserialize;

/// Presets by name, as in rosbag2.
pub(crate) const PRESETS: [&str; 2] = ["none", "resilient"];
/// Characters that a pragma must not have, because it becomes part of a statement.
const FORBIDDEN: [char; 3] = ['\'', '"', ';'];

/// Values of the pragma `synchronous`: the first does not sync, the others do.
const SYNCHRONOUS: [&[&str]; 2] = [
    &["off", "0", "false", "no"],
    &["normal", "1", "full", "2", "extra", "3"],
];

/// How one database is written and read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqliteOptions {
    /// Pragmas of the writer, in order; the text after `PRAGMA`.
    pub write_pragmas: Vec<String>,
    /// Pragmas of the reader.
    pub read_pragmas: Vec<String>,
}

impl Default for SqliteOptions {
    /// As fast as rosbag2's default, and intact after a kill: the pages that a transaction changes are kept
    /// in a journal on the disk, which the next connection that opens the database for writing rolls back.
    /// With room for a whole transaction in memory, the journal exists only during a commit.
    /// docs/adr/0009-sqlite-default-journal.md has the reasons.
    fn default() -> Self {
        Self {
            write_pragmas: vec![
                "journal_mode = DELETE".into(),
                "synchronous = OFF".into(),
                "cache_size = -32768".into(),
            ],
            read_pragmas: Vec::new(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    read: Option<Section>,
    write: Option<Section>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    #[serde(default)]
    pragmas: Vec<String>,
}

fn setting(setting: &str, expected: impl Into<String>, found: impl Into<String>) -> StorageError {
    StorageError::Setting {
        storage: STORAGE_ID,
        setting: setting.into(),
        expected: expected.into(),
        found: found.into(),
    }
}

/// The setting that a pragma changes, without its value.
fn name_of(pragma: &str) -> &str {
    let name = pragma.split(['=', '(']).next().unwrap_or(pragma).trim();
    // SQLite accepts the database's name before it.
    name.strip_prefix("main.").unwrap_or(name)
}

/// A later pragma replaces an earlier one of the same name.
fn overlay(pragmas: &mut Vec<String>, over: Vec<String>) -> StorageResult<()> {
    for pragma in over {
        if let Some(character) = pragma.chars().find(|character| FORBIDDEN.contains(character)) {
            return Err(setting(
                "pragmas",
                "pragmas without quotes and semicolons",
                format!("{character} in {pragma}"),
            ));
        }
        if name_of(&pragma).is_empty() {
            return Err(setting("pragmas", "a pragma with a name", format!("{pragma:?}")));
        }
        pragmas.retain(|known| !name_of(known).eq_ignore_ascii_case(name_of(&pragma)));
        pragmas.push(pragma);
    }
    Ok(())
}

impl SqliteOptions {
    /// The last value that is set by a pragma, in lower case; empty without one.
    fn value_of(&self, name: &str) -> String {
        let sets = |pragma: &&String| name_of(pragma).eq_ignore_ascii_case(name);
        let last = self.write_pragmas.iter().rfind(sets);
        let value = last.and_then(|pragma| pragma.split_once(['=', '(']));
        value.map_or(String::new(), |(_, value)| {
            value.trim().trim_end_matches(')').trim().to_ascii_lowercase()
        })
    }

    /// Whether a database is written with a write-ahead log.
    pub(super) fn has_write_ahead_log(&self) -> bool {
        self.value_of("journal_mode") == "wal"
    }

    /// Whether its pages are too small to be written past the page cache. SQLite ignores sizes that it does not have.
    pub(super) fn has_small_pages(&self) -> bool {
        let bytes = self.value_of("page_size").parse::<u64>();
        bytes.is_ok_and(|bytes| bytes.is_power_of_two() && (512..BLOCK_ALIGNMENT as u64).contains(&bytes))
    }

    /// The first pragma, with its value, with which pages are not built here: SQLite's engine must write them then.
    pub(super) fn unspoken(&self) -> Option<&str> {
        let is_spoken = |pragma: &str| {
            let name = name_of(pragma).to_ascii_lowercase();
            let value = self.value_of(&name);
            match name.as_str() {
                // Without a journal, or with one in memory, a kill damages the file. This one is a file in any case.
                "journal_mode" => matches!(value.as_str(), "delete" | "memory"),
                "synchronous" => SYNCHRONOUS.iter().any(|names| names.contains(&value.as_str())),
                "page_size" => !self.has_small_pages(),
                "cache_size" => true,
                _ => false,
            }
        };
        let mut pragmas = self.write_pragmas.iter().map(String::as_str);
        pragmas.find(|pragma| !is_spoken(pragma))
    }

    /// Whether each commit is synced. SQLite's own default is that it is.
    pub(super) fn survives_power_cut(&self) -> bool {
        !SYNCHRONOUS[0].contains(&self.value_of("synchronous").as_str())
    }

    /// A preset's options: the defaults without a name, else options that promise the same as rosbag2's preset of that name: fast,
    /// and damaged by a kill at a bad moment (`none`, with rosbag2's pragmas), or safe when the program or the machine stops
    /// (`resilient`). In rosbag2 the latter uses a write-ahead log, which writes each byte twice; here each transaction is synced,
    /// and a journal holds the few pages that it changes.
    ///
    /// # Errors
    /// An unknown preset.
    pub fn preset(name: Option<&str>) -> StorageResult<Self> {
        match name {
            None => Ok(Self::default()),
            Some("none") => Ok(Self {
                write_pragmas: vec!["journal_mode = MEMORY".into(), "synchronous = OFF".into()],
                read_pragmas: Vec::new(),
            }),
            Some("resilient") => Ok(Self {
                write_pragmas: vec![
                    "journal_mode = DELETE".into(),
                    "synchronous = FULL".into(),
                    "cache_size = -32768".into(),
                ],
                read_pragmas: Vec::new(),
            }),
            Some(other) => Err(setting(
                "preset",
                format!("one of {}", PRESETS.join(", ")),
                format!("{other:?}"),
            )),
        }
    }

    /// Overlays these options with the text of a configuration file (`read: {pragmas: […]}`,
    /// `write: {pragmas: […]}`).
    ///
    /// # Errors
    /// Text that is not YAML, an unknown key, a pragma with a quote or semicolon.
    pub fn with_config(mut self, text: &str) -> StorageResult<Self> {
        let parsed: Option<ConfigFile> = holdall_model::yaml::read_into(text).map_err(|error| {
            setting(
                "configuration file",
                "`read` and `write` with lists of `pragmas`",
                error.to_string(),
            )
        })?;
        let file = parsed.unwrap_or_default();
        overlay(&mut self.write_pragmas, file.write.unwrap_or_default().pragmas)?;
        overlay(&mut self.read_pragmas, file.read.unwrap_or_default().pragmas)?;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pragmas_of_the_file_replace_those_of_the_preset() {
        let text = "write:\n  pragmas: [\"journal_mode = WAL\", \"cache_size = 1000\"]\nread:\n  pragmas: [mmap_size = 0]\n";
        let options = SqliteOptions::default().with_config(text).unwrap();
        assert_eq!(
            options.write_pragmas,
            ["synchronous = OFF", "journal_mode = WAL", "cache_size = 1000"]
        );
        assert_eq!(options.read_pragmas, ["mmap_size = 0"]);
    }

    #[test]
    fn pragmas_are_understood_in_all_their_spellings() {
        let options = |pragma: &str| {
            SqliteOptions::default()
                .with_config(&format!("write: {{pragmas: [{pragma:?}]}}"))
                .unwrap()
        };
        for (pragma, is_small) in [
            ("page_size = 512", true),
            ("PAGE_SIZE=1024", true),
            ("page_size(2048)", true),
            ("page_size = 4096", false),
            ("page_size = 1000", false),
            ("main.page_size = 512", true),
        ] {
            assert_eq!(options(pragma).has_small_pages(), is_small, "{pragma}");
        }
        for pragma in ["journal_mode=wal", "journal_mode(WAL)", "main.journal_mode = Wal"] {
            assert!(options(pragma).has_write_ahead_log(), "{pragma}");
        }
        assert!(!options("journal_mode = TRUNCATE").has_write_ahead_log());
    }

    #[test]
    fn unknown_keys_presets_and_dangerous_pragmas_are_refused() {
        for text in [
            "writes: {}",
            "write: {pragma: []}",
            "write: {pragmas: ['a = 1; DROP TABLE x']}",
            "write: {pragmas: ['']}",
        ] {
            assert!(SqliteOptions::default().with_config(text).is_err(), "{text}");
        }
        assert!(
            SqliteOptions::preset(Some("fast"))
                .unwrap_err()
                .to_string()
                .contains("resilient")
        );
    }
}
