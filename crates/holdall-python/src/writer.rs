//! Writing bags.

use crate::{
    bag::Types,
    encode::encode,
    error::{Details, detached, exception, write_error},
};
use holdall::{
    BagTopic, Timestamp,
    writer::{CompressionMode, CompressionOptions, SplitOptions},
};
use holdall_io::mutex::lock;
use holdall_model::{qos::QosProfile, topic::TopicInfo};
use holdall_storage::StorageOptions;
use pyo3::{
    prelude::*,
    types::{PyByteArray, PyBytes},
};
use std::{collections::HashMap, path::PathBuf, sync::Mutex, time::Duration};

/// The path and the settings of a written bag.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct WriterOptions {
    storage: String,
    preset: Option<String>,
    config: Option<String>,
    compression_mode: String,
    bytes_max: Option<u64>,
    duration_max: Option<u64>,
}

struct Topic {
    index: BagTopic,
    types: Py<Types>,
}

struct Writing {
    /// `None` once closed.
    writer: Option<holdall::Writer>,
    topics: HashMap<String, Topic>,
    messages: u64,
}

/// A bag that is being written.
#[pyclass(frozen, module = "holdall._native")]
pub(crate) struct Writer {
    writing: Mutex<Writing>,
}

fn closed(py: Python<'_>) -> PyErr {
    exception(py, "WriteError", "the bag is closed", Details::default())
}

impl Writer {
    /// A topic that was added. Nothing of Python runs while the bag is locked.
    fn topic(&self, py: Python<'_>, name: &str) -> Option<(BagTopic, Py<Types>)> {
        let writing = lock(&self.writing);
        let known = writing.topics.get(name);
        known.map(|topic| (topic.index, topic.types.clone_ref(py)))
    }
}

#[pymethods]
impl Writer {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, options: WriterOptions) -> PyResult<Self> {
        let Some(mode) = CompressionMode::parse(&options.compression_mode) else {
            let text = format!("there is no compression mode {:?}", options.compression_mode);
            return Err(exception(py, "WriteError", &text, Details::default()));
        };
        let created = detached(py, || {
            holdall::Writer::create_of(
                path,
                &options.storage,
                SplitOptions {
                    bytes_max: options.bytes_max,
                    duration_max: options.duration_max.map(Duration::from_nanos),
                    ..SplitOptions::default()
                },
                StorageOptions {
                    preset: options.preset,
                    config: options.config,
                    ..StorageOptions::default()
                },
                CompressionOptions {
                    mode,
                    ..CompressionOptions::default()
                },
            )
        })?;
        let writer = created.map_err(|error| write_error(py, &error))?;
        Ok(Self {
            writing: Mutex::new(Writing {
                writer: Some(writer),
                topics: HashMap::new(),
                messages: 0,
            }),
        })
    }

    /// Adds a topic; `qos` is a list of QoS profiles as JSON.
    #[pyo3(signature = (name, types, qos=None, serialization_format="cdr"))]
    fn add_topic(
        &self,
        py: Python<'_>,
        name: &str,
        types: Py<Types>,
        qos: Option<&str>,
        serialization_format: &str,
    ) -> PyResult<()> {
        if self.has_topic(name) {
            return Ok(());
        }
        let definition = types.get().definition().clone();
        let profiles: Vec<QosProfile> = match qos {
            None => Vec::new(),
            Some(text) => serde_json::from_str(text).map_err(|error| {
                exception(
                    py,
                    "WriteError",
                    &format!("QoS of {name}: {error}"),
                    Details::default(),
                )
            })?,
        };
        let topic = TopicInfo {
            name: name.to_owned(),
            type_name: definition.type_name.clone(),
            serialization_format: serialization_format.to_owned(),
            type_description_hash: definition.type_description_hash.clone(),
            offered_qos_profiles: profiles,
            ..TopicInfo::default()
        };
        let added = {
            let mut writing = lock(&self.writing);
            let writer = writing.writer.as_mut();
            let added = writer.map(|writer| writer.add_channel(topic, definition));
            if let Some(Ok(index)) = &added {
                let index = *index;
                writing.topics.insert(name.to_owned(), Topic { index, types });
            }
            added
        };
        match added {
            None => Err(closed(py)),
            Some(added) => added.map(drop).map_err(|error| write_error(py, &error)),
        }
    }

    /// Whether a topic was added.
    fn has_topic(&self, name: &str) -> bool {
        lock(&self.writing).topics.contains_key(name)
    }

    /// Writes a message: serialized bytes, or an object with its fields.
    fn write(
        &self,
        py: Python<'_>,
        topic: &str,
        message: &Bound<'_, PyAny>,
        log_time: i64,
        publish_time: i64,
    ) -> PyResult<()> {
        let Some((index, types)) = self.topic(py, topic) else {
            let details = Details {
                topic: Some(topic.to_owned()),
                ..Details::default()
            };
            let text = format!("the topic {topic} was not added");
            return Err(exception(py, "TopicError", &text, details));
        };
        // Not while the bag is locked: encoding runs the object's own code, and with it other threads.
        let mut encoded = Vec::new();
        let payload = if let Ok(bytes) = message.cast::<PyBytes>() {
            bytes.as_bytes()
        } else {
            if let Ok(bytes) = message.cast::<PyByteArray>() {
                encoded = bytes.to_vec();
            } else {
                encode(types.get().plan(), message, &mut encoded)?;
            }
            &encoded
        };
        let (log_time, publish_time) = (
            Timestamp::from_nanos(log_time),
            Timestamp::from_nanos(publish_time),
        );
        let written = {
            let mut writing = lock(&self.writing);
            let writer = writing.writer.as_mut();
            let written = writer.map(|writer| writer.write_stamped(index, log_time, publish_time, payload));
            writing.messages += u64::from(matches!(written, Some(Ok(()))));
            written
        };
        match written {
            None => Err(closed(py)),
            Some(written) => written.map_err(|error| write_error(py, &error)),
        }
    }

    /// Number of messages written.
    #[getter]
    fn count(&self) -> u64 {
        lock(&self.writing).messages
    }

    /// Writes the end of the bag and waits until it is durable; returns the storage files.
    fn close(&self, py: Python<'_>) -> PyResult<Vec<PathBuf>> {
        let Some(writer) = lock(&self.writing).writer.take() else {
            return Ok(Vec::new());
        };
        detached(py, || writer.close())?.map_err(|error| write_error(py, &error))
    }
}
