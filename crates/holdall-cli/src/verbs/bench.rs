//! `holdall bench`: the cost and the limits of recording on this machine.

use super::{bench_gate, bench_link, bench_live, bench_suite};
use crate::{
    VerbResult,
    args::{
        bench::{
            BenchVerb, CompressionName, SharedArguments, StorageArguments, ToolsArguments, WriteArguments,
        },
        record::DiskModeName,
    },
    exit::{Failure, Outcome},
    output,
    resolve::{
        record::{cache_policy, disk_mode},
        surroundings::read_small_file,
    },
    terminal::log,
    units::parse_bytes,
};
use holdall::{record::options::CacheOptions, writer::SplitOptions};
use holdall_bench::{
    BenchError,
    candidate::{ours::DiskChoice, producers::OfferOptions},
    report::{comparison_table, storage_table, write_table},
    storage::{
        self, ComparisonConfig, ComparisonOptions, StorageBenchOptions, StorageConfiguration,
        absent_configurations, default_configurations,
    },
    tools::{self, ToolsBenchOptions},
    workload::{Content, Load, SizeMix},
    write::{self, Progress, WriteOptions},
};
use holdall_io::{
    clock::{Clock, SystemClock},
    process::memory_bytes,
};
use holdall_storage::StorageOptions;
use std::{path::Path, sync::Arc};
use tracing::{info, level_filters::LevelFilter, warn};

/// Measures.
pub fn run(verb: &BenchVerb) -> VerbResult {
    match verb {
        BenchVerb::Write(args) => run_write(args),
        BenchVerb::Storage(args) => run_storage(args),
        BenchVerb::Tools(args) => run_tools(args),
        BenchVerb::Run(args) => bench_suite::run(args),
        BenchVerb::Report(args) => bench_suite::report(args),
        BenchVerb::Link(args) => bench_link::run(args),
        BenchVerb::Gate(args) => bench_gate::run(args),
        BenchVerb::Publish(args) => bench_live::publish(args),
        BenchVerb::Worker(args) => bench_live::worker(args),
        BenchVerb::Rival(args) => bench_live::rival(args),
        BenchVerb::List { id, json } => bench_suite::list(id.as_deref(), *json),
    }
}

fn run_write(args: &WriteArguments) -> VerbResult {
    start_log(&args.shared);
    let options = write_options(args)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let report = write::run(&options, &clock, &mut show_progress).map_err(failure)?;
    let lost = std::iter::once(&report.first)
        .chain(&report.others)
        .any(|candidate| candidate.lost > 0);
    show(args.shared.json, &report, || write_table(&report))?;
    Ok(if lost { Outcome::Lost } else { Outcome::Done })
}

fn run_storage(args: &StorageArguments) -> VerbResult {
    start_log(&args.shared);
    if let Some(config) = &args.config {
        return run_comparison(args, config);
    }
    let options = storage_options(args)?;
    let report = storage::run(&options, &SystemClock, &mut show_progress).map_err(failure)?;
    show(args.shared.json, &report, || storage_table(&report))?;
    Ok(Outcome::Done)
}

/// One file of the storage plugin comparison.
fn run_comparison(args: &StorageArguments, config: &Path) -> VerbResult {
    let options = ComparisonOptions {
        config: ComparisonConfig::read(config).map_err(Failure::refused)?,
        content: content(&args.shared)?,
        repeat: args.repeat,
        disk_mode: disk_mode(args.shared.disk_mode),
        out: args.shared.out.clone(),
        keep: args.shared.keep,
        seed: args.shared.seed,
        limit_bytes: args.shared.limit_total,
    };
    let report = storage::run_comparison(&options, &SystemClock, &mut show_progress).map_err(failure)?;
    if args.csv {
        let path = &report.runs[0].csv;
        output::file(path)?;
    } else {
        show(args.shared.json, &report, || comparison_table(&report))?;
    }
    Ok(Outcome::Done)
}

fn content(shared: &SharedArguments) -> Result<Content, Failure> {
    shared
        .content
        .parse()
        .map_err(|error| Failure::refused(format!("--content: {error}")))
}

fn run_tools(args: &ToolsArguments) -> VerbResult {
    log::start(if args.json {
        LevelFilter::WARN
    } else {
        LevelFilter::INFO
    });
    let options = ToolsBenchOptions {
        input_bytes: args.size,
        repeat: args.repeat,
        cold: !args.warm,
        out: args.out.clone(),
        python: args.python.clone(),
        seed: args.seed,
    };
    let report = tools::run(&options, &SystemClock, &mut show_progress).map_err(failure)?;
    show(args.json, &report, || tools::table(&report))?;
    Ok(Outcome::Done)
}

/// Standard error is for progress; with `--json` only for warnings.
fn start_log(shared: &SharedArguments) {
    log::start(if shared.json {
        LevelFilter::WARN
    } else {
        LevelFilter::INFO
    });
}

fn show(json: bool, report: &impl serde::Serialize, table: impl FnOnce() -> String) -> Result<(), Failure> {
    output::result(&if json {
        serde_json::to_string_pretty(report).map_err(Failure::failed)?
    } else {
        table()
    })
}

pub(super) fn show_progress(progress: Progress) {
    match progress {
        Progress::Limits => info!("measuring the limits of this machine"),
        Progress::Running {
            candidate,
            repetition,
        } => info!("{candidate}, run {repetition}"),
        Progress::Verifying => info!("reading back what was written"),
    }
}

pub(super) fn failure(error: BenchError) -> Failure {
    if error.is_refusal() {
        Failure::refused(error)
    } else {
        Failure::failed(error)
    }
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

/// Messages that a paced run of this length sends; `None` when it has no length.
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
    let policy = cache_policy(args.cache_policy);
    Ok(WriteOptions {
        load: Load {
            content: content(&args.shared)?,
            total_bytes: paced_bytes(args, &mix).unwrap_or(args.total),
            producers: args.producers,
            topics: args
                .topics
                .unwrap_or_else(|| Load::topics_min(&mix, args.producers)),
            rate_hz: args.rate,
            seed: args.shared.seed,
            mix,
        },
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
        disk_mode: disk_mode(args.shared.disk_mode),
        discard: args.shared.memory,
        offer: OfferOptions {
            lossless: !args.drop && args.rate.is_none(),
            loan_bytes_min: bytes_in_memory(args.loan_from, "--loan-from")?,
            fragment_bytes: args
                .fragment
                .map_or(Ok(usize::MAX), |bytes| bytes_in_memory(bytes, "--fragment"))?,
        },
        repeat: args.repeat,
        out: args.shared.out.clone(),
        keep: args.shared.keep,
        verify: !args.shared.no_verify,
        limit_bytes: args.shared.limit_total,
    })
}

fn storage_options(args: &StorageArguments) -> Result<StorageBenchOptions, Failure> {
    let named = || {
        args.configs
            .iter()
            .map(|name| name.parse())
            .collect::<Result<Vec<StorageConfiguration>, _>>()
    };
    let configurations = if args.configs.is_empty() {
        for (name, what_to_do) in absent_configurations() {
            warn!("{name} is left out: {what_to_do}");
        }
        default_configurations()
            .into_iter()
            .filter(|one| !args.shared.memory || one.can_discard())
            .collect()
    } else {
        named().map_err(failure)?
    };
    let sizes = args
        .sizes
        .iter()
        .map(|size| size_mix(size, "--sizes"))
        .collect::<Result<_, _>>()?;
    let os = DiskChoice::Os(disk_mode(args.shared.disk_mode));
    Ok(StorageBenchOptions {
        sizes,
        batches: args.batches.clone(),
        configurations,
        total_bytes: args.total,
        content: content(&args.shared)?,
        repeat: args.repeat,
        disk: if args.shared.memory {
            DiskChoice::Discard
        } else {
            os
        },
        out: args.shared.out.clone(),
        keep: args.shared.keep,
        verify: !args.shared.no_verify,
        seed: args.shared.seed,
        limit_bytes: args.shared.limit_total,
        command: storage_command(args),
        resume: false,
    })
}

/// The command line to run the same.
fn storage_command(args: &StorageArguments) -> String {
    let mut words = vec!["holdall bench storage".to_owned()];
    words.push(format!("--sizes {}", args.sizes.join(",")));
    let batches: Vec<String> = args.batches.iter().map(u64::to_string).collect();
    words.push(format!("--batches {}", batches.join(",")));
    if !args.configs.is_empty() {
        words.push(format!("--configs {}", args.configs.join(",")));
    }
    words.push(format!("--total {} --repeat {}", args.total, args.repeat));
    if args.shared.content != "random" {
        words.push(format!("--content {}", args.shared.content));
    }
    if args.shared.memory {
        words.push("--memory".to_owned());
    }
    if let Some(name) = clap::ValueEnum::to_possible_value(&args.shared.disk_mode)
        .filter(|_| args.shared.disk_mode != DiskModeName::Auto)
    {
        words.push(format!("--disk-mode {}", name.get_name()));
    }
    words.push("--out DIR".to_owned());
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Verb};
    use clap::Parser;

    fn args(line: &str) -> Result<WriteOptions, String> {
        let cli = Cli::try_parse_from(line.split(' ')).map_err(|error| error.to_string())?;
        let Verb::Bench {
            verb: BenchVerb::Write(args),
        } = cli.verb
        else {
            return Err("not bench write".into());
        };
        write_options(&args).map_err(|failure| failure.sentence().to_owned())
    }

    #[test]
    fn the_command_of_the_issue_is_understood_as_written() {
        let options = args("holdall bench write --size 1MiB --total 8GB --out DIR --json").unwrap();
        assert_eq!(
            (options.load.mix.label(), options.load.total_bytes),
            ("1MiB".to_owned(), 8_000_000_000)
        );
        assert_eq!(
            (options.candidates[0].to_string(), options.repeat),
            ("mcap".to_owned(), 1)
        );
        assert!(options.offer.lossless && options.verify && !options.keep);
    }

    #[test]
    fn a_paced_run_is_as_long_as_it_should_be_and_may_drop() {
        let line = "holdall bench write --size 6220800 --producers 8 --rate 30 --duration 60 --out DIR";
        let options = args(line).unwrap();
        assert_eq!(options.load.total_bytes, 8 * 60 * 30 * 6_220_800);
        assert!(!options.offer.lossless);
    }

    #[test]
    fn mixed_sizes_get_their_topics_and_codecs_their_configuration() {
        let options =
            args("holdall bench write --size mixed --producers 2 --compression zstd --threads 2 --out DIR")
                .unwrap();
        assert_eq!((options.load.topics, options.storage.compression_threads), (6, 2));
        assert_eq!(options.storage.config.as_deref(), Some("compression: Zstd"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_one_sentence() {
        assert!(
            args("holdall bench write --size tiny --out DIR")
                .unwrap_err()
                .contains("--size tiny")
        );
        assert!(
            args("holdall bench write --storage tape --out DIR")
                .unwrap_err()
                .contains("tape")
        );
        assert!(
            args("holdall bench write --content noise --out DIR")
                .unwrap_err()
                .contains("noise")
        );
        assert!(args("holdall bench write --duration 5 --out DIR").is_err());
        assert!(args("holdall bench write").is_err());
    }
}
