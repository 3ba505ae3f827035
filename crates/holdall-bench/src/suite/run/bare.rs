//! Recorders other than ours: a double buffer, a synchronous one or nothing, in front of the `mcap` crate, a bare SQLite
//! loop, the real LevelDB, and our own storage where there is no other.

use crate::{
    candidate::{
        RawWriter,
        double_buffered::DoubleBuffered,
        ours::{DiskChoice, OurWriter},
        rival::Rival,
        sqlite_bare::SqlitePreset,
        storing::StoredCounts,
        synchronous::Synchronous,
    },
    error::BenchResult,
    suite::config::{RecorderKind, Setting},
};
use holdall_io::{clock::Clock, os::DiskMode};
use holdall_model::message::{MessageHeader, Payload};
use holdall_storage::{StorageOptions, writer::ChannelInfo};
use holdall_transport::Sink;
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Counts messages and drops them.
#[derive(Default)]
pub(crate) struct Counting(AtomicU64);

impl Sink for Counting {
    fn offer(&self, _: MessageHeader, _: Payload<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What messages wait in before they are stored.
pub(crate) enum Buffer {
    Double(DoubleBuffered),
    Synchronous(Synchronous),
    /// Nothing is stored: what taking and counting costs.
    Discard(Vec<Arc<Counting>>, Vec<Arc<dyn Sink>>),
}

impl Buffer {
    /// Starts the recorder of `setting` with a file in `folder`.
    ///
    /// # Errors
    /// When the file or a thread cannot be made.
    pub fn start(
        setting: &Setting,
        folder: &Path,
        channels: &[ChannelInfo],
        clock: &Arc<dyn Clock>,
    ) -> BenchResult<Self> {
        let (cache, clock) = (setting.max_cache_size_bytes, Arc::clone(clock));
        if setting.recorder == RecorderKind::Discard {
            let counting: Vec<Arc<Counting>> = channels.iter().map(|_| Arc::default()).collect();
            let sinks = counting.iter().map(|one| Arc::clone(one) as Arc<dyn Sink>);
            let sinks = sinks.collect();
            return Ok(Self::Discard(counting, sinks));
        }
        let writer = bare_writer(setting, folder, channels)?;
        if setting.recorder == RecorderKind::Synchronous {
            let depth = |channel: &ChannelInfo| {
                channel
                    .topic
                    .offered_qos_profiles
                    .first()
                    .map_or(1, |qos| qos.depth)
            };
            let depths: Vec<u64> = channels.iter().map(depth).collect();
            return Ok(Self::Synchronous(Synchronous::start(
                writer, &depths, cache, clock,
            )?));
        }
        let buffer = DoubleBuffered::start(writer, channels.len(), cache, clock)?;
        Ok(Self::Double(buffer))
    }

    /// A sink for each channel.
    pub fn sinks(&self) -> &[Arc<dyn Sink>] {
        match self {
            Self::Double(buffer) => buffer.sinks(),
            Self::Synchronous(buffer) => buffer.sinks(),
            Self::Discard(_, sinks) => sinks,
        }
    }

    /// Stores what waits, and returns the counts by channel.
    ///
    /// # Errors
    /// The error of the storage.
    pub fn close(self) -> BenchResult<StoredCounts> {
        match self {
            Self::Double(buffer) => buffer.close(),
            Self::Synchronous(buffer) => buffer.close(),
            Self::Discard(counting, _) => Ok(StoredCounts {
                stored: counting.iter().map(|one| one.0.load(Ordering::Relaxed)).collect(),
                lost: vec![0; counting.len()],
                ..StoredCounts::default()
            }),
        }
    }
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
            let ours = OurWriter::create(disk.queue(folder)?, &path, 0, channels, other, &options)?;
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
