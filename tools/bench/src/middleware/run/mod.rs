//! Runs an evaluation: every repetition of every case over every link with every middleware in turn; each result is stored as soon as it exists.

mod discover;
mod host;
mod peer;
mod plan;
mod programs;
mod sides;

pub use peer::CONTROL_PORT;

use super::{
    Account, CaseKind, EvaluatedLink, Evaluation, EvaluationResult, Middleware, MiddlewareRun, RESULT_FILE,
    WorkerCost,
    account::{Planned, account},
    result::{AbsentMiddleware, ClockOffset, Discovery, WireUse},
    worker::{read_received, read_sent},
};
use crate::{
    args::RunArguments,
    engine::{self, OnProgress, Progress},
    error::{BenchError, BenchResult},
    link,
    machine::Machine,
};
use holdall_io::{clock::Clock, fs::write_atomically_unsynced};
use peer::Peer;
use plan::{Run, Stream, earlier, plan};
use programs::Site;
use sides::Sides;
use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// A link that delivers later than this does not keep its promise.
const LINK_LATENESS_MAX_US: f64 = 1000.0;
/// Latencies between two machines mean nothing when their clocks differ by more than is known.
const CLOCK_ERROR_MAX_US: f64 = 1000.0;
/// A run that is not valid is repeated this often.
const TRIES: u32 = 3;
/// The experiment itself, next to its results.
const EXPERIMENT_FILE: &str = "experiment.yaml";

/// Each end of a link has its own.
const SHARED_MEMORY: &str = "/dev/shm";

/// Runs an evaluation and returns all results, stored in a folder of its name, and whether no run failed.
///
/// # Errors
/// A folder that exists already, a system that allows no links, no middleware at all.
pub fn run(
    evaluation: &Evaluation,
    args: &RunArguments,
    (out, bench): (&Path, &Path),
    clock: &Arc<dyn Clock>,
    on_progress: &mut OnProgress<'_>,
) -> BenchResult<(EvaluationResult, bool)> {
    if let Some(least) = evaluation.scale_min().filter(|least| args.scale < *least) {
        let expected = format!(
            "{least:.2} or more for {}, so that its outages are measured",
            evaluation.id
        );
        return Err(BenchError::option("--scale", expected, args.scale.to_string()));
    }
    let mut evaluation = evaluation.clone().scaled(args.scale);
    let address = args.peer.peer.as_deref();
    let publishes_here = args.peer.side.as_deref() == Some("publisher");
    let peer = address.map(|address| connect(address, publishes_here, &mut evaluation, clock));
    let peer = peer.transpose()?;
    let folder = out.join(&evaluation.id);
    if folder.exists() && !args.resume {
        return Err(BenchError::NotEmpty { path: folder });
    }
    if evaluation.links.iter().any(|link| link.spec.is_some()) {
        // Refused before anything is stored where links are not allowed.
        link::probe()?;
        let full = std::path::absolute(&folder).map_err(BenchError::io("find", &folder))?;
        if full.starts_with(SHARED_MEMORY) {
            let expected =
                format!("a folder outside of {SHARED_MEMORY}, because each end of a link has its own");
            return Err(BenchError::option("--out", expected, out.display().to_string()));
        }
    }
    fs::create_dir_all(&folder).map_err(BenchError::io("create", &folder))?;
    let folder = folder.canonicalize().map_err(BenchError::io("find", &folder))?;
    write_atomically_unsynced(&folder.join(EXPERIMENT_FILE), evaluation.text.as_bytes())?;
    let mut bench = Bench {
        site: Site::find(bench, args.python.as_deref(), &folder)?,
        peer,
        evaluation: &evaluation,
        args,
        clock,
        folder: folder.clone(),
        absent: Vec::new(),
    };
    let present = bench.present(on_progress)?;
    let planned = plan(&evaluation, &present, args, &folder);
    let mut result = bench.result(&present)?;
    (result.runs, result.earlier) = earlier(&folder, &planned, args)?;
    result.earlier.retain(|command| *command != result.command);
    on_progress(Progress::Planned {
        id: evaluation.id.clone(),
        runs: planned.len() as u64,
        time: evaluation.time_of(planned.len()),
    });
    let mut is_whole = true;
    for (index, one) in planned.iter().enumerate() {
        let kept = one.files();
        if kept.iter().all(|path| path.exists()) {
            on_progress(Progress::Found(kept[0].display().to_string()));
            for path in &kept {
                result.runs.push(engine::load(path, "the result of a run")?);
            }
            continue;
        }
        on_progress(Progress::Running {
            number: index + 1,
            of: planned.len(),
            name: one.name(),
            round: one.repetition,
        });
        match bench.one(one) {
            Ok(runs) => {
                for (run, path) in runs.into_iter().zip(&kept) {
                    engine::store(path, &run)?;
                    on_progress(Progress::Ended(run.sentence()));
                    result.runs.push(run);
                }
            }
            // A middleware that fails on one link may work on the next; the run is tried again with --resume.
            Err(error @ BenchError::Program { .. }) => {
                is_whole = false;
                let name = one.name();
                on_progress(Progress::Skipped(format!(
                    "{name}: {error}; --resume tries it again"
                )));
            }
            Err(error) => return Err(error),
        }
        engine::store(&folder.join(RESULT_FILE), &result)?;
    }
    engine::store(&folder.join(RESULT_FILE), &result)?;
    Ok((result, is_whole))
}

/// Connects to the other machine, and uses the network between instead of the experiment's links.
fn connect(
    address: &str,
    publishes_here: bool,
    evaluation: &mut Evaluation,
    clock: &Arc<dyn Clock>,
) -> BenchResult<Peer> {
    let side_there = usize::from(publishes_here);
    let peer = Peer::connect(address, side_there, clock)?;
    evaluation.cases.retain(|case| case.kind == CaseKind::Load);
    let direction = if publishes_here { "to" } else { "from" };
    evaluation.links = vec![EvaluatedLink {
        label: format!("{direction} {address}"),
        spec: None,
        place: 0,
    }];
    Ok(peer)
}

/// Waits at `address` for a machine that drives runs, and starts workers as it asks, in a temporary folder; `on_end` is called after each
/// connection, and stops the wait when it returns false.
///
/// # Errors
/// An address that cannot be listened on.
pub fn serve(
    address: SocketAddr,
    bench: &Path,
    python: Option<&Path>,
    clock: &Arc<dyn Clock>,
    on_end: &mut dyn FnMut(BenchResult<SocketAddr>) -> bool,
) -> BenchResult<()> {
    let listener = TcpListener::bind(address).map_err(BenchError::io("listen on", address.to_string()))?;
    let folder = tempfile::tempdir().map_err(BenchError::io("create", "a temporary folder"))?;
    let site = Site::find(bench, python, folder.path())?;
    while on_end(host::serve(&listener, &site, folder.path(), clock)) {}
    Ok(())
}

struct Bench<'a> {
    site: Site,
    peer: Option<Peer>,
    evaluation: &'a Evaluation,
    args: &'a RunArguments,
    clock: &'a Arc<dyn Clock>,
    folder: PathBuf,
    absent: Vec<AbsentMiddleware>,
}

impl<'a> Bench<'a> {
    /// The requested middlewares that can run.
    fn present(&mut self, on_progress: &mut OnProgress<'_>) -> BenchResult<Vec<&'a Middleware>> {
        let wanted: &'a [Middleware] = match &self.args.middleware[..] {
            [] => &self.evaluation.middlewares,
            chosen => chosen,
        };
        let mut present = Vec::new();
        for middleware in wanted {
            let Some(reason) = self.absence(middleware)? else {
                present.push(middleware);
                continue;
            };
            on_progress(Progress::Skipped(format!("not run: {middleware}: {reason}")));
            self.absent.push(AbsentMiddleware {
                middleware: middleware.to_string(),
                reason,
            });
        }
        Ok(present)
    }

    /// Why a middleware cannot be run.
    fn absence(&self, middleware: &Middleware) -> BenchResult<Option<String>> {
        for (place, side) in middleware.sides.iter().enumerate() {
            let reason = match &self.peer {
                Some(peer) if peer.is_remote(place) => peer.absence(side)?,
                _ => self.site.absence(side),
            };
            if reason.is_some() {
                return Ok(reason);
            }
        }
        let links = || self.peer.is_some() || self.evaluation.links.iter().all(|link| link.spec.is_some());
        let is_kept_here = !middleware.crosses_networks() && links();
        Ok(is_kept_here.then(|| "it stays on one host".to_owned()))
    }

    /// A result without runs. Each machine describes itself and the sides that it runs.
    fn result(&self, middlewares: &[&Middleware]) -> BenchResult<EvaluationResult> {
        let evaluation = self.evaluation;
        let sides = middlewares.iter().flat_map(|one| one.sides.iter().enumerate());
        let (mut settings, mut other_machine) = (Vec::new(), None);
        if let Some(peer) = &self.peer {
            let (there, here): (Vec<_>, Vec<_>) = sides.partition(|(place, _)| peer.is_remote(*place));
            settings = self.site.settings_of(here.into_iter().map(|(_, side)| side));
            let facts = peer.facts(there.into_iter().map(|(_, side)| side.clone()).collect())?;
            other_machine = Some(facts.machine);
            let there = facts.settings.into_iter();
            settings.extend(there.map(|(name, text)| (format!("{name} on the other machine"), text)));
        } else {
            settings.extend(self.site.settings_of(sides.map(|(_, side)| side)));
        }
        Ok(EvaluationResult {
            experiment: evaluation.id.clone(),
            title: evaluation.title.clone(),
            source: evaluation.source.clone(),
            scale: self.args.scale,
            duration_s: evaluation.duration.as_secs_f64(),
            warm_up_s: evaluation.warm_up.as_secs_f64(),
            command: self.args.command_of(&evaluation.id, Some(&evaluation.text)),
            earlier: Vec::new(),
            machine: Machine::inspect(&self.folder),
            other_machine,
            runs: Vec::new(),
            absent: self.absent.clone(),
            settings,
        })
    }

    /// Runs once, and again while the machine does not keep up with the link. A concurrent load gets a separate result.
    fn one(&self, run: &Run<'_>) -> BenchResult<Vec<MiddlewareRun>> {
        fs::create_dir_all(&run.folder).map_err(BenchError::io("create", &run.folder))?;
        let mut tried = self.attempt(run)?;
        for _ in 1..TRIES {
            if tried.iter().all(|run| run.invalid.is_none()) {
                break;
            }
            tried = self.attempt(run)?;
        }
        Ok(tried)
    }

    fn attempt(&self, run: &Run<'_>) -> BenchResult<Vec<MiddlewareRun>> {
        if let Some(peer) = &self.peer {
            peer.begin()?;
        }
        if let CaseKind::Discovery { nodes } = run.case.kind {
            let (discovery, wire) = self.on_link(run, |ends| self.drive_nodes(run, nodes, ends))?;
            return Ok(vec![discovered(run, discovery, wire)]);
        }
        let ((start, sides), wire) = self.on_link(run, |ends| self.drive(run, ends))?;
        let clock = self.peer.as_ref().map(Peer::finish).transpose()?;
        let streams = run.streams(self.evaluation);
        let labels: Vec<&String> = streams.iter().map(|stream| &stream.case.label).collect();
        let result = |(stream, sides): (&Stream<'_>, Sides)| {
            let account = self.account(stream, start)?;
            Ok(MiddlewareRun {
                case: stream.case.label.clone(),
                link: run.link.label.clone(),
                middleware: run.middleware.clone(),
                repetition: run.repetition,
                invalid: invalid(&account, wire.as_ref(), clock.as_ref()),
                message_bytes: stream.case.bytes as u64,
                matched_s: sides.matched_s,
                account,
                publisher: sides.costs[0],
                subscriber: sides.costs[1],
                wire,
                discovery: None,
                clock,
                samples: sides.samples,
                beside: labels.get(1 - stream.place.min(1)).map(|label| (*label).clone()),
            })
        };
        streams.iter().zip(sides).map(result).collect()
    }

    /// Lets `work` run on both ends of a run's link, or on this host.
    fn on_link<T>(
        &self,
        run: &Run<'_>,
        work: impl FnOnce(Option<&[holdall_io::link::LinkEnd; 2]>) -> BenchResult<T>,
    ) -> BenchResult<(T, Option<WireUse>)> {
        let Some(spec) = &run.link.spec else {
            return Ok((work(None)?, None));
        };
        // Repetitions differ, middlewares meet the same losses.
        let mut spec = spec.clone();
        spec.seed += u64::from(run.repetition);
        let (done, carried) = link::carry(&spec, |ends| work(Some(ends)))?;
        Ok((done?, Some(WireUse::from(&carried))))
    }

    /// The fate of every message of a stream, from the records of both sides.
    fn account(&self, stream: &Stream<'_>, start: Duration) -> BenchResult<Account> {
        if stream.case.kind != CaseKind::Load {
            return Ok(Account::default());
        }
        let [sent, received] = &stream.records;
        let planned = Planned {
            count: stream.count,
            rate_hz: stream.case.rate_hz,
            start: u64::try_from(start.as_nanos()).unwrap_or(u64::MAX),
            warm_up: self.evaluation.warm_up,
            is_reliable: stream.case.is_reliable,
        };
        let account = account(
            planned,
            &read_sent(sent).map_err(BenchError::verify(sent))?,
            &read_received(received).map_err(BenchError::verify(received))?,
        );
        if !self.args.keep {
            for path in [sent, received] {
                fs::remove_file(path).map_err(BenchError::io("remove", path))?;
            }
        }
        Ok(account)
    }
}

/// The result of nodes that only discover each other.
fn discovered(run: &Run<'_>, discovery: Discovery, wire: Option<WireUse>) -> MiddlewareRun {
    MiddlewareRun {
        case: run.case.label.clone(),
        link: run.link.label.clone(),
        middleware: run.middleware.clone(),
        repetition: run.repetition,
        invalid: invalid(&Account::default(), wire.as_ref(), None),
        message_bytes: 0,
        matched_s: [None; 2],
        account: Account::default(),
        publisher: WorkerCost::default(),
        subscriber: WorkerCost::default(),
        wire,
        discovery: Some(discovery),
        clock: None,
        samples: Default::default(),
        beside: None,
    }
}

/// Why a run means nothing, if so.
fn invalid(account: &Account, wire: Option<&WireUse>, clock: Option<&ClockOffset>) -> Option<String> {
    if account.accounted() != account.planned {
        return Some(format!(
            "{} messages planned, {} accounted for",
            account.planned,
            account.accounted()
        ));
    }
    if let Some(clock) = clock.filter(|clock| clock.uncertainty_us() > CLOCK_ERROR_MAX_US) {
        return Some(format!(
            "the clocks of both machines are known to {:.1} ms only",
            clock.uncertainty_us() / 1e3
        ));
    }
    let wire = wire?;
    if !wire.balances {
        return Some("the link lost count of its packets".to_owned());
    }
    (wire.lateness_p99_us > LINK_LATENESS_MAX_US).then(|| {
        format!(
            "the link delivered packets {:.1} ms late (p99): the machine is busy",
            wire.lateness_p99_us / 1e3
        )
    })
}
