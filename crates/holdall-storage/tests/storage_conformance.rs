//! Requirements for every storage backend; a new backend joins with one line in [`backends`].

mod support;

use holdall_io::{
    block::BlockPoolOptions,
    disk::FileId,
    os::{DiskMode, OsDisk},
    queue::DiskQueue,
};
use holdall_model::message::PayloadRef;
use holdall_storage::{
    Storage, StorageError, StorageOptions,
    memory::MemoryStorage,
    reader::{FileCondition, ReadOrder, ReadQuery, StorageReader},
    storage_by_id, storages,
    writer::{ChannelIndex, FileSummary, StorageWriter, StoredMessage},
};
use std::path::{Path, PathBuf};
use support::{Message, channel, metadata, payload, time};

/// A backend, and the features that its format cannot store.
struct Backend {
    storage: &'static dyn Storage,
    keeps_publish_time: bool,
    presets: Vec<String>,
}

fn backend(storage: &'static dyn Storage, keeps_publish_time: bool) -> Backend {
    let presets = std::iter::once("")
        .chain(storage.presets().iter().copied())
        .map(str::to_owned)
        .collect();
    Backend {
        storage,
        keeps_publish_time,
        presets,
    }
}

fn backends() -> Vec<Backend> {
    vec![
        backend(storage_by_id("mcap").unwrap(), true),
        #[cfg(feature = "sqlite3")]
        backend(storage_by_id("sqlite3").unwrap(), false),
        backend(storage_by_id("leveldb").unwrap(), false),
        backend(Box::leak(Box::new(MemoryStorage::new())), true),
    ]
}

const TOPICS: [&str; 3] = ["/a", "/b", "/silent"];

struct Writing {
    q: DiskQueue,
    file: FileId,
    path: PathBuf,
    writer: Box<dyn StorageWriter>,
    channels: Vec<ChannelIndex>,
}

fn begin(backend: &Backend, dir: &Path, preset: &str) -> Writing {
    let path = dir.join(format!(
        "bag_0.{}",
        backend.storage.extension().unwrap_or_default()
    ));
    let made = backend.storage.queue_path(&path);
    if made != path {
        std::fs::create_dir(&path).unwrap();
    }
    let disk = OsDisk::open(dir, DiskMode::Auto).unwrap();
    let mut q = DiskQueue::new(Box::new(disk), BlockPoolOptions::default()).unwrap();
    let file = q.create_file_ahead(&made, 1 << 20);
    let options = StorageOptions {
        preset: Some(preset.to_owned()).filter(|preset| !preset.is_empty()),
        ..StorageOptions::default()
    };
    backend.storage.check_options(&options).unwrap();
    let mut writer = backend
        .storage
        .create_writer(&mut q, file, &path, &options)
        .unwrap();
    let channels = TOPICS
        .iter()
        .map(|name| {
            writer
                .add_channel(&mut q, &channel(name, "std_msgs/msg/String"))
                .unwrap()
        })
        .collect();
    Writing {
        q,
        file,
        path,
        writer,
        channels,
    }
}

impl Writing {
    fn write(&mut self, message: &Message) -> Result<(), StorageError> {
        let place = TOPICS.iter().position(|name| *name == message.topic).unwrap();
        let stored = StoredMessage {
            log_time: time(message.log_time),
            publish_time: time(message.publish_time),
            sequence: message.sequence,
            payload: PayloadRef::Bytes(&message.payload),
        };
        self.writer.write(&mut self.q, self.channels[place], stored)
    }

    fn finish(mut self) -> (PathBuf, FileSummary) {
        let closing = [("rosbag2", metadata("serialized_metadata", "version: 9\n"))];
        let summary = self.writer.finish(&mut self.q, &closing).unwrap();
        self.q.wait_closed(self.file).unwrap();
        (self.path, summary)
    }
}

fn messages() -> Vec<Message> {
    (0..200u64)
        .map(|n| Message {
            log_time: 1000 + (n * 37) % 200,
            publish_time: 500 + (n * 59) % 200,
            sequence: n as u32,
            topic: TOPICS[(n % 2) as usize].into(),
            payload: payload(
                n,
                if n % 40 == 3 {
                    80_000
                } else {
                    (n * 7) as usize % 500
                },
            ),
        })
        .collect()
}

fn read(reader: &dyn StorageReader, query: &ReadQuery) -> Vec<(u64, u64, String, Vec<u8>)> {
    let topic = |index: ChannelIndex| {
        reader.summary().channels[index.0 as usize]
            .info
            .topic
            .name
            .clone()
    };
    reader
        .messages(query)
        .unwrap()
        .map(|message| message.unwrap())
        .map(|message| {
            let times = (
                message.log_time.as_nanos() as u64,
                message.publish_time.as_nanos() as u64,
            );
            (times.0, times.1, topic(message.channel), message.payload.to_vec())
        })
        .collect()
}

#[test]
fn every_registered_storage_takes_part() {
    let ids: Vec<&str> = backends().iter().map(|backend| backend.storage.id()).collect();
    assert!(
        storages().iter().all(|storage| ids.contains(&storage.id())),
        "{ids:?}"
    );
}

#[test]
fn messages_are_read_back_in_every_order_and_selection_with_every_preset() {
    for backend in backends() {
        for preset in &backend.presets {
            let dir = tempfile::tempdir().unwrap();
            let mut writing = begin(&backend, dir.path(), preset);
            for message in &messages() {
                writing.write(message).unwrap();
                writing.writer.step(&mut writing.q).unwrap();
            }
            let (path, summary) = writing.finish();
            let what = format!("{} {preset}", backend.storage.id());
            assert_eq!(summary.channel_message_counts, [100, 100, 0], "{what}");
            assert_eq!(
                (summary.starting_time, summary.ending_time),
                (Some(time(1000)), Some(time(1199))),
                "{what}"
            );
            let reader = backend.storage.open_reader(&path).unwrap();
            let mut expected: Vec<_> = messages()
                .into_iter()
                .map(|message| {
                    let sent = if backend.keeps_publish_time {
                        message.publish_time
                    } else {
                        message.log_time
                    };
                    (message.log_time, sent, message.topic, message.payload)
                })
                .collect();
            expected.sort();
            for order in [ReadOrder::LogTime, ReadOrder::PublishTime, ReadOrder::File] {
                let mut found = read(
                    &*reader,
                    &ReadQuery {
                        order,
                        ..ReadQuery::default()
                    },
                );
                match order {
                    ReadOrder::LogTime => assert!(found.is_sorted_by_key(|message| message.0), "{what}"),
                    ReadOrder::PublishTime => assert!(found.is_sorted_by_key(|message| message.1), "{what}"),
                    ReadOrder::File => {}
                }
                found.sort();
                assert_eq!(found, expected, "{what} {order:?}");
            }
            let query = ReadQuery {
                channels: Some(vec![ChannelIndex(1)]),
                start: Some(time(1050)),
                end: Some(time(1150)),
                order: ReadOrder::LogTime,
                verified: false,
            };
            let mut found = read(&*reader, &query);
            found.sort();
            expected.retain(|(log_time, _, topic, _)| topic == "/b" && (1050..=1150).contains(log_time));
            assert_eq!(found, expected, "{what}");
        }
    }
}

#[test]
fn the_summary_of_a_file_is_what_was_written() {
    for backend in backends() {
        let dir = tempfile::tempdir().unwrap();
        let mut writing = begin(&backend, dir.path(), "");
        let entries = metadata("lost", "7");
        writing
            .writer
            .write_metadata(&mut writing.q, "holdall.ledger", &entries)
            .unwrap();
        messages()
            .iter()
            .for_each(|message| writing.write(message).unwrap());
        assert_eq!(writing.writer.summary().message_count, 200);
        let (path, _) = writing.finish();
        let reader = backend.storage.open_reader(&path).unwrap();
        let summary = reader.summary();
        assert_eq!((summary.storage_id, &summary.path), (backend.storage.id(), &path));
        assert_eq!(summary.condition, FileCondition::Complete);
        assert_eq!(summary.message_count, 200);
        assert_eq!(summary.last_metadata("holdall.ledger"), Some(&entries));
        assert_eq!(summary.rosbag2_metadata(), Some("version: 9\n"));
        let names: Vec<&str> = summary
            .channels
            .iter()
            .map(|channel| channel.info.topic.name.as_str())
            .collect();
        assert_eq!(names, TOPICS);
        let expected = channel("/a", "std_msgs/msg/String");
        assert_eq!(summary.channels[0].info.topic, expected.topic);
        assert_eq!(summary.channels[0].info.definition.text, expected.definition.text);
    }
}

#[test]
fn a_file_without_messages_is_whole() {
    for backend in backends() {
        let dir = tempfile::tempdir().unwrap();
        let (path, summary) = begin(&backend, dir.path(), "").finish();
        assert_eq!((summary.message_count, summary.starting_time), (0, None));
        let reader = backend.storage.open_reader(&path).unwrap();
        assert_eq!(reader.summary().channels.len(), TOPICS.len());
        assert!(read(&*reader, &ReadQuery::default()).is_empty());
    }
}

/// Copies a file, or a directory with all its files.
fn copy_all(from: &Path, to: &Path) {
    if !from.is_dir() {
        std::fs::copy(from, to).unwrap();
        return;
    }
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        copy_all(&entry.path(), &to.join(entry.file_name()));
    }
}

#[test]
fn what_is_durable_can_be_read_although_the_file_was_never_closed() {
    for backend in backends() {
        let dir = tempfile::tempdir().unwrap();
        let mut writing = begin(&backend, dir.path(), "");
        messages()
            .iter()
            .for_each(|message| writing.write(message).unwrap());
        if let Some(token) = writing.writer.make_durable(&mut writing.q).unwrap() {
            writing.q.wait_durable(token).unwrap();
        }
        // The recorder is killed here.
        let copy = dir.path().join("found_0.file");
        let is_in_memory = backend.storage.id() == "memory";
        if !is_in_memory {
            copy_all(&writing.path, &copy);
        }
        let path = if is_in_memory { &writing.path } else { &copy };
        let reader = backend.storage.open_reader(path).unwrap();
        assert_eq!(reader.summary().message_count, 200, "{}", backend.storage.id());
        assert_eq!(read(&*reader, &ReadQuery::default()).len(), 200);
    }
}

#[test]
fn unknown_channels_settings_and_missing_files_are_errors() {
    for backend in backends() {
        let dir = tempfile::tempdir().unwrap();
        let mut writing = begin(&backend, dir.path(), "");
        writing.channels[0] = ChannelIndex(9);
        let error = writing.write(&messages()[0]).unwrap_err();
        assert!(
            matches!(
                error,
                StorageError::UnknownChannel {
                    index: 9,
                    count: 3,
                    ..
                }
            ),
            "{error}"
        );
        let (path, _) = writing.finish();
        let reader = backend.storage.open_reader(&path).unwrap();
        let query = ReadQuery {
            channels: Some(vec![ChannelIndex(3)]),
            ..ReadQuery::default()
        };
        assert!(matches!(
            reader.messages(&query).err().unwrap(),
            StorageError::UnknownChannel { .. }
        ));
        let options = StorageOptions {
            preset: Some("no such preset".to_owned()),
            ..StorageOptions::default()
        };
        assert!(matches!(
            backend.storage.check_options(&options),
            Err(StorageError::Setting { .. })
        ));
        let missing = dir.path().join("missing");
        assert!(
            backend
                .storage
                .open_reader(&missing)
                .err()
                .unwrap()
                .to_string()
                .contains("missing")
        );
    }
}
