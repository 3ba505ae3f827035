//! Benchmark files: what is recorded with which settings, as a cross product of lists.

use super::{
    ConfigError, PlayRate, RecorderKind, Setting, Transport,
    keys::{Keys, named, one_or_more, positive},
};
use holdall_model::yaml::{self, Node, Value, YamlError};
use std::path::{Path, PathBuf};

/// The root key of a benchmark file.
const ROOT: &str = "rosbag2_performance_benchmarking";

/// The content of a benchmark file.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Every combination of its lists, in the order in which rosbag2's launch file nests its loops: caches turn slowest,
    /// storages fastest; then come keys that its files do not have.
    pub settings: Vec<Setting>,
}

impl BenchmarkConfig {
    /// Reads a benchmark file of rosbag2_performance_benchmarking.
    ///
    /// # Errors
    /// A file that cannot be read, or an unknown key or value in it.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        ConfigError::of_file(path, Self::parse)
    }

    /// Reads the text of such a file.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(text: &str) -> Result<Self, YamlError> {
        let root = yaml::parse(text)?;
        let mut node = &root;
        for key in [ROOT, "benchmark_node", "ros__parameters", "benchmark"] {
            let mut keys = Keys::of(node)?;
            let inner = keys.required(key)?;
            keys.finish()?;
            node = inner;
        }
        Self::from_node(node)
    }

    /// Reads the map below `benchmark`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn from_node(node: &Node) -> Result<Self, YamlError> {
        let mut keys = Keys::of(node)?;
        // The older name of the same key; the newer one wins.
        let older = keys.optional("db_root_folder");
        let root = keys.optional("bag_root_folder").or(older);
        let root = root.map(text_or_none).transpose()?.flatten();
        let config = Self {
            summary_result_file: match keys.optional("summary_result_file") {
                Some(node) => file_name(node)?,
                None => "results.csv".to_owned(),
            },
            bag_root_folder: root.map(PathBuf::from),
            repeat_each: keys.optional("repeat_each").map_or(Ok(1), positive)?,
            transport: transport(&mut keys)?,
            preserve_bags: keys.optional("preserve_bags").map_or(Ok(false), Node::as_bool)?,
            producers_cpu_affinity: affinity(keys.optional("producers_cpu_affinity"))?,
            recorder_cpu_affinity: affinity(keys.optional("recorder_cpu_affinity"))?,
            settings: keys
                .optional("parameters")
                .map_or_else(|| Ok(vec![Setting::default()]), settings)?,
        };
        keys.finish()?;
        config.check(node)?;
        Ok(config)
    }

    /// Whether recordings are played back.
    pub(super) fn plays(&self) -> bool {
        self.settings.iter().any(|setting| setting.play_rate.is_some())
    }

    /// Refuses combinations that do not exist.
    fn check(&self, node: &Node) -> Result<(), YamlError> {
        let mut recorders = self.settings.iter().map(|setting| setting.recorder);
        if let Some(recorder) = recorders.clone().find(|one| !one.is_reached_over(self.transport)) {
            return Err(node.error(format!("recorder {recorder} needs no_transport: false")));
        }
        let by_others = recorders.any(|recorder| recorder != RecorderKind::Holdall);
        if self.plays() && (self.transport != Transport::None || by_others) {
            return Err(node.error("play_rate needs no_transport: true and the recorder holdall"));
        }
        Ok(())
    }
}

/// Every combination of the lists.
fn settings(node: &Node) -> Result<Vec<Setting>, YamlError> {
    let mut keys = Keys::of(node)?;
    let mut all = vec![Setting::default()];
    let bytes_or_none = |node: &Node| Ok(Some(node.as_number()?).filter(|bytes| *bytes > 0));
    let size = keys.optional("max_cache_size");
    cross(&mut all, size, Node::as_number, |one, value| {
        one.max_cache_size_bytes = value
    })?;
    let format = keys.optional("compression");
    cross(&mut all, format, text_or_none, |one, value| {
        one.compression = value
    })?;
    let queue = keys.optional("compression_queue_size");
    cross(&mut all, queue, Node::as_number, |one, value| {
        one.compression_queue_size = value
    })?;
    let threads = keys.optional("compression_threads");
    cross(&mut all, threads, Node::as_number, |one, value| {
        one.compression_threads = value
    })?;
    let config = keys.optional("storage_config_file");
    cross(&mut all, config, text_or_none, |one, value| {
        one.storage_config_file = value
    })?;
    let preset = keys.optional("storage_preset_profile");
    cross(&mut all, preset, text_or_none, |one, value| {
        one.storage_preset_profile = value
    })?;
    let size = keys.optional("max_bag_size");
    cross(&mut all, size, bytes_or_none, |one, value| {
        one.max_bag_size_bytes = value
    })?;
    let storage = keys.optional("storage_id");
    cross(&mut all, storage, storage_id, |one, value| one.storage_id = value)?;
    let rate = keys.optional("play_rate");
    cross(&mut all, rate, PlayRate::read, |one, value| {
        one.play_rate = Some(value)
    })?;
    let selection = keys.optional("selection");
    cross(&mut all, selection, named, |one, value| one.selection = value)?;
    let publishers = keys.optional("publishers");
    cross(&mut all, publishers, named, |one, value| one.publishers = value)?;
    let recorder = keys.optional("recorder");
    cross(&mut all, recorder, named, |one, value| one.recorder = value)?;
    keys.finish()?;
    Ok(all)
}

/// Combines all settings with each value of a list, which turns faster than those before.
fn cross<T: Clone>(
    settings: &mut Vec<Setting>,
    node: Option<&Node>,
    read: impl Fn(&Node) -> Result<T, YamlError>,
    set: impl Fn(&mut Setting, T),
) -> Result<(), YamlError> {
    let Some(node) = node else { return Ok(()) };
    let values = one_or_more(node, read)?;
    for base in std::mem::take(settings) {
        for value in &values {
            let mut setting = base.clone();
            set(&mut setting, value.clone());
            settings.push(setting);
        }
    }
    Ok(())
}

/// `no_transport: false` means DDS unless `transport` names another.
fn transport<'a>(keys: &mut Keys<'a>) -> Result<Transport, YamlError> {
    let named = keys.optional("transport");
    let without = keys.optional("no_transport").map(Node::as_bool).transpose()?;
    match (named, without) {
        (Some(node), Some(true)) => Err(node.error("transport cannot be given with no_transport: true")),
        (Some(node), _) => Transport::read(node),
        (None, Some(false)) => Ok(Transport::Dds),
        (None, _) => Ok(Transport::None),
    }
}

/// A name without folders, so that results stay in the result folder.
fn file_name(node: &Node) -> Result<String, YamlError> {
    let name = node.as_str()?;
    if name.is_empty() || name.contains('/') || name == ".." {
        return Err(node.expected("a file name without folders"));
    }
    Ok(name.to_owned())
}

fn storage_id(node: &Node) -> Result<String, YamlError> {
    let id = node.as_str()?;
    holdall_storage::storage_by_id(id)
        .map(|storage| storage.id().to_owned())
        .map_err(|error| node.error(error.to_string()))
}

/// Empty text means nothing in these files.
fn text_or_none(node: &Node) -> Result<Option<String>, YamlError> {
    Ok(Some(node.as_str()?.to_owned()).filter(|text| !text.is_empty()))
}

/// Processors as `[0, 1, 2]`, `"0-2"` or `"0,2-3"`.
fn affinity(node: Option<&Node>) -> Result<Vec<u32>, YamlError> {
    /// As many as the kernel's own masks have by default.
    const PROCESSORS_MAX: u32 = 1024;
    let Some(node) = node else { return Ok(Vec::new()) };
    let refused = || node.expected("processor numbers like [0, 1] or \"0-1\"");
    if let Value::Sequence(items) = &node.value {
        return items.iter().map(Node::as_number).collect();
    }
    let mut processors = Vec::new();
    for part in node
        .as_str()?
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|n| *n < PROCESSORS_MAX);
        let (Some(first), Some(last)) = (number(first), number(last)) else {
            return Err(refused());
        };
        processors.extend(first..=last);
    }
    Ok(processors)
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
        assert!(error("max_cache_size", "cache").contains("unknown key cache; expected one of"));
        assert!(error("\"results.csv\"", "\"../results.csv\"").contains("without folders"));
        assert!(error("\"0,2-3\"", "\"0-x\"").contains("processor numbers"));
        assert!(error("[0, 1000000000]", "[]").contains("one or more values, found none"));
        assert!(error("benchmark_node", "node").contains("benchmark_node"));
    }
}
