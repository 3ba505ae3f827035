//! One run over a transport: publishers and recorder in separate processes, as on a robot.

pub(crate) mod child;
pub(crate) mod installed;
mod programs;
mod rival;
mod world;

pub use child::Ended;
pub(crate) use child::Program;
pub use installed::Named;
pub use programs::{Absent, Programs};
pub use rival::RivalReport;
pub use rival::{Rival, RivalPlan};
use world::World;

use super::{
    config::{PublisherKind, RecorderKind, SelectionKind},
    load::{NODE, PublishEvent, PublishPlan, PublishReport},
    result::{Cost, DiscoveryResult, RunResult, TopicResult},
    run::{Run, affinity::Pinned},
};
use crate::{
    error::{BenchError, BenchResult},
    measure::{CoreSampler, ProcessSampler, ProcessUse, SchedulingProbe},
};
use holdall::reader::Bag;
use holdall_model::loss::LossStage;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

/// Time that programs have to be ready or to end, in addition to the duration of the load.
const PATIENCE: Duration = Duration::from_secs(90);

/// Messages in flight when the last one was handed over get this long, before each recorder, whichever it is,
/// is asked to end.
const GRACE: Duration = Duration::from_millis(500);

/// A run over a transport.
pub(crate) struct LiveRun<'a> {
    /// Everything that runs have in common.
    pub run: Run<'a>,
    /// The programs that can be started.
    pub programs: &'a Programs,
}

/// The recorder's own report: by topic, in the order of the publishers.
#[derive(Default)]
struct RecorderReport {
    lost: Vec<BTreeMap<LossStage, u64>>,
    write: Option<crate::measure::LatencySummary>,
    /// Messages taken and dropped, by topic, for a recorder without a bag.
    taken: Option<Vec<u64>>,
}

impl LiveRun<'_> {
    /// Sends, records, closes, and returns the figures; the caller sets experiment, case and limits.
    ///
    /// # Errors
    /// A program that fails; a bag that cannot be read.
    pub fn run(&self) -> BenchResult<RunResult> {
        let bag = self.run.folder.join("bag");
        let world = World::new(
            self.programs,
            self.run.setting.recorder,
            self.run.benchmark.transport,
            self.run.clock,
        )?;
        let probe = SchedulingProbe::start(Arc::clone(self.run.clock))
            .map_err(|source| BenchError::Thread { source })?;
        let cores = CoreSampler::start(Arc::clone(self.run.clock))?;
        let recorder = self.start_recorder(&bag, &world)?;
        let mut publishers = self.start_publishers(&world)?;
        let watched = vec![
            ("recorder".to_owned(), recorder.id()),
            ("publishers".to_owned(), publishers.id()),
        ];
        let sampler = ProcessSampler::start(watched, Arc::clone(self.run.clock))?;
        let event = |line: &str| serde_json::from_str::<PublishEvent>(line).ok();
        publishers.wait_for(PATIENCE, |line| {
            (event(line)? == PublishEvent::Started).then_some(())
        })?;
        let started = self.run.clock.monotonic();
        let expected = Duration::from_secs_f64(self.run.producers.duration_s() * 4.0) + PATIENCE;
        let sent = publishers.wait_for(expected, |line| match event(line)? {
            PublishEvent::Done(report) => Some(*report),
            _ => None,
        })?;
        let sending_s = self.run.clock.monotonic().saturating_sub(started).as_secs_f64();
        self.run.clock.sleep_until(self.run.clock.monotonic() + GRACE);
        let stopped = self.run.clock.monotonic();
        let ended = self.end_recorder(recorder)?;
        sync_all(&bag)?;
        let close_s = self.run.clock.monotonic().saturating_sub(stopped).as_secs_f64();
        let seen = sampler.stop();
        publishers.close_stdin();
        let published = publishers.finish(PATIENCE)?;
        let (woken, _) = probe.stop();
        let mut result = self.figures(&bag, &sent, &self.report_of(&ended)?)?;
        result.set_times(sending_s + close_s, close_s);
        result.work.processes = together(seen, &[&ended.used, &published.used]);
        result.cost = Cost {
            recorder_cpu_s: ended.used.cpu_s,
            producer_cpu_s: published.used.cpu_s,
            rss_max_bytes: result.work.processes.first().map_or(0, |used| used.rss_max_bytes),
            bag_bytes: super::run::folder_bytes(&bag),
            written_bytes: ended.used.written_bytes.filter(|bytes| *bytes > 0),
            splits: super::run::storage_files(&bag).saturating_sub(1),
            ..Cost::default()
        };
        result.around.wake_up = woken.summary();
        result.around.cores = cores.stop();
        Ok(result)
    }

    fn plan(&self) -> PublishPlan {
        let installed_only =
            self.run.setting.publishers == PublisherKind::Rclpy || self.run.setting.recorder.is_foreign();
        PublishPlan::new(
            self.run.producers,
            u64::from(self.run.repetition) + 1,
            self.run.threads,
            installed_only,
        )
    }

    fn topics(&self) -> Vec<String> {
        let of = |group: &super::config::PublisherGroup| {
            let root = group.topic_root.clone();
            (1..=group.publishers_count).map(move |place| format!("{NODE}/{root}_{place}"))
        };
        self.run.producers.groups.iter().flat_map(of).collect()
    }

    fn start_recorder(&self, bag: &Path, world: &World) -> BenchResult<Program> {
        let _pinned = Pinned::to("recorder_cpu_affinity", &self.run.benchmark.recorder_cpu_affinity)?;
        let mut command = self
            .programs
            .recorder(self.run.setting, self.run.benchmark.transport, bag, world);
        self.choose(&mut command);
        let mut program = Program::start(
            &self.run.setting.recorder.to_string(),
            &mut command,
            self.run.clock,
        )?;
        match self.run.setting.recorder {
            kind if kind.is_rival() => {
                fs::create_dir_all(bag).map_err(BenchError::io("create", bag))?;
                let plan = RivalPlan {
                    load: self.plan(),
                    setting: self.run.setting.clone(),
                    folder: bag.to_owned(),
                };
                program.send(&line(&plan)?)?;
            }
            // It prints nothing before the first message; the publishers wait for it.
            RecorderKind::Rosbag => return Ok(program),
            _ => {}
        }
        program.wait_for(PATIENCE, |line| {
            line.contains("Listening for topics").then_some(())
        })?;
        Ok(program)
    }

    /// Adds the selection of topics; the rivals' own process reads it from its plan.
    fn choose(&self, command: &mut Command) {
        let recorder = self.run.setting.recorder;
        if recorder.is_rival() {
            return;
        }
        match self.run.setting.selection {
            SelectionKind::All => command.arg("-a"),
            SelectionKind::Regex => command.args(["-e", &format!("{NODE}/.*")]),
            SelectionKind::Names if recorder == RecorderKind::Rosbag => command.args(self.topics()),
            SelectionKind::Names => command.arg("--topics").args(self.topics()),
        };
    }

    fn start_publishers(&self, world: &World) -> BenchResult<Program> {
        let _pinned = Pinned::to(
            "producers_cpu_affinity",
            &self.run.benchmark.producers_cpu_affinity,
        )?;
        let kind = self.run.setting.publishers;
        let mut command = self.programs.publishers(
            kind,
            self.run.setting.recorder,
            self.run.benchmark.transport,
            self.run.folder,
            world,
        )?;
        let mut program = Program::start("the publishers", &mut command, self.run.clock)?;
        let plan = self.plan().with_frames()?;
        program.send(&line(&plan)?)?;
        Ok(program)
    }

    fn end_recorder(&self, mut recorder: Program) -> BenchResult<Ended> {
        let kind = self.run.setting.recorder;
        if kind.is_rival() {
            recorder.close_stdin();
        } else {
            recorder.interrupt();
        }
        let ended = recorder.finish(PATIENCE)?;
        // holdall reports a loss by exit code 3, and a stalled disk by 1 although the bag is complete; other
        // projects' programs end in many ways after a signal.
        let is_failed = match kind {
            RecorderKind::Holdall => !matches!(ended.code, Some(0 | 3)) && !is_closed(&ended.lines),
            _ => kind.is_rival() && ended.code != Some(0),
        };
        if is_failed {
            let how = ended.code.map_or_else(
                || "by a signal".to_owned(),
                |code| format!("with exit code {code}"),
            );
            let output = last_sentences(&ended.lines);
            return Err(BenchError::program(
                kind,
                format!("ended {how}; its output: {output}"),
            ));
        }
        Ok(ended)
    }

    fn report_of(&self, ended: &Ended) -> BenchResult<RecorderReport> {
        let kind = self.run.setting.recorder;
        if kind == RecorderKind::Holdall {
            return Ok(RecorderReport {
                lost: lost_of_holdall(&ended.lines, &self.topics()),
                ..RecorderReport::default()
            });
        }
        if !kind.is_rival() {
            return Ok(RecorderReport::default());
        }
        let lines = ended.lines.iter().rev();
        let report = lines.filter_map(|line| serde_json::from_str::<RivalReport>(line).ok());
        let report = { report }
            .next()
            .ok_or_else(|| BenchError::program(kind, "printed no report"))?;
        let of = |count: &u64| {
            (*count > 0)
                .then_some((LossStage::Cache, *count))
                .into_iter()
                .collect()
        };
        Ok(RecorderReport {
            lost: report.lost.iter().map(of).collect(),
            write: report.write,
            taken: (kind == RecorderKind::Discard).then_some(report.stored),
        })
    }

    /// Combines the sent messages, the content of the bag, and the recorder's report on the rest.
    fn figures(&self, bag: &Path, sent: &PublishReport, reported: &RecorderReport) -> BenchResult<RunResult> {
        let recorded = match reported.taken {
            Some(_) => BTreeMap::new(),
            None => recorded_by_topic(bag)?,
        };
        let mut result = RunResult::new(self.run.benchmark.transport, self.run.setting, self.run.producers);
        let mut index = 0;
        for (group, config) in self.run.producers.groups.iter().enumerate() {
            let message_bytes = sent.message_bytes.get(group).copied().unwrap_or(0);
            for place in 1..=config.publishers_count {
                let topic = format!("{NODE}/{}_{place}", config.topic_root);
                let one = TopicResult {
                    sent: sent.sent.get(index).copied().unwrap_or(0),
                    recorded: match &reported.taken {
                        Some(taken) => taken.get(index).copied().unwrap_or(0),
                        None => recorded.get(&topic).copied().unwrap_or(0),
                    },
                    lost: reported.lost.get(index).cloned().unwrap_or_default(),
                    topic,
                };
                result.counts.add(group, message_bytes, one);
                index += 1;
            }
        }
        result.work.write = reported.write;
        result.work.offer = sent.offer;
        result.around.lateness = sent.lateness;
        result.times.sending_s = sent.elapsed_s;
        result.work.discovery = DiscoveryResult::of(&sent.matched_s, index, sent.sent_before_match);
        Ok(result)
    }
}

/// One JSON object on a line.
fn line(plan: &impl serde::Serialize) -> BenchResult<String> {
    serde_json::to_string(plan)
        .map_err(|error| BenchError::program("holdall", format!("cannot be sent its plan: {error}")))
}

/// The end of a program's output for people, in a sentence's length.
fn last_sentences(lines: &[String]) -> String {
    let is_sentence = |line: &&String| !line.starts_with([' ', '{', '}']);
    let sentences: Vec<&str> = lines.iter().filter(is_sentence).map(String::as_str).collect();
    sentences[sentences.len().saturating_sub(3)..].join(" | ")
}

/// The report of `holdall record --json` for each topic, which it prints over several lines.
fn report_of_holdall(lines: &[String]) -> serde_json::Value {
    let from = lines.iter().rposition(|line| line == "{").unwrap_or(lines.len());
    let until = lines
        .iter()
        .rposition(|line| line == "}")
        .map_or(from, |end| end + 1);
    // Lines of its other stream come in between.
    let is_report = |line: &&str| line.starts_with([' ', '{', '}']);
    let lines = lines.get(from..until).unwrap_or_default().iter();
    let text: Vec<&str> = lines.map(String::as_str).filter(is_report).collect();
    serde_json::from_str(&text.join("\n")).unwrap_or_default()
}

/// Whether `holdall record --json` has closed its bag.
fn is_closed(lines: &[String]) -> bool {
    let report = report_of_holdall(lines);
    report["topics"].is_object() && report["failure"].is_null()
}

/// The losses in the report, by topic.
fn lost_of_holdall(lines: &[String], topics: &[String]) -> Vec<BTreeMap<LossStage, u64>> {
    let report = report_of_holdall(lines);
    let of = |topic: &String| {
        let topic_account = &report["topics"][topic];
        let mut stages: BTreeMap<LossStage, u64> =
            serde_json::from_value(topic_account["lost_by_stage"].clone()).unwrap_or_default();
        // No loss, and not in the bag either.
        if let Some(before @ 1..) = topic_account["sent_before_match"].as_u64() {
            stages.insert(LossStage::Head, before);
        }
        stages
    };
    topics.iter().map(of).collect()
}

/// Messages of each topic by the bag's own counts.
fn recorded_by_topic(bag: &Path) -> BenchResult<BTreeMap<String, u64>> {
    let path = bag_path(bag);
    let failed = |reason: String| BenchError::Bag {
        path: path.clone(),
        reason,
    };
    let reader = Bag::open(&path)
        .or_else(|_| Bag::rebuild(&path))
        .map_err(|error| failed(error.to_string()))?;
    let topics = &reader.metadata().topics_with_message_count;
    Ok(topics
        .iter()
        .map(|topic| (topic.topic_metadata.name.clone(), topic.message_count))
        .collect())
}

/// ROS 1 and the bare writers make a file; recorders with `metadata.yaml` make a folder.
fn bag_path(bag: &Path) -> PathBuf {
    let entries = fs::read_dir(bag).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    if files.iter().any(|path| path.ends_with("metadata.yaml")) {
        return bag.to_owned();
    }
    files.sort();
    match files.as_slice() {
        [only] => only.clone(),
        _ => bag.to_owned(),
    }
}

/// Makes everything in a folder durable, as holdall itself does, so that all are measured up to the same
/// point.
fn sync_all(folder: &Path) -> BenchResult<()> {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        fs::File::open(&path)
            .and_then(|file| file.sync_all())
            .map_err(BenchError::io("sync", &path))?;
    }
    Ok(())
}

/// Samples with the exact figures of the end.
fn together(seen: Vec<ProcessUse>, ended: &[&ProcessUse]) -> Vec<ProcessUse> {
    let one = |(seen, ended): (ProcessUse, &&ProcessUse)| ProcessUse {
        cpu_s: ended.cpu_s,
        cpu_system_s: ended.cpu_system_s,
        written_bytes: ended.written_bytes.or(seen.written_bytes),
        rss_max_bytes: seen.rss_max_bytes.max(ended.rss_max_bytes),
        ..seen
    };
    seen.into_iter().zip(ended).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_read_from_the_report_among_other_lines() {
        let text = "2026 info: Listening\n{\n  \"topics\": {\nholdall: while recording, the disk stood still\n    \"/a\": {\"lost_by_stage\": {\"cache\": 3, \"head\": 1}}\n  }\n}\n2026 info: bye";
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let lost = lost_of_holdall(&lines, &["/a".to_owned(), "/b".to_owned()]);
        assert_eq!(lost[0], [(LossStage::Head, 1), (LossStage::Cache, 3)].into());
        assert!(lost[1].is_empty());
        assert_eq!(
            last_sentences(&lines),
            "2026 info: Listening | holdall: while recording, the disk stood still | 2026 info: bye"
        );
        assert!(is_closed(&lines) && !is_closed(&lines[..3]));
        assert!(lost_of_holdall(&["}".to_owned(), "{".to_owned()], &["/a".to_owned()])[0].is_empty());
    }
}
