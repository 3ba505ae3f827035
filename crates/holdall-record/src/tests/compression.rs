//! rosbag2's own compression while recording: messages read back are whole, and dropped ones are accounted for.

use super::*;
use holdall_bag::{
    reader::{Bag, BagSet},
    writer::{CompressionMode, CompressionOptions},
};
use holdall_model::loss::LossStage;
use std::num::NonZeroU32;

fn read_back(path: &Path) -> Vec<Vec<u8>> {
    let bag = Bag::open(path).unwrap();
    assert_eq!(bag.notices(), Vec::<String>::new());
    BagSet::from(vec![bag])
        .messages(&Default::default())
        .map(|message| message.unwrap().payload.to_vec())
        .collect()
}

#[test]
fn a_compressed_recording_is_read_back_byte_exact_in_every_mode_and_storage() {
    for storage in ["mcap", "sqlite3", "leveldb"] {
        for (mode, text) in [
            (CompressionMode::None, ""),
            (CompressionMode::File, "FILE"),
            (CompressionMode::Message, "MESSAGE"),
        ] {
            if storage == "leveldb" && mode == CompressionMode::File {
                continue;
            }
            let mut world = World::new();
            world.options.files.storage_id = storage.to_owned();
            world.options.files.split.bytes_max = Some(2_000_000);
            world.options.files.compression = CompressionOptions {
                mode,
                threads_nice: 5,
                ..CompressionOptions::default()
            };
            let publisher = world.publisher("/chatter", RELIABLE);
            let recording = world.record();
            recording.wait_matched(&publisher);
            let payloads: Vec<Vec<u8>> = (0..400)
                .map(|number| payload(number, [0, 30, 5_000, 100_000][number % 4]))
                .collect();
            payloads.iter().for_each(|payload| publisher.send(payload));
            let recorded = recording.stop();
            assert_eq!((recorded.lost(), recorded.report.failure.clone()), (0, None));
            let metadata = recorded.metadata();
            assert_eq!(metadata.message_count, 400, "{storage} {text}");
            assert_eq!(metadata.compression_mode, text);
            let format = if text.is_empty() { "" } else { "zstd" };
            assert_eq!(metadata.compression_format, format);
            assert_eq!(read_back(&recorded.output), payloads, "{storage} {text}");
            // Without metadata the files themselves show it.
            fs::remove_file(recorded.output.join("metadata.yaml")).unwrap();
            let bag = Bag::open(&recorded.output).unwrap();
            assert_eq!(bag.metadata().compression_mode, text, "{storage}");
            assert_eq!(bag.metadata().message_count, 400);
        }
    }
}

#[test]
fn whole_directories_are_not_packed() {
    let mut world = World::new();
    world.options.files.storage_id = "leveldb".to_owned();
    world.options.files.compression.mode = CompressionMode::File;
    let error = world.try_record().err().unwrap().to_string();
    assert!(error.contains("use message compression"), "{error}");
    assert!(!world.options.output.exists());
}

#[test]
fn messages_that_a_short_compression_queue_drops_are_in_the_ledger() {
    let mut world = World::new();
    world.options.files.compression = CompressionOptions {
        mode: CompressionMode::Message,
        queue_max: NonZeroU32::new(1),
        threads: Some(1),
        ..CompressionOptions::default()
    };
    let publisher = world.publisher("/chatter", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    // Noise is slow to pack.
    let noise: Vec<u8> = (0..200_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    for _ in 0..100 {
        publisher.send(&noise);
    }
    let recorded = recording.stop();
    let kept = read_back(&recorded.output).len() as u64;
    let ledger = recorded.ledger();
    let lost = ledger.topics[0]
        .missing
        .get(&LossStage::Compression)
        .copied()
        .unwrap_or(0);
    assert_eq!(kept + lost, 100);
    assert!(lost > 0, "one waits while a hundred come");
    assert_eq!(recorded.lost(), lost);
}
