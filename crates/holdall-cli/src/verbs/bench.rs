//! `holdall bench`: the cost and the limits of recording on this machine.

use super::{bench_gate, bench_live, bench_suite};
use crate::{
    VerbResult,
    exit::{Failure, Outcome},
    output,
    terminal::log,
    typed::bench::{
        BenchVerb, CachePolicyName, CompressionName, DiskModeName, SharedArguments, StorageArguments,
        ToolsArguments, WriteArguments,
    },
    units::parse_bytes,
};
use holdall::{
    record::options::{CacheOptions, CachePolicy},
    writer::SplitOptions,
};
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
    os::DiskMode,
    process::memory_bytes,
};
use holdall_storage::StorageOptions;
use std::{fs, path::Path, sync::Arc};
use tracing::{info, level_filters::LevelFilter, warn};

/// Measures.
pub fn run(verb: &BenchVerb) -> VerbResult {
    match verb {
        BenchVerb::Write(typed) => run_write(typed),
        BenchVerb::Storage(typed) => run_storage(typed),
        BenchVerb::Tools(typed) => run_tools(typed),
        BenchVerb::Run(typed) => bench_suite::run(typed),
        BenchVerb::Report(typed) => bench_suite::report(typed),
        BenchVerb::Gate(typed) => bench_gate::run(typed),
        BenchVerb::Publish(typed) => bench_live::publish(typed),
        BenchVerb::Rival(typed) => bench_live::rival(typed),
        BenchVerb::List { id, json } => bench_suite::list(id.as_deref(), *json),
    }
}

fn run_write(typed: &WriteArguments) -> VerbResult {
    start_log(&typed.shared);
    let options = write_options(typed)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let report = write::run(&options, &clock, &mut tell).map_err(failure)?;
    let lost = std::iter::once(&report.first)
        .chain(&report.others)
        .any(|candidate| candidate.lost > 0);
    show(typed.shared.json, &report, || write_table(&report))?;
    Ok(if lost { Outcome::Lost } else { Outcome::Done })
}

fn run_storage(typed: &StorageArguments) -> VerbResult {
    start_log(&typed.shared);
    if let Some(config) = &typed.config {
        return run_comparison(typed, config);
    }
    let options = storage_options(typed)?;
    let report = storage::run(&options, &SystemClock, &mut tell).map_err(failure)?;
    show(typed.shared.json, &report, || storage_table(&report))?;
    Ok(Outcome::Done)
}

/// One file of the storage plugin comparison.
fn run_comparison(typed: &StorageArguments, config: &Path) -> VerbResult {
    let options = ComparisonOptions {
        config: ComparisonConfig::read(config).map_err(Failure::refused)?,
        content: content(&typed.shared)?,
        repeat: typed.repeat,
        disk_mode: disk_mode(typed.shared.disk_mode),
        out: typed.shared.out.clone(),
        keep: typed.shared.keep,
        seed: typed.shared.seed,
        limit_bytes: typed.shared.limit_total,
    };
    let report = storage::run_comparison(&options, &SystemClock, &mut tell).map_err(failure)?;
    if typed.csv {
        let path = &report.runs[0].csv;
        let text = fs::read_to_string(path)
            .map_err(|error| Failure::failed(format!("cannot read {}: {error}", path.display())))?;
        output::result(&text)?;
    } else {
        show(typed.shared.json, &report, || comparison_table(&report))?;
    }
    Ok(Outcome::Done)
}

fn content(shared: &SharedArguments) -> Result<Content, Failure> {
    shared
        .content
        .parse()
        .map_err(|error| Failure::refused(format!("--content: {error}")))
}

fn run_tools(typed: &ToolsArguments) -> VerbResult {
    log::start(if typed.json {
        LevelFilter::WARN
    } else {
        LevelFilter::INFO
    });
    let options = ToolsBenchOptions {
        input_bytes: typed.size,
        repeat: typed.repeat,
        cold: !typed.warm,
        out: typed.out.clone(),
        python: typed.python.clone(),
        seed: typed.seed,
    };
    let report = tools::run(&options, &SystemClock, &mut tell).map_err(failure)?;
    show(typed.json, &report, || tools::table(&report))?;
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

pub(super) fn tell(progress: Progress) {
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

fn disk_mode(name: DiskModeName) -> DiskMode {
    match name {
        DiskModeName::Auto => DiskMode::Auto,
        DiskModeName::Direct => DiskMode::Direct,
        DiskModeName::Buffered => DiskMode::Buffered,
    }
}

fn bytes_in_memory(bytes: u64, flag: &str) -> Result<usize, Failure> {
    usize::try_from(bytes).map_err(|_| Failure::refused(format!("{flag} {bytes}: larger than memory can be")))
}

fn storage_config(typed: &WriteArguments) -> Result<Option<String>, Failure> {
    let read = |path: &Path| {
        fs::read_to_string(path)
            .map_err(|error| Failure::refused(format!("cannot read {}: {error}", path.display())))
    };
    let of_codec = |codec| {
        let name = match codec {
            CompressionName::Lz4 => "Lz4",
            CompressionName::Zstd => "Zstd",
        };
        format!("compression: {name}")
    };
    match &typed.storage_config_file {
        Some(path) => read(path).map(Some),
        None => Ok(typed.compression.map(of_codec)),
    }
}

/// Messages that a paced run of this length sends; `None` when it has no length.
fn paced_bytes(typed: &WriteArguments, mix: &SizeMix) -> Option<u64> {
    let (duration, rate) = (typed.duration?, typed.rate?);
    let messages = (duration.as_secs_f64() * rate).round().max(0.0);
    // Negative and endless rates are refused later, by the load itself; the conversion keeps within range.
    Some((messages * mix.mean_bytes()).ceil() as u64)
        .map(|bytes| bytes.saturating_mul(u64::from(typed.producers)))
}

fn cache_bytes(typed: &WriteArguments) -> u64 {
    typed.max_cache_size.unwrap_or_else(|| {
        CacheOptions::bytes_max_by_memory(memory_bytes(|path| fs::read_to_string(path)), false)
    })
}

fn write_options(typed: &WriteArguments) -> Result<WriteOptions, Failure> {
    let mix = size_mix(&typed.size, "--size")?;
    let candidates = typed
        .storage
        .iter()
        .map(|name| name.parse())
        .collect::<Result<_, _>>()
        .map_err(failure)?;
    let policy = match typed.cache_policy {
        CachePolicyName::DropNew => CachePolicy::DropNew,
        CachePolicyName::DropOld => CachePolicy::DropOld,
        CachePolicyName::Fair => CachePolicy::Fair,
    };
    Ok(WriteOptions {
        load: Load {
            content: content(&typed.shared)?,
            total_bytes: paced_bytes(typed, &mix).unwrap_or(typed.total),
            producers: typed.producers,
            topics: typed
                .topics
                .unwrap_or_else(|| Load::topics_min(&mix, typed.producers)),
            rate_hz: typed.rate,
            seed: typed.shared.seed,
            mix,
        },
        candidates,
        storage: StorageOptions {
            preset: typed.preset.clone(),
            config: storage_config(typed)?,
            compression_threads: typed.threads,
            ..StorageOptions::default()
        },
        cache: CacheOptions {
            bytes_max: bytes_in_memory(cache_bytes(typed), "--max-cache-size")?,
            policy,
            ..CacheOptions::default()
        },
        split: SplitOptions {
            bytes_max: typed.max_bag_size,
            files_max: typed.max_bag_files,
            duration_max: None,
        },
        max_loss_window: (!typed.max_loss_window.is_zero()).then_some(typed.max_loss_window),
        disk_mode: disk_mode(typed.shared.disk_mode),
        discard: typed.shared.memory,
        offer: OfferOptions {
            lossless: !typed.drop && typed.rate.is_none(),
            loan_bytes_min: bytes_in_memory(typed.loan_from, "--loan-from")?,
            fragment_bytes: typed
                .fragment
                .map_or(Ok(usize::MAX), |bytes| bytes_in_memory(bytes, "--fragment"))?,
        },
        repeat: typed.repeat,
        out: typed.shared.out.clone(),
        keep: typed.shared.keep,
        verify: !typed.shared.no_verify,
        limit_bytes: typed.shared.limit_total,
    })
}

fn storage_options(typed: &StorageArguments) -> Result<StorageBenchOptions, Failure> {
    let named = || {
        typed
            .configs
            .iter()
            .map(|name| name.parse())
            .collect::<Result<Vec<StorageConfiguration>, _>>()
    };
    let configurations = if typed.configs.is_empty() {
        for (name, what_to_do) in absent_configurations() {
            warn!("{name} is left out: {what_to_do}");
        }
        default_configurations()
            .into_iter()
            .filter(|one| !typed.shared.memory || one.can_discard())
            .collect()
    } else {
        named().map_err(failure)?
    };
    let sizes = typed
        .sizes
        .iter()
        .map(|size| size_mix(size, "--sizes"))
        .collect::<Result<_, _>>()?;
    let os = DiskChoice::Os(disk_mode(typed.shared.disk_mode));
    Ok(StorageBenchOptions {
        sizes,
        batches: typed.batches.clone(),
        configurations,
        total_bytes: typed.total,
        content: content(&typed.shared)?,
        repeat: typed.repeat,
        disk: if typed.shared.memory {
            DiskChoice::Discard
        } else {
            os
        },
        out: typed.shared.out.clone(),
        keep: typed.shared.keep,
        verify: !typed.shared.no_verify,
        seed: typed.shared.seed,
        limit_bytes: typed.shared.limit_total,
        command: storage_command(typed),
        resume: false,
    })
}

/// The command line to run the same.
fn storage_command(typed: &StorageArguments) -> String {
    let mut words = vec!["holdall bench storage".to_owned()];
    words.push(format!("--sizes {}", typed.sizes.join(",")));
    let batches: Vec<String> = typed.batches.iter().map(u64::to_string).collect();
    words.push(format!("--batches {}", batches.join(",")));
    if !typed.configs.is_empty() {
        words.push(format!("--configs {}", typed.configs.join(",")));
    }
    words.push(format!("--total {} --repeat {}", typed.total, typed.repeat));
    if typed.shared.content != "random" {
        words.push(format!("--content {}", typed.shared.content));
    }
    if typed.shared.memory {
        words.push("--memory".to_owned());
    }
    if let Some(name) = clap::ValueEnum::to_possible_value(&typed.shared.disk_mode)
        .filter(|_| typed.shared.disk_mode != DiskModeName::Auto)
    {
        words.push(format!("--disk-mode {}", name.get_name()));
    }
    words.push("--out DIR".to_owned());
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::typed::{Cli, Verb};
    use clap::Parser;

    fn typed(line: &str) -> Result<WriteOptions, String> {
        let cli = Cli::try_parse_from(line.split(' ')).map_err(|error| error.to_string())?;
        let Verb::Bench {
            verb: BenchVerb::Write(typed),
        } = cli.verb
        else {
            return Err("not bench write".into());
        };
        write_options(&typed).map_err(|failure| failure.sentence().to_owned())
    }

    #[test]
    fn the_command_of_the_issue_is_understood_as_written() {
        let options = typed("holdall bench write --size 1MiB --total 8GB --out DIR --json").unwrap();
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
        let options = typed(line).unwrap();
        assert_eq!(options.load.total_bytes, 8 * 60 * 30 * 6_220_800);
        assert!(!options.offer.lossless);
    }

    #[test]
    fn mixed_sizes_get_their_topics_and_codecs_their_configuration() {
        let options =
            typed("holdall bench write --size mixed --producers 2 --compression zstd --threads 2 --out DIR")
                .unwrap();
        assert_eq!((options.load.topics, options.storage.compression_threads), (6, 2));
        assert_eq!(options.storage.config.as_deref(), Some("compression: Zstd"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_one_sentence() {
        assert!(
            typed("holdall bench write --size tiny --out DIR")
                .unwrap_err()
                .contains("--size tiny")
        );
        assert!(
            typed("holdall bench write --storage tape --out DIR")
                .unwrap_err()
                .contains("tape")
        );
        assert!(
            typed("holdall bench write --content noise --out DIR")
                .unwrap_err()
                .contains("noise")
        );
        assert!(typed("holdall bench write --duration 5 --out DIR").is_err());
        assert!(typed("holdall bench write").is_err());
    }
}
