//! Benchmark files: loads and settings as a cross product of lists.

use super::{
    PlayRate, PublisherKind, RecorderKind, SelectionKind, Setting, Transport,
    values::{Many, TextOrNone, positive, read_below},
};
use holdall_model::yaml::YamlError;
use holdall_storage::storage_by_id;
use serde::Deserialize;
use std::{
    path::{Path, PathBuf},
    str::FromStr,
};

/// The keys above the content of a benchmark file.
const ABOVE: [&str; 4] = [
    "rosbag2_performance_benchmarking",
    "benchmark_node",
    "ros__parameters",
    "benchmark",
];

/// The content of a benchmark file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Keys")]
pub struct BenchmarkConfig {
    /// Name of the CSV within the result folder.
    pub summary_result_file: String,
    /// Folder of bags and results, unless the command line names one.
    pub bag_root_folder: Option<PathBuf>,
    /// Repetitions of each combination.
    pub repeat_each: u32,
    /// How messages reach the recorder.
    pub transport: Transport,
    /// Bags are kept.
    pub preserve_bags: bool,
    /// Processors that producers may use; all when empty.
    pub producers_cpu_affinity: Vec<u32>,
    /// Processors that the recorder may use; all when empty.
    pub recorder_cpu_affinity: Vec<u32>,
    /// It names its storages.
    names_storage: bool,
    /// Every combination of its lists, in the order in which rosbag2's launch file nests its loops: caches turn slowest,
    /// storages fastest; then come keys that its files do not have.
    pub settings: Vec<Setting>,
}

/// The keys of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    summary_result_file: Option<String>,
    bag_root_folder: Option<String>,
    /// The older name of the same key; the newer one wins.
    db_root_folder: Option<String>,
    #[serde(default = "one", deserialize_with = "positive")]
    repeat_each: u32,
    no_transport: Option<bool>,
    transport: Option<Transport>,
    #[serde(default)]
    preserve_bags: bool,
    #[serde(default)]
    producers_cpu_affinity: Many<Processors>,
    #[serde(default)]
    recorder_cpu_affinity: Many<Processors>,
    #[serde(default)]
    parameters: Parameters,
}

fn one() -> u32 {
    1
}

/// The lists of a file.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Parameters {
    max_cache_size: Many<u64>,
    compression: Many<TextOrNone>,
    compression_queue_size: Many<u32>,
    compression_threads: Many<u32>,
    storage_config_file: Many<TextOrNone>,
    storage_preset_profile: Many<TextOrNone>,
    max_bag_size: Many<u64>,
    storage_id: Many<StorageId>,
    play_rate: Many<PlayRate>,
    selection: Many<SelectionKind>,
    publishers: Many<PublisherKind>,
    recorder: Many<RecorderKind>,
}

impl BenchmarkConfig {
    /// Reads the text of a benchmark file of rosbag2_performance_benchmarking.
    ///
    /// # Errors
    /// An unknown key or value.
    pub fn parse(text: &str) -> Result<Self, YamlError> {
        let mut config: Self = read_below(text, &ABOVE)?;
        if !config.names_storage {
            // Files without the key are older than MCAP.
            for setting in &mut config.settings {
                "sqlite3".clone_into(&mut setting.storage_id);
            }
        }
        Ok(config)
    }

    /// Takes the storages' configuration files from this folder, that of the benchmark file, where it has them.
    pub fn find_beside(&mut self, folder: &Path) {
        for setting in &mut self.settings {
            let beside = setting.storage_config_file.as_ref().map(|name| folder.join(name));
            if let Some(beside) = beside.filter(|path| path.is_file()) {
                setting.storage_config_file = Some(beside.display().to_string());
            }
        }
    }

    /// Whether recordings are played back.
    pub(super) fn plays(&self) -> bool {
        self.settings.iter().any(|setting| setting.play_rate.is_some())
    }

    /// Refuses combinations that do not exist.
    fn check(self) -> Result<Self, String> {
        let mut recorders = self.settings.iter().map(|setting| setting.recorder);
        if let Some(recorder) = recorders.clone().find(|one| !one.is_reached_over(self.transport)) {
            return Err(format!("recorder {recorder} needs no_transport: false"));
        }
        let by_others = recorders.any(|recorder| recorder != RecorderKind::Holdall);
        if self.plays() && (self.transport != Transport::None || by_others) {
            return Err("play_rate needs no_transport: true and the recorder holdall".to_owned());
        }
        Ok(self)
    }
}

impl TryFrom<Keys> for BenchmarkConfig {
    type Error = String;

    fn try_from(keys: Keys) -> Result<Self, String> {
        let name = keys
            .summary_result_file
            .unwrap_or_else(|| "results.csv".to_owned());
        // So that results stay in the result folder.
        if name.is_empty() || name.contains('/') || name == ".." {
            return Err(format!(
                "summary_result_file: expected a file name without folders, found {name:?}"
            ));
        }
        let folder = keys.bag_root_folder.or(keys.db_root_folder);
        let processors =
            |many: Many<Processors>| many.0.into_iter().flatten().flat_map(|part| part.0).collect();
        Self {
            summary_result_file: name,
            bag_root_folder: folder.filter(|path| !path.is_empty()).map(PathBuf::from),
            repeat_each: keys.repeat_each,
            // Over DDS unless `transport` names another.
            transport: match (keys.transport, keys.no_transport) {
                (Some(Transport::None), _) => {
                    return Err("transport: expected dds, iceoryx2 or zenoh".to_owned());
                }
                (Some(_), Some(true)) => {
                    return Err("transport cannot be given with no_transport: true".to_owned());
                }
                (Some(named), _) => named,
                (None, Some(false)) => Transport::Dds,
                (None, _) => Transport::None,
            },
            preserve_bags: keys.preserve_bags,
            producers_cpu_affinity: processors(keys.producers_cpu_affinity),
            recorder_cpu_affinity: processors(keys.recorder_cpu_affinity),
            names_storage: keys.parameters.storage_id.0.is_some(),
            settings: keys.parameters.settings()?,
        }
        .check()
    }
}

impl Parameters {
    /// Every combination of the lists.
    fn settings(self) -> Result<Vec<Setting>, String> {
        let mut all = vec![Setting::default()];
        let cross = &mut all;
        combine(cross, self.max_cache_size, |one, bytes| {
            one.max_cache_size_bytes = bytes
        })?;
        combine(cross, self.compression, |one, format| one.compression = format.0)?;
        combine(cross, self.compression_queue_size, |one, size| {
            one.compression_queue_size = size
        })?;
        combine(cross, self.compression_threads, |one, threads| {
            one.compression_threads = threads
        })?;
        combine(cross, self.storage_config_file, |one, file| {
            one.storage_config_file = file.0
        })?;
        combine(cross, self.storage_preset_profile, |one, preset| {
            one.storage_preset_profile = preset.0
        })?;
        combine(cross, self.max_bag_size, |one, bytes| {
            one.max_bag_size_bytes = Some(bytes).filter(|bytes| *bytes > 0)
        })?;
        combine(cross, self.storage_id, |one, id| one.storage_id = id.0)?;
        combine(cross, self.play_rate, |one, rate| one.play_rate = Some(rate))?;
        combine(cross, self.selection, |one, selection| one.selection = selection)?;
        combine(cross, self.publishers, |one, publishers| {
            one.publishers = publishers
        })?;
        combine(cross, self.recorder, |one, recorder| one.recorder = recorder)?;
        let mut settings: Vec<Setting> = Vec::new();
        for mut one in all {
            // The writers of this crate make one file.
            one.max_bag_size_bytes.take_if(|_| one.recorder.is_rival());
            if !settings.contains(&one) {
                settings.push(one);
            }
        }
        Ok(settings)
    }
}

/// Combines all settings with each value of a list, which turns faster than those before.
fn combine<T: Clone>(
    settings: &mut Vec<Setting>,
    values: Many<T>,
    set: impl Fn(&mut Setting, T),
) -> Result<(), String> {
    let Some(values) = values.0 else { return Ok(()) };
    if values.is_empty() {
        return Err("expected a list of one or more values, found none".to_owned());
    }
    for base in std::mem::take(settings) {
        for value in &values {
            let mut setting = base.clone();
            set(&mut setting, value.clone());
            settings.push(setting);
        }
    }
    Ok(())
}

/// The id of a storage that exists.
#[derive(Clone)]
struct StorageId(String);

impl FromStr for StorageId {
    type Err = String;

    fn from_str(id: &str) -> Result<Self, String> {
        storage_by_id(id)
            .map(|storage| Self(storage.id().to_owned()))
            .map_err(|error| error.to_string())
    }
}

/// Processors as `1`, `"0-2"` or `"0,2-3"`.
struct Processors(Vec<u32>);

impl FromStr for Processors {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        /// As many as the kernel's own masks have by default.
        const PROCESSORS_MAX: u32 = 1024;
        let mut processors = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<u32>().ok().filter(|n| *n < PROCESSORS_MAX);
            let (Some(first), Some(last)) = (number(first), number(last)) else {
                return Err("expected processor numbers like [0, 1] or \"0-1\"");
            };
            processors.extend(first..=last);
        }
        Ok(Self(processors))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THROUGHPUT: &str = r#"
rosbag2_performance_benchmarking:
  benchmark_node:
    ros__parameters:
      benchmark:
        summary_result_file:  "results.csv"
        db_root_folder:       "/tmp/results"
        repeat_each:          2
        no_transport:         False
        preserve_bags:        True
        producers_cpu_affinity: "0,2-3"
        recorder_cpu_affinity: [4, 5]
        parameters:
          storage_id:             ["mcap", "sqlite3"]
          max_cache_size:         [10000000, 100000000]
          max_bag_size:           [0, 1000000000]
          compression:            ["", "zstd"]
          compression_queue_size: [1]
          compression_threads:    [0]
          storage_config_file:    ["", "conf/storage_resilient.yaml"]
"#;

    #[test]
    fn a_shipped_file_is_read_unchanged() {
        let config = BenchmarkConfig::parse(THROUGHPUT).unwrap();
        assert_eq!((config.repeat_each, config.transport), (2, Transport::Dds));
        assert_eq!(config.bag_root_folder.as_deref(), Some(Path::new("/tmp/results")));
        assert!(config.preserve_bags);
        assert_eq!(config.producers_cpu_affinity, [0, 2, 3]);
        assert_eq!(config.recorder_cpu_affinity, [4, 5]);
    }

    #[test]
    fn files_from_before_mcap_mean_sqlite() {
        let text = THROUGHPUT.replace("storage_id:             [\"mcap\", \"sqlite3\"]", "");
        let settings = BenchmarkConfig::parse(&text).unwrap().settings;
        assert_eq!(settings.len(), 16);
        assert!(settings.iter().all(|setting| setting.storage_id == "sqlite3"));
    }

    #[test]
    fn every_combination_runs_once_with_storages_in_the_inner_loop() {
        let settings = BenchmarkConfig::parse(THROUGHPUT).unwrap().settings;
        assert_eq!(settings.len(), 32);
        let distinct: std::collections::HashSet<_> = settings.iter().collect();
        assert_eq!(distinct.len(), 32);
        assert_eq!(
            (settings[0].storage_id.as_str(), settings[1].storage_id.as_str()),
            ("mcap", "sqlite3")
        );
        assert_eq!(
            settings[0].max_cache_size_bytes,
            settings[15].max_cache_size_bytes
        );
        assert_ne!(
            settings[0].max_cache_size_bytes,
            settings[16].max_cache_size_bytes
        );
    }

    #[test]
    fn run_folders_have_the_names_that_scripts_know() {
        let settings = BenchmarkConfig::parse(THROUGHPUT).unwrap().settings;
        assert_eq!(
            settings[0].run_folder(0),
            "run_0_mcap_10000000_default_compression_1_0_default_config_0"
        );
        let names: std::collections::HashSet<_> =
            settings.iter().map(|setting| setting.run_folder(1)).collect();
        assert_eq!(names.len(), 32);
        assert!(names.iter().all(|name| !name.contains('/')));
    }

    #[test]
    fn writers_of_one_file_are_measured_once_and_not_called_split() {
        let recorders = "max_bag_size: [0, 1000000000]\n          recorder: [holdall, double_buffered]";
        let text = THROUGHPUT.replace("max_bag_size:           [0, 1000000000]", recorders);
        assert_ne!(text, THROUGHPUT);
        let settings = BenchmarkConfig::parse(&text).unwrap().settings;
        let of = |kind| settings.iter().filter(move |one| one.recorder == kind);
        assert_eq!(of(RecorderKind::Holdall).count(), 32);
        assert_eq!(of(RecorderKind::DoubleBuffered).count(), 16);
        assert!(of(RecorderKind::DoubleBuffered).all(|one| one.max_bag_size_bytes.is_none()));
    }

    #[test]
    fn the_newer_folder_key_wins() {
        let text = THROUGHPUT.replace(
            "db_root_folder: ",
            "bag_root_folder: \"/new\"\n        db_root_folder: ",
        );
        let config = BenchmarkConfig::parse(&text).unwrap();
        assert_eq!(config.bag_root_folder.as_deref(), Some(Path::new("/new")));
    }

    #[test]
    fn mistakes_are_reported_with_their_line() {
        let error = |from: &str, to: &str| {
            let text = THROUGHPUT.replacen(from, to, 1);
            assert_ne!(text, THROUGHPUT, "{from}");
            BenchmarkConfig::parse(&text).unwrap_err().to_string()
        };
        assert!(error("repeat_each:          2", "repeat_each:          0").starts_with("line 8: "));
        assert!(error("\"sqlite3\"", "\"tape\"").contains("tape"));
        assert!(error("max_cache_size", "cache").contains("unknown field `cache`, expected one of"));
        assert!(error("\"results.csv\"", "\"../results.csv\"").contains("without folders"));
        assert!(error("\"0,2-3\"", "\"0-x\"").contains("processor numbers"));
        assert!(error("[0, 1000000000]", "[]").contains("one or more values, found none"));
        assert!(error("benchmark_node", "node").contains("expected `benchmark_node`"));
    }
}
