//! `holdall bench run write`, `storage` and `tools`: from flags to options.

use super::{failure, show, show_progress, start_log};
use crate::{
    VerbResult,
    args::kinds::{CompressionName, SharedArguments, StorageArguments, ToolsArguments, WriteArguments},
    output,
};
use holdall::{record::options::CacheOptions, writer::SplitOptions};
use holdall_bench::{
    candidate::{ours::DiskChoice, producers::OfferOptions},
    engine::Common,
    kinds::{
        storage::{
            self, ComparisonConfig, StorageBenchOptions, StorageConfiguration, absent_configurations,
            default_configurations, storage_table,
        },
        tools::{self, ToolsBenchOptions, tools_table},
        write::{self, WriteOptions, write_table},
    },
    workload::{Content, Load, SizeMix},
};
use holdall_io::{
    clock::{Clock, SystemClock},
    os::DiskMode,
    process::memory_bytes,
};
use holdall_program::{
    exit::{Failure, Outcome},
    settings::read_small_file,
    units::parse_bytes,
};
use holdall_storage::StorageOptions;
use std::{env, path::Path, sync::Arc};
use tracing::warn;

/// The recorder, and rivals in turn with it.
pub(super) fn write(args: &WriteArguments) -> VerbResult {
    start_log(args.shared.json);
    let options = write_options(args)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let report = write::run(&options, &clock, &mut show_progress).map_err(failure)?;
    show(args.shared.json, &report, || write_table(&report))?;
    let is_lossy = report.body.candidates().any(|candidate| candidate.lost > 0);
    Ok(if is_lossy { Outcome::Lost } else { Outcome::Done })
}

/// Storages alone, or a file of the storage plugin comparison.
pub(super) fn storage(args: &StorageArguments) -> VerbResult {
    start_log(args.shared.json);
    let options = storage_options(args)?;
    let report = storage::run(&options, &SystemClock, &mut show_progress).map_err(failure)?;
    let first = report.body.cells.first().and_then(|cell| cell.runs.first());
    match first.and_then(|run| run.calls.as_ref()).filter(|_| args.csv) {
        Some(calls) => output::file(&calls.csv)?,
        None => show(args.shared.json, &report, || storage_table(&report))?,
    }
    Ok(Outcome::Done)
}

/// Work on whole bags.
pub(super) fn tools(args: &ToolsArguments) -> VerbResult {
    start_log(args.json);
    let options = ToolsBenchOptions {
        common: Common {
            out: args.out.clone(),
            keep: false,
            verify: false,
            repeat: args.repeat,
            resume: args.resume,
            disk: DiskChoice::Os(DiskMode::Auto),
            limit_bytes: None,
            content: Content::Entropy(8.0),
            seed: args.seed,
            command: command(&args.out),
        },
        input_bytes: args.size,
        cold: !args.warm,
        python: args.python.clone(),
    };
    let report = tools::run(&options, &SystemClock, &mut show_progress).map_err(failure)?;
    show(args.json, &report, || tools_table(&report))?;
    Ok(Outcome::Done)
}

fn common(shared: &SharedArguments, repeat: u32) -> Result<Common, Failure> {
    Ok(Common {
        out: shared.out.clone(),
        keep: shared.keep,
        verify: !shared.no_verify,
        repeat,
        resume: shared.resume,
        disk: if shared.memory {
            DiskChoice::Discard
        } else {
            DiskChoice::Os(shared.disk_mode.into())
        },
        limit_bytes: shared.limit_total,
        content: shared
            .content
            .parse()
            .map_err(|error| Failure::refused(format!("--content: {error}")))?,
        seed: shared.seed,
        command: command(&shared.out),
    })
}

/// The command line with another name for the folder, which is of no interest to others.
fn command(out: &Path) -> String {
    let out = out.display().to_string();
    let words = env::args().skip(1).map(|word| match word.strip_prefix("--out=") {
        Some(_) => "--out=DIR".to_owned(),
        None if word == out => "DIR".to_owned(),
        None => word,
    });
    let words: Vec<String> = ["holdall bench".to_owned()].into_iter().chain(words).collect();
    words.join(" ")
}

pub(super) fn size_mix(text: &str, flag: &str) -> Result<SizeMix, Failure> {
    if text == "mixed" {
        return Ok(SizeMix::mixed());
    }
    let bytes =
        parse_bytes(text).map_err(|error| Failure::refused(format!("{flag} {text}: {error}, or mixed")))?;
    usize::try_from(bytes)
        .map(SizeMix::single)
        .map_err(|_| Failure::refused(format!("{flag} {text}: too large")))
}

fn bytes_in_memory(bytes: u64, flag: &str) -> Result<usize, Failure> {
    usize::try_from(bytes).map_err(|_| Failure::refused(format!("{flag} {bytes}: larger than memory can be")))
}

fn storage_config(args: &WriteArguments) -> Result<Option<String>, Failure> {
    let read = |path: &Path| {
        read_small_file(path)
            .map_err(|error| Failure::refused(format!("cannot read {}: {error}", path.display())))
    };
    let of_codec = |codec| {
        let name = match codec {
            CompressionName::Lz4 => "Lz4",
            CompressionName::Zstd => "Zstd",
        };
        format!("compression: {name}")
    };
    match &args.storage_config_file {
        Some(path) => read(path).map(Some),
        None => Ok(args.compression.map(of_codec)),
    }
}

/// Messages that a paced run of this length sends; `None` if it has no length.
fn paced_bytes(args: &WriteArguments, mix: &SizeMix) -> Option<u64> {
    let (duration, rate) = (args.duration?, args.rate?);
    let messages = (duration.as_secs_f64() * rate).round().max(0.0);
    // Negative and endless rates are refused later, by the load itself; the conversion keeps within range.
    Some((messages * mix.mean_bytes()).ceil() as u64)
        .map(|bytes| bytes.saturating_mul(u64::from(args.producers)))
}

fn cache_bytes(args: &WriteArguments) -> u64 {
    args.max_cache_size
        .unwrap_or_else(|| CacheOptions::bytes_max_by_memory(memory_bytes(read_small_file), false))
}

fn write_options(args: &WriteArguments) -> Result<WriteOptions, Failure> {
    let mix = size_mix(&args.size, "--size")?;
    let candidates = args
        .storage
        .iter()
        .map(|name| name.parse())
        .collect::<Result<_, _>>()
        .map_err(failure)?;
    let policy = args.cache_policy.into();
    let common = common(&args.shared, args.repeat)?;
    Ok(WriteOptions {
        load: Load {
            content: common.content,
            total_bytes: paced_bytes(args, &mix).unwrap_or(args.total),
            producers: args.producers,
            topics: args
                .topics
                .unwrap_or_else(|| Load::topics_min(&mix, args.producers)),
            rate_hz: args.rate,
            seed: args.shared.seed,
            mix,
        },
        common,
        candidates,
        storage: StorageOptions {
            preset: Some(args.preset.clone()).filter(|preset| !preset.is_empty()),
            config: storage_config(args)?,
            compression_threads: args.threads,
            ..StorageOptions::default()
        },
        cache: CacheOptions {
            bytes_max: bytes_in_memory(cache_bytes(args), "--max-cache-size")?,
            policy,
            ..CacheOptions::default()
        },
        split: SplitOptions {
            bytes_max: args.max_bag_size,
            files_max: args.max_bag_files,
            duration_max: None,
        },
        max_loss_window: (!args.max_loss_window.is_zero()).then_some(args.max_loss_window),
        offer: OfferOptions {
            lossless: !args.drop && args.rate.is_none(),
            loan_bytes_min: bytes_in_memory(args.loan_from, "--loan-from")?,
            fragment_bytes: args
                .fragment
                .map_or(Ok(usize::MAX), |bytes| bytes_in_memory(bytes, "--fragment"))?,
        },
    })
}

fn storage_options(args: &StorageArguments) -> Result<StorageBenchOptions, Failure> {
    let configurations = if args.configs.is_empty() {
        for (name, what_to_do) in absent_configurations() {
            warn!("{name} is left out: {what_to_do}");
        }
        let all = default_configurations().into_iter();
        all.filter(|one| !args.shared.memory || one.can_discard())
            .collect()
    } else {
        let named = args.configs.iter().map(|name| name.parse());
        named
            .collect::<Result<Vec<StorageConfiguration>, _>>()
            .map_err(failure)?
    };
    let sizes = args.sizes.iter().map(|size| size_mix(size, "--sizes"));
    let config = args.config.as_deref().map(ComparisonConfig::read).transpose();
    Ok(StorageBenchOptions {
        sizes: sizes.collect::<Result<_, _>>()?,
        batches: args.batches.clone(),
        configurations,
        total_bytes: args.total,
        config: config.map_err(Failure::refused)?,
        common: common(&args.shared, args.repeat)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{BenchVerb, Cli, kinds::RunKind};
    use clap::Parser;

    fn args(line: &str) -> Result<WriteOptions, String> {
        let cli = Cli::try_parse_from(line.split(' ')).map_err(|error| error.to_string())?;
        let args = match cli.verb {
            BenchVerb::Write(args) => args,
            BenchVerb::Run(run) => match run.kind {
                Some(RunKind::Write(args)) => args,
                other => return Err(format!("not the kind write: {other:?}")),
            },
            _ => return Err("not bench write".into()),
        };
        write_options(&args).map_err(|failure| failure.sentence().to_owned())
    }

    #[test]
    fn the_command_of_the_issue_is_understood_in_both_spellings() {
        for line in [
            "holdall-bench write --size 1MiB --total 8GB --out DIR --json",
            "holdall-bench run write --size 1MiB --total 8GB --out DIR --json",
        ] {
            let options = args(line).unwrap();
            assert_eq!(
                (options.load.mix.label(), options.load.total_bytes),
                ("1MiB".to_owned(), 8_000_000_000)
            );
            assert_eq!(
                (options.candidates[0].to_string(), options.common.repeat),
                ("mcap".to_owned(), 1)
            );
            assert!(options.offer.lossless && options.common.verify && !options.common.keep);
        }
    }

    #[test]
    fn a_paced_run_is_as_long_as_it_should_be_and_may_drop() {
        let line = "holdall-bench run write --size 6220800 --producers 8 --rate 30 --duration 60 --out DIR";
        let options = args(line).unwrap();
        assert_eq!(options.load.total_bytes, 8 * 60 * 30 * 6_220_800);
        assert!(!options.offer.lossless);
    }

    #[test]
    fn mixed_sizes_get_their_topics_and_codecs_their_configuration() {
        let options = args(
            "holdall-bench run write --size mixed --producers 2 --compression zstd --threads 2 --out DIR",
        )
        .unwrap();
        assert_eq!((options.load.topics, options.storage.compression_threads), (6, 2));
        assert_eq!(options.storage.config.as_deref(), Some("compression: Zstd"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_one_sentence() {
        assert!(
            args("holdall-bench run write --size tiny --out DIR")
                .unwrap_err()
                .contains("--size tiny")
        );
        assert!(
            args("holdall-bench run write --storage tape --out DIR")
                .unwrap_err()
                .contains("tape")
        );
        assert!(
            args("holdall-bench run write --content noise --out DIR")
                .unwrap_err()
                .contains("noise")
        );
        assert!(args("holdall-bench run write --duration 5 --out DIR").is_err());
        assert!(args("holdall-bench run write").is_err());
    }
}
