//! `holdall regress`: runs the cases of a suite, each by a process of its own in a domain of its own.

use super::{
    input,
    play::{check_inputs, options as play_options},
};
use crate::{
    VerbResult,
    args::{TransportName, files::play_arguments, play::PlayArguments, regress::RegressArguments},
    exit::{Failure, Outcome},
    output, render,
    terminal::{
        events::{Event, Events, queue},
        log, screen, signals,
    },
    transport,
};
use holdall::{
    play::Player,
    regress::{self, Place, Stage, in_suite},
};
use holdall_io::{
    clock::{Clock, SystemClock},
    fs,
    process::{EndSignal, end_group},
};
use holdall_model::{
    regress::{Case, CaseOutcome, CaseResult, Suite, junit, page},
    text::OutsidePath,
    topic::NodeName,
};
use holdall_transport::Transport;
use std::{
    collections::VecDeque,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread::available_parallelism,
    time::Duration,
};
use tracing::level_filters::LevelFilter;

/// Largest suite and result that are read.
const BYTES_MAX: u64 = 64 << 20;

/// Time between two looks at what runs.
const POLL: Duration = Duration::from_millis(50);

/// The result of a case in its folder, and the log of the process that runs it.
const RESULT: &str = "result.json";
const LOG: &str = "holdall.log";

/// The last ROS domain.
const DOMAIN_MAX: u32 = 232;

/// The name of the node that plays and records.
const NODE: &str = "holdall_regress";

/// Runs a suite, or a case of it, or makes outputs golden.
pub fn run(args: &RegressArguments) -> VerbResult {
    log::start(match args.run_here {
        true => LevelFilter::INFO,
        false => LevelFilter::WARN,
    });
    screen::never_wait();
    let suite = Plan::read(args)?;
    let (sender, events) = queue();
    signals::listen(sender).map_err(|error| Failure::failed(format!("cannot listen to signals: {error}")))?;
    if args.run_here {
        return suite.run_here(args, &events);
    }
    if args.update_golden {
        return suite.update_golden();
    }
    let results = suite.run_all(args, &events)?;
    let name = args.suite.file_stem().unwrap_or_default().to_string_lossy();
    let write = |file: &str, text: String| {
        fs::write_atomically_unsynced(&args.output.join(file), text.as_bytes()).map_err(Failure::failed)
    };
    write("junit.xml", junit(&name, &results))?;
    write("index.html", page(&name, &results))?;
    output::result(&if args.json {
        serde_json::to_string_pretty(&results).map_err(Failure::failed)?
    } else {
        render::regress::summary(&results, &args.output)
    })?;
    let has = |outcome| results.iter().any(|result| result.outcome == outcome);
    Ok(match (has(CaseOutcome::Error), has(CaseOutcome::Failed)) {
        (true, _) => Outcome::Failed,
        (false, true) => Outcome::Broken,
        (false, false) => Outcome::Done,
    })
}

/// The cases that are wanted.
struct Plan {
    cases: Vec<Case>,
    /// The folder of the suite.
    folder: PathBuf,
    results: PathBuf,
}

/// A case that runs.
struct Running {
    case: String,
    child: Child,
    domain: u32,
    since: Duration,
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // It ends its software before itself.
            end_group(self.child.id(), EndSignal::Interrupt);
            let _ = self.child.wait();
        }
    }
}

impl Plan {
    fn read(args: &RegressArguments) -> Result<Self, Failure> {
        let text = fs::read_to_string(&args.suite, BYTES_MAX).map_err(Failure::refused)?;
        let named = |reason: String| Failure::refused(format!("{}: {reason}", OutsidePath(&args.suite)));
        let mut suite = Suite::parse(&text).map_err(|error| named(error.to_string()))?;
        if let Some(unknown) = args
            .case
            .iter()
            .find(|name| !suite.cases.iter().any(|case| case.name == **name))
        {
            return Err(named(format!("it has no case {unknown}")));
        }
        suite
            .cases
            .retain(|case| args.case.is_empty() || args.case.contains(&case.name));
        let folder = std::path::absolute(&args.suite).map_err(Failure::failed)?;
        let folder = folder.parent().unwrap_or(Path::new("/")).to_owned();
        let plan = Self {
            cases: suite.cases,
            folder,
            results: std::path::absolute(&args.output).map_err(Failure::failed)?,
        };
        for case in &plan.cases {
            let of_case = |reason: String| named(format!("{}: {reason}", case.name));
            plan.play(case).map_err(of_case)?;
            regress::contracts(case, &plan.folder).map_err(of_case)?;
            check_inputs(&[in_suite(&plan.folder, &case.bag)])
                .map_err(|failure| of_case(failure.sentence().to_owned()))?;
        }
        Ok(plan)
    }

    /// How the bag of a case is played.
    fn play(&self, case: &Case) -> Result<Box<PlayArguments>, String> {
        let arguments = play_arguments(&case.play, &in_suite(&self.folder, &case.bag))?;
        if let Some(flag) = without_effect(&arguments) {
            return Err(format!("--{flag} has no effect on how a case is played"));
        }
        play_options(&arguments).map_err(|failure| failure.sentence().to_owned())?;
        Ok(arguments)
    }

    /// Removes what an earlier run has left of a case.
    fn clear(&self, case: &Case) -> Result<(), Failure> {
        let folder = self.results.join(&case.name);
        if !fs::exists(&folder).map_err(Failure::failed)? {
            return Ok(());
        }
        if !fs::is_file(&folder.join(LOG)) {
            return Err(Failure::refused(format!(
                "{} exists and does not hold the results of a case ({LOG} is missing); it was left unchanged",
                OutsidePath(&folder)
            )));
        }
        fs::remove_dir_all(&folder).map_err(Failure::failed)
    }

    /// Runs all cases, some at a time.
    fn run_all(&self, args: &RegressArguments, events: &Events) -> Result<Vec<CaseResult>, Failure> {
        // All before anything runs: --update-golden would take what stays for outputs of this run.
        self.cases.iter().try_for_each(|case| self.clear(case))?;
        let half = available_parallelism().map_or(1, |count| count.get().div_ceil(2));
        let jobs = args.jobs.map_or(half.min(40), |jobs| jobs as usize);
        let mut free: VecDeque<u32> = (args.first_domain..=DOMAIN_MAX).take(jobs).collect();
        let mut waiting: VecDeque<&Case> = self.cases.iter().collect();
        let (mut running, mut results): (Vec<Running>, Vec<CaseResult>) = (Vec::new(), Vec::new());
        while !(waiting.is_empty() && running.is_empty()) {
            while let Some(domain) = free.pop_front() {
                let Some(case) = waiting.pop_front() else {
                    free.push_front(domain);
                    break;
                };
                running.push(self.start(case, args, domain)?);
            }
            if let Some(Event::Stop(signal)) = events.next(POLL) {
                tracing::warn!("{signal}: ending what runs");
                let left = waiting.drain(..);
                results.extend(left.map(|case| CaseResult::error(&case.name, ["it was not run".to_owned()])));
                running
                    .iter()
                    .for_each(|one| _ = end_group(one.child.id(), EndSignal::Interrupt));
            }
            let mut index = 0;
            while index < running.len() {
                let Ok(None) = running[index].child.try_wait() else {
                    let ended = running.swap_remove(index);
                    free.push_back(ended.domain);
                    let result = self.result(ended);
                    if !args.json {
                        output::result(&render::regress::line(&result))?;
                    }
                    results.push(result);
                    continue;
                };
                index += 1;
            }
        }
        let place = |result: &CaseResult| self.cases.iter().position(|case| case.name == result.case);
        results.sort_by_key(place);
        Ok(results)
    }

    fn start(&self, case: &Case, args: &RegressArguments, domain: u32) -> Result<Running, Failure> {
        let folder = self.results.join(&case.name);
        fs::create_dirs(&folder).map_err(Failure::failed)?;
        let log = fs::create_for_others(&folder.join(LOG)).map_err(Failure::failed)?;
        let mut command = Command::new(std::env::current_exe().map_err(Failure::failed)?);
        command
            .arg("regress")
            .arg(&args.suite)
            .arg("-o")
            .arg(&args.output);
        command.args(["--run-here", "--case", &case.name]);
        for transport in &args.transport {
            let name = match transport {
                TransportName::Id(id) => id,
                TransportName::Auto => "auto",
            };
            command.args(["--transport", name]);
        }
        let child = command
            .env("ROS_DOMAIN_ID", domain.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0)
            .spawn();
        Ok(Running {
            case: case.name.clone(),
            child: child.map_err(Failure::failed)?,
            domain,
            since: SystemClock.monotonic(),
        })
    }

    /// What a process has found.
    fn result(&self, mut ended: Running) -> CaseResult {
        let path = self.results.join(&ended.case).join(RESULT);
        let text = fs::read_to_string(&path, BYTES_MAX).map_err(|error| error.to_string());
        let result = text.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()));
        let mut result: CaseResult = result.unwrap_or_else(|error| {
            let how = ended
                .child
                .wait()
                .map_or_else(|error| error.to_string(), |status| status.to_string());
            regress::end_left(&self.results.join(&ended.case));
            CaseResult::error(
                &ended.case,
                [format!(
                    "the run has left no result ({how}); its log is {LOG}: {error}"
                )],
            )
        });
        result.seconds = (SystemClock.monotonic() - ended.since).as_secs_f64();
        result
    }

    /// Runs the cases in this process and leaves their results.
    fn run_here(&self, args: &RegressArguments, events: &Events) -> VerbResult {
        self.cases
            .iter()
            .try_for_each(|case| self.run_case(case, args, events))?;
        Ok(Outcome::Done)
    }

    fn run_case(&self, case: &Case, args: &RegressArguments, events: &Events) -> Result<(), Failure> {
        let (name, results) = (&case.name, self.results.join(&case.name));
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let place = Place {
            suite: &self.folder,
            results: &results,
            clock: Arc::clone(&clock),
        };
        let mut stage = Live {
            play: self.play(case).map_err(Failure::refused)?,
            args,
            clock,
            events,
        };
        let run = regress::run(case, &place, &mut stage);
        let mut result = match run.errors.is_empty() {
            true => regress::compare(case, &place).unwrap_or_else(|reason| CaseResult::error(name, [reason])),
            false => CaseResult::error(name, run.errors),
        };
        result.notes.extend(run.notes);
        result.play = run.play.as_ref().map(render::play::json).unwrap_or_default();
        let text = serde_json::to_string_pretty(&result).map_err(Failure::failed)?;
        fs::write_atomically_unsynced(&results.join(RESULT), text.as_bytes()).map_err(Failure::failed)
    }

    /// Makes what the last run has recorded the golden bags.
    fn update_golden(&self) -> VerbResult {
        let mut outcome = Outcome::Done;
        for case in self.cases.iter().filter(|case| case.golden.is_some()) {
            let results = self.results.join(&case.name);
            let text = fs::read_to_string(&results.join(RESULT), BYTES_MAX).ok();
            let result = text.and_then(|text| serde_json::from_str::<CaseResult>(&text).ok());
            let place = Place {
                suite: &self.folder,
                results: &results,
                clock: Arc::new(SystemClock),
            };
            let updated = match result {
                None => Err("it was not run before".to_owned()),
                Some(result) if result.outcome == CaseOutcome::Error => {
                    Err("its last run did not come to its end".to_owned())
                }
                Some(_) => regress::update_golden(case, &place),
            };
            match updated {
                Ok(golden) => output::result(&format!(
                    "{}: {} is its golden bag",
                    case.name,
                    OutsidePath(&golden)
                ))?,
                Err(reason) => {
                    output::complain(&format!("{}: the golden bag stays: {reason}", case.name));
                    outcome = Outcome::Failed;
                }
            }
        }
        Ok(outcome)
    }
}

/// A flag that says nothing about how a case is played: no person steers it, and its results are judged in other ways.
fn without_effect(play: &PlayArguments) -> Option<&'static str> {
    let given = [
        ("transport", !play.transport.is_empty()),
        ("enclave", play.enclave.is_some()),
        ("max-lateness", play.max_lateness.is_some()),
        ("loop", play.r#loop),
        ("persistent", play.persistent),
        ("start-paused", play.start_paused),
        ("viewers-only", play.viewers_only),
        ("web", play.web.is_some()),
        ("foxglove", play.foxglove.is_some()),
        ("control-socket", play.control_socket.is_some()),
        ("profile", play.profile.is_some()),
        ("params-file", !play.params_file.is_empty()),
    ];
    let given = given.into_iter().find(|(_, is_given)| *is_given);
    given.map(|(flag, _)| flag)
}

/// A case with the live topics of this process's domain.
struct Live<'a> {
    play: Box<PlayArguments>,
    args: &'a RegressArguments,
    clock: Arc<dyn Clock>,
    events: &'a Events,
}

impl Stage for Live<'_> {
    fn join(&mut self) -> Result<Vec<Box<dyn Transport>>, String> {
        let node = NodeName::in_root(NODE);
        let joined = transport::join(
            &self.args.transport,
            &node,
            None,
            &self.clock,
            transport::Purpose::Other,
        );
        joined.map_err(|failure| failure.sentence().to_owned())
    }

    fn play(&mut self) -> Result<Player, String> {
        let mut options = play_options(&self.play).map_err(|failure| failure.sentence().to_owned())?;
        let named = input::resolve(&options.inputs).map_err(|failure| failure.sentence().to_owned())?;
        options.inputs.clone_from(&named.paths);
        let transports = self.join()?;
        let player = Player::start(options, transports, Arc::clone(&self.clock));
        player.map_err(|error| Failure::playing(error, &named.paths).sentence().to_owned())
    }

    fn is_stopped(&mut self) -> bool {
        matches!(self.events.next(Duration::ZERO), Some(Event::Stop(_)))
    }
}
