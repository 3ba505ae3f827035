//! The real LevelDB as rosbag2's plugin uses it: two databases for each topic, one write for each topic and
//! batch.

use super::{
    ffi_leveldb::{Database, INSTALL, LevelDb, Order},
    raw::{RawMessage, RawWriter},
};
use crate::error::{BenchError, BenchResult};
use holdall_storage::{
    leveldb::format::{MESSAGE_SUFFIX, METADATA_SUFFIX},
    writer::ChannelInfo,
};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Why it cannot be measured here; `None` when it can.
pub(crate) fn absence() -> Option<&'static str> {
    LevelDb::find().is_none().then_some(INSTALL)
}

/// A storage of the plugin's layout.
pub(crate) struct LeveldbBareWriter {
    path: PathBuf,
    /// Databases by topic.
    messages: Vec<Database>,
    /// Topics whose batch is not empty.
    touched: Vec<u32>,
}

impl LeveldbBareWriter {
    /// A directory at `path` with the databases of all topics.
    ///
    /// # Errors
    /// When LevelDB is not installed, or the directory cannot be made.
    pub fn create(path: &Path, channels: &[ChannelInfo]) -> BenchResult<Self> {
        let leveldb = LevelDb::find().ok_or_else(|| failed(path)(INSTALL.to_owned()))?;
        fs::create_dir(path).map_err(BenchError::io("create", path))?;
        let messages = channels
            .iter()
            .map(|channel| topic(&leveldb, path, channel))
            .collect::<Result<_, _>>()
            .map_err(failed(path))?;
        Ok(Self {
            path: path.to_owned(),
            messages,
            touched: Vec::new(),
        })
    }
}

/// Describes a topic, and opens the database of its messages.
fn topic(leveldb: &Arc<LevelDb>, path: &Path, channel: &ChannelInfo) -> Result<Database, String> {
    let topic = &channel.topic;
    let base = topic.name.replace('/', "_");
    let mut about = Database::create(
        leveldb,
        &path.join(format!("{base}{METADATA_SUFFIX}")),
        Order::Bytes,
    )?;
    let byte_order = if cfg!(target_endian = "little") { "L" } else { "B" };
    let entries = [
        ("N", topic.name.as_str()),
        ("T", &topic.type_name),
        ("SF", &topic.serialization_format),
        ("QF", ""),
        ("E", byte_order),
    ];
    for (key, value) in entries {
        about.put(key.as_bytes(), value.as_bytes());
    }
    about.write()?;
    Database::create(
        leveldb,
        &path.join(format!("{base}{MESSAGE_SUFFIX}")),
        Order::Stamps,
    )
}

fn failed(path: &Path) -> impl Fn(String) -> BenchError {
    BenchError::rival("LevelDB", path)
}

impl RawWriter for LeveldbBareWriter {
    fn write_batch(&mut self, batch: &[RawMessage<'_>]) -> BenchResult<()> {
        for message in batch {
            // Times before the year 2262 fit.
            let stamp = i64::try_from(message.log_time_nanos).unwrap_or(i64::MAX);
            self.messages[message.topic as usize].put(&stamp.to_ne_bytes(), message.payload);
            if self.touched.last() != Some(&message.topic) {
                self.touched.push(message.topic);
            }
        }
        // A topic may be listed twice: its batch is empty the second time.
        for topic in self.touched.drain(..) {
            self.messages[topic as usize]
                .write()
                .map_err(failed(&self.path))?;
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> BenchResult<()> {
        drop(self.messages);
        sync_below(&self.path)?;
        super::raw::sync_parent(&self.path)
    }
}

/// LevelDB leaves its log to the page cache.
fn sync_below(path: &Path) -> BenchResult<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path).map_err(BenchError::io("read", path))? {
            sync_below(&entry.map_err(BenchError::io("read", path))?.path())?;
        }
    }
    File::open(path)
        .and_then(|file| file.sync_all())
        .map_err(BenchError::io("sync", path))
}
