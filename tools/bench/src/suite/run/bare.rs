//! Recorders other than our own: a double buffer, a synchronous one or nothing, in front of the `mcap` crate, a bare
//! SQLite loop, the real LevelDB, or our own storage if no other exists.

use crate::{
    candidate::{
        RawWriter,
        buffered::{Buffered, Waits},
        ours::{DiskChoice, OurWriter, Transactions},
        rival::Rival,
        sqlite_bare::SqlitePreset,
    },
    error::BenchResult,
    suite::config::{RecorderKind, Setting},
};
use holdall_io::{clock::Clock, os::DiskMode};
use holdall_storage::writer::ChannelInfo;
use std::{path::Path, sync::Arc};

/// Starts the recorder of `setting` with a file in `folder`.
///
/// # Errors
/// When the file or a thread cannot be made.
pub(crate) fn start(
    setting: &Setting,
    folder: &Path,
    channels: &[ChannelInfo],
    clock: &Arc<dyn Clock>,
) -> BenchResult<Buffered> {
    let cache = setting.max_cache_size_bytes;
    let depth = |channel: &ChannelInfo| {
        let qos = channel.topic.offered_qos_profiles.first();
        qos.map_or(1, |qos| qos.depth)
    };
    let waits = match setting.recorder {
        RecorderKind::Discard => return Ok(Buffered::counting(channels.len())),
        RecorderKind::Synchronous => Waits::Queues(channels.iter().map(depth).collect(), cache),
        _ => Waits::DoubleBuffer(cache),
    };
    let writer = bare_writer(setting, folder, channels)?;
    Buffered::start(writer, channels.len(), waits, Arc::clone(clock))
}

/// A file in `folder` in the storage of `setting`.
///
/// # Errors
/// When it cannot be made.
fn bare_writer(
    setting: &Setting,
    folder: &Path,
    channels: &[ChannelInfo],
) -> BenchResult<Box<dyn RawWriter>> {
    let (disk, options) = (DiskChoice::Os(DiskMode::Buffered), setting.storage_options()?);
    let (rival, name) = match setting.storage_id.as_str() {
        "sqlite3" => (Rival::SqliteBare(sqlite_preset(setting)), "bag_0.db3"),
        "mcap" => (Rival::McapCrate, "bag_0.mcap"),
        "leveldb" => (Rival::LeveldbBare, "bag_0"),
        other => {
            let path = folder.join(format!("bag_0.{other}"));
            let ours = OurWriter::create(
                disk.queue(folder)?,
                &path,
                0,
                channels,
                (other, &options),
                Transactions::Own,
            )?;
            return Ok(Box::new(ours));
        }
    };
    rival.create(&folder.join(name), channels, &options, 0, disk)
}

/// rosbag2's `resilient` is a write-ahead log; `durable`, which only the writers of this crate have, promises what holdall's `resilient` does.
fn sqlite_preset(setting: &Setting) -> SqlitePreset {
    let file = setting.storage_config_file.as_deref().unwrap_or_default();
    match setting.storage_preset_profile.as_deref() {
        Some("durable") => SqlitePreset::Durable,
        Some("resilient") => SqlitePreset::Resilient,
        _ if file.contains("resilient") => SqlitePreset::Resilient,
        _ => SqlitePreset::Default,
    }
}
