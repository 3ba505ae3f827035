//! The configuration of the storage plugin comparison, as its own program reads it.

use crate::workload::MESSAGE_BYTES_MAX;
use holdall_model::yaml::{YamlError, read_into};
use holdall_storage::{StorageOptions, storage_by_id};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The shares of the topics may differ from 1 by this much in sum.
const SHARE_TOLERANCE: f64 = 1e-4;

/// More messages than this are refused: their order is kept in memory.
const MESSAGES_MAX: f64 = 1e8;

/// A topic of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComparisonTopic {
    /// Its name.
    pub name: String,
    /// Bytes of each message.
    pub message_size: usize,
    /// Its part of all bytes.
    #[serde(default = "all")]
    pub write_proportion: f64,
}

fn all() -> f64 {
    1.0
}

/// A configuration of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ComparisonConfig {
    /// Storage backend.
    pub storage_id: String,
    /// A batch ends when it has this many bytes.
    pub min_batch_size_bytes: u64,
    /// Bytes of all messages.
    pub write_total_bytes: u64,
    /// The topics.
    pub topics: Vec<ComparisonTopic>,
    /// The storage's own configuration, as JSON: our storages read it as YAML, a superset of JSON.
    #[serde(deserialize_with = "as_json")]
    pub storage_options: Option<String>,
}

fn as_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = |value| match value {
        // Read back from a result.
        Value::String(text) => text,
        other => other.to_string(),
    };
    Ok(Option::<Value>::deserialize(deserializer)?.map(text))
}

impl Default for ComparisonConfig {
    /// The comparison's own.
    fn default() -> Self {
        let topic = |(name, message_size, write_proportion): (&str, usize, f64)| ComparisonTopic {
            name: name.to_owned(),
            message_size,
            write_proportion,
        };
        Self {
            storage_id: "sqlite3".to_owned(),
            min_batch_size_bytes: 10,
            write_total_bytes: 250_000_000,
            topics: [("/large", 1_000_000, 0.9), ("/small", 1000, 0.1)]
                .map(topic)
                .to_vec(),
            storage_options: None,
        }
    }
}

impl ComparisonConfig {
    /// Reads the text of a configuration file.
    ///
    /// # Errors
    /// An unknown key, shares that do not sum to 1, a storage or option that does
    /// not exist.
    pub fn parse(text: &str) -> Result<Self, YamlError> {
        let config: Self = read_into(text)?;
        config.check().map_err(|reason| YamlError::new(1, reason))?;
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
            // Between 0 and the limit of `check_messages`.
            (self.write_total_bytes as f64 * topic.write_proportion / topic.message_size as f64) as u64
        };
        self.topics.iter().map(count).collect()
    }

    fn check(&self) -> Result<(), String> {
        let storage = storage_by_id(&self.storage_id).map_err(|error| error.to_string())?;
        storage
            .check_options(&self.options())
            .map_err(|error| error.to_string())?;
        for (place, topic) in self.topics.iter().enumerate() {
            let ComparisonTopic {
                name,
                message_size,
                write_proportion,
            } = topic;
            if !(1..=MESSAGE_BYTES_MAX).contains(message_size) {
                return Err(format!(
                    "message_size of {name}: expected 1 to {MESSAGE_BYTES_MAX} bytes, found {message_size}"
                ));
            }
            if !(0.0..=1.0).contains(write_proportion) {
                return Err(format!(
                    "write_proportion of {name}: expected a part between 0 and 1, found {write_proportion}"
                ));
            }
            if name.is_empty() || self.topics[..place].iter().any(|other| other.name == *name) {
                return Err(format!("expected a name that no other topic has, found {name:?}"));
            }
        }
        self.check_messages()
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
            Some(r#"{"compression":"None","noChunkCRC":"false"}"#)
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
        assert!(error("min_batch_size_bytes", "batch").contains("unknown field `batch`"));
        assert!(error("  message_size: 10000", "  size: 10000").contains("unknown field `size`"));
        assert!(error("0.2", "0.1").contains("to sum to 1, found 0.9000"));
        assert!(error("storage_id: mcap", "storage_id: tape").contains("tape"));
        assert!(error("noChunkCRC", "noChecksum").contains("noChecksum"));
        assert!(error("message_size: 100\n", "message_size: 0\n").contains("1 to"));
        assert!(error("/medium", "/large").contains("a name that no other topic has"));
        assert!(error("1000000\n", "10\n").contains("no message fits into 10 bytes"));
        assert!(error("1000000\n", "1000000000000000\n").contains("at most 100000000 messages"));
    }
}
