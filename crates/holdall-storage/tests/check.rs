//! A full check finds nothing in intact files, and every damage in others.

mod support;

use holdall_storage::check::{FileCheck, check_file};
use holdall_storage::mcap::McapOptions;
use std::{
    fs,
    path::{Path, PathBuf},
};
use support::{Message, channel, payload, record};

fn files_below(path: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found
}

fn check(path: &Path) -> FileCheck {
    check_file(path, &mut |_| ()).unwrap()
}

#[test]
fn files_of_the_real_rosbag2_are_sound() {
    let bags = Path::new(env!("CARGO_MANIFEST_DIR")).join("../holdall/tests/data/rosbag2");
    let mut count = 0;
    for path in files_below(&bags, "mcap")
        .iter()
        .chain(&files_below(&bags, "db3"))
    {
        let found = check(path);
        assert!(found.findings.is_sound(), "{:#?}", found.findings);
        assert!(found.message_count > 0);
        count += 1;
    }
    assert!(count >= 6, "{count} files");
}

/// A small file with two topics, whose type has the hash of its text.
fn sample(preset: &str) -> Vec<u8> {
    let mut topics = [
        channel("/a", "std_msgs/msg/String"),
        channel("/b", "std_msgs/msg/String"),
    ];
    for topic in &mut topics {
        topic.definition.text = "string data\n".into();
        topic.topic.type_description_hash =
            "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18".into();
    }
    let message = |n: u64| Message {
        log_time: 100 + n,
        publish_time: n,
        sequence: n as u32,
        topic: if n.is_multiple_of(3) { "/a" } else { "/b" }.into(),
        payload: payload(n, 40 + n as usize),
    };
    let messages: Vec<Message> = (0..12).map(message).collect();
    let options = McapOptions {
        chunk_bytes: Some(300),
        ..McapOptions::preset(Some(preset).filter(|preset| !preset.is_empty())).unwrap()
    };
    record(options, (1 << 20, 4), &topics, &messages).bytes
}

/// Every byte of these files is covered by a checksum, an index, or a length.
#[test]
fn every_changed_byte_of_our_own_file_is_found() {
    let dir = tempfile::tempdir().unwrap();
    for (name, step) in [("none", 1), ("zstd_small", 5)] {
        let path = dir.path().join("sound.mcap");
        fs::write(&path, sample(name)).unwrap();
        let sound = check(&path);
        assert_eq!(sound.message_count, 12);
        assert_eq!(sound.findings.list, [], "{name}");
        let bytes = fs::read(&path).unwrap();
        let changed = dir.path().join("changed.mcap");
        for at in (0..bytes.len()).step_by(step) {
            let mut other = bytes.clone();
            other[at] ^= 0x40;
            fs::write(&changed, &other).unwrap();
            // A changed magic makes it a file of another format, which is an error.
            let found = check_file(&changed, &mut |_| ());
            let is_found = found.as_ref().map_or(true, |found| !found.findings.is_sound());
            assert!(is_found, "{name}: byte {at} of {}", bytes.len());
        }
        for length in (0..bytes.len()).step_by(5) {
            fs::write(&changed, &bytes[..length]).unwrap();
            let found = check_file(&changed, &mut |_| ());
            let is_found = found.as_ref().map_or(true, |found| !found.findings.is_sound());
            assert!(is_found, "{name}: cut to {length} of {}", bytes.len());
        }
    }
}

/// A chunk of a few kilobytes that unpacks to far more than it states.
#[test]
fn bombs_and_wrong_lengths_are_reported_and_never_unpacked() {
    use holdall_storage::mcap::format::{ChunkHeader, Header, MAGIC, op, put_record};
    let dir = tempfile::tempdir().unwrap();
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 1).unwrap();
    let begin = || {
        let mut bytes = MAGIC.to_vec();
        Header::default().encode(&mut bytes);
        bytes
    };
    for size in [100, u64::MAX, 1 << 50] {
        let mut bytes = begin();
        ChunkHeader {
            uncompressed_size: size,
            compression: "zstd".into(),
            compressed_size: bomb.len() as u64,
            ..ChunkHeader::default()
        }
        .encode_prefix(&mut bytes);
        bytes.extend_from_slice(&bomb);
        let path = dir.path().join("bomb.mcap");
        fs::write(&path, &bytes).unwrap();
        let found = check(&path);
        assert!(!found.findings.is_sound(), "{size}");
    }
    for opcode in 0..=op::DATA_END {
        for length in [0, 1, 5, u64::MAX, 1 << 40] {
            let mut bytes = begin();
            put_record(&mut bytes, opcode, |out| out.extend([0xff; 40]));
            let at = bytes.len() - 48;
            bytes[at..at + 8].copy_from_slice(&length.to_le_bytes());
            let path = dir.path().join("lying.mcap");
            fs::write(&path, &bytes).unwrap();
            assert!(!check(&path).findings.is_sound(), "{opcode} {length}");
        }
    }
}
