//! The settings of rosbag2's LevelDB plugin.

use super::format::STORAGE_ID;
use crate::error::{StorageError, StorageResult};
use serde::Deserialize;

/// LevelDB's own defaults.
const WRITE_BUFFER_BYTES: usize = 4 << 20;
const BLOCK_BYTES: usize = 4 << 10;
/// Upper bounds of the settings.
const WRITE_BUFFER_BYTES_MAX: usize = 256 << 20;
const BLOCK_BYTES_MAX: usize = 4 << 20;

/// How message databases are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeveldbOptions {
    /// Bytes of one topic's messages that are collected for one table.
    pub write_buffer_bytes: usize,
    /// Approximate length of a block.
    pub block_bytes: usize,
}

impl Default for LeveldbOptions {
    fn default() -> Self {
        Self {
            write_buffer_bytes: WRITE_BUFFER_BYTES,
            block_bytes: BLOCK_BYTES,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    open_options: Option<OpenOptions>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct OpenOptions {
    write_buffer_size: usize,
    /// Files are opened when they are needed.
    #[allow(dead_code, reason = "accepted for the plugin's files, without effect here")]
    max_open_files: usize,
    block_size: usize,
    /// Tables are as large as the write buffer.
    #[allow(dead_code, reason = "accepted for the plugin's files, without effect here")]
    max_file_size: usize,
}

impl LeveldbOptions {
    /// Overlays these options with the text of a configuration file
    /// (`open_options: {write_buffer_size, max_open_files, block_size, max_file_size}`); 0 is LevelDB's
    /// default.
    ///
    /// # Errors
    /// Text that is not YAML, an unknown key, a number out of range.
    pub fn with_config(self, text: &str) -> StorageResult<Self> {
        let setting = |setting: &str, expected: String, found: String| StorageError::Setting {
            storage: STORAGE_ID,
            setting: setting.into(),
            expected,
            found,
        };
        let parsed: Option<ConfigFile> = holdall_model::yaml::read_into(text).map_err(|error| {
            let expected =
                "`open_options` with `write_buffer_size`, `max_open_files`, `block_size`, `max_file_size`";
            setting("configuration file", expected.into(), error.to_string())
        })?;
        let open = parsed.unwrap_or_default().open_options.unwrap_or_default();
        let in_bounds = |name: &str, value: usize, default: usize, max: usize| match value {
            0 => Ok(default),
            value if value <= max => Ok(value.max(1024)),
            value => Err(setting(name, format!("at most {max}"), value.to_string())),
        };
        Ok(Self {
            write_buffer_bytes: in_bounds(
                "write_buffer_size",
                open.write_buffer_size,
                self.write_buffer_bytes,
                WRITE_BUFFER_BYTES_MAX,
            )?,
            block_bytes: in_bounds("block_size", open.block_size, self.block_bytes, BLOCK_BYTES_MAX)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugins_keys_are_accepted_and_others_refused() {
        let text = "open_options:\n  write_buffer_size: 8388608\n  max_open_files: 100\n  block_size: 0\n";
        let options = LeveldbOptions::default().with_config(text).unwrap();
        assert_eq!(options.write_buffer_bytes, 8 << 20);
        assert_eq!(options.block_bytes, 4096);
        for wrong in [
            "open_options: {cache: 1}",
            "options: {}",
            "open_options: {block_size: 99999999999}",
        ] {
            assert!(LeveldbOptions::default().with_config(wrong).is_err(), "{wrong}");
        }
    }
}
