//! Resolves the arguments of the verbs that work on bags: choices, outputs and divisions.

use super::{
    UsageError, choice::questions, names, pattern, read_file, record::custom_data, surroundings::Surroundings,
};
use crate::args::tools::{Codec, DivisionArguments, Level, OutputArguments, SelectionArguments};
use holdall::{
    keys::Seal,
    tools::{Choice, FieldChange, LatchedMode, OutputOptions, Shift, SplitAt},
    writer::CompressionOptions,
};
use holdall_model::{quantity::parse_hertz, selection::Selection};
use holdall_storage::{StorageOptions, storage_by_id};
use std::{collections::BTreeMap, path::Path};

/// Which messages are selected.
///
/// # Errors
/// The first argument that cannot be used.
pub fn choice(args: &SelectionArguments) -> Result<Choice, UsageError> {
    Ok(Choice {
        selection: Selection {
            topics: names::full_names("--topics", &args.topics)?,
            services: names::full_names("--services", &args.services)?,
            topic_types: names::type_names("--topic-types", &args.topic_types)?,
            regex: pattern::compile("--regex", args.regex.as_deref())?,
            exclude_regex: pattern::compile("--exclude-regex", args.exclude_regex.as_deref())?,
            exclude_topics: names::full_names("--exclude-topics", &args.exclude_topics)?,
            exclude_services: names::full_names("--exclude-services", &args.exclude_services)?,
            exclude_topic_types: names::type_names("--exclude-topic-types", &args.exclude_topic_types)?,
            // In a bag there is no reason to hide topics.
            include_hidden_topics: true,
            include_unpublished_topics: true,
            ..Selection::default()
        },
        publishers: args.publisher.clone(),
        start: args.start.clone(),
        end: args.end.clone(),
        rates: args
            .rates
            .iter()
            .map(|text| rate(text))
            .collect::<Result<_, _>>()?,
        questions: questions(&args.questions)?,
        is_lenient: false,
    })
}

/// `/topic=10` or `10`.
fn rate(text: &str) -> Result<(String, f64), UsageError> {
    let bad = |reason: &str| UsageError::BadValue {
        flag: "--max-rate",
        value: text.to_owned(),
        reason: reason.to_owned(),
    };
    let (topic, number) = match text.rsplit_once('=') {
        Some((topic, number)) => (names::full_name("--max-rate", topic)?, number),
        None => (String::new(), text),
    };
    let hertz = parse_hertz(number).map_err(|error| {
        bad(&format!(
            "expected a number of messages a second, or /topic=number: {error}"
        ))
    })?;
    // Periods of more than a day are spelling mistakes, and must fit.
    if !(1e-5..=1e9).contains(&hertz) {
        return Err(bad(
            "expected a number of messages a second from 0.00001 to 1000000000",
        ));
    }
    Ok((topic, hertz))
}

/// The fields that get other values.
///
/// # Errors
/// The first that has no topic, field or value.
pub fn changes(texts: &[String]) -> Result<Vec<FieldChange>, UsageError> {
    let parsed = texts.iter().map(|text| {
        FieldChange::parse(text).map_err(|reason| UsageError::BadValue {
            flag: "--set",
            value: text.clone(),
            reason,
        })
    });
    parsed.collect()
}

/// New names of topics by old.
///
/// # Errors
/// The first rule that is none.
pub fn renames(rules: &[String]) -> Result<BTreeMap<String, String>, UsageError> {
    const FLAG: &str = "--rename";
    let full = |name: String| names::full_name(FLAG, &name);
    let pairs = pairs(FLAG, rules)?.into_iter();
    pairs.map(|(old, new)| Ok((full(old)?, full(new)?))).collect()
}

/// New names of coordinate frames by old.
///
/// # Errors
/// The first rule that is none.
pub fn frames(rules: &[String]) -> Result<BTreeMap<String, String>, UsageError> {
    pairs("--frame", rules)
}

/// `old:=new` rules by old name.
fn pairs(flag: &'static str, rules: &[String]) -> Result<BTreeMap<String, String>, UsageError> {
    let mut by_old = BTreeMap::new();
    for rule in rules {
        let bad = |reason: &str| UsageError::BadValue {
            flag,
            value: rule.clone(),
            reason: reason.to_owned(),
        };
        let (old, new) = rule
            .split_once(":=")
            .filter(|(old, _)| !old.is_empty())
            .ok_or_else(|| bad("expected old:=new"))?;
        if by_old.insert(old.to_owned(), new.to_owned()).is_some() {
            return Err(bad("there are two rules for this name"));
        }
    }
    Ok(by_old)
}

/// When an output is divided.
pub fn division(args: &DivisionArguments) -> SplitAt {
    SplitAt {
        bytes_max: args.max_bag_size.filter(|bytes| *bytes > 0),
        duration_max: args.max_bag_duration.filter(|span| !span.is_zero()),
        count_max: args.count,
        times: Vec::new(),
    }
}

/// Where an output goes and how it is written.
///
/// # Errors
/// The first argument that cannot be used.
pub fn output(
    directory: &Path,
    args: &OutputArguments,
    division: &DivisionArguments,
    surroundings: &Surroundings<'_>,
) -> Result<OutputOptions, UsageError> {
    super::refuse_remote(directory)?;
    if (surroundings.exists)(directory) {
        return Err(UsageError::OutputExists {
            path: directory.to_owned(),
        });
    }
    let storage_options = storage_options(args, surroundings)?;
    let compression = CompressionOptions {
        mode: args.compression_mode.unwrap_or_default(),
        ..CompressionOptions::default()
    };
    Ok(OutputOptions {
        directory: directory.to_owned(),
        storage_id: args.storage.clone(),
        is_rewritten: storage_options != StorageOptions::default() || args.compression_mode.is_some(),
        storage_options,
        split: self::division(division),
        split_moments: division.at.clone(),
        splits_episodes: division.by.is_some(),
        compression,
        migration: None,
        changes: Vec::new(),
        frames: BTreeMap::new(),
        renames: BTreeMap::new(),
        shift: Shift::default(),
        latched: if args.no_latched_state {
            LatchedMode::Leave
        } else {
            LatchedMode::Repeat
        },
        custom_data: custom_data(&args.custom_data)?,
        leaves_out_files: false,
        seal: seal(directory, &args.encrypt_to)?,
    })
}

/// Encryption of the output.
///
/// # Errors
/// An invalid recipient; an output that is not a bag.
pub fn seal(directory: &Path, recipients: &[String]) -> Result<Option<Seal>, UsageError> {
    if recipients.is_empty() {
        return Ok(None);
    }
    if directory == Path::new("-") {
        let reason = "standard output is not encrypted; give the output a name";
        return Err(UsageError::Encryption(reason.to_owned()));
    }
    super::seal_for(recipients).map(Some)
}

fn storage_options(
    args: &OutputArguments,
    surroundings: &Surroundings<'_>,
) -> Result<StorageOptions, UsageError> {
    let mut options = StorageOptions {
        preset: args
            .storage_preset_profile
            .clone()
            .filter(|preset| !preset.is_empty()),
        ..StorageOptions::default()
    };
    let mut config = match &args.storage_config_file {
        Some(path) => read_file(surroundings, "--storage-config-file", path)?,
        None => String::new(),
    };
    if let Some(codec) = args.compression {
        let level = args.level.unwrap_or(Level::Default);
        config = format!("{}\n{}", config.trim_end(), chunk_config(codec, level));
    }
    options.config = Some(config).filter(|config| !config.trim().is_empty());
    // Without a storage, MCAP's settings apply.
    let id = args
        .storage
        .as_deref()
        .unwrap_or(holdall_storage::DEFAULT_STORAGE_ID);
    let bad = |flag: &'static str, value: &str, reason: String| UsageError::BadValue {
        flag,
        value: value.to_owned(),
        reason,
    };
    let storage = storage_by_id(id).map_err(|error| bad("--storage", id, error.to_string()))?;
    if args.compression.is_some() && storage.chunks().is_none() {
        return Err(UsageError::Clash {
            first: "--compression",
            second: "--storage",
            reason: "only MCAP files have chunks; --compression-mode compresses files or messages of any storage",
        });
    }
    storage.check_options(&options).map_err(|error| {
        bad(
            "--storage-config-file or --storage-preset-profile",
            id,
            error.to_string(),
        )
    })?;
    Ok(options)
}

/// The MCAP storage's settings for a codec.
pub fn chunk_config(codec: Codec, level: Level) -> String {
    let codec = match codec {
        Codec::None => "None",
        Codec::Lz4 => "Lz4",
        Codec::Zstd => "Zstd",
    };
    let level = match level {
        Level::Fastest => "Fastest",
        Level::Fast => "Fast",
        Level::Default => "Default",
        Level::Slow => "Slow",
        Level::Slowest => "Slowest",
    };
    format!("compression: {codec}\ncompressionLevel: {level}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn rates_are_for_one_topic_or_all() {
        let args = SelectionArguments {
            rates: vec!["camera=2.5".into(), "10Hz".into()],
            ..SelectionArguments::default()
        };
        let expected: BTreeMap<String, f64> = [("/camera".to_owned(), 2.5), (String::new(), 10.0)].into();
        assert_eq!(choice(&args).unwrap().rates, expected);
        for text in ["", "/a=", "/a=x", "0", "-1", "inf", "NaN", "1e-300"] {
            let args = SelectionArguments {
                rates: vec![text.into()],
                ..SelectionArguments::default()
            };
            assert!(choice(&args).is_err(), "{text}");
        }
    }

    #[test]
    fn settings_of_chunks_are_settings_of_the_storage() {
        let config = chunk_config(Codec::Zstd, Level::Slowest);
        let options = holdall_storage::mcap::McapOptions::default()
            .with_config(&config)
            .unwrap();
        assert_eq!(options.compression.as_str(), "zstd");
        assert_eq!(options.compression_level.zstd(), 19);
    }
}
