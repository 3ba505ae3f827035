//! rosbag2's whole MCAP configuration: presets, every key of the configuration file, and our defaults.

use crate::error::{StorageError, StorageResult};
use serde::Deserialize;
use std::{collections::BTreeMap, time::Duration};

/// Bytes between two checkpoints of the index. Opening a torn file reads the part after its last checkpoint;
/// a file of 10 GB has a few hundred, which are read one by one.
pub(crate) const CHECKPOINT_BYTES: u64 = 64 << 20;

/// The id of this backend.
pub const STORAGE_ID: &str = "mcap";
/// Preset names, as in rosbag2.
pub(crate) const PRESETS: [&str; 4] = ["none", "fastwrite", "zstd_fast", "zstd_small"];
/// Largest chunk size that can be set: a chunk is assembled in memory. A single message may be larger.
pub(crate) const CHUNK_BYTES_MAX: u64 = 256 << 20;

/// How chunks are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// LZ4 frames: fast, low ratio.
    Lz4,
    /// Zstandard: slower, higher ratio.
    Zstd,
}

impl Compression {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Self; 3] = [Self::None, Self::Lz4, Self::Zstd];

    /// The names that users give, in the same order.
    pub(crate) const NAMES: [&'static str; 3] = ["none", "lz4", "zstd"];

    /// The codec's name in chunk records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// Compression effort, with rosbag2's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum CompressionLevel {
    /// zstd -5, lz4 fast.
    Fastest,
    /// zstd -3.
    Fast,
    /// zstd 1.
    #[default]
    Default,
    /// zstd 5, lz4 high compression.
    Slow,
    /// zstd 19, lz4 highest compression.
    Slowest,
}

impl CompressionLevel {
    /// The zstd level that the MCAP C++ library uses.
    pub const fn zstd(self) -> i32 {
        match self {
            Self::Fastest => -5,
            Self::Fast => -3,
            Self::Default => 1,
            Self::Slow => 5,
            Self::Slowest => 19,
        }
    }

    /// The level for LZ4 frames: below 3 the fast codec, from 3 on the high-compression one.
    pub const fn lz4(self) -> u32 {
        match self {
            Self::Fastest | Self::Fast | Self::Default => 0,
            Self::Slow => 6,
            Self::Slowest => 12,
        }
    }
}

/// How an MCAP file is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McapOptions {
    /// Write a checksum for each chunk.
    pub chunk_crc: bool,
    /// Write a checksum for each attachment (this program writes none).
    pub attachment_crc: bool,
    /// Write a checksum of the whole data section.
    pub data_crc: bool,
    /// Write a checksum of the summary.
    pub summary_crc: bool,
    /// Put messages into chunks; without chunks the file has neither an index nor compression.
    pub chunking: bool,
    /// Write message indexes after each chunk.
    pub message_index: bool,
    /// Write a summary.
    pub summary: bool,
    /// Close a chunk from this many bytes on; `None` lets each lane choose.
    pub chunk_bytes: Option<u64>,
    /// Close a chunk that spans this much log time, so that rare messages also reach the disk.
    pub chunk_span_max: Duration,
    /// How chunks are compressed.
    pub compression: Compression,
    /// Compression effort.
    pub compression_level: CompressionLevel,
    /// Topics whose chunks override `compression`, by full name.
    pub topic_compression: BTreeMap<String, Compression>,
    /// Keep the compressed form even when it is not smaller.
    pub force_compression: bool,
    /// Worker threads for compression; with zero, `write` compresses.
    pub compression_threads: usize,
    /// The first sync after this many bytes also writes a checkpoint of the index. Not a key of rosbag2;
    /// other readers skip checkpoints.
    pub checkpoint_bytes: Option<u64>,
    /// Repeat schemas in the summary.
    pub repeated_schemas: bool,
    /// Repeat channels in the summary.
    pub repeated_channels: bool,
    /// Write attachment indexes in the summary.
    pub attachment_index: bool,
    /// Write metadata indexes in the summary.
    pub metadata_index: bool,
    /// Write chunk indexes in the summary.
    pub chunk_index: bool,
    /// Write statistics in the summary.
    pub statistics: bool,
    /// Write the offsets of the summary's groups.
    pub summary_offsets: bool,
}

impl Default for McapOptions {
    fn default() -> Self {
        Self {
            chunk_crc: true,
            attachment_crc: true,
            data_crc: true,
            summary_crc: true,
            chunking: true,
            message_index: true,
            summary: true,
            chunk_bytes: None,
            chunk_span_max: Duration::from_secs(2),
            compression: Compression::None,
            compression_level: CompressionLevel::Default,
            topic_compression: BTreeMap::new(),
            force_compression: false,
            compression_threads: 0,
            checkpoint_bytes: None,
            repeated_schemas: true,
            repeated_channels: true,
            attachment_index: true,
            metadata_index: true,
            chunk_index: true,
            statistics: true,
            summary_offsets: true,
        }
    }
}

/// The configuration file with rosbag2's keys; any other key is an error.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ConfigFile {
    // `noCRC` is the name before Humble; a file among rosbag2's own tests still uses it.
    #[serde(rename = "noChunkCRC", alias = "noCRC")]
    no_chunk_crc: Option<bool>,
    #[serde(rename = "noAttachmentCRC")]
    no_attachment_crc: Option<bool>,
    #[serde(rename = "enableDataCRC")]
    enable_data_crc: Option<bool>,
    #[serde(rename = "noSummaryCRC")]
    no_summary_crc: Option<bool>,
    no_chunking: Option<bool>,
    no_message_index: Option<bool>,
    no_summary: Option<bool>,
    chunk_size: Option<u64>,
    /// Ours: bytes between two checkpoints of the index.
    index_checkpoint_size: Option<u64>,
    compression: Option<Compression>,
    compression_level: Option<CompressionLevel>,
    force_compression: Option<bool>,
    no_repeated_schemas: Option<bool>,
    no_repeated_channels: Option<bool>,
    no_attachment_index: Option<bool>,
    no_metadata_index: Option<bool>,
    no_chunk_index: Option<bool>,
    no_statistics: Option<bool>,
    no_summary_offsets: Option<bool>,
}

fn setting(setting: &str, expected: impl Into<String>, found: impl Into<String>) -> StorageError {
    StorageError::Setting {
        storage: STORAGE_ID,
        setting: setting.into(),
        expected: expected.into(),
        found: found.into(),
    }
}

impl McapOptions {
    /// The defaults, changed by a preset; checksums stay on unless turning them off is the
    /// preset's purpose.
    ///
    /// # Errors
    /// An unknown preset.
    pub fn preset(name: Option<&str>) -> StorageResult<Self> {
        let defaults = Self::default();
        Ok(match name {
            None | Some("none") => defaults,
            Some("fastwrite") => Self {
                chunking: false,
                summary_crc: false,
                ..defaults
            },
            Some("zstd_fast") => Self {
                compression: Compression::Zstd,
                compression_level: CompressionLevel::Fastest,
                ..defaults
            },
            Some("zstd_small") => Self {
                compression: Compression::Zstd,
                compression_level: CompressionLevel::Slowest,
                chunk_bytes: Some(4 << 20),
                ..defaults
            },
            Some(other) => {
                return Err(setting(
                    "preset",
                    format!("one of {}", PRESETS.join(", ")),
                    format!("{other:?}"),
                ));
            }
        })
    }

    /// Compresses each topic of `by_topic` with the codec it names, one of [`Compression::NAMES`].
    ///
    /// # Errors
    /// Another name; a file without chunks.
    pub(crate) fn with_topic_compression(
        mut self,
        by_topic: &BTreeMap<String, String>,
    ) -> StorageResult<Self> {
        for (topic, name) in by_topic {
            let number = Compression::NAMES.iter().position(|known| known == name);
            let compression = number.map(|number| Compression::ALL[number]);
            let compression = compression.filter(|wanted| self.chunking || *wanted == Compression::None);
            let compression = compression.ok_or_else(|| {
                let expected = if self.chunking {
                    format!("one of {}", Compression::NAMES.join(", "))
                } else {
                    "none: this preset or configuration writes no chunks".to_owned()
                };
                setting(&format!("compression of {topic}"), expected, format!("{name:?}"))
            })?;
            self.topic_compression.insert(topic.clone(), compression);
        }
        Ok(self)
    }

    /// Whether chunks of some topic are compressed.
    pub(crate) fn compresses(&self) -> bool {
        let mut all = self.topic_compression.values().chain([&self.compression]);
        all.any(|compression| *compression != Compression::None)
    }

    /// Overlays these options with the text of a configuration file; empty text changes nothing.
    ///
    /// # Errors
    /// Text that is not YAML, an unknown key, a value out of range.
    pub fn with_config(mut self, text: &str) -> StorageResult<Self> {
        let parsed: Option<ConfigFile> = holdall_model::yaml::read_into(text).map_err(|error| {
            setting(
                "configuration file",
                "the keys and values of rosbag2's MCAP storage",
                error.to_string(),
            )
        })?;
        let file = parsed.unwrap_or_default();
        let off = |target: &mut bool, no: Option<bool>| *target = no.map_or(*target, |no| !no);
        off(&mut self.chunk_crc, file.no_chunk_crc);
        off(&mut self.attachment_crc, file.no_attachment_crc);
        self.data_crc = file.enable_data_crc.unwrap_or(self.data_crc);
        off(&mut self.summary_crc, file.no_summary_crc);
        off(&mut self.chunking, file.no_chunking);
        off(&mut self.message_index, file.no_message_index);
        off(&mut self.summary, file.no_summary);
        off(&mut self.repeated_schemas, file.no_repeated_schemas);
        off(&mut self.repeated_channels, file.no_repeated_channels);
        off(&mut self.attachment_index, file.no_attachment_index);
        off(&mut self.metadata_index, file.no_metadata_index);
        off(&mut self.chunk_index, file.no_chunk_index);
        off(&mut self.statistics, file.no_statistics);
        off(&mut self.summary_offsets, file.no_summary_offsets);
        self.compression = file.compression.unwrap_or(self.compression);
        self.compression_level = file.compression_level.unwrap_or(self.compression_level);
        self.force_compression = file.force_compression.unwrap_or(self.force_compression);
        if let Some(bytes) = file.chunk_size {
            if bytes == 0 || bytes > CHUNK_BYTES_MAX {
                return Err(setting(
                    "chunkSize",
                    format!("1 to {CHUNK_BYTES_MAX} bytes"),
                    bytes.to_string(),
                ));
            }
            self.chunk_bytes = Some(bytes);
        }
        if let Some(bytes) = file.index_checkpoint_size {
            if bytes == 0 {
                return Err(setting(
                    "indexCheckpointSize",
                    "1 byte or more".to_owned(),
                    "0".to_owned(),
                ));
            }
            self.checkpoint_bytes = Some(bytes);
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_and_index_are_on_by_default() {
        let options = McapOptions::default();
        assert!(options.chunk_crc && options.data_crc && options.summary_crc);
        assert!(options.chunking && options.message_index && options.chunk_index && options.statistics);
    }

    #[test]
    fn presets_are_those_of_rosbag2() {
        for name in PRESETS {
            McapOptions::preset(Some(name)).unwrap();
        }
        assert!(!McapOptions::preset(Some("fastwrite")).unwrap().chunking);
        assert_eq!(
            McapOptions::preset(Some("zstd_small")).unwrap().chunk_bytes,
            Some(4_194_304)
        );
        let error = McapOptions::preset(Some("fast")).unwrap_err().to_string();
        assert!(
            error.contains("fastwrite") && error.contains("\"fast\""),
            "{error}"
        );
    }

    #[test]
    fn the_configuration_file_is_laid_over_the_preset() {
        let text = "noChunkCRC: false\nnoSummary: true\nchunkSize: 1000\ncompression: Lz4\ncompressionLevel: Slow\nenableDataCRC: false\n";
        let options = McapOptions::preset(Some("zstd_fast"))
            .unwrap()
            .with_config(text)
            .unwrap();
        assert!(options.chunk_crc && !options.summary && !options.data_crc);
        assert_eq!(options.chunk_bytes, Some(1000));
        assert_eq!(
            (options.compression, options.compression_level),
            (Compression::Lz4, CompressionLevel::Slow)
        );
        assert_eq!(
            McapOptions::default().with_config("").unwrap(),
            McapOptions::default()
        );
    }

    #[test]
    fn every_key_of_rosbag2_is_known() {
        let keys = [
            "noChunkCRC",
            "noCRC",
            "noAttachmentCRC",
            "enableDataCRC",
            "noSummaryCRC",
            "noChunking",
            "noMessageIndex",
            "noSummary",
            "forceCompression",
            "noRepeatedSchemas",
            "noRepeatedChannels",
            "noAttachmentIndex",
            "noMetadataIndex",
            "noChunkIndex",
            "noStatistics",
            "noSummaryOffsets",
        ];
        for key in keys {
            McapOptions::default()
                .with_config(&format!("{key}: true"))
                .unwrap();
        }
    }

    #[test]
    fn unknown_keys_and_values_are_refused_by_name() {
        for text in [
            "noChunkCrc: true",
            "compression: Gzip",
            "chunkSize: -1",
            "chunkSize: 0",
            "indexCheckpointSize: 0",
            "- a",
            "noSummary: maybe",
        ] {
            let error = McapOptions::default().with_config(text).unwrap_err();
            assert!(matches!(error, StorageError::Setting { .. }), "{text}: {error}");
        }
        assert!(
            McapOptions::default()
                .with_config("noChunkCrc: true")
                .unwrap_err()
                .to_string()
                .contains("noChunkCrc")
        );
    }
}
