//! Reads metadata texts of every version that rosbag2 has written, in any key order and quoting.

use super::{BagMetadata, FileInformation, NO_STARTING_TIME, TopicWithMessageCount, WRAPPER_KEY};
use crate::{
    qos,
    time::Timestamp,
    topic::{TopicInfo, TopicOrigin},
    yaml::{self, Node, YamlError},
};
use std::{collections::BTreeMap, time::Duration};

/// Why a metadata text could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// It is not YAML, or a value is missing or wrong.
    #[error("cannot read bag metadata: {0}")]
    Yaml(#[from] YamlError),
    /// A version that does not exist.
    #[error("cannot read bag metadata: version {found} does not exist; versions begin with 1")]
    Version {
        /// The version in the text.
        found: u32,
    },
}

impl BagMetadata {
    /// Reads `metadata.yaml`, or the same without its top key as MCAP and SQLite files hold it.
    ///
    /// Keys that came with later versions than the text's stay empty. Unknown keys are skipped, so versions
    /// after 9 are read with the known keys. Up to version 3 paths began with the bag directory's
    /// name: it is removed.
    ///
    /// # Errors
    /// When a key that the text's version must have is missing, or a value has the wrong form.
    pub fn from_yaml(text: &str) -> Result<Self, MetadataError> {
        let root = yaml::parse(text)?;
        let node = root.get(WRAPPER_KEY).unwrap_or(&root);
        let version = node.require("version")?.as_number()?;
        if version == 0 {
            return Err(MetadataError::Version { found: version });
        }
        Ok(read_metadata(node, version)?)
    }

    /// As [`BagMetadata::from_yaml`], without topics and files: a storage file's own copy lists all files before
    /// it, so that the copies of 1 159 files have 120 MB of YAML; nothing else in it is needed.
    ///
    /// # Errors
    /// The same errors, except that the lists are not read.
    pub fn from_yaml_without_lists(text: &str) -> Result<Self, MetadataError> {
        let mut metadata = Self::from_yaml(&without_lists(text))?;
        metadata.topics_with_message_count.clear();
        metadata.relative_file_paths.clear();
        metadata.files.clear();
        Ok(metadata)
    }
}

/// The keys whose lists grow with the bag.
const LISTS: [&str; 3] = ["topics_with_message_count:", "relative_file_paths:", "files:"];

/// The text with its lists emptied, if they are in block style as in all versions of rosbag2; any other text
/// stays the same.
fn without_lists(text: &str) -> String {
    let indent_of = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let keys = match text.split_once('\n') {
        Some((first, rest)) if first.trim_end() == format!("{WRAPPER_KEY}:") => rest,
        _ => text,
    };
    let indent = indent_of(keys);
    let mut kept = String::with_capacity(1024);
    let mut is_list = false;
    for line in text.split_inclusive('\n') {
        let (at, content) = (indent_of(line), line.trim());
        is_list =
            is_list && (at > indent || (at == indent && content.starts_with("- ")) || content.is_empty());
        if is_list {
            continue;
        }
        is_list = at == indent && LISTS.contains(&content);
        if is_list {
            kept.push_str(&line[..at]);
            kept.push_str(content);
            kept.push_str(" []\n");
        } else {
            kept.push_str(line);
        }
    }
    kept
}

fn read_metadata(node: &Node, version: u32) -> Result<BagMetadata, YamlError> {
    let paths = node.require("relative_file_paths")?.as_sequence()?;
    let relative_file_paths = paths.iter().map(|path| relative_path(path, version));
    let topics = node.require("topics_with_message_count")?.as_sequence()?;
    let compression = |key| text_since(node, key, version, 3);
    Ok(BagMetadata {
        version,
        storage_identifier: node.require("storage_identifier")?.as_str()?.to_owned(),
        duration: duration(node)?,
        starting_time: starting_time(node)?,
        message_count: node.require("message_count")?.as_number()?,
        topics_with_message_count: topics
            .iter()
            .map(|topic| read_topic(topic, version))
            .collect::<Result<_, _>>()?,
        compression_format: compression("compression_format")?,
        compression_mode: compression("compression_mode")?,
        relative_file_paths: relative_file_paths.collect::<Result<_, _>>()?,
        files: read_files(node, version)?,
        custom_data: read_custom_data(node, version)?,
        ros_distro: Some(text_since(node, "ros_distro", version, 8)?).filter(|distro| !distro.is_empty()),
    })
}

fn relative_path(node: &Node, version: u32) -> Result<String, YamlError> {
    let path = node.as_str()?;
    let inside = if version < 4 {
        path.rsplit('/').next().unwrap_or(path)
    } else {
        path
    };
    Ok(inside.to_owned())
}

/// A text that a key holds since version `since`; empty before.
fn text_since(node: &Node, key: &str, version: u32, since: u32) -> Result<String, YamlError> {
    match node.get(key) {
        Some(value) => Ok(value.as_str()?.to_owned()),
        None if version < since => Ok(String::new()),
        None => Err(node.error(format!(
            "the key {key} is missing, version {version} must have it"
        ))),
    }
}

/// A duration; a negative one in damaged metadata becomes zero.
fn duration(node: &Node) -> Result<Duration, YamlError> {
    let nanos: i64 = node.require("duration")?.require("nanoseconds")?.as_number()?;
    Ok(Duration::from_nanos(nanos.max(0).unsigned_abs()))
}

fn starting_time(node: &Node) -> Result<Option<Timestamp>, YamlError> {
    let nanos: i64 = node
        .require("starting_time")?
        .require("nanoseconds_since_epoch")?
        .as_number()?;
    Ok((nanos != NO_STARTING_TIME).then_some(Timestamp::from_nanos(nanos)))
}

fn read_topic(node: &Node, version: u32) -> Result<TopicWithMessageCount, YamlError> {
    let topic = match node.get("topic_and_type") {
        // Absent before the release of Crystal.
        Some(topic) if version == 1 => topic,
        _ => node.require("topic_metadata")?,
    };
    let text = |key| topic.require(key)?.as_str().map(str::to_owned);
    let offered_qos_profiles = match topic.get("offered_qos_profiles") {
        Some(profiles) => qos::profiles_from_yaml(profiles)?,
        // Absent in version 4 before the release of Foxy (rosbag2's own test bags of 2020).
        None if version < 5 => Vec::new(),
        None => return Err(topic.error("the key offered_qos_profiles is missing")),
    };
    Ok(TopicWithMessageCount {
        topic_metadata: TopicInfo {
            name: text("name")?,
            type_name: text("type")?,
            serialization_format: text("serialization_format")?,
            offered_qos_profiles,
            type_description_hash: text_since(topic, "type_description_hash", version, 7)?,
            origin: read_origin(topic)?,
            publisher: None,
        },
        message_count: node.require("message_count")?.as_number()?,
    })
}

/// The key is holdall's own, so it may be missing in any version.
fn read_origin(topic: &Node) -> Result<Option<TopicOrigin>, YamlError> {
    let Some(origin) = topic.get("origin") else {
        return Ok(None);
    };
    let texts = origin
        .as_map()?
        .iter()
        .map(|(key, value)| Ok((key.clone(), value.as_str()?.to_owned())))
        .collect::<Result<BTreeMap<_, _>, YamlError>>()?;
    Ok(TopicOrigin::from_texts(&texts))
}

fn read_files(node: &Node, version: u32) -> Result<Vec<FileInformation>, YamlError> {
    let Some(files) = node.get("files") else {
        return if version < 5 {
            Ok(Vec::new())
        } else {
            Err(node.error("the key files is missing"))
        };
    };
    files
        .as_sequence()?
        .iter()
        .map(|file| read_file(file, version))
        .collect()
}

fn read_file(node: &Node, version: u32) -> Result<FileInformation, YamlError> {
    Ok(FileInformation {
        path: relative_path(node.require("path")?, version)?,
        starting_time: starting_time(node)?,
        duration: duration(node)?,
        message_count: node.require("message_count")?.as_number()?,
    })
}

fn read_custom_data(node: &Node, version: u32) -> Result<BTreeMap<String, String>, YamlError> {
    let Some(data) = node.get("custom_data") else {
        return if version < 6 {
            Ok(BTreeMap::new())
        } else {
            Err(node.error("the key custom_data is missing"))
        };
    };
    data.as_map()?
        .iter()
        .map(|(key, value)| Ok((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every fixture, with and without its top key.
    #[test]
    fn without_lists_the_rest_is_the_same() {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/metadata");
        let mut shortened = 0;
        for entry in std::fs::read_dir(data).unwrap().flatten() {
            let Ok(text) = std::fs::read_to_string(entry.path()) else {
                continue;
            };
            let Ok(mut whole) = BagMetadata::from_yaml(&text) else {
                continue;
            };
            whole.topics_with_message_count.clear();
            whole.relative_file_paths.clear();
            whole.files.clear();
            let inner = text.split_once('\n').map_or("", |(_, rest)| rest);
            for text in [text.as_str(), inner] {
                if BagMetadata::from_yaml(text).is_err() {
                    continue;
                }
                let short = BagMetadata::from_yaml_without_lists(text);
                assert_eq!(short.as_ref(), Ok(&whole), "{}", entry.path().display());
                shortened += usize::from(without_lists(text).len() < text.len() / 2);
            }
        }
        assert!(shortened > 3, "{shortened} texts got shorter");
    }

    #[test]
    fn custom_data_that_looks_like_a_list_stays() {
        let text = "version: 9\nstorage_identifier: mcap\nduration:\n  nanoseconds: 1\nstarting_time:\n  nanoseconds_since_epoch: 2\n\
            message_count: 1\ntopics_with_message_count:\n- topic_metadata:\n    name: /a\nrelative_file_paths:\n- a.mcap\n\
            files:\n- path: a.mcap\n\ncompression_format: zstd\ncompression_mode: FILE\ncustom_data:\n  files: \"- x\"\n  \"files:\": y\n\
            ros_distro: jazzy\n";
        let read = BagMetadata::from_yaml_without_lists(text).unwrap();
        assert_eq!(
            (
                read.compression_mode.as_str(),
                read.ros_distro.as_deref().unwrap_or_default()
            ),
            ("FILE", "jazzy")
        );
        assert_eq!(read.custom_data["files"], "- x");
        assert_eq!(read.custom_data["files:"], "y");
    }
}
