//! The content of a file of 100 GB is listed after reading a few hundred kilobytes of it.

use holdall::reader::Bag;
use holdall_storage::mcap::format::{
    Channel, ChunkIndex, FOOTER_AND_MAGIC_BYTES, Footer, Header, MAGIC, MetadataIndex, Schema, Statistics,
    SummaryOffset, encode_data_end, encode_metadata, op,
};
use std::{fs, io::Write, os::unix::fs::FileExt, path::Path};

const FILE_BYTES: u64 = 100_000_000_000;
const CHUNK_BYTES: u64 = 1 << 20;
const MESSAGES_PER_CHUNK: u64 = 10;

/// A sparse file: its beginning, one metadata record and its summary exist, the chunks between are a hole.
fn write_sparse(path: &Path) {
    let mut begin = MAGIC.to_vec();
    Header {
        profile: "ros2".into(),
        library: "test".into(),
    }
    .encode(&mut begin);
    let metadata_offset = begin.len() as u64;
    encode_metadata(
        &mut begin,
        "note",
        &[("key".to_owned(), "value".to_owned())].into(),
    );
    let metadata_length = begin.len() as u64 - metadata_offset;
    let chunks = FILE_BYTES / CHUNK_BYTES;
    let mut end = Vec::new();
    encode_data_end(&mut end, 0);
    let summary_start = FILE_BYTES + end.len() as u64;
    let mut offsets = Vec::new();
    let groups: [(u8, Vec<u8>); 5] = [
        (op::SCHEMA, {
            let mut record = Vec::new();
            Schema {
                id: 1,
                name: "std_msgs/msg/String".into(),
                encoding: "ros2msg".into(),
                data: b"string data\n"[..].into(),
            }
            .encode(&mut record);
            record
        }),
        (op::CHANNEL, {
            let mut record = Vec::new();
            Channel {
                id: 1,
                schema_id: 1,
                topic: "/t".into(),
                message_encoding: "cdr".into(),
                ..Channel::default()
            }
            .encode(&mut record);
            record
        }),
        (op::STATISTICS, {
            let mut record = Vec::new();
            Statistics {
                message_count: chunks * MESSAGES_PER_CHUNK,
                schema_count: 1,
                channel_count: 1,
                metadata_count: 1,
                chunk_count: chunks as u32,
                message_start_time: 1,
                message_end_time: chunks * 1000,
                channel_message_counts: [(1, chunks * MESSAGES_PER_CHUNK)].into(),
                ..Statistics::default()
            }
            .encode(&mut record);
            record
        }),
        (op::CHUNK_INDEX, {
            let mut records = Vec::new();
            for chunk in 0..chunks {
                let start = 4096 + chunk * CHUNK_BYTES;
                let index = ChunkIndex {
                    message_start_time: 1 + chunk * 1000,
                    message_end_time: chunk * 1000 + 999,
                    chunk_start_offset: start,
                    chunk_length: CHUNK_BYTES - 1000,
                    message_index_length: 100,
                    compressed_size: CHUNK_BYTES - 2000,
                    uncompressed_size: CHUNK_BYTES - 2000,
                    ..ChunkIndex::default()
                };
                index.encode(&mut records, [(1, start + CHUNK_BYTES - 1000)].into_iter());
            }
            records
        }),
        (op::METADATA_INDEX, {
            let mut record = Vec::new();
            MetadataIndex {
                offset: metadata_offset,
                length: metadata_length,
                name: "note".into(),
            }
            .encode(&mut record);
            record
        }),
    ];
    for (group_opcode, records) in groups {
        SummaryOffset {
            group_opcode,
            group_start: FILE_BYTES + end.len() as u64,
            group_length: records.len() as u64,
        }
        .encode(&mut offsets);
        end.extend(records);
    }
    let summary_offset_start = FILE_BYTES + end.len() as u64;
    end.extend(offsets);
    Footer {
        summary_start,
        summary_offset_start,
        summary_crc: 0,
    }
    .encode_without_crc(&mut end);
    end.extend([0; 4]);
    end.extend(MAGIC);
    assert!(
        end.len() > FOOTER_AND_MAGIC_BYTES + 5_000_000,
        "the index alone has megabytes"
    );
    let mut file = fs::File::create(path).unwrap();
    file.write_all(&begin).unwrap();
    file.write_all_at(&end, FILE_BYTES).unwrap();
}

/// Bytes that this thread has read so far, from whatever file.
fn bytes_read() -> u64 {
    let counters = fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = counters.lines().find(|line| line.starts_with("rchar:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn opening_100_gb_reads_less_than_a_megabyte() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large_0.mcap");
    write_sparse(&path);
    let before = bytes_read();
    let bag = Bag::open(&path).unwrap();
    let lost = bag.lost().unwrap();
    let read = bytes_read() - before;
    assert_eq!(
        bag.metadata().message_count,
        FILE_BYTES / CHUNK_BYTES * MESSAGES_PER_CHUNK
    );
    assert_eq!((bag.notices(), lost), (&[] as &[String], None));
    assert!(bag.size_bytes() > FILE_BYTES);
    assert!(read < 1_000_000, "{read} bytes were read");
}
