//! The configuration of the storage plugin comparison, as its own program reads it.

use crate::{
    suite::config::{ConfigError, Keys, decimal},
    workload::MESSAGE_BYTES_MAX,
};
use holdall_model::yaml::{self, Node, Value, YamlError};
use holdall_storage::{StorageOptions, storage_by_id};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Default of the comparison's program.
const STORAGE_ID: &str = "sqlite3";
const MIN_BATCH_BYTES: u64 = 10;
const TOTAL_BYTES: u64 = 250_000_000;

/// The shares of the topics may differ from 1 by this much in sum.
const SHARE_TOLERANCE: f64 = 1e-4;

/// More messages than this are refused: their order is kept in memory.
const MESSAGES_MAX: f64 = 1e8;

/// A topic of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparisonTopic {
    /// Its name.
    pub name: String,
    /// Bytes of each message.
    pub message_size: usize,
    /// Its part of all bytes.
    pub write_proportion: f64,
}

/// A configuration of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparisonConfig {
    /// Storage backend.
    pub storage_id: String,
    /// A batch ends when it has this many bytes.
    pub min_batch_size_bytes: u64,
    /// Bytes of all messages.
    pub write_total_bytes: u64,
    /// The topics.
    pub topics: Vec<ComparisonTopic>,
    /// The storage's own configuration, as JSON, which is YAML.
    pub storage_options: Option<String>,
}

impl ComparisonConfig {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// A file that cannot be read, an unknown key, shares that do not sum to 1, a storage or option that does
    /// not exist.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        ConfigError::of_file(path, Self::parse)
    }

    /// Reads the text of such a file.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(text: &str) -> Result<Self, YamlError> {
        let root = yaml::parse(text)?;
        let mut keys = Keys::of(&root)?;
        let number = |node: Option<&Node>, absent| node.map_or(Ok(absent), Node::as_number);
        let storage = keys.optional("storage_id");
        let options = keys.optional("storage_options");
        let config = Self {
            storage_id: storage.map_or(Ok(STORAGE_ID), Node::as_str)?.to_owned(),
            min_batch_size_bytes: number(keys.optional("min_batch_size_bytes"), MIN_BATCH_BYTES)?,
            write_total_bytes: number(keys.optional("write_total_bytes"), TOTAL_BYTES)?,
            topics: keys
                .optional("topics")
                .map_or_else(|| Ok(default_topics()), topics)?,
            storage_options: options.map(|node| as_json(node).to_string()),
        };
        keys.finish()?;
        let refused = |node: Option<&Node>, reason: String| node.unwrap_or(&root).error(reason);
        let known = storage_by_id(&config.storage_id).map_err(|error| refused(storage, error.to_string()))?;
        known
            .check_options(&config.options())
            .map_err(|error| refused(options, error.to_string()))?;
        config.check_messages().map_err(|reason| root.error(reason))?;
        Ok(config)
    }

    pub(super) fn options(&self) -> StorageOptions {
        StorageOptions {
            config: self.storage_options.clone(),
            ..StorageOptions::default()
        }
    }

    /// Messages of each topic: those that fit into its share of the bytes.
    fn counts(&self) -> Vec<u64> {
        let count = |topic: &ComparisonTopic| {
            // Between 0 and what `check_messages` allows.
            (self.write_total_bytes as f64 * topic.write_proportion / topic.message_size as f64) as u64
        };
        self.topics.iter().map(count).collect()
    }

    fn check_messages(&self) -> Result<(), String> {
        let sum: f64 = self.topics.iter().map(|topic| topic.write_proportion).sum();
        if (sum - 1.0).abs() > SHARE_TOLERANCE {
            return Err(format!(
                "expected write_proportion of all topics to sum to 1, found {sum:.4}"
            ));
        }
        let messages: f64 = self
            .topics
            .iter()
            .map(|topic| self.write_total_bytes as f64 * topic.write_proportion / topic.message_size as f64)
            .sum();
        if messages > MESSAGES_MAX {
            return Err(format!(
                "expected at most {MESSAGES_MAX} messages, found {messages:.0}; make write_total_bytes smaller"
            ));
        }
        if self.counts().iter().sum::<u64>() == 0 {
            return Err(format!(
                "write_total_bytes: no message fits into {} bytes",
                self.write_total_bytes
            ));
        }
        Ok(())
    }

    /// The topic of each message: shuffled as the comparison's program does, so that batches are alike.
    pub(super) fn order(&self, seed: u64) -> Vec<u32> {
        let mut order = Vec::new();
        for (topic, count) in (0..).zip(self.counts()) {
            order.extend((0..count).map(|_| topic));
        }
        fastrand::Rng::with_seed(seed).shuffle(&mut order);
        order
    }

    /// Payload bytes of a run.
    pub fn bytes(&self) -> u64 {
        let counts = self.counts();
        counts
            .iter()
            .zip(&self.topics)
            .map(|(count, topic)| count * topic.message_size as u64)
            .sum()
    }
}

/// The comparison's own.
fn default_topics() -> Vec<ComparisonTopic> {
    [("/large", 1_000_000, 0.9), ("/small", 1000, 0.1)]
        .map(|(name, message_size, write_proportion)| ComparisonTopic {
            name: name.to_owned(),
            message_size,
            write_proportion,
        })
        .to_vec()
}

fn topics(node: &Node) -> Result<Vec<ComparisonTopic>, YamlError> {
    let mut found: Vec<ComparisonTopic> = Vec::new();
    for item in node.as_sequence()? {
        let mut keys = Keys::of(item)?;
        let (name, size) = (keys.required("name")?, keys.required("message_size")?);
        let message_size: usize = size.as_number()?;
        if !(1..=MESSAGE_BYTES_MAX).contains(&message_size) {
            return Err(size.expected(&format!("1 to {MESSAGE_BYTES_MAX} bytes")));
        }
        let share = keys.optional("write_proportion");
        let write_proportion = share.map_or(Ok(1.0), decimal)?;
        if let Some(share) = share.filter(|_| !(0.0..=1.0).contains(&write_proportion)) {
            return Err(share.expected("a part between 0 and 1"));
        }
        keys.finish()?;
        let topic = ComparisonTopic {
            name: name.as_str()?.to_owned(),
            message_size,
            write_proportion,
        };
        if topic.name.is_empty() || found.iter().any(|other| other.name == topic.name) {
            return Err(name.expected("a name that no other topic has"));
        }
        found.push(topic);
    }
    if found.is_empty() {
        return Err(node.error("expected one or more topics, found none"));
    }
    Ok(found)
}

/// The same value as JSON: our storages read their configuration as YAML, a superset of JSON.
fn as_json(node: &Node) -> serde_json::Value {
    match &node.value {
        Value::Null => serde_json::Value::Null,
        Value::Scalar(text) => serde_json::from_str(text)
            .ok()
            .filter(|value: &serde_json::Value| value.is_boolean() || value.is_number())
            .or_else(|| node.as_bool().ok().map(serde_json::Value::Bool))
            .unwrap_or_else(|| serde_json::Value::String(text.clone())),
        Value::Sequence(items) => items.iter().map(as_json).collect(),
        Value::Map(entries) => entries
            .iter()
            .map(|(key, node)| (key.clone(), as_json(node)))
            .collect(),
    }
}

/// Every key, as the comparison's sweep writes them.
#[cfg(test)]
pub(super) const MIXED: &str = "\
storage_id: mcap
min_batch_size_bytes: 10240
write_total_bytes: 1000000
topics:
- {name: /large, message_size: 100000, write_proportion: 0.7}
- name: /medium
  message_size: 10000
  write_proportion: 0.2
- name: /small
  message_size: 100
  write_proportion: 0.1
storage_options:
  noChunkCRC: false
  compression: \"None\"
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read_unchanged() {
        let config = ComparisonConfig::parse(MIXED).unwrap();
        assert_eq!(
            (config.storage_id.as_str(), config.min_batch_size_bytes),
            ("mcap", 10_240)
        );
        assert_eq!(config.counts(), [7, 20, 1000]);
        assert_eq!(config.bytes(), 1_000_000);
        assert_eq!(
            config.storage_options.as_deref(),
            Some(r#"{"compression":"None","noChunkCRC":false}"#)
        );
    }

    #[test]
    fn an_empty_one_is_the_programs_default() {
        let config = ComparisonConfig::parse("").unwrap();
        assert_eq!(
            (
                config.storage_id.as_str(),
                config.min_batch_size_bytes,
                config.counts()
            ),
            ("sqlite3", 10, vec![225, 25_000])
        );
    }

    #[test]
    fn mistakes_are_reported_with_their_line() {
        let error = |from: &str, to: &str| {
            let text = MIXED.replacen(from, to, 1);
            assert_ne!(text, MIXED, "{from}");
            ComparisonConfig::parse(&text).unwrap_err().to_string()
        };
        assert!(error("min_batch_size_bytes", "batch").contains("unknown key batch"));
        assert!(error("  message_size: 10000", "  size: 10000").contains("message_size is missing"));
        assert!(error("0.2", "0.1").contains("to sum to 1, found 0.9000"));
        assert!(error("storage_id: mcap", "storage_id: tape").contains("tape"));
        assert!(error("noChunkCRC", "noChecksum").contains("noChecksum"));
        assert!(error("message_size: 100\n", "message_size: 0\n").contains("1 to"));
        assert!(error("/medium", "/large").contains("a name that no other topic has"));
        assert!(error("1000000\n", "10\n").contains("no message fits into 10 bytes"));
        assert!(error("1000000\n", "1000000000000000\n").contains("at most 100000000 messages"));
    }
}
