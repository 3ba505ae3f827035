//! Writes metadata as rosbag2 does through yaml-cpp, to the byte: block style, two blanks a level, no newline
//! at the end.

use super::{
    BagMetadata, FileInformation, METADATA_VERSION, NO_STARTING_TIME, TopicWithMessageCount, WRAPPER_KEY,
};
use crate::{qos::write_profile_lines, time::Timestamp, yaml::write_scalar};
use std::{collections::BTreeMap, fmt, time::Duration};

/// Longest key that YAML allows on one line with its value; yaml-cpp writes longer ones with `?`.
const SIMPLE_KEY_BYTES_MAX: usize = 1024;

impl BagMetadata {
    /// The text of `metadata.yaml`, version 9.
    pub fn to_yaml(&self) -> String {
        let mut lines = Lines {
            text: format!("{WRAPPER_KEY}:\n"),
            indent: 2,
        };
        lines.metadata(self);
        lines.finish()
    }

    /// The same without its top key, as MCAP holds it in `serialized_metadata` and SQLite in its
    /// table `metadata`.
    pub fn to_yaml_without_wrapper(&self) -> String {
        let mut lines = Lines {
            text: String::new(),
            indent: 0,
        };
        lines.metadata(self);
        lines.finish()
    }
}

/// The text so far, and the indentation of the next line.
struct Lines {
    text: String,
    indent: usize,
}

impl Lines {
    fn metadata(&mut self, metadata: &BagMetadata) {
        self.value("version", METADATA_VERSION);
        self.string("storage_identifier", &metadata.storage_identifier);
        self.span(metadata.duration);
        self.starting_time(metadata.starting_time);
        self.value("message_count", metadata.message_count);
        self.list(
            "topics_with_message_count",
            &metadata.topics_with_message_count,
            Self::topic,
        );
        self.string("compression_format", &metadata.compression_format);
        self.string("compression_mode", &metadata.compression_mode);
        self.list(
            "relative_file_paths",
            &metadata.relative_file_paths,
            |lines, path| lines.path(path),
        );
        self.list("files", &metadata.files, Self::file);
        self.custom_data(&metadata.custom_data);
        self.string("ros_distro", metadata.ros_distro.as_deref().unwrap_or_default());
    }

    fn topic(&mut self, topic: &TopicWithMessageCount) {
        self.key("- topic_metadata");
        self.indent += 4;
        let info = &topic.topic_metadata;
        self.string("name", &info.name);
        self.string("type", &info.type_name);
        self.string("serialization_format", &info.serialization_format);
        self.list(
            "offered_qos_profiles",
            &info.offered_qos_profiles,
            |lines, profile| {
                write_profile_lines(&mut lines.text, profile, lines.indent);
            },
        );
        self.string("type_description_hash", &info.type_description_hash);
        if let Some(origin) = &info.origin {
            // Not in rosbag2's metadata; rosbag2 skips keys that it does not know.
            self.key("origin");
            self.indent += 2;
            for (key, value) in origin.to_texts() {
                self.custom_entry(&key, &value);
            }
            self.indent -= 2;
        }
        self.indent -= 2;
        self.value("message_count", topic.message_count);
        self.indent -= 2;
    }

    fn path(&mut self, path: &str) {
        self.begin("- ");
        write_scalar(&mut self.text, path);
        self.text.push('\n');
    }

    fn file(&mut self, file: &FileInformation) {
        self.string("- path", &file.path);
        self.indent += 2;
        self.starting_time(file.starting_time);
        self.span(file.duration);
        self.value("message_count", file.message_count);
        self.indent -= 2;
    }

    fn custom_data(&mut self, data: &BTreeMap<String, String>) {
        if data.is_empty() {
            self.value("custom_data", "~");
            return;
        }
        self.key("custom_data");
        self.indent += 2;
        for (key, value) in data {
            self.custom_entry(key, value);
        }
        self.indent -= 2;
    }

    fn custom_entry(&mut self, key: &str, value: &str) {
        let mut written = String::new();
        write_scalar(&mut written, key);
        if written.len() < SIMPLE_KEY_BYTES_MAX {
            self.string(&written, value);
            return;
        }
        self.begin("? ");
        self.text.push_str(&written);
        self.text.push('\n');
        self.begin(": ");
        write_scalar(&mut self.text, value);
        self.text.push('\n');
    }

    fn span(&mut self, span: Duration) {
        let nanos = i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
        self.nested("duration", "nanoseconds", nanos);
    }

    fn starting_time(&mut self, time: Option<Timestamp>) {
        let nanos = time.map_or(NO_STARTING_TIME, Timestamp::as_nanos);
        self.nested("starting_time", "nanoseconds_since_epoch", nanos);
    }

    fn nested(&mut self, key: &str, inner_key: &str, value: i64) {
        self.key(key);
        self.indent += 2;
        self.value(inner_key, value);
        self.indent -= 2;
    }

    /// A list, its items indented; `[]` on a separate line when empty.
    fn list<T>(&mut self, key: &str, items: &[T], mut write_item: impl FnMut(&mut Self, &T)) {
        self.key(key);
        self.indent += 2;
        if items.is_empty() {
            self.begin("[]\n");
        }
        for item in items {
            write_item(self, item);
        }
        self.indent -= 2;
    }

    fn string(&mut self, key: &str, value: &str) {
        self.begin(key);
        self.text.push_str(": ");
        write_scalar(&mut self.text, value);
        self.text.push('\n');
    }

    fn value(&mut self, key: &str, value: impl fmt::Display) {
        self.begin(&format!("{key}: {value}\n"));
    }

    fn key(&mut self, key: &str) {
        self.begin(&format!("{key}:\n"));
    }

    /// Begins a line.
    fn begin(&mut self, text: &str) {
        self.text.extend(std::iter::repeat_n(' ', self.indent));
        self.text.push_str(text);
    }

    fn finish(mut self) -> String {
        self.text.pop();
        self.text
    }
}
