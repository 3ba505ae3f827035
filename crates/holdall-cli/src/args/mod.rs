//! The arguments of the command line: what clap reads, before anything is looked up or combined.

pub mod attach;
pub mod audit;
pub mod bench;
pub mod burst;
pub mod cat;
#[cfg(feature = "parquet")]
pub mod catalog;
pub mod check;
pub mod choice;
pub mod compress;
pub mod console;
pub mod contract;
pub mod control;
pub mod decrypt;
pub mod diff;
pub mod events;
pub mod export;
pub mod files;
#[cfg(test)]
mod grammar_tests;
pub mod help;
pub mod hints;
pub mod info;
pub mod known;
pub mod listen;
pub mod migrate;
mod node_parameters;
pub mod play;
pub mod plot;
pub mod preflight;
pub mod ps;
pub mod record;
pub mod regress;
pub mod repair;
mod ros_arguments;
#[cfg(test)]
mod ros_arguments_tests;
#[cfg(test)]
mod rosbag2_tests;
pub mod tools;
pub mod upload;
pub mod viewers;

use clap::{Parser, Subcommand, ValueEnum};
pub use holdall_program::names::TransportName;
use tracing::level_filters::LevelFilter;

const EXAMPLES: &str = "\
Examples:
  holdall record -a                        record all topics and services until Ctrl-C
  holdall record --topics /imu /tf -o lab  record two topics into the bag directory lab/
  holdall info lab                         what is in the bag, and what was lost
  holdall audit lab                        whether every message sent is in the bag or counted as lost
  holdall play lab -r 0.5 --clock          play it at half speed and publish /clock
  holdall cat lab --topics /imu            its messages, decoded";

const ENVIRONMENT: &str = "\
Environment:
  ROS_DOMAIN_ID                  the ROS domain, 0 to 232 (default 0)
  ROS_AUTOMATIC_DISCOVERY_RANGE  SUBNET, LOCALHOST, OFF or SYSTEM_DEFAULT
  ROS_STATIC_PEERS               hosts to discover, separated by ;
  ROS_LOCALHOST_ONLY             1 keeps to this host; overrules range and peers (deprecated)
  CYCLONEDDS_URI                 configuration of the DDS layer, used unchanged
  RMW_IMPLEMENTATION             rmw_zenoh_cpp makes zenoh the default transport
  ZENOH_SESSION_CONFIG_URI       configuration file of zenoh, instead of rmw_zenoh's defaults
  ZENOH_CONFIG_OVERRIDE          key=value pairs that override it, separated by ;
  ZENOH_ROUTER_CHECK_ATTEMPTS    below 0: no router is expected
  ROS_DISTRO, AMENT_PREFIX_PATH  stored in the bag; searched for message definitions
  NO_COLOR                       no colours";

/// Record live ROS 2 systems into bags, inspect bags and play them back.
///
/// Needs no ROS installation. Bags have the format of `ros2 bag`: MCAP files next to a metadata.yaml, read by `ros2 bag`, the
/// mcap tools and Foxglove too. holdall counts the messages that are known to have been sent but are not in the bag, and names what cannot be known.
#[derive(Debug, Parser)]
#[command(name = "holdall", version = env!("HOLDALL_VERSION"), styles = holdall_program::names::STYLES, args_override_self = true, max_term_width = 110, disable_help_subcommand = true)]
#[command(after_help = EXAMPLES, after_long_help = after_long_help())]
pub struct Cli {
    /// The verb.
    #[command(subcommand)]
    pub verb: Verb,

    /// File with a secret key (of age, or of ssh without passphrase) for encrypted bags; may be given several times
    #[arg(long, value_name = "FILE", global = true, action = clap::ArgAction::Append, help_heading = "Encrypted bags")]
    pub identity: Vec<std::path::PathBuf>,
}

fn after_long_help() -> String {
    format!("{EXAMPLES}\n\n{ENVIRONMENT}\n\n{}", crate::exit::HELP)
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Record live topics into a bag
    #[command(after_help = record::EXAMPLES, after_long_help = record::after_long_help())]
    Record(Box<record::RecordArguments>),
    /// Find out whether a recording will fit: a trial, and a forecast
    #[command(after_help = preflight::EXAMPLES, after_long_help = format!("{}\n\n{}", preflight::EXAMPLES, preflight::NOTES))]
    Preflight(Box<preflight::PreflightArguments>),
    /// Play a bag back to live topics
    #[command(after_help = play::EXAMPLES, after_long_help = play::after_long_help())]
    Play(Box<play::PlayArguments>),
    /// Publish messages of a bag without waiting between them
    #[command(after_help = burst::EXAMPLES)]
    Burst(Box<burst::BurstArguments>),
    /// Show what is in a bag, and what was lost
    #[command(after_help = info::EXAMPLES)]
    Info(info::InfoArguments),
    /// Show messages, decoded, as YAML or JSON
    #[command(after_help = cat::EXAMPLES, after_long_help = format!("{}\n\n{}", cat::EXAMPLES, cat::NOTES))]
    Cat(Box<cat::CatArguments>),
    /// Read whole bags: are records, checksums, indexes, counts right
    #[command(after_help = check::EXAMPLES)]
    Check(check::CheckArguments),
    /// Make, explain and try contracts: what a recording has to be
    #[command(after_help = contract::EXAMPLES)]
    Contract {
        /// What to do.
        #[command(subcommand)]
        what: contract::ContractWhat,
    },
    /// Find what triggers would have caught in bags; precision, recall
    #[command(after_help = events::EXAMPLES, after_long_help = format!("{}\n\n{}", events::EXAMPLES, events::NOTES))]
    Events(events::EventsArguments),
    /// Complete a bag whose recorder was killed, or save what is readable
    #[command(after_help = repair::EXAMPLES, after_long_help = format!("{}\n\n{}", repair::EXAMPLES, repair::NOTES))]
    Repair(repair::RepairArguments),
    /// Write messages as tables (CSV, Parquet) or image files
    #[command(after_help = export::EXAMPLES, after_long_help = format!("{}\n\n{}", export::EXAMPLES, export::NOTES))]
    Export(Box<export::ExportArguments>),
    /// Draw losses, rates and values over time, as a page, SVG or PNG
    #[command(after_help = plot::EXAMPLES)]
    Plot(plot::PlotArguments),
    /// Run software against bags, and compare what it publishes
    #[command(after_help = regress::EXAMPLES, after_long_help = format!("{}\n\n{}", regress::EXAMPLES, regress::NOTES))]
    Regress(regress::RegressArguments),
    /// Show the differences between two bags
    #[command(after_help = diff::EXAMPLES, after_long_help = format!("{}\n\n{}", diff::EXAMPLES, diff::NOTES))]
    Diff(diff::DiffArguments),
    /// Compare what is in a bag with the account of every message
    #[command(after_help = audit::EXAMPLES, after_long_help = audit::after_long_help())]
    Audit(audit::AuditArguments),
    /// Convert bags to another storage or compression
    #[command(after_help = tools::CONVERT_EXAMPLES)]
    Convert(Box<tools::ConvertArguments>),
    /// Merge several bags into one
    #[command(after_help = tools::MERGE_EXAMPLES)]
    Merge(Box<tools::MergeArguments>),
    /// Divide a bag by size, span, number of messages or at times
    #[command(after_help = tools::SPLIT_EXAMPLES)]
    Split(Box<tools::SplitArguments>),
    /// Keep some messages: by topic, type, time, rate or content
    #[command(visible_alias = "promote", after_help = tools::FILTER_EXAMPLES)]
    Filter(Box<tools::FilterArguments>),
    /// Give messages the definitions of another distribution or workspace
    #[command(after_help = migrate::EXAMPLES, after_long_help = format!("{}\n\n{}", migrate::EXAMPLES, migrate::NOTES))]
    Migrate(migrate::MigrateArguments),
    /// Compress a bag: its chunks, its files or its messages
    #[command(after_help = compress::COMPRESS_EXAMPLES)]
    Compress(compress::CompressArguments),
    /// Write an uncompressed copy of a compressed bag
    #[command(after_help = compress::DECOMPRESS_EXAMPLES)]
    Decompress(compress::DecompressArguments),
    /// Write a decrypted copy of an encrypted bag
    #[command(after_help = decrypt::EXAMPLES)]
    Decrypt(decrypt::DecryptArguments),
    /// Store files and key-value pairs in a bag
    #[command(after_help = attach::ATTACH_EXAMPLES)]
    Attach(attach::AttachArguments),
    /// List what is attached to a bag, or extract it
    #[command(after_help = attach::GET_EXAMPLES)]
    Get(attach::GetArguments),
    /// Rebuild metadata.yaml, and the index of MCAP files that have none
    #[command(after_help = tools::REINDEX_EXAMPLES)]
    Reindex(tools::ReindexArguments),
    /// Upload a bag to a bucket, and verify the copy
    #[command(after_help = upload::EXAMPLES)]
    Upload(upload::UploadArguments),
    /// List storages and codecs, or the topics and chunks of a bag
    #[command(after_help = tools::LIST_EXAMPLES)]
    List {
        /// What to list.
        #[command(subcommand)]
        what: tools::ListWhat,
    },
    #[cfg(feature = "parquet")]
    /// Make tables of all bags below folders: topics, losses, markers, chunks
    #[command(after_help = catalog::CATALOG_EXAMPLES, after_long_help = format!("{}\n\n{}", catalog::CATALOG_EXAMPLES, catalog::CATALOG_NOTES))]
    Catalog(catalog::CatalogArguments),
    #[cfg(feature = "parquet")]
    /// List the bags of a catalog for which an expression is true
    #[command(after_help = catalog::FIND_EXAMPLES, after_long_help = format!("{}\n\n{}", catalog::FIND_EXAMPLES, catalog::find_notes()))]
    Find(catalog::FindArguments),
    /// Show live topics in Foxglove, Lichtblick and other viewers
    #[command(after_help = viewers::BRIDGE_EXAMPLES)]
    Bridge(viewers::BridgeArguments),
    /// Show a bag in Foxglove, Lichtblick and other viewers
    #[command(after_help = viewers::SERVE_EXAMPLES)]
    Serve(viewers::ServeArguments),
    /// Show a folder of bags, and what records and plays, in a browser
    #[command(after_help = viewers::WEB_EXAMPLES)]
    Web(viewers::WebArguments),
    /// Show rate, bandwidth, delay and loss of live topics in a table
    #[command(after_help = listen::TOP_EXAMPLES)]
    Top(listen::TopArguments),
    /// Show how often messages of live topics arrive
    #[command(after_help = listen::HZ_EXAMPLES)]
    Hz(listen::HzArguments),
    /// Show the bandwidth of live topics
    #[command(after_help = listen::BW_EXAMPLES)]
    Bw(listen::MeasureArguments),
    /// Show how old the messages of live topics are when they arrive
    #[command(after_help = listen::DELAY_EXAMPLES)]
    Delay(listen::MeasureArguments),
    /// Show the messages of live topics, decoded
    #[command(after_help = listen::ECHO_EXAMPLES)]
    Echo(listen::EchoArguments),
    /// List the recordings and playbacks that run on this computer
    #[command(after_help = ps::EXAMPLES)]
    Ps(ps::PsArguments),
    /// Send a request to a running recording or playback
    #[command(after_help = control::EXAMPLES, override_usage = "holdall control [PATH] <REQUEST> [ARGUMENT]...")]
    Control(control::ControlArguments),
    /// Benchmark recording on this machine: speed, cost, losses
    ///
    /// This is the program holdall-bench, which `make install-bench` installs; all arguments are its own.
    #[command(disable_help_flag = true)]
    Bench(bench::BenchArguments),
    /// Write the manual pages
    #[command(after_help = tools::MAN_EXAMPLES)]
    Man(tools::ManArguments),
    /// Write the completion script of a shell to standard output
    #[command(
        after_help = "Example:\n  holdall completion bash > ~/.local/share/bash-completion/completions/holdall"
    )]
    Completion {
        /// The shell.
        #[arg(required_unless_present = "words")]
        shell: Option<clap_complete::Shell>,

        /// The topics that the words of a command line may continue with; for the scripts
        #[arg(long, hide = true, value_name = "WORD", num_args = 0.., allow_hyphen_values = true)]
        words: Option<Vec<String>>,
    },
    /// Explain a verb, or times, values, QoS, loss, markers, triggers, storages
    #[command(after_help = "Examples:\n  holdall help times\n  holdall help record")]
    Help(help::HelpArguments),
}

/// Lowest severity to log (`--log-level`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Everything; for developers of holdall.
    Debug,
    /// Events: subscriptions, splits, publishers that appear and leave.
    #[default]
    Info,
    /// Possible problems.
    Warn,
    /// Failures.
    Error,
    /// Only why the program ended.
    Fatal,
}

impl LogLevel {
    /// The level for `tracing`; the sentence with which the program ends is always written.
    pub const fn filter(self) -> LevelFilter {
        match self {
            Self::Debug => LevelFilter::DEBUG,
            Self::Info => LevelFilter::INFO,
            Self::Warn => LevelFilter::WARN,
            Self::Error => LevelFilter::ERROR,
            Self::Fatal => LevelFilter::OFF,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_grammar_has_no_contradictions() {
        Cli::command().debug_assert();
    }

    /// Words in help texts are read by people: each flag has one, and it does not end like a half sentence.
    #[test]
    fn every_flag_is_explained() {
        for verb in Cli::command().get_subcommands() {
            for argument in verb.get_arguments() {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(!help.is_empty(), "{} {}", verb.get_name(), argument.get_id());
            }
        }
    }
}
