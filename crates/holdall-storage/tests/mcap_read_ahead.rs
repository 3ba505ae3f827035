//! What a reader announces before it reads it, as an object in a bucket sees it.

mod support;

use holdall_io::remote::{Object, ObjectAbout, ObjectEntry, Objects, install};
use holdall_storage::{
    mcap::{McapOptions, McapReader},
    reader::{ReadOrder, ReadQuery, StorageReader},
    writer::ChannelIndex,
};
use std::{
    collections::BTreeMap,
    io,
    path::Path,
    sync::{Arc, LazyLock, Mutex},
};
use support::{Message, channel, record};

/// An object in memory; notes which bytes were announced.
#[derive(Clone, Debug)]
struct Noted {
    bytes: Arc<Vec<u8>>,
    announced: Arc<Mutex<Vec<(u64, u64)>>>,
}

impl Object for Noted {
    fn len_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn e_tag(&self) -> Option<&str> {
        None
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = self.bytes.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn expect(&self, offset: u64, len_bytes: u64) {
        self.announced.lock().unwrap().push((offset, offset + len_bytes));
    }

    fn expect_sequential(&self) {}
}

/// The objects of these tests by URL.
#[derive(Debug, Default)]
struct Bucket(Mutex<BTreeMap<String, Noted>>);

static BUCKET: LazyLock<Arc<Bucket>> = LazyLock::new(|| {
    let bucket = Arc::new(Bucket::default());
    install(Arc::clone(&bucket) as Arc<dyn Objects>);
    bucket
});

impl Objects for Bucket {
    fn about(&self, _: &str) -> io::Result<ObjectAbout> {
        unreachable!()
    }
    fn object(&self, _: &str) -> io::Result<Option<ObjectAbout>> {
        unreachable!()
    }
    fn open(&self, url: &str) -> io::Result<Arc<dyn Object>> {
        Ok(Arc::new(self.0.lock().unwrap()[url].clone()))
    }
    fn read(&self, _: &str, _: u64) -> io::Result<Vec<u8>> {
        unreachable!()
    }
    fn list(&self, _: &str, _: usize) -> io::Result<Vec<ObjectEntry>> {
        unreachable!()
    }
    fn list_all(&self, _: &str, _: &mut dyn FnMut(ObjectEntry) -> bool) -> io::Result<()> {
        unreachable!()
    }
    fn put(&self, _: &str, _: Vec<u8>) -> io::Result<Option<String>> {
        unreachable!()
    }
    fn begin_parts(&self, _: &str) -> io::Result<String> {
        unreachable!()
    }
    fn put_part(&self, _: &str, _: &str, _: usize, _: Vec<u8>) -> io::Result<String> {
        unreachable!()
    }
    fn complete_parts(&self, _: &str, _: &str, _: &[String]) -> io::Result<Option<String>> {
        unreachable!()
    }
    fn abort_parts(&self, _: &str, _: &str) -> io::Result<()> {
        unreachable!()
    }
    fn remove(&self, _: &str) -> io::Result<()> {
        unreachable!()
    }
    fn expect_in_order(&self, _: &[&str]) {}
    fn forget(&self, _: &str) {}
    fn without_secrets(&self, url: &str) -> String {
        url.to_owned()
    }
}

/// Longer than the chunks that are read whole from a bucket.
const CHUNK_BYTES: usize = 25 << 20;
const CHUNKS: u64 = 4;
const MESSAGES: u64 = CHUNKS * 25;

/// Four chunks with messages of 1 MiB of two topics.
fn object(name: &str) -> (McapReader, Noted) {
    let messages: Vec<Message> = (0..MESSAGES)
        .map(|number| Message {
            log_time: number,
            publish_time: number,
            sequence: number as u32,
            topic: if number % 2 == 0 { "/left" } else { "/right" }.into(),
            payload: vec![number as u8; CHUNK_BYTES / 25],
        })
        .collect();
    let topics = ["/left", "/right"].map(|name| channel(name, "sensor_msgs/msg/Image"));
    let options = McapOptions {
        chunk_bytes: Some(CHUNK_BYTES as u64),
        ..McapOptions::default()
    };
    let noted = Noted {
        bytes: Arc::new(record(options, (1 << 20, 64), &topics, &messages).bytes),
        announced: Arc::default(),
    };
    let url = format!("s3://bucket/{name}.mcap");
    BUCKET.0.lock().unwrap().insert(url.clone(), noted.clone());
    let reader = McapReader::open(Path::new(&url)).unwrap();
    // The summary was announced, too.
    noted.announced.lock().unwrap().clear();
    (reader, noted)
}

/// Reads this many messages of these channels; returns the announced bytes.
fn read(name: &str, channels: &[u32], count: usize) -> Vec<(u64, u64)> {
    let (reader, noted) = object(name);
    let query = ReadQuery {
        channels: Some(channels.iter().copied().map(ChannelIndex).collect()),
        order: ReadOrder::LogTime,
        ..ReadQuery::default()
    };
    let read = reader.messages(&query).unwrap().take(count);
    assert_eq!(read.filter(|message| message.is_ok()).count(), count);
    noted.announced.lock().unwrap().clone()
}

#[test]
fn chunks_of_which_all_messages_are_wanted_are_announced_once_and_in_order() {
    let announced = read("all", &[0, 1], MESSAGES as usize);
    let (reader, _) = object("chunks");
    let chunks = reader.chunks().unwrap();
    let expected: Vec<u64> = chunks.iter().skip(2).map(|chunk| chunk.offset).collect();
    assert_eq!(
        announced.iter().map(|(start, _)| *start).collect::<Vec<_>>(),
        expected
    );
    for ((start, end), chunk) in announced.iter().zip(chunks.iter().skip(2)) {
        assert!(
            *end > chunk.offset + chunk.length,
            "its message indexes, too: {start} to {end}"
        );
    }
}

#[test]
fn a_caller_that_wants_one_message_pays_for_no_other_chunk() {
    assert_eq!(read("one", &[0, 1], 1), []);
}

#[test]
fn chunks_of_which_a_part_is_wanted_are_not_announced() {
    assert_eq!(read("part", &[1], MESSAGES as usize / 2), []);
}
