//! Bags that are open for reading, and types without a bag.

use crate::{
    encode::encode,
    error::{Details, choice_error, detached, exception, read_error, table_error},
    message::Messages,
    table::TableSource,
    value::Struct,
};
use bytes::Bytes;
use holdall::{
    BagSet, MessageFilter, Timestamp,
    decode::{Decoders, MessageChoice, Question},
    definitions::DefinitionFolders,
    export::{Cloud, CloudField},
    reader::{BagSummary, Strip},
    table::{ColumnOptions, Numbers, ParallelTable, Pick, TableOptions, TableReader},
    tools::Video,
};
use holdall_io::mutex::lock;
use holdall_model::{
    dynamic::{
        TypePlan,
        encode::{Literal, constants},
    },
    interface::{Definition, bundle::Bundle},
    metadata::BagMetadata,
    topic::{DefinitionEncoding, MessageDefinition},
};
use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyBytes, PyDict},
};
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeMap,
    num::NonZeroU64,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

/// The decoders of a set of bags, shared by all that reads them.
pub(crate) type SharedDecoders = Arc<Mutex<Decoders>>;

/// One or more bags that are read as one.
#[pyclass(frozen, module = "holdall._native")]
pub(crate) struct Bags {
    set: BagSet,
    decoders: SharedDecoders,
}

/// Which messages are read.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Selection {
    start: Option<i64>,
    end: Option<i64>,
    /// Conditions: topic and expression.
    conditions: Vec<(String, String)>,
    every: Option<u64>,
    /// Numbers of messages of one topic: the first, the end, the step.
    numbers: Option<(u64, Option<u64>, NonZeroU64)>,
    /// The clock: `log_time`, `publish_time` or `header.stamp`.
    time: String,
    skip: bool,
}

impl Selection {
    fn choice(&self, topics: Vec<String>) -> MessageChoice {
        let questions = self.conditions.iter().map(|(topic, expression)| Question {
            topic: topic.clone(),
            expression: expression.clone(),
        });
        MessageChoice {
            topics,
            from: self.start.map(Timestamp::from_nanos),
            until: self.end.map(Timestamp::from_nanos),
            // Its names were checked in Python.
            time: self.time.parse().unwrap_or_default(),
            questions: questions.collect(),
            ..MessageChoice::default()
        }
    }

    fn pick(&self) -> Pick {
        let numbers = |(start, end, step)| Numbers { start, end, step };
        Pick {
            every: self.every.map(Duration::from_nanos),
            numbers: self.numbers.map(numbers),
        }
    }
}

#[pymethods]
impl Bags {
    /// Opens bags; definitions that they lack are searched in `folders`, then below `prefixes`.
    #[new]
    fn new(
        py: Python<'_>,
        paths: Vec<PathBuf>,
        folders: Vec<PathBuf>,
        prefixes: Vec<PathBuf>,
    ) -> PyResult<Self> {
        let folders = detached(py, || DefinitionFolders::open(folders, prefixes))?;
        let folders = folders
            .map_err(|error| exception(py, "DefinitionError", &error.to_string(), Details::default()))?;
        let set = detached(py, || BagSet::open(&paths))?.map_err(|error| read_error(py, &error))?;
        let set = set.with_definitions(&Arc::new(folders));
        let decoders = Arc::new(Mutex::new(Decoders::new(set.clone())));
        Ok(Self { set, decoders })
    }

    /// The metadata of the bags as JSON.
    fn describe(&self, py: Python<'_>) -> PyResult<String> {
        detached(py, || self.description().to_string())
    }

    /// Whether a topic has pictures of a video.
    fn is_video(&self, py: Python<'_>, topic: &str) -> PyResult<bool> {
        let found = detached(py, || {
            for one in self.set.topics().iter().filter(|one| one.name == topic) {
                if Video::new(&self.set, one, &MessageFilter::default()).is_video()? {
                    return Ok(true);
                }
            }
            Ok(false)
        })?;
        found.map_err(|error| read_error(py, &error))
    }

    /// Losses by topic and stage as JSON; None without an account.
    fn lost(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let found = detached(py, || {
            let mut all: Option<BTreeMap<String, BTreeMap<String, u64>>> = None;
            for bag in self.set.bags() {
                let Some(lost) = bag.lost()? else { continue };
                all.get_or_insert_default();
                for (topic, stages) in lost {
                    let of_topic = all.get_or_insert_default().entry(topic).or_default();
                    for (stage, count) in stages {
                        *of_topic.entry(stage.as_str().to_owned()).or_default() += count;
                    }
                }
            }
            Ok(all.map(|all| json!(all).to_string()))
        })?;
        found.map_err(|error| read_error(py, &error))
    }

    /// The states of the bags, as a list of JSON.
    fn states(&self, py: Python<'_>) -> PyResult<String> {
        let found = detached(py, || {
            let mut all = Vec::new();
            for bag in self.set.bags() {
                all.push(json!(bag.state()?.summary()));
            }
            Ok(Value::from(all).to_string())
        })?;
        found.map_err(|error| read_error(py, &error))
    }

    /// The account of each bag as `holdall info --json` has it, as a list of JSON.
    fn summaries(&self, py: Python<'_>) -> PyResult<String> {
        let found = detached(py, || {
            let all = self.set.bags().iter().map(BagSummary::of);
            Ok(json!(all.collect::<Result<Vec<_>, _>>()?).to_string())
        })?;
        found.map_err(|error| read_error(py, &error))
    }

    /// The loss ledgers of the bags, as a list of JSON.
    fn ledgers(&self, py: Python<'_>) -> PyResult<String> {
        let found = detached(py, || {
            let mut all = Vec::new();
            for bag in self.set.bags() {
                all.extend(bag.any_ledger()?.map(|ledger| json!(ledger)));
            }
            Ok(Value::from(all).to_string())
        })?;
        found.map_err(|error| read_error(py, &error))
    }

    /// The publishers of all topics, as JSON.
    fn publishers(&self, py: Python<'_>) -> PyResult<String> {
        let found = detached(py, || {
            let mut all = Vec::new();
            for bag in self.set.bags() {
                all.extend(bag.publishers()?);
            }
            Ok(json!(all).to_string())
        })?;
        found.map_err(|error| read_error(py, &error))
    }

    /// The definition of a topic's type: its text and the encoding of the text.
    fn definition(&self, py: Python<'_>, type_name: &str) -> PyResult<Option<(String, String)>> {
        let found = detached(py, || {
            for bag in self.set.bags() {
                for definition in bag.definitions()? {
                    if definition.type_name == type_name && definition.encoding != DefinitionEncoding::Unknown
                    {
                        return Ok(Some((
                            definition.text.clone(),
                            definition.encoding.as_str().to_owned(),
                        )));
                    }
                }
            }
            Ok(None)
        })?;
        found.map_err(|error| read_error(py, &error))
    }

    /// Iterates over messages in order of time.
    fn messages(&self, py: Python<'_>, topics: Vec<String>, selection: Selection) -> PyResult<Messages> {
        let choice = selection.choice(topics);
        let selected = detached(py, || choice.messages(&self.set, &mut lock(&self.decoders)))?;
        let selected = selected.map_err(|error| choice_error(py, &error))?;
        Ok(Messages::new(
            Box::new(selected),
            Arc::clone(&self.decoders),
            selection.pick(),
            selection.skip,
        ))
    }

    /// Log times of messages, as native numbers of eight bytes.
    fn times<'py>(
        &self,
        py: Python<'py>,
        topics: Vec<String>,
        selection: Selection,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let messages = self.messages(py, topics, selection)?;
        let mut times = Vec::new();
        loop {
            let is_ended = detached(py, || messages.take_times(&mut times))?;
            if is_ended.map_err(|error| choice_error(py, &error))? {
                return Ok(PyBytes::new(py, &times));
            }
            py.check_signals()?;
        }
    }

    /// Messages of each topic over time in `cells` cells, as JSON. Files without an index are read if they are not larger than
    /// `read_bytes_max`.
    fn over_time(&self, py: Python<'_>, cells: usize, read_bytes_max: u64) -> PyResult<String> {
        let found = detached(py, || self.set.over_time(cells, read_bytes_max, &mut |_| true))?;
        Ok(json!(found).to_string())
    }

    /// Reads a topic as columns, in up to `threads` threads.
    #[expect(
        clippy::too_many_arguments,
        reason = "one for each choice of the caller in Python"
    )]
    fn table(
        &self,
        py: Python<'_>,
        topic: &str,
        fields: Vec<String>,
        nested: bool,
        vectors: bool,
        selection: Selection,
        threads: usize,
    ) -> PyResult<TableSource> {
        let options = TableOptions {
            columns: ColumnOptions {
                fields,
                nested,
                vectors,
            },
            pick: selection.pick(),
            skip_undecodable: selection.skip,
        };
        let choice = selection.choice(Vec::new());
        let (set, decoders, topic) = (self.set.clone(), Arc::clone(&self.decoders), topic.to_owned());
        let opened = detached(py, || {
            TableReader::open(&set, &mut lock(&decoders), &topic, choice.clone(), &options)
        })?;
        let reader = opened.map_err(|error| table_error(py, &error))?;
        let divide = move || ParallelTable::open(&set, &decoders, &topic, &choice, &options, threads);
        Ok(TableSource::new(reader, Box::new(divide)))
    }
}

impl Bags {
    fn description(&self) -> Value {
        let mut topics: BTreeMap<(String, String), Value> = BTreeMap::new();
        let bags = self.set.bags();
        for topic in bags
            .iter()
            .flat_map(|bag| &bag.metadata().topics_with_message_count)
        {
            let info = &topic.topic_metadata;
            let entry = topics
                .entry((info.name.clone(), info.type_name.clone()))
                .or_insert_with(|| {
                    let mut entry = json!(info);
                    entry["count"] = 0.into();
                    entry
                });
            let count = entry["count"].as_u64().unwrap_or_default() + topic.message_count;
            entry["count"] = count.into();
        }
        let metadata = || bags.iter().map(holdall::Bag::metadata);
        let start = metadata().filter_map(|metadata| metadata.starting_time).min();
        let end = metadata()
            .filter_map(holdall_model::metadata::BagMetadata::ending_time)
            .max();
        let texts =
            |found: fn(&holdall::Bag) -> Option<String>| bags.iter().filter_map(found).collect::<Vec<_>>();
        let custom: Map<String, Value> = metadata()
            .flat_map(|metadata| metadata.custom_data.clone())
            .map(|(key, value)| (key, value.into()))
            .collect();
        json!({
            "paths": texts(|bag| Some(bag.path().display().to_string())),
            "files": bags.iter().flat_map(|bag| bag.files()).map(|file| file.path.display().to_string()).collect::<Vec<_>>(),
            "size_bytes": bags.iter().map(holdall::Bag::size_bytes).sum::<u64>(),
            "messages": metadata().map(|metadata| metadata.message_count).sum::<u64>(),
            "start": start.map(Timestamp::as_nanos),
            "end": end.map(Timestamp::as_nanos),
            "storages": texts(|bag| Some(bag.metadata().storage_identifier.clone())),
            "ros_distros": texts(|bag| bag.metadata().ros_distro.clone()),
            "compressions": texts(|bag| Some(bag.metadata().compression_format.clone())),
            "damage": texts(|bag| bag.damage().map(str::to_owned)),
            "writers": texts(|bag| bag.writer().map(|writer| writer.to_string())),
            "notices": self.set.notices(),
            "custom_data": custom,
            "topics": topics.into_values().collect::<Vec<_>>(),
        })
    }
}

/// A message type that is not read from a bag.
#[pyclass(frozen, module = "holdall._native")]
pub(crate) struct Types {
    plan: Arc<TypePlan>,
    definition: MessageDefinition,
    constants: Vec<(String, Literal)>,
}

#[pymethods]
impl Types {
    /// A type by its name, with the text of its definition (`ros2msg`) or the built-in one.
    #[new]
    #[pyo3(signature = (type_name, definition=None))]
    fn new(py: Python<'_>, type_name: &str, definition: Option<String>) -> PyResult<Self> {
        let found = detached(py, || defined(type_name, definition))?;
        let (plan, definition) =
            found.map_err(|text| exception(py, "DefinitionError", &text, Details::default()))?;
        Ok(Self {
            plan: Arc::new(plan),
            constants: constants(&definition, definition.type_name()),
            definition: definition.message_definition(),
        })
    }

    /// The constants of the type by name.
    #[getter]
    fn constants<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        for (name, value) in &self.constants {
            match value {
                Literal::Bool(value) => found.set_item(name, value)?,
                Literal::Integer(value) => found.set_item(name, value)?,
                Literal::Float(value) => found.set_item(name, value)?,
                Literal::Text(value) => found.set_item(name, value)?,
                _ => {}
            }
        }
        Ok(found)
    }

    /// The type's name.
    #[getter]
    fn name(&self) -> &str {
        &self.definition.type_name
    }

    /// The text of the definition, with those of all nested types.
    #[getter]
    fn text(&self) -> &str {
        &self.definition.text
    }

    /// The hash of the type (RIHS01).
    #[getter]
    fn hash(&self) -> &str {
        &self.definition.type_description_hash
    }

    /// Decodes a payload.
    fn decode(&self, py: Python<'_>, payload: Vec<u8>) -> PyResult<Struct> {
        let topic = self.definition.type_name.as_str().into();
        Struct::root(py, Arc::clone(&self.plan), Bytes::from(payload), topic)
    }

    /// The payload of a message: a dict, a decoded message, or an object with the fields as attributes.
    fn encode<'py>(&self, py: Python<'py>, message: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let mut payload = Vec::new();
        encode(&self.plan, message, &mut payload)?;
        Ok(PyBytes::new(py, &payload))
    }
}

impl Types {
    /// The type's definition, with its dependencies.
    pub fn definition(&self) -> &MessageDefinition {
        &self.definition
    }

    /// How its payloads are read and written.
    pub fn plan(&self) -> &Arc<TypePlan> {
        &self.plan
    }
}

/// The plan and the definition of a type.
pub(crate) fn defined(type_name: &str, text: Option<String>) -> Result<(TypePlan, Definition), String> {
    let bundle = Bundle::embedded();
    let definition = match text {
        None => bundle.define(type_name).map_err(|error| error.to_string())?,
        Some(text) => {
            let stored = MessageDefinition {
                type_name: type_name.to_owned(),
                encoding: DefinitionEncoding::Ros2Msg,
                text,
                ..MessageDefinition::default()
            };
            Definition::from_stored_as(&stored, type_name, |name| bundle.get(name))
                .map_err(|error| error.to_string())?
        }
    };
    let plan = TypePlan::compile(&definition).map_err(|error| error.to_string())?;
    Ok((plan, definition))
}

/// Decodes the data of a `sensor_msgs/msg/CompressedImage`: height, width, encoding, order of bytes, bytes in a row, and the data of the
/// `sensor_msgs/msg/Image` that it is.
#[pyfunction]
pub(crate) fn decode_image<'py>(
    py: Python<'py>,
    data: Vec<u8>,
    format: &str,
) -> PyResult<(u32, u32, String, u8, u32, Bound<'py, PyBytes>)> {
    let found = detached(py, || holdall::export::decode_image(&data, format))?;
    let image = found.map_err(PyValueError::new_err)?;
    let data = PyBytes::new(py, &image.data);
    Ok((
        image.height,
        image.width,
        image.encoding,
        image.is_bigendian,
        image.step,
        data,
    ))
}

/// The points of a compressed cloud, in rows without bytes between them. `shape`: its height, width and bytes of a point; of fields: name, offset, type, count.
#[pyfunction]
pub(crate) fn unpack_cloud<'py>(
    py: Python<'py>,
    shape: (u32, u32, u32),
    fields: Vec<(String, u32, u8, u32)>,
    is_bigendian: bool,
    data: Vec<u8>,
    format: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let (height, width, point_step) = shape;
    let fields = fields.iter().map(|(name, offset, datatype, count)| CloudField {
        name,
        offset: *offset,
        datatype: *datatype,
        count: *count,
    });
    let cloud = Cloud {
        height,
        width,
        fields: fields.collect(),
        is_bigendian: is_bigendian.into(),
        point_step,
        data: &data,
        format: Some(format),
        ..Cloud::default()
    };
    let found = detached(py, || cloud.unpacked())?;
    let points = found.map_err(PyValueError::new_err)?;
    Ok(PyBytes::new(py, &points))
}

/// Whether decoding can begin with a picture of a video.
#[pyfunction]
pub(crate) fn begins_video(data: Vec<u8>, format: &str) -> PyResult<bool> {
    holdall::export::begins_video(&data, format).map_err(PyValueError::new_err)
}

/// Decodes pictures of a video, the first of which is a key frame: height, width and pixels of each from `first` on, as `rgb8`.
#[pyfunction]
pub(crate) fn decode_video<'py>(
    py: Python<'py>,
    units: Vec<Vec<u8>>,
    format: &str,
    first: usize,
) -> PyResult<Vec<(u32, u32, Bound<'py, PyBytes>)>> {
    let found = detached(py, || holdall::export::decode_video(&units, format, first))?;
    let images = found.map_err(PyValueError::new_err)?.into_iter();
    Ok(images
        .map(|image| (image.height, image.width, PyBytes::new(py, &image.data)))
        .collect())
}

/// The parts of a drawing of counts by cell: heights from 0 to 1, means, and the begins and ends of gaps.
#[pyfunction]
pub(crate) fn strip(counts: Vec<u64>) -> (Vec<f64>, Vec<f64>, Vec<(usize, usize)>) {
    let strip = Strip::new(&counts);
    let gaps = strip.gaps.iter().map(|gap| (gap.start, gap.end)).collect();
    (strip.heights, strip.means, gaps)
}

/// The text of a `metadata.yaml` as JSON.
#[pyfunction]
pub(crate) fn metadata_of_yaml(text: &str) -> PyResult<String> {
    let metadata = BagMetadata::from_yaml(text).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(json!(metadata).to_string())
}

/// The text of a `metadata.yaml` from JSON.
#[pyfunction]
pub(crate) fn metadata_to_yaml(text: &str) -> PyResult<String> {
    let metadata: BagMetadata =
        serde_json::from_str(text).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(metadata.to_yaml())
}
