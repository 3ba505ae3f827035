//! The conformance files of the MCAP project: every record is read as expected.

mod support;

use bytes::Bytes;
use holdall_storage::{
    check::check_file,
    mcap::{
        McapReader, McapReaderOptions,
        format::{Attachment, Channel, ChunkIndex, MAGIC, Record, Schema, Statistics, take_record},
    },
    reader::{ReadOrder, ReadQuery, StorageReader},
};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, fmt::Display, path::Path};

struct Case {
    name: String,
    file: Vec<u8>,
    expected: Vec<Value>,
}

fn cases() -> Vec<Case> {
    let packed = std::fs::read(support::data("mcap_conformance.jsonl.zst")).unwrap();
    let text = zstd::stream::decode_all(&packed[..]).unwrap();
    std::str::from_utf8(&text).unwrap().lines().map(case).collect()
}

fn case(line: &str) -> Case {
    let value: Value = serde_json::from_str(line).unwrap();
    let hex = value["mcap"].as_str().unwrap();
    let file = (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect();
    let expected = value["records"]
        .as_array()
        .unwrap()
        .iter()
        .map(fields_by_name)
        .collect();
    Case {
        name: value["name"].as_str().unwrap().into(),
        file,
        expected,
    }
}

/// `{"type": t, "fields": [[name, value], …]}` with the fields as a map.
fn fields_by_name(record: &Value) -> Value {
    let fields: Map<String, Value> = record["fields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pair| (pair[0].as_str().unwrap().to_owned(), pair[1].clone()))
        .collect();
    json!({"type": record["type"], "fields": fields})
}

fn text(value: impl Display) -> Value {
    Value::String(value.to_string())
}

fn bytes(bytes: &[u8]) -> Value {
    bytes.iter().map(text).collect()
}

fn map(map: &BTreeMap<u16, u64>) -> Value {
    map.iter()
        .map(|(key, value)| (key.to_string(), text(value)))
        .collect::<Map<_, _>>()
        .into()
}

fn texts(map: &BTreeMap<String, String>) -> Value {
    map.iter()
        .map(|(key, value)| (key.clone(), text(value)))
        .collect::<Map<_, _>>()
        .into()
}

/// All records in some bytes, including those in chunks, without message indexes.
fn records(mut left: &[u8], found: &mut Vec<Value>) {
    while let Some((opcode, body)) = take_record(&mut left).unwrap() {
        match Record::decode(opcode, body).unwrap() {
            Record::Chunk(header, inner) => {
                assert_eq!(header.compression, "");
                if header.uncompressed_crc != 0 {
                    assert_eq!(crc32fast::hash(inner), header.uncompressed_crc);
                }
                records(inner, found);
            }
            Record::MessageIndex(_) => {}
            record => found.push(as_json(&record)),
        }
        if left == MAGIC {
            break;
        }
    }
}

fn as_json(record: &Record<'_>) -> Value {
    let (kind, fields) = match record {
        Record::Header(header) => (
            "Header",
            json!({"profile": header.profile, "library": header.library}),
        ),
        Record::Footer(footer) => (
            "Footer",
            json!({
                "summary_start": text(footer.summary_start),
                "summary_offset_start": text(footer.summary_offset_start),
                "summary_crc": text(footer.summary_crc),
            }),
        ),
        Record::Schema(schema) => ("Schema", schema_json(schema)),
        Record::Channel(channel) => ("Channel", channel_json(channel)),
        Record::Message(header, payload) => (
            "Message",
            json!({
                "channel_id": text(header.channel_id), "sequence": text(header.sequence),
                "log_time": text(header.log_time), "publish_time": text(header.publish_time),
                "data": bytes(payload),
            }),
        ),
        Record::ChunkIndex(index) => ("ChunkIndex", chunk_index_json(index)),
        Record::Attachment(attachment) => ("Attachment", attachment_json(attachment)),
        Record::AttachmentIndex(index) => (
            "AttachmentIndex",
            json!({
                "offset": text(index.offset), "length": text(index.length), "log_time": text(index.log_time),
                "create_time": text(index.create_time), "data_size": text(index.data_size),
                "name": index.name, "media_type": index.media_type,
            }),
        ),
        Record::Statistics(statistics) => ("Statistics", statistics_json(statistics)),
        Record::Metadata(metadata) => (
            "Metadata",
            json!({"name": metadata.name, "metadata": texts(&metadata.metadata)}),
        ),
        Record::MetadataIndex(index) => (
            "MetadataIndex",
            json!({"offset": text(index.offset), "length": text(index.length), "name": index.name}),
        ),
        Record::SummaryOffset(offset) => (
            "SummaryOffset",
            json!({
                "group_opcode": text(offset.group_opcode), "group_start": text(offset.group_start),
                "group_length": text(offset.group_length),
            }),
        ),
        Record::DataEnd(crc) => ("DataEnd", json!({"data_section_crc": text(crc)})),
        Record::Chunk(..) | Record::MessageIndex(_) | Record::Unknown(_) => {
            unreachable!("not shown: {record:?}")
        }
    };
    json!({"type": kind, "fields": fields})
}

fn schema_json(schema: &Schema<'_>) -> Value {
    json!({
        "id": text(schema.id), "name": schema.name, "encoding": schema.encoding, "data": bytes(&schema.data),
    })
}

fn channel_json(channel: &Channel) -> Value {
    json!({
        "id": text(channel.id), "schema_id": text(channel.schema_id), "topic": channel.topic,
        "message_encoding": channel.message_encoding, "metadata": texts(&channel.metadata),
    })
}

fn chunk_index_json(index: &ChunkIndex) -> Value {
    json!({
        "message_start_time": text(index.message_start_time), "message_end_time": text(index.message_end_time),
        "chunk_start_offset": text(index.chunk_start_offset), "chunk_length": text(index.chunk_length),
        "message_index_offsets": map(&index.message_index_offsets),
        "message_index_length": text(index.message_index_length), "compression": index.compression,
        "compressed_size": text(index.compressed_size), "uncompressed_size": text(index.uncompressed_size),
    })
}

fn attachment_json(attachment: &Attachment<'_>) -> Value {
    json!({
        "log_time": text(attachment.log_time), "create_time": text(attachment.create_time),
        "name": attachment.name, "media_type": attachment.media_type, "data": bytes(&attachment.data),
    })
}

fn statistics_json(statistics: &Statistics) -> Value {
    json!({
        "message_count": text(statistics.message_count), "schema_count": text(statistics.schema_count),
        "channel_count": text(statistics.channel_count), "attachment_count": text(statistics.attachment_count),
        "metadata_count": text(statistics.metadata_count), "chunk_count": text(statistics.chunk_count),
        "message_start_time": text(statistics.message_start_time),
        "message_end_time": text(statistics.message_end_time),
        "channel_message_counts": map(&statistics.channel_message_counts),
    })
}

#[test]
fn every_record_of_every_conformance_file_is_read_as_expected() {
    let cases = cases();
    assert_eq!(cases.len(), 416);
    for case in cases {
        let mut found = Vec::new();
        assert!(case.file.starts_with(&MAGIC), "{}", case.name);
        records(&case.file[MAGIC.len()..], &mut found);
        assert_eq!(found, case.expected, "{}", case.name);
    }
}

#[test]
fn the_reader_finds_messages_channels_and_metadata_of_every_conformance_file() {
    for case in cases() {
        let reader = McapReader::from_bytes(
            Path::new(&case.name),
            Bytes::from(case.file),
            McapReaderOptions::default(),
        )
        .unwrap();
        let summary = reader.summary();
        let of_kind = |kind: &'static str| case.expected.iter().filter(move |record| record["type"] == kind);
        let wanted: Vec<Value> = of_kind("Message")
            .map(|record| record["fields"].clone())
            .collect();
        for order in [ReadOrder::LogTime, ReadOrder::PublishTime, ReadOrder::File] {
            let found: Vec<Value> = reader
                .messages(&ReadQuery { order, ..ReadQuery::default() })
                .unwrap()
                .map(|message| message.unwrap())
                .map(|message| {
                    json!({
                        // The files have one channel, number 1.
                        "channel_id": text(message.channel.0 + 1), "sequence": text(message.sequence),
                        "log_time": text(message.log_time.as_nanos()),
                        "publish_time": text(message.publish_time.as_nanos()), "data": bytes(&message.payload),
                    })
                })
                .collect();
            let time = |message: &Value| match order {
                ReadOrder::File => 0,
                ReadOrder::LogTime => message["log_time"].as_str().unwrap().parse().unwrap(),
                ReadOrder::PublishTime => message["publish_time"].as_str().unwrap().parse::<u64>().unwrap(),
            };
            let mut wanted = wanted.clone();
            wanted.sort_by_key(time);
            assert_eq!(found, wanted, "{} {order:?}", case.name);
        }
        assert_eq!(summary.message_count as usize, wanted.len(), "{}", case.name);
        for channel in of_kind("Channel") {
            assert_eq!(
                summary.channels[0].info.topic.name,
                channel["fields"]["topic"].as_str().unwrap()
            );
        }
        let metadata: Vec<Value> = summary
            .metadata
            .iter()
            .map(|(name, entries)| json!({"name": name, "metadata": texts(entries)}))
            .collect();
        let wanted: Vec<Value> = of_kind("Metadata")
            .map(|record| record["fields"].clone())
            .collect();
        assert_eq!(metadata, wanted, "{}", case.name);
    }
}

#[test]
fn every_file_is_sound() {
    let dir = tempfile::tempdir().unwrap();
    for case in cases() {
        let path = dir.path().join("case.mcap");
        std::fs::write(&path, &case.file).unwrap();
        let found = check_file(&path, &mut |_| ()).unwrap();
        assert!(found.findings.is_sound(), "{}: {:#?}", case.name, found.findings);
    }
}
