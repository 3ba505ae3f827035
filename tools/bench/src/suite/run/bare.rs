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
use holdall_storage::{StorageOptions, writer::ChannelInfo};
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
    let disk = DiskChoice::Os(DiskMode::Buffered);
    let (rival, name) = match setting.storage_id.as_str() {
        "sqlite3" if is_resilient(setting) => (Rival::SqliteBare(SqlitePreset::Resilient), "bag_0.db3"),
        "sqlite3" => (Rival::SqliteBare(SqlitePreset::Default), "bag_0.db3"),
        "mcap" => (Rival::McapCrate, "bag_0.mcap"),
        "leveldb" => (Rival::LeveldbBare, "bag_0"),
        other => {
            let path = folder.join(format!("bag_0.{other}"));
            let options = StorageOptions {
                preset: setting.storage_preset_profile.clone(),
                ..StorageOptions::default()
            };
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
    rival.create(&folder.join(name), channels, 0, disk)
}

/// Whether a configuration asks for the write-ahead log, as rosbag2's `resilient` preset does.
fn is_resilient(setting: &Setting) -> bool {
    setting.storage_preset_profile.as_deref() == Some("resilient")
        || setting
            .storage_config_file
            .as_deref()
            .is_some_and(|name| name.contains("resilient"))
}
