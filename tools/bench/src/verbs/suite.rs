//! `holdall bench run` and `holdall bench list`: the published experiments.

use super::{
    check_scale, failure, holdall, kinds, link, middleware, own_file, show, show_progress, start_log,
};
use crate::{VerbResult, output};
use holdall_bench::suite::{
    config::{BenchmarkConfig, ConfigError, Experiment, ProducerConfig, Transport},
    experiments,
    live::{Named, Programs},
    report as suite_report,
    run::{extent, run as run_experiment},
    table::table,
};
use holdall_bench::{
    args::{
        ReportArguments, RunArguments,
        kinds::{FolderArguments, RunKind},
        peer::PeerArguments,
    },
    disk_limit,
    engine::time_of,
    kinds::storage::{self, default_configurations},
    machine::as_ordinary_user,
    middleware::PublishedEvaluation,
    people,
    sheet::{DASH, Sheet},
};
use holdall_io::clock::{Clock, SystemClock};
use holdall_program::{
    exit::{Failure, Outcome},
    terminal::log,
    units::{format_bytes, format_elapsed},
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};
use std::{
    fmt::Display,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};
use tracing::{error, info, level_filters::LevelFilter};

/// The experiment that measures storages alone.
const STORAGE_COMPARISON: &str = "B1";

/// The description of B1 in `holdall bench list B1`: it has no file of a load and recorders.
const STORAGE_COMPARISON_TEXT: &str = "\
B1 measures storages alone, so it has no experiment file. `holdall bench run B1 --out DIR` is this, with results in DIR/B1:

  holdall bench run storage --sizes 1MiB,10KiB,100B,mixed --batches 1KiB,10MiB --total 250MiB --repeat 5 --out DIR/B1

`holdall bench run storage --help` shows how to choose sizes, batches and configurations, and how to run a file of the storage plugin
comparison as it is.
";

const PEOPLE_TEXT: &str = "\
D8 is about what people say, so it has no experiment file. `holdall bench run D8 --data DIR --out DIR` compares the answers, issues, commits and
quality tables of the folder --data, and the commits of clones below it.
";

/// Four sizes, two batches, five rounds, of each configuration.
const STORAGE_COMPARISON_RUNS: usize = 4 * 2 * 5;

/// At any scale there are some messages of each size.
const STORAGE_COMPARISON_BYTES_MIN: f64 = 4.0 * 1024.0 * 1024.0;

/// Runs experiments one after the other.
pub fn run(args: &RunArguments) -> VerbResult {
    start_log(args.json);
    check_scale(args.scale)?;
    if args.repeat == Some(0) {
        return Err(Failure::refused("--repeat 0: expected 1 or more"));
    }
    if !args.root_buffers {
        as_ordinary_user();
    }
    if let Some(at) = &args.peer.listen {
        return middleware::listen(args, at);
    }
    let (mut outcome, others) = run_other_kinds(args)?;
    let Some(args) = &others else {
        return Ok(outcome);
    };
    let with_storages = args.experiments.iter().any(|name| is_storage_comparison(name));
    if with_storages && !(args.recorder.is_empty() && args.case.is_empty() && args.transport.is_none()) {
        return Err(Failure::refused(format!(
            "{STORAGE_COMPARISON} measures storages alone, without --recorder, --case and --transport; holdall bench run storage chooses among them"
        )));
    }
    let mut experiments = experiments_of(args)?;
    for experiment in &mut experiments {
        adapt(experiment, args)?;
    }
    let out = out_folder(args, &experiments)?;
    let programs = programs_of(args, &experiments)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    for experiment in &experiments {
        let place = (out.as_path(), &programs);
        let result = run_experiment(experiment, args, place, &clock, &mut show_progress).map_err(failure)?;
        show(args.json, &result, || table(&result, Some(experiment)))?;
    }
    if with_storages {
        outcome = outcome.or_worse(storage_comparison(args, &out)?);
    }
    Ok(outcome)
}

/// Runs the same command on a disk of this rate.
pub fn on_limited_disk(args: &RunArguments, rate: u64) -> VerbResult {
    start_log(args.json);
    if args.keep || args.peer.peer.is_some() || args.peer.listen.is_some() {
        return Err(Failure::refused(
            "--disk-limit: the disk ends with the command, and so do its bags: expected neither --keep nor a second machine",
        ));
    }
    let out = match &args.kind {
        Some(kind) => kind.out().to_owned(),
        None => args
            .out
            .clone()
            .ok_or_else(|| Failure::refused("--disk-limit: expected --out DIR"))?,
    };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register(signal, Arc::clone(&stop)).map_err(Failure::failed)?;
    }
    let status = disk_limit::run_on(rate, &out, &stop).map_err(failure)?;
    Ok(if status.success() {
        Outcome::Done
    } else {
        Outcome::Failed
    })
}

/// Runs the experiments that are not about recorders; how that went, and the arguments with the others, if there are any.
fn run_other_kinds(args: &RunArguments) -> Result<(Outcome, Option<RunArguments>), Failure> {
    let chosen = middleware::chosen(&args.experiments)?;
    let is_other = !chosen.others.is_empty() || args.producers.is_some();
    let mut outcome = Outcome::Done;
    if chosen.is_people {
        outcome = middleware::run_people(args)?;
    }
    if !chosen.evaluations.is_empty() {
        if is_other && link::needs_user_namespace() {
            return Err(Failure::refused(
                "experiments over links begin again in a user namespace when they are not run by root; run them by themselves",
            ));
        }
        outcome = outcome.or_worse(middleware::run(args, &chosen.evaluations)?);
    } else if args.peer.peer.is_some() {
        return Err(middleware::none_of_them("--peer"));
    } else if !args.middleware.is_empty() {
        return Err(middleware::none_of_them("--middleware"));
    }
    // The command of an experiment with recorders has no flag that only the others understand.
    let others = is_other.then(|| RunArguments {
        experiments: chosen.others,
        middleware: Vec::new(),
        peer: PeerArguments::default(),
        ..args.clone()
    });
    Ok((outcome, others))
}

/// The storage comparison by its name.
fn is_storage_comparison(name: &str) -> bool {
    name.eq_ignore_ascii_case(STORAGE_COMPARISON)
}

/// B1: raw write throughput of the storages, as the storage plugin comparison measured it; `holdall bench run storage` has more flags.
fn storage_comparison(args: &RunArguments, out: &Path) -> VerbResult {
    let out = out.join(STORAGE_COMPARISON);
    if args.resume && out.join("storage-1.json").is_file() {
        info!("done before: {}", out.join("storage-1.json").display());
        return Ok(Outcome::Done);
    }
    let kind = RunArguments::of("storage --out DIR")
        .map_err(Failure::failed)?
        .kind;
    let Some(RunKind::Storage(mut storage)) = kind else {
        return Err(Failure::failed("holdall bench run storage was not understood"));
    };
    let total = (storage.total as f64 * args.scale).round();
    // Between a byte and what fits a disk.
    storage.total = total.max(STORAGE_COMPARISON_BYTES_MIN) as u64;
    storage.repeat = args.repeat.unwrap_or(storage.repeat);
    storage.shared.keep = args.keep;
    storage.shared.limit_total = Some(args.limit_total);
    storage.shared.folder = FolderArguments {
        out,
        resume: args.resume,
        json: args.json,
        command: args.command_of(STORAGE_COMPARISON, None),
        ..storage.shared.folder
    };
    kinds::storage(&storage)
}

/// Applies the settings of the command line, which override those of the file.
fn adapt(experiment: &mut Experiment, args: &RunArguments) -> Result<(), Failure> {
    if let Some(transport) = args.transport {
        *experiment = experiment.clone().over(transport).map_err(Failure::refused)?;
    }
    if !args.recorder.is_empty() {
        *experiment = experiment
            .clone()
            .recorded_by(&args.recorder)
            .map_err(Failure::refused)?;
    }
    if !args.case.is_empty() {
        let labels: Vec<String> = experiment.cases.iter().map(|case| case.label.clone()).collect();
        experiment.cases.retain(|case| {
            args.case
                .iter()
                .any(|wanted| case.label.contains(wanted.as_str()))
        });
        if experiment.cases.is_empty() {
            return Err(Failure::refused(format!(
                "--case {}: {} has only {}",
                args.case.join(", "),
                experiment.id,
                labels.join(", ")
            )));
        }
    }
    Ok(())
}

/// Searches for programs when a run over a transport needs them.
fn programs_of(args: &RunArguments, experiments: &[Experiment]) -> Result<Programs, Failure> {
    let mut transports: Vec<Transport> = experiments
        .iter()
        .flat_map(|experiment| &experiment.benchmarks)
        .map(|benchmark| benchmark.transport)
        .filter(|transport| *transport != Transport::None)
        .collect();
    transports.sort_unstable();
    transports.dedup();
    for file in [&args.ros2, &args.python].into_iter().flatten() {
        if !(file.is_file() || file.join("bin/ros2").is_file()) {
            return Err(Failure::refused(format!("{}: no such file", file.display())));
        }
    }
    if let Some(prefix) = args.ros1.as_ref().filter(|prefix| !prefix.is_dir()) {
        return Err(Failure::refused(format!("{}: no such folder", prefix.display())));
    }
    let bench = own_file()?;
    Ok(Programs::find(
        holdall(&bench),
        bench,
        Named {
            ros2: args.ros2.as_deref(),
            ros1: args.ros1.as_deref(),
            python: args.python.as_deref(),
        },
        &transports,
    )
    .publishing_by(args.nodes.unwrap_or(1)))
}

/// Writes the page of results.
pub fn report(args: &ReportArguments) -> VerbResult {
    log::start(LevelFilter::INFO);
    let mut loaded = suite_report::Results::default();
    for folder in &args.folders {
        loaded.append(suite_report::load(folder).map_err(failure)?);
    }
    if let Some(folder) = &args.published {
        loaded.published = Some(PublishedEvaluation::read(folder).map_err(failure)?);
    }
    if let Some(path) = &args.summary {
        suite_report::write_summary(&loaded, path).map_err(failure)?;
        output::result(&path.display().to_string())?;
        return Ok(Outcome::Done);
    }
    let other = match &args.compare {
        Some(folder) => suite_report::load(folder).map_err(failure)?,
        None => suite_report::Results::default(),
    };
    let out = args.out.as_deref().unwrap_or(&args.folders[0]);
    let page = suite_report::write(&loaded, &other, out).map_err(failure)?;
    output::result(&page.display().to_string())?;
    if args.fail_if_worse {
        let worse = suite_report::worse(&loaded, &other).map_err(failure)?;
        for sentence in &worse {
            error!("{sentence}");
        }
        if !worse.is_empty() {
            return Ok(Outcome::Failed);
        }
    }
    Ok(Outcome::Done)
}

/// Lists what can be run by name, or prints one file.
pub fn list(id: Option<&str>, json: bool) -> VerbResult {
    if let Some(id) = id {
        if is_storage_comparison(id) {
            output::result(STORAGE_COMPARISON_TEXT)?;
            return Ok(Outcome::Done);
        }
        if id.eq_ignore_ascii_case(people::ID) {
            output::result(PEOPLE_TEXT)?;
            return Ok(Outcome::Done);
        }
        let text = experiments::text_of(id).ok_or_else(|| unknown(id))?;
        output::result(text)?;
        return Ok(Outcome::Done);
    }
    let all = experiments::shipped();
    let as_shipped = RunArguments::of("--out DIR A1").map_err(Failure::failed)?;
    if json {
        let evaluations = experiments::evaluations();
        let rows: Vec<_> = all
            .iter()
            .map(|one| as_json(one, &as_shipped))
            .chain(evaluations.iter().map(middleware::as_json))
            .collect();
        show(true, &rows, String::new)?;
        return Ok(Outcome::Done);
    }
    let header = row([
        &"id",
        &"what it shows",
        &"cases",
        &"runs",
        &"about",
        &"largest bag",
    ]);
    let table = Sheet {
        title: String::new(),
        header,
        words: 2,
        rows: list_rows(&all, &as_shipped),
    };
    output::result(&format!("{}\n{LIST_END}", table.undivided()))?;
    Ok(Outcome::Done)
}

fn row(cells: [&dyn Display; 6]) -> Vec<String> {
    cells.map(|cell| cell.to_string()).to_vec()
}

/// A row of each experiment, in the order of the published documents.
fn list_rows(all: &[Experiment], as_shipped: &RunArguments) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for one in all {
        if one.id == "L1" {
            for one in &experiments::evaluations() {
                let (cases, time) = (one.cases.len() * one.links.len(), format_elapsed(one.time()));
                rows.push(row([&one.id, &one.title, &cases, &one.run_count(), &time, &DASH]));
            }
            let title =
                "what users answered, how issues, commits and quality stand (reads files: --data DIR)";
            rows.push(row([&people::ID, &title, &DASH, &DASH, &DASH, &DASH]));
        }
        if one.id == "B2" {
            let title = "raw write throughput of storages (as holdall bench run storage)";
            let runs = STORAGE_COMPARISON_RUNS * default_configurations().len();
            let time = format_elapsed(time_of(runs, 250 << 20, None, storage::WORK_BYTES_PER_S));
            rows.push(row([&STORAGE_COMPARISON, &title, &8, &runs, &time, &"250.0 MiB"]));
        }
        let (runs, time) = extent(one, as_shipped);
        let (time, largest) = (format_elapsed(time), format_bytes(largest_bytes(one)));
        rows.push(row([
            &one.id,
            &one.title,
            &one.cases.len(),
            &runs,
            &time,
            &largest,
        ]));
    }
    rows
}

/// The actions for a name.
const LIST_END: &str = "
holdall bench run A6 --scale 0.1 --out DIR   runs one, here with a tenth of its messages
holdall bench list A6                        prints its file, a start for one of your own
holdall bench run write, storage, tools      kinds with flags instead of a file: the recorder, storages alone, work on bags
";

fn as_json(experiment: &Experiment, as_shipped: &RunArguments) -> serde_json::Value {
    let (runs, time) = extent(experiment, as_shipped);
    serde_json::json!({
        "id": experiment.id,
        "title": experiment.title,
        "source": experiment.source,
        "cases": experiment.cases.iter().map(|case| case.label.as_str()).collect::<Vec<_>>(),
        "runs": runs,
        "seconds": time.as_secs(),
        "largest_bag_bytes": largest_bytes(experiment),
    })
}

fn largest_bytes(experiment: &Experiment) -> u64 {
    experiment
        .cases
        .iter()
        .map(|case| case.producers.bytes())
        .max()
        .unwrap_or(0)
}

fn unknown(id: &str) -> Failure {
    let mut known: Vec<String> = experiments::shipped().into_iter().map(|one| one.id).collect();
    known.push(STORAGE_COMPARISON.to_owned());
    known.push(people::ID.to_owned());
    known.extend(experiments::evaluations().into_iter().map(|one| one.id));
    Failure::refused(format!(
        "{id} is neither an experiment nor a file; expected one of {}",
        known.join(", ")
    ))
}

fn experiments_of(args: &RunArguments) -> Result<Vec<Experiment>, Failure> {
    if let (Some(producers), Some(benchmark)) = (&args.producers, &args.benchmark) {
        let stem = |path: &Path| {
            path.file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        };
        let id = format!("{}_{}", stem(benchmark), stem(producers));
        let producers = ConfigError::of_file(producers, ProducerConfig::parse).map_err(Failure::refused)?;
        let folder = benchmark.parent().unwrap_or(Path::new(""));
        let mut benchmark =
            ConfigError::of_file(benchmark, BenchmarkConfig::parse).map_err(Failure::refused)?;
        benchmark.find_beside(folder);
        return Ok(vec![Experiment::of_files(&id, producers, benchmark)]);
    }
    let names = args.experiments.iter();
    names
        .filter(|name| !is_storage_comparison(name))
        .map(|name| one_experiment(name))
        .collect()
}

fn one_experiment(name: &str) -> Result<Experiment, Failure> {
    if let Some(experiment) = experiments::by_id(name) {
        return Ok(experiment);
    }
    let path = Path::new(name);
    if !path.exists() {
        return Err(unknown(name));
    }
    ConfigError::of_file(path, Experiment::parse).map_err(Failure::refused)
}

/// The command line's folder, or that of the benchmark file.
fn out_folder(args: &RunArguments, experiments: &[Experiment]) -> Result<PathBuf, Failure> {
    let of_file = || {
        experiments
            .iter()
            .flat_map(|one| &one.benchmarks)
            .find_map(|one| one.bag_root_folder.clone())
    };
    args.out.clone().or_else(of_file).ok_or_else(|| {
        Failure::refused("no folder for results: give --out DIR, or bag_root_folder in the benchmark file")
    })
}
