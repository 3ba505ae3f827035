//! The arguments of `holdall bench`.

pub mod kinds;
pub mod link;
pub mod peer;

use crate::{
    disk_limit,
    middleware::{Middleware, worker::WorkerPlan},
    suite::{
        config::{RecorderKind, Transport},
        experiments,
    },
};
use clap::{Args, Parser, Subcommand, ValueEnum, builder::PossibleValue};
use holdall_program::names::TransportName;
use holdall_program::{names::STYLES, units::parse_bytes};
use kinds::RunKind;
use link::{LINK_EXAMPLES, LinkArguments};
use peer::PeerArguments;
use std::{fs, path::PathBuf};

/// Shown below `-h` and `--help`.
pub const EXAMPLES: &str = "\
Examples:
  holdall bench list                                                     experiments of published reports
  holdall bench run A6 --scale 0.1 --out /data/bench                     one of them, a tenth of its size
  holdall bench run D3 --scale 0.2 --repeat 3 --out /data/bench          middlewares over a link with packet loss
  holdall bench run write --size 1MiB --total 8GB --out /data/bench      the recorder against the disk's own limit
  holdall bench run storage --out /data/bench                            storages alone, one table for each size
  holdall bench run tools --out /data/bench                              merge, split, filter, check compared with cp, the mcap crate and pip packages
  holdall bench report /data/bench                                       what was found, as a page with plots
  holdall bench link 'rate=54Mb/s,loss=10%' -- CMD_A -- CMD_B            two programs with a bad network between them
  holdall bench gate                                                     what a message costs against the committed baseline";

/// Benchmark recording on this machine: speed, cost, losses
#[derive(Debug, Parser)]
#[command(name = "holdall-bench", bin_name = "holdall bench", version, styles = STYLES, args_override_self = true, max_term_width = 110)]
#[command(after_help = EXAMPLES)]
pub struct Cli {
    /// What to measure.
    #[command(subcommand)]
    pub verb: BenchVerb,
}

/// Flags of the processes that `holdall bench run` starts.
#[derive(Args, Clone, Debug)]
pub struct LiveArguments {
    /// The transport
    #[arg(long, value_name = "NAME", default_value = holdall_transport::registry::default_id())]
    pub transport: TransportName,

    /// Only join the transport, to find out whether this build can
    #[arg(long, hide = true)]
    pub probe: bool,
}

/// Flags of `holdall bench publish`.
#[derive(Args, Clone, Debug)]
pub struct PublishArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub live: LiveArguments,

    /// A producer file of rosbag2_performance_benchmarking, as its `benchmark_publishers` reads it
    #[arg(long, value_name = "FILE")]
    pub params_file: Option<PathBuf>,

    /// Nodes that the publishers are dealt to
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub nodes: u32,

    /// Threads that publish [default: the file's, else one, or two above 200 000 messages a second]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: Option<u32>,

    /// Factor on the number of messages: 0.1 sends a tenth
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub scale: f64,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum BenchVerb {
    /// Experiments: of published reports, your own files of rosbag2_performance_benchmarking, the recorder, storages, tools
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<RunArguments>),
    /// One page for results of `bench run`: tables, plots, CSV and JSON; two folders can be compared
    #[command(after_help = REPORT_EXAMPLES)]
    Report(ReportArguments),
    /// The experiments that can be run by name
    List {
        /// Print the file of one experiment, as a template for your own
        #[arg(value_name = "ID")]
        id: Option<String>,
        /// Print JSON instead of a table
        #[arg(long, conflicts_with = "id")]
        json: bool,
    },
    /// Two programs on the two ends of an emulated link: rate, delay, loss, outages
    #[command(after_help = LINK_EXAMPLES)]
    Link(LinkArguments),
    /// What a message costs in instructions, allocations and copies, against the baseline that is committed in holdall's source tree
    #[command(after_help = GATE_EXAMPLES)]
    Gate(GateArguments),
    /// The load of a producer file alone, for any recorder
    #[command(after_help = PUBLISH_EXAMPLES)]
    Publish(PublishArguments),
    /// One side of a run over a middleware; started by `bench run`
    #[command(hide = true)]
    Worker(WorkerPlan),
    /// Records a load with a rival's writer; started by `bench run`
    #[command(hide = true)]
    Rival(LiveArguments),
    /// Writes the manual pages into a directory; `make install-bench` does this
    #[command(hide = true)]
    Man {
        /// The directory
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
    },
}

/// Shown below the help of `holdall bench publish`.
const PUBLISH_EXAMPLES: &str = "\
Examples:
  holdall bench publish --params-file mixed_110MBs.yaml              publishes when every topic has a subscription
  holdall bench publish --params-file mixed_110MBs.yaml --nodes 4    the same topics, of four nodes

Without a file, the plan is read from standard input; `holdall bench run` starts it so.";

/// Shown below the help of `holdall bench report`.
const REPORT_EXAMPLES: &str = "\
Examples:
  holdall bench report /data/bench                         writes /data/bench/report.html, plots, CSV and JSON
  holdall bench report /data/bench/A6 --out page           one experiment, elsewhere
  holdall bench report /data/new --compare /data/old       what changed, and whether the intervals show it";

/// All flags of `holdall bench report`.
#[derive(Args, Clone, Debug)]
pub struct ReportArguments {
    /// Folders with results of `holdall bench run`
    #[arg(value_name = "DIR", required = true)]
    pub folders: Vec<PathBuf>,

    /// A folder with other results of the same experiments
    #[arg(long, value_name = "DIR")]
    pub compare: Option<PathBuf>,

    /// End with exit code 1 when an interval is below that of the other folder: what holdall recorded, a storage's ratio to its rival, what a middleware delivered
    #[arg(long, requires = "compare")]
    pub fail_if_worse: bool,

    /// Folder for the page [default: the first folder with results]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// A folder with the data of the published evaluation of middlewares, drawn in grey
    #[arg(long, value_name = "DIR")]
    pub published: Option<PathBuf>,

    /// Write only a short page in Markdown: at most 1200 words and six plots
    #[arg(long, value_name = "FILE", conflicts_with_all = ["compare", "out"])]
    pub summary: Option<PathBuf>,
}

/// Shown below the help of `holdall bench gate`.
const GATE_EXAMPLES: &str = "\
Examples:
  holdall bench gate                              builds the workloads, counts, and fails when a message costs 5 % more instructions
  holdall bench gate --only record --json         some workloads, with output for programs
  holdall bench gate --renew                      the new counts become the baseline; commit it with the change

Needs valgrind, cargo and the source tree. Only instructions of holdall's code count; they are the same on every machine with the same compiler.";

/// All flags of `holdall bench gate`.
#[derive(Args, Clone, Debug)]
pub struct GateArguments {
    /// What to compare with [default: tools/bench/gate/baseline.json of the source tree]
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,

    /// The program with the workloads [default: holdall-gate, built from the source tree with the profile gate]
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,

    /// Only workloads with this in their name; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub only: Vec<String>,

    /// Instructions of a message may grow by this much
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    pub tolerance: f64,

    /// Make the new counts the baseline
    #[arg(long)]
    pub renew: bool,

    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Shown below the help of `holdall bench run`.
const RUN_EXAMPLES: &str = "\
Examples:
  holdall bench run A6 --scale 0.1 --out /data/bench       a tenth of the published experiment
  holdall bench run A1 A6 B2 --repeat 3 --out /data/bench  several, three repetitions each
  holdall bench run --producers mixed_110Mbs.yaml --benchmark default_no_transport.yaml --out /data/bench
                                                           unchanged files of rosbag2_performance_benchmarking
  holdall bench list A6 > mine.yaml                        a template for your own experiment file
  holdall bench run mine.yaml --out /data/bench
  holdall bench run A6 --resume --out /data/bench          continue after an interruption
  holdall bench run C1 --transport dds --out /data/bench   over another transport than the experiment asks for
  holdall bench run A3 A4 --recorder holdall --case '500' --scale 0.1 --out /data/bench
                                                           one recorder, one load
  holdall bench run G1 --scale 0.2 --out /data/bench       what the generator itself costs on this machine
  holdall bench run D3 --scale 0.2 --repeat 3 --middleware fastdds-async,cyclone --out /data/bench
                                                           middlewares over an emulated link with packet loss
  holdall bench run --listen 192.168.1.7                   two machines: first this, on the one with the address 192.168.1.7
  holdall bench run D6 --side publisher --peer 192.168.1.7 --out /data/bench
                                                           then this, on the other one
  holdall bench run write --help                           the recorder, storages or tools alone, with their flags";

/// All flags of `holdall bench run`.
#[derive(Args, Clone, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub struct RunArguments {
    /// A kind of experiment that takes flags instead of an experiment file
    #[command(subcommand)]
    pub kind: Option<RunKind>,

    /// Experiments: names (see `holdall bench list`) or experiment files
    #[arg(value_name = "ID|FILE", required_unless_present_any = ["producers", "listen"])]
    pub experiments: Vec<String>,

    /// A producer file of rosbag2_performance_benchmarking
    #[arg(
        long,
        value_name = "FILE",
        requires = "benchmark",
        conflicts_with = "experiments"
    )]
    pub producers: Option<PathBuf>,

    /// A benchmark file of rosbag2_performance_benchmarking
    #[arg(long, value_name = "FILE", requires = "producers")]
    pub benchmark: Option<PathBuf>,

    /// Folder for results; each experiment gets a new one in it
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Factor on the number of messages and, below 1, on caches: 0.1 runs a tenth
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub scale: f64,

    /// Repetitions instead of those that the experiment asks for
    #[arg(long, value_name = "N")]
    pub repeat: Option<u32>,

    /// Continue an interrupted run
    #[arg(long)]
    pub resume: bool,

    /// Keep all bags
    #[arg(long)]
    pub keep: bool,

    /// Threads that publish [default: one, or two above 200 000 messages a second]
    #[arg(long, value_name = "N")]
    pub threads: Option<u32>,

    /// Nodes that holdall's publishers are dealt to
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub nodes: Option<u32>,

    /// Transport between holdall's publishers and recorders, instead of the experiment's [none: no transport]
    #[arg(long, value_name = "NAME")]
    pub transport: Option<Transport>,

    /// Only these recorders
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub recorder: Vec<RecorderKind>,

    /// Only cases with this in their label; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub case: Vec<String>,

    /// The folder with data of D8: files that end in survey_counts.csv and repository_items.csv
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,

    /// Only these middlewares, for experiments that compare middlewares
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub middleware: Vec<Middleware>,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub peer: PeerArguments,

    /// `ros2` or the prefix that it is installed into, if it is neither on PATH nor below /opt/ros; its setup.bash is sourced
    #[arg(long, value_name = "PATH")]
    pub ros2: Option<PathBuf>,

    /// The prefix of a ROS 1 with rosbag and rosmaster, if it is neither /usr nor below /opt/ros; its setup.bash is sourced
    #[arg(long, value_name = "PREFIX")]
    pub ros1: Option<PathBuf>,

    /// A Python with rclpy, for real nodes that publish [default: that of VIRTUAL_ENV or .venv, or python3]
    #[arg(long, value_name = "FILE")]
    pub python: Option<PathBuf>,

    /// Most bytes that each measurement of the disk's limit writes
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = parse_bytes)]
    pub limit_total: u64,

    /// Let everything that is measured write to a disk of this rate, such as 510MB/s: a file system on a throttled loop device (needs root)
    #[arg(long, value_name = "RATE", global = true, value_parser = disk_limit::parse_rate)]
    pub disk_limit: Option<u64>,

    /// Let programs have receive buffers beyond the system's limit, which only root gets; without it root measures as an ordinary user
    #[arg(long)]
    pub root_buffers: bool,

    /// Leave out the processors that an experiment asks for
    #[arg(long)]
    pub no_affinity: bool,

    /// Print one JSON object for each experiment instead of a table
    #[arg(long)]
    pub json: bool,
}

impl RunArguments {
    /// The arguments of a line such as `A6 --scale 0.1 --out DIR`.
    ///
    /// # Errors
    /// A line that `holdall bench run` would refuse.
    pub fn of(line: &str) -> Result<Self, clap::Error> {
        #[derive(Parser)]
        #[command(args_override_self = true)]
        struct Line {
            #[command(flatten)]
            run: RunArguments,
        }
        let words = std::iter::once("run").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.run)
    }

    /// The command line to run the same of one experiment, which has this text: by its name, or from the file that holds the text.
    pub fn command_of(&self, id: &str, text: Option<&str>) -> String {
        let is_text = |name: &&String| fs::read_to_string(name).ok().as_deref() == text;
        let file = text.filter(|text| experiments::text_of(id) != Some(text));
        let file = file.and_then(|_| self.experiments.iter().find(is_text));
        let id = file.map_or(id, String::as_str);
        let name = |value: Option<PossibleValue>| value.map(|one| one.get_name().to_owned());
        let list = |names: Vec<String>| Some(names.join(",")).filter(|names| !names.is_empty());
        let recorders = self.recorder.iter().map(ValueEnum::to_possible_value);
        let middlewares = self.middleware.iter().map(ToString::to_string);
        let scale = Some(self.scale).filter(|scale| *scale != 1.0);
        let transport = self.transport.and_then(|one| one.to_possible_value());
        let flags = [
            ("scale", scale.map(|scale| scale.to_string())),
            ("threads", self.threads.map(|threads| threads.to_string())),
            ("nodes", self.nodes.map(|nodes| nodes.to_string())),
            ("transport", name(transport)),
            ("recorder", list(recorders.filter_map(name).collect())),
        ];
        let cases = self.case.iter().map(|case| ("case", Some(format!("'{case}'"))));
        let more = [
            ("middleware", list(middlewares.collect())),
            ("repeat", self.repeat.map(|repeat| repeat.to_string())),
            ("disk-limit", self.disk_limit.map(|rate| format!("{rate}B/s"))),
            ("side", self.peer.side.clone()),
            ("peer", self.peer.peer.clone()),
        ];
        let mut command = "holdall bench run".to_owned();
        match (&self.producers, &self.benchmark) {
            (Some(producers), Some(benchmark)) => {
                let (producers, benchmark) = (producers.display(), benchmark.display());
                command += &format!(" --producers {producers} --benchmark {benchmark}");
            }
            _ => command += &format!(" {id}"),
        }
        for (flag, value) in flags.into_iter().chain(cases).chain(more) {
            if let Some(value) = value {
                command += &format!(" --{flag} {value}");
            }
        }
        for (flag, is_given) in [
            ("root-buffers", self.root_buffers),
            ("no-affinity", self.no_affinity),
        ] {
            if is_given {
                command += &format!(" --{flag}");
            }
        }
        command + " --out DIR"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_runs_the_same_experiment_again() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("own.yaml");
        fs::write(&own, "experiment: A6\n").unwrap();
        let own = own.display();
        let line =
            format!("A6 D6 {own} --side publisher --peer 10.0.0.2 --scale 0.5 --disk-limit 510MB/s --out X");
        let args = RunArguments::of(&line).unwrap();
        let flags = "--scale 0.5 --disk-limit 510000000B/s --side publisher --peer 10.0.0.2 --out DIR";
        for (text, name) in [
            (experiments::text_of("A6"), "A6".to_owned()),
            (Some("experiment: A6\n"), own.to_string()),
            (None, "A6".to_owned()),
        ] {
            let expected = format!("holdall bench run {name} {flags}");
            assert_eq!(args.command_of("A6", text), expected);
        }
    }
}
