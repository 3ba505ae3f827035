//! The storages of recorders other than ours: the `mcap` crate, a bare SQLite loop, the real LevelDB, and our
//! own storage where there is no other.

use crate::{
    candidate::{
        RawWriter,
        leveldb_bare::LeveldbBareWriter,
        mcap_crate::{McapCrateOptions, McapCrateWriter},
        ours::{DiskChoice, OurWriter},
        sqlite_bare::{SqliteBareWriter, SqlitePreset},
    },
    error::BenchResult,
    suite::config::Setting,
};
use holdall_io::os::DiskMode;
use holdall_storage::{StorageOptions, writer::ChannelInfo};
use std::path::Path;

/// A file in `folder` in the storage of `setting`.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn bare_writer(
    setting: &Setting,
    folder: &Path,
    channels: &[ChannelInfo],
) -> BenchResult<Box<dyn RawWriter>> {
    match setting.storage_id.as_str() {
        "sqlite3" => {
            let preset = if is_resilient(setting) {
                SqlitePreset::Resilient
            } else {
                SqlitePreset::Default
            };
            Ok(Box::new(SqliteBareWriter::create(
                &folder.join("bag_0.db3"),
                channels,
                preset,
            )?))
        }
        "mcap" => {
            let options = McapCrateOptions::default();
            Ok(Box::new(McapCrateWriter::create(
                &folder.join("bag_0.mcap"),
                channels,
                options,
            )?))
        }
        "leveldb" => Ok(Box::new(LeveldbBareWriter::create(
            &folder.join("bag_0"),
            channels,
        )?)),
        other => {
            let q = DiskChoice::Os(DiskMode::Buffered).queue(folder)?;
            let path = folder.join(format!("bag_0.{other}"));
            let options = StorageOptions {
                preset: setting.storage_preset_profile.clone(),
                ..StorageOptions::default()
            };
            Ok(Box::new(OurWriter::create(
                q, &path, 0, channels, other, &options,
            )?))
        }
    }
}

/// The presets of the bare SQLite loop are those of rosbag2.
fn is_resilient(setting: &Setting) -> bool {
    setting.storage_preset_profile.as_deref() == Some("resilient")
        || setting
            .storage_config_file
            .as_deref()
            .is_some_and(|name| name.contains("resilient"))
}
