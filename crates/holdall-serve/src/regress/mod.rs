//! One case of a regression run: starts the software, waits for it, records its outputs while a bag is played, ends it, and compares.

mod ready;
mod software;

use holdall_bag::reader::{Bag, BagMessage, BagSet, ReadError};
use holdall_io::{
    clock::Clock,
    fs,
    output::{publish_dir, remove_dir_all},
    process::{EndSignal, end_group},
};
use holdall_media::similarity::Similarity;
use holdall_model::{
    contract::{Contract, Outcome, RuleVerdict, Verdict, Violation},
    regress::{Case, CaseOutcome, CaseResult},
    selection::Selection,
    text::{Outside, OutsidePath},
    units::counted,
};
use holdall_play::{Player, status::PlayReport};
use holdall_record::{Recorder, options::RecordOptions, status::RecordReport};
use holdall_tools::{
    diff::compare_outputs,
    tools::contract::{self, judge},
};
use holdall_transport::Transport;
use ready::{Awaited, Seen};
use software::Software;
use std::{
    cell::RefCell,
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Time between two looks at what happens.
const POLL: Duration = Duration::from_millis(50);

/// Rules of a contract that are named.
const NAMED_MAX: usize = 10;

/// Names in the folder of a case.
pub const OUTPUTS: &str = "outputs";
/// What the software has written.
const SOFTWARE_LOG: &str = "software.log";
/// The number of its process.
const SOFTWARE_ID: &str = "software.pid";

/// Where a case is run.
pub struct Place<'a> {
    /// The folder of the suite, in which the software is started, and below which files are.
    pub suite: &'a Path,
    /// An empty folder for what the case leaves.
    pub results: &'a Path,
    /// Measures time.
    pub clock: Arc<dyn Clock>,
}

/// What the caller does for a case, because it knows transports and flags.
pub trait Stage {
    /// Joins the live topics once more.
    ///
    /// # Errors
    /// One sentence.
    fn join(&mut self) -> Result<Vec<Box<dyn Transport>>, String>;

    /// Starts to play the bag of the case.
    ///
    /// # Errors
    /// One sentence.
    fn play(&mut self) -> Result<Player, String>;

    /// Whether the run should end.
    fn is_stopped(&mut self) -> bool;
}

/// What a case has left, beside the files in its folder.
#[derive(Default)]
pub struct Run {
    /// Why it could not be run to its end, one sentence each.
    pub errors: Vec<String>,
    /// What is not known of the outputs, one sentence each.
    pub notes: Vec<String>,
    /// How the bag was played.
    pub play: Option<PlayReport>,
}

/// Runs a case. Its outputs are in [`OUTPUTS`] below the folder of results.
pub fn run(case: &Case, place: &Place<'_>, stage: &mut dyn Stage) -> Run {
    let mut run = Run::default();
    if let Err(reason) = run.all(case, place, stage) {
        run.errors.push(reason);
    }
    run
}

/// Ends what the run of a case has left running in its folder of results: its process was killed.
pub fn end_left(results: &Path) {
    let id = fs::read_to_string(&results.join(SOFTWARE_ID), 20).ok();
    if let Some(id) = id.and_then(|id| id.parse().ok()) {
        end_group(id, EndSignal::Kill);
    }
}

/// Waits while `go_on` returns nothing, until a time.
fn wait<T>(clock: &dyn Clock, deadline: Duration, mut go_on: impl FnMut() -> Option<T>) -> Option<T> {
    loop {
        if let Some(end) = go_on() {
            return Some(end);
        }
        if clock.monotonic() >= deadline {
            return None;
        }
        clock.sleep_until(clock.monotonic() + POLL);
    }
}

impl Run {
    fn all(&mut self, case: &Case, place: &Place<'_>, stage: &mut dyn Stage) -> Result<(), String> {
        let clock = &*place.clock;
        let deadline = clock.monotonic() + case.limit;
        let options = RecordOptions::new(place.results.join(OUTPUTS), Selection::of_topics(&case.outputs));
        let recorder = Recorder::start(options, stage.join()?).map_err(|error| error.to_string())?;
        let log = place.results.join(SOFTWARE_LOG);
        let software = Software::start(&case.command, &case.env, place.suite, &log);
        let mut software = software.map_err(|error| format!("the software cannot be started: {error}"))?;
        let id = software.id().to_string();
        fs::write_atomically_unsynced(&place.results.join(SOFTWARE_ID), id.as_bytes())
            .map_err(|error| error.to_string())?;
        let ready = await_ready(case, &recorder, &mut software, clock, stage);
        let played = ready.and_then(|()| self.play(case, &mut software, deadline, clock, stage));
        let settled = played.and_then(|()| {
            let until = clock.monotonic() + case.settle;
            let why = wait(clock, until, || {
                disturbance(&mut software, stage, "before its last outputs were recorded")
            });
            why.map_or(Ok(()), Err)
        });
        // First the recorder: what a node sends while it ends answers nothing.
        let report = recorder.stop();
        software.end(clock);
        settled?;
        self.errors.extend(problems_of(&report));
        self.notes.extend(unknown_losses(&report));
        Ok(())
    }

    fn play(
        &mut self,
        case: &Case,
        software: &mut Software,
        deadline: Duration,
        clock: &dyn Clock,
        stage: &mut dyn Stage,
    ) -> Result<(), String> {
        let player = stage.play()?;
        let ended = wait(clock, deadline, || {
            let why = disturbance(software, stage, "while the bag was played");
            why.map_or_else(|| player.is_finished().then_some(Ok(())), |why| Some(Err(why)))
        });
        let in_time = ended.unwrap_or_else(|| Err("the time limit of the case was reached".to_owned()));
        let report = if in_time.is_ok() {
            player.wait()
        } else {
            player.stop()
        };
        let report = self.play.insert(report);
        in_time?;
        self.errors.extend(report.failure.clone());
        self.errors.extend(report.losses());
        let unanswered = report.services.iter().filter(|(_, calls)| !calls.all_answered());
        self.errors.extend(
            unanswered.map(|(name, _)| format!("not all requests to {} were answered", Outside(name))),
        );
        // They would be taken for those of the software.
        let own = report.topics.iter().map(|topic| &topic.published_as);
        let own: BTreeSet<&String> = own.filter(|topic| case.outputs.contains(topic)).collect();
        self.errors.extend(own.into_iter().map(|topic| {
            let topic = Outside(topic);
            format!(
                "{topic} is an output, but the bag plays it, too: exclude or rename it with the flags of play"
            )
        }));
        Ok(())
    }
}

/// Why a case ends early, one sentence.
fn disturbance(software: &mut Software, stage: &mut dyn Stage, when: &str) -> Option<String> {
    let died = software.ended();
    died.map(|how| format!("the software has ended {how} {when}"))
        .or_else(|| stage.is_stopped().then(|| "it was ended by a signal".to_owned()))
}

/// Waits until the software is ready, and its outputs are received.
fn await_ready(
    case: &Case,
    recorder: &Recorder,
    software: &mut Software,
    clock: &dyn Clock,
    stage: &mut dyn Stage,
) -> Result<(), String> {
    let awaited = Awaited {
        nodes: &case.ready.nodes,
        topics: case.awaited_topics(),
        services: &case.ready.services,
    };
    let (mut seen, mut transports) = (Seen::default(), stage.join()?);
    let mut missing = None;
    let ready = wait(clock, clock.monotonic() + case.ready.within, || {
        if let Some(why) = disturbance(software, stage, "before it was ready") {
            return Some(Err(why));
        }
        if let Err(error) = seen.look(&mut transports) {
            return Some(Err(error.to_string()));
        }
        missing = seen.missing(awaited);
        let subscribed = recorder.control().subscribed_topics();
        let is_recorded = |topic: &String| subscribed.contains(topic) || !case.outputs.contains(topic);
        (missing.is_none() && awaited.topics.iter().all(is_recorded)).then_some(Ok(()))
    });
    ready.unwrap_or_else(|| {
        Err(format!(
            "the software was not ready within {} s: {}",
            case.ready.within.as_secs_f64(),
            missing.unwrap_or_else(|| "its outputs are not received".to_owned())
        ))
    })
}

/// What keeps outputs from being compared.
fn problems_of(report: &RecordReport) -> Vec<String> {
    let mut problems: Vec<String> = report
        .failure
        .iter()
        .chain(&report.audit_faults)
        .cloned()
        .collect();
    let lost = report.status.shortfall();
    if lost > 0 {
        problems.push(format!(
            "{} of the outputs were lost while they were recorded",
            counted(lost, "message")
        ));
    }
    if report.status.unknown_ends().is_failure() {
        problems.push("a publisher of the outputs went silent: its last messages may be lost".to_owned());
    }
    problems
}

/// The outputs whose losses on the way here are not known, in one sentence: that none is counted does not mean that all came.
fn unknown_losses(report: &RecordReport) -> Option<String> {
    let topics = report.status.topics.iter().filter(|topic| topic.loss_unknown);
    let topics: Vec<String> = topics.map(|topic| Outside(&topic.name).to_string()).collect();
    (!topics.is_empty()).then(|| {
        format!(
            "whether messages of {} were lost on the way to the recording is unknown: their transport does not count them",
            topics.join(", ")
        )
    })
}

/// Judges the outputs of a case that was run.
///
/// # Errors
/// A file that cannot be read, one sentence.
pub fn compare(case: &Case, place: &Place<'_>) -> Result<CaseResult, String> {
    let mut result = CaseResult {
        case: case.name.clone(),
        ..CaseResult::default()
    };
    let path = place.results.join(OUTPUTS);
    let found = Bag::open(&path).map_err(|error| error.to_string())?;
    if let Some(golden) = &case.golden {
        let golden = in_suite(place.suite, golden);
        if !holdall_io::remote::is_remote(&golden)
            && !fs::exists(&golden).map_err(|error| error.to_string())?
        {
            result.problems.push(format!(
                "{}: the golden bag does not exist yet",
                OutsidePath(&golden)
            ));
        } else {
            let golden = BagSet::open(&[golden]).map_err(|error| error.to_string())?;
            let found = BagSet::from(vec![found.clone()]);
            let similarity = Similarity::find([&golden, &found], |topic| case.images.contains_key(topic))?;
            let similarity = RefCell::new(similarity);
            let likeness = |messages: [&BagMessage; 2]| similarity.borrow_mut().of(messages);
            let compared = compare_outputs(&golden, &found, case, &likeness);
            let (topics, problems) = compared.map_err(|error| error.to_string())?;
            result.problems.extend(problems);
            if topics.values().all(|topic| topic.golden == 0 && topic.found == 0) {
                result
                    .problems
                    .push("neither the golden bag nor the outputs have a message to compare".to_owned());
            }
            for (topic, comparison) in &topics {
                let problem = comparison.problem();
                result
                    .problems
                    .extend(problem.map(|problem| format!("{}: {problem}", Outside(topic))));
                let figures = comparison.figures();
                result
                    .notes
                    .extend(figures.map(|figures| format!("{}: {figures}", Outside(topic))));
            }
            result.topics = topics;
        }
    }
    for contract in contracts(case, place.suite)? {
        let verdict = judge(&found, contract).map_err(|error| error.to_string())?;
        result.problems.extend(broken(&verdict));
    }
    result.outcome = match result.problems.is_empty() {
        true => CaseOutcome::Passed,
        false => CaseOutcome::Failed,
    };
    Ok(result)
}

/// A path of a suite, from its folder; a URL without its secrets.
pub fn in_suite(suite: &Path, path: &str) -> PathBuf {
    match holdall_io::remote::is_remote(Path::new(path)) {
        true => holdall_io::remote::clean(Path::new(path)).into_owned(),
        false => suite.join(path),
    }
}

/// The rules for the outputs: those of the contract, and the conditions of the suite.
///
/// # Errors
/// What cannot be read: one sentence.
pub fn contracts(case: &Case, suite: &Path) -> Result<Vec<Arc<Contract>>, String> {
    let mut contracts = Vec::new();
    if let Some(path) = &case.contract {
        contracts.push(contract::read(&suite.join(path))?);
    }
    for must in &case.must {
        // An empty condition is refused.
        let (topic, condition) = must.split_once(": ").unwrap_or((must, ""));
        let rule =
            serde_json::json!({"version": 1, "topics": {topic: {"must": condition, "required": true}}});
        let rule = Contract::parse(&rule.to_string());
        contracts.push(Arc::new(rule.map_err(|error| format!("must {must:?}: {error}"))?));
    }
    Ok(contracts)
}

/// What of a contract is not fulfilled.
fn broken(verdict: &Verdict) -> Vec<String> {
    // In continuous integration a rule that could not be decided is not fulfilled.
    let is_broken = |outcome| matches!(outcome, Outcome::Failed | Outcome::Unknown);
    let rules = verdict.rules.iter().filter(|rule| is_broken(rule.outcome));
    let problem = |rule: &RuleVerdict| {
        let is_its = |violation: &&Violation| violation.rule == rule.rule && violation.topic == rule.topic;
        let first = verdict
            .violations
            .iter()
            .find(is_its)
            .map(|violation| &violation.text);
        let topic = rule.topic.as_deref().unwrap_or("the outputs");
        let times = match rule.violations {
            0 | 1 => String::new(),
            count => format!(", {count} times"),
        };
        let why = first.or(rule.reason.as_ref()).cloned().unwrap_or_default();
        format!("{}: {}: {why}{times}", Outside(topic), rule.kind)
    };
    let not_judged = (verdict.not_judged > 0).then(|| {
        let count = counted(verdict.not_judged, "message");
        format!("{count} of the outputs were not judged by the contract")
    });
    rules.map(problem).take(NAMED_MAX).chain(not_judged).collect()
}

/// Makes the outputs of a case its golden bag, in the place of the one before.
///
/// # Errors
/// A case without a golden bag, one that was not run to its end, or files that cannot be copied: one sentence.
pub fn update_golden(case: &Case, place: &Place<'_>) -> Result<PathBuf, String> {
    let golden = case.golden.as_ref().ok_or("it has no golden bag")?;
    let golden = in_suite(place.suite, golden);
    if holdall_io::remote::is_remote(&golden) {
        return Err(format!(
            "{}: golden bags in buckets are not replaced",
            OutsidePath(&golden)
        ));
    }
    replace(&place.results.join(OUTPUTS), &golden).map_err(|error| error.to_string())?;
    Ok(golden)
}

/// Puts a copy of a bag in the place of another one, which is removed when the copy is complete and has its name.
fn replace(bag: &Path, place: &Path) -> Result<(), ReadError> {
    let beside = |suffix: &str| {
        let name = place.file_name().unwrap_or_default().to_string_lossy();
        place.with_file_name(format!(".{name}.{suffix}"))
    };
    let (new, old) = (beside("new"), beside("old"));
    Bag::open(bag)?;
    // A run that was killed left it.
    remove_dir_all(&new)?;
    fs::create_dir_new(&new)?;
    for entry in fs::list_dir(bag)? {
        let name = entry.path.file_name().unwrap_or_default();
        fs::copy_new(&entry.path, &new.join(name))?;
    }
    if fs::exists(place)? {
        // Nothing but a bag is removed.
        Bag::open(place)?;
        remove_dir_all(&old)?;
        fs::rename_new(place, &old)?;
    }
    publish_dir(&new, place)?;
    Ok(remove_dir_all(&old)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_bag::writer::Writer;
    use holdall_model::time::Timestamp;

    fn write_bag(path: &Path, messages: i64) {
        let mut writer = Writer::create(path).unwrap();
        let topic = writer.add_topic("/a", "std_msgs/msg/UInt8").unwrap();
        for nanos in 0..messages {
            let stamp = Timestamp::from_nanos(nanos);
            writer.write(topic, stamp, &[0, 1, 0, 0, 7]).unwrap();
        }
        writer.close().unwrap();
    }

    fn messages(path: &Path) -> u64 {
        let bag = Bag::open(path).unwrap();
        bag.metadata().topics_with_message_count[0].message_count
    }

    #[test]
    fn a_golden_bag_is_replaced_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second, golden] = ["first", "second", "golden"].map(|name| folder.path().join(name));
        write_bag(&first, 1);
        write_bag(&second, 2);
        replace(&first, &golden).unwrap();
        // Left by runs that were killed.
        for name in [".golden.new", ".golden.old"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        replace(&second, &golden).unwrap();
        assert_eq!(messages(&golden), 2);
        assert_eq!(fs::list_dir(folder.path()).unwrap().len(), 3);
        // It cannot be copied as a file.
        std::fs::create_dir(first.join("folder")).unwrap();
        replace(&first, &golden).unwrap_err();
        assert_eq!(messages(&golden), 2);
    }

    #[test]
    fn only_a_bag_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let [bag, place] = ["bag", "place"].map(|name| folder.path().join(name));
        write_bag(&bag, 1);
        std::fs::create_dir(&place).unwrap();
        std::fs::write(place.join("notes"), "mine").unwrap();
        replace(&bag, &place).unwrap_err();
        assert!(place.join("notes").exists());
    }
}
