//! `holdall list`: features of this program, and contents of bags.

use super::input;
use crate::{
    VerbResult,
    args::tools::ListWhat,
    exit::{Failure, Outcome},
    output,
    render::tools,
    terminal::log,
};
use holdall::reader::Bag;
use holdall_storage::{readable_storages, storages};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tracing::level_filters::LevelFilter;

/// Lists.
pub fn run(what: &ListWhat) -> VerbResult {
    log::start(LevelFilter::WARN);
    let (rows, json, columns): (Vec<Value>, bool, &[&str]) = match what {
        ListWhat::Storages { json, .. } => {
            (storage_rows(), *json, &["id", "extension", "written", "presets"])
        }
        ListWhat::Codecs { json, .. } => (codec_rows(), *json, &["codec", "mode", "what"]),
        ListWhat::Converters { json, .. } => (converter_rows(), *json, &["from", "to", "what"]),
        ListWhat::Topics { bags, json } => (
            of_bags(bags, &topic_rows)?,
            *json,
            &["topic", "type", "messages", "serialization_format"],
        ),
        ListWhat::Chunks { bags, json } => (
            of_bags(bags, &chunk_rows)?,
            *json,
            &[
                "file",
                "offset",
                "bytes",
                "uncompressed_bytes",
                "compression",
                "start",
                "end",
            ],
        ),
    };
    output::result(&if json {
        rows.iter().map(|row| format!("{row}\n")).collect::<String>()
    } else {
        tools::table(columns, &rows)
    })?;
    Ok(Outcome::Done)
}

fn storage_rows() -> Vec<Value> {
    let is_written = |id: &str| storages().iter().any(|storage| storage.id() == id);
    readable_storages()
        .map(|storage| {
            json!({
                "id": storage.id(),
                "extension": storage.extension().unwrap_or_default(),
                "written": is_written(storage.id()),
                "presets": storage.presets(),
            })
        })
        .collect()
}

fn codec_rows() -> Vec<Value> {
    let row = |codec: &str, mode: &str, what: &str| json!({"codec": codec, "mode": mode, "what": what});
    vec![
        row("zstd", "chunk", "chunks of MCAP files"),
        row("lz4", "chunk", "chunks of MCAP files"),
        row("zstd", "file", "whole storage files, as rosbag2 does"),
        row("zstd", "message", "each message, as rosbag2 does"),
    ]
}

fn converter_rows() -> Vec<Value> {
    vec![
        json!({"from": "cdr", "to": "cdr", "what": "messages stay unchanged"}),
        json!({"from": "ros1", "to": "cdr", "what": "messages of ROS 1 bags, by the definitions in the bag"}),
    ]
}

/// The rows of one bag.
type RowsOf<'a> = &'a dyn Fn(&Path, &Bag) -> Result<Vec<Value>, Failure>;

fn of_bags(bags: &[PathBuf], rows: RowsOf<'_>) -> Result<Vec<Value>, Failure> {
    let named = input::resolve(bags)?;
    let mut all = Vec::new();
    for path in &named.paths {
        let bag = Bag::open(path).map_err(|error| Failure::opening(error, &named.paths))?;
        all.extend(rows(path, &bag)?);
    }
    Ok(all)
}

fn topic_rows(path: &Path, bag: &Bag) -> Result<Vec<Value>, Failure> {
    let topics = bag.metadata().topics_with_message_count.iter();
    let rows = topics.map(|topic| {
        let info = &topic.topic_metadata;
        json!({
            "bag": path,
            "topic": info.name,
            "type": info.type_name,
            "messages": topic.message_count,
            "serialization_format": info.serialization_format,
            "type_description_hash": info.type_description_hash,
        })
    });
    Ok(rows.collect())
}

fn chunk_rows(path: &Path, bag: &Bag) -> Result<Vec<Value>, Failure> {
    let Some(chunks) = bag.chunks() else {
        let id = &bag.metadata().storage_identifier;
        let reason = format!(
            "{}: only {} files have chunks, this bag is of storage {id}",
            path.display(),
            tools::chunk_titles()
        );
        return Err(Failure::refused(reason));
    };
    let mut rows = Vec::new();
    for file in bag.files() {
        if file.is_packed() {
            let reason = format!(
                "{}: a packed file; `holdall decompress` unpacks it",
                file.path.display()
            );
            return Err(Failure::refused(reason));
        }
        let reader = chunks.open(&file.path).map_err(Failure::failed)?;
        for chunk in reader.chunks().map_err(Failure::failed)? {
            rows.push(json!({
                "file": file.path.file_name().map(|name| name.to_string_lossy().into_owned()),
                "offset": chunk.offset,
                "bytes": chunk.length,
                "uncompressed_bytes": chunk.uncompressed_bytes,
                "compression": chunk.compression,
                "start": chunk.starting_time.as_nanos(),
                "end": chunk.ending_time.as_nanos(),
            }));
        }
    }
    Ok(rows)
}
