//! How `holdall record` stores: the storage and its settings.

use super::{UsageError, names, read_file, surroundings::Surroundings};
use crate::args::record::{BagArguments, RecordArguments};
use holdall_storage::{Storage, StorageOptions, storage_by_id};
use std::collections::BTreeMap;

/// The storage of `--storage`.
pub(super) fn storage(args: &BagArguments) -> Result<&'static dyn Storage, UsageError> {
    storage_by_id(&args.storage).map_err(|error| UsageError::BadValue {
        flag: "--storage",
        value: args.storage.clone(),
        reason: error.to_string(),
    })
}

/// Preset, text of the configuration file, and compressions of topics, each tried by the storage.
pub(super) fn storage_options(
    args: &RecordArguments,
    surroundings: &Surroundings<'_>,
) -> Result<StorageOptions, UsageError> {
    const CONFIG: &str = "--storage-config-file";
    let storage = storage(&args.bag)?;
    let preset = args.bag.storage_preset_profile.as_ref();
    let mut options = StorageOptions {
        preset: preset.filter(|preset| !preset.is_empty()).cloned(),
        ..StorageOptions::default()
    };
    let refuse = |flag, value: &str, reason: String| UsageError::BadValue {
        flag,
        value: value.to_owned(),
        reason,
    };
    storage.check_options(&options).map_err(|error| {
        let preset = options.preset.as_deref().unwrap_or_default();
        refuse("--storage-preset-profile", preset, error.to_string())
    })?;
    if let Some(path) = &args.bag.storage_config_file {
        options.config = Some(read_file(surroundings, CONFIG, path)?);
        storage
            .check_options(&options)
            .map_err(|error| UsageError::BrokenFile {
                flag: CONFIG,
                path: path.clone(),
                reason: error.to_string(),
            })?;
    }
    options.topic_compression = compressions(&args.compression.topic_compression, storage)?;
    storage.check_options(&options).map_err(|error| {
        refuse(
            "--topic-compression",
            &args.compression.topic_compression.join(" "),
            error.to_string(),
        )
    })?;
    Ok(options)
}

/// `TOPIC=CODEC` pairs; the last one of a topic counts.
fn compressions(pairs: &[String], storage: &dyn Storage) -> Result<BTreeMap<String, String>, UsageError> {
    const FLAG: &str = "--topic-compression";
    let known = storage.topic_compressions();
    let compression = |pair: &String| {
        let refuse = |reason: String| UsageError::BadValue {
            flag: FLAG,
            value: pair.clone(),
            reason,
        };
        if known.is_empty() {
            return Err(refuse(format!(
                "{} cannot compress single topics",
                storage.title()
            )));
        }
        let (topic, codec) = pair.rsplit_once('=').unwrap_or((pair, ""));
        let codec = known.iter().find(|known| **known == codec.trim());
        let codec =
            codec.ok_or_else(|| refuse(format!("expected TOPIC=CODEC with one of {}", known.join(", "))))?;
        Ok((names::full_name(FLAG, topic.trim())?, (*codec).to_owned()))
    };
    pairs.iter().map(compression).collect()
}
