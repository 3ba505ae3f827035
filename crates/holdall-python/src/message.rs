//! Messages of bags one after another.

use crate::{
    bag::SharedDecoders,
    error::{Details, choice_error, detached, exception},
    pickle,
    value::Struct,
};
use bytes::Bytes;
use holdall::{
    BagMessage, BagSet,
    decode::{ChoiceError, Decoder, Decoders},
    table::{Pick, Picker},
};
use holdall_io::mutex::lock;
use holdall_model::topic::TopicInfo;
use pyo3::{
    prelude::*,
    sync::PyOnceLock,
    types::{PyBytes, PyString},
};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, OnceLock},
};

/// Messages and bytes that are read ahead at a time, without the interpreter's lock.
const AHEAD_MAX: usize = 256;
const AHEAD_BYTES_MAX: usize = 1 << 20;
/// Messages read between two checks for an interruption by the user (Ctrl-C).
const TIMES_AT_ONCE: usize = 65_536;

/// State that the messages of a channel share.
pub(crate) struct Channel {
    info: Arc<TopicInfo>,
    name: Py<PyString>,
    topic: Arc<str>,
    decoder: OnceLock<Decoder>,
    decoders: SharedDecoders,
}

/// A message of a bag.
#[pyclass(frozen, module = "holdall._native")]
pub(crate) struct Message {
    stamp: i64,
    log_time: i64,
    publish_time: i64,
    sequence: u32,
    payload: Bytes,
    channel: Arc<Channel>,
    /// The decoded message, once it was used: what is assigned to it stays.
    decoded: PyOnceLock<Py<Struct>>,
}

#[pymethods]
impl Message {
    /// The topic's name.
    #[getter]
    fn topic(&self, py: Python<'_>) -> Py<PyString> {
        self.channel.name.clone_ref(py)
    }

    /// Reception time (log time) in nanoseconds since the Unix epoch.
    #[getter]
    fn time(&self) -> i64 {
        self.log_time
    }

    /// Reception time as a datetime (UTC), in whole microseconds.
    #[getter]
    fn datetime<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("holdall._time")?
            .call_method1("datetime_of", (self.log_time,))
    }

    /// For notebooks.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("holdall._html")?.call_method1("message", (slf,))
    }

    /// Nanoseconds by the clock that was selected for the messages: the reception time by default.
    #[getter]
    fn stamp(&self) -> i64 {
        self.stamp
    }

    /// Send time in nanoseconds since the Unix epoch; the reception time where the bag does not store it.
    #[getter]
    fn publish_time(&self) -> i64 {
        self.publish_time
    }

    /// Low 32 bits of the publisher's sequence number; 0 where the bag does not store it.
    #[getter]
    fn sequence(&self) -> u32 {
        self.sequence
    }

    /// The message's type, for example `sensor_msgs/msg/Imu`.
    #[getter]
    fn r#type(&self) -> &str {
        &self.channel.info.type_name
    }

    /// Its publisher, if the bag stores it: a dict with `gid`, `node`, `host`, `transport`.
    #[getter]
    fn publisher<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(publisher) = &self.channel.info.publisher else {
            return Ok(None);
        };
        let text = serde_json::to_string(publisher).unwrap_or_default();
        Ok(Some(py.import("json")?.call_method1("loads", (text,))?))
    }

    /// The serialized bytes, with their encapsulation header.
    #[getter]
    fn raw<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.bytes(py))
    }

    /// The decoded message: its fields are attributes, and are read when they are used.
    #[getter]
    fn msg(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.decoder(py)? {
            Decoder::Cdr(plan) => {
                let decoded = || {
                    let topic = Arc::clone(&self.channel.topic);
                    Py::new(py, Struct::root(py, plan, self.payload.clone(), topic)?)
                };
                Ok(self
                    .decoded
                    .get_or_try_init(py, decoded)?
                    .clone_ref(py)
                    .into_any())
            }
            Decoder::Json(_) => {
                let text = String::from_utf8_lossy(&self.payload);
                Ok(py.import("json")?.call_method1("loads", (text,))?.unbind())
            }
            Decoder::Opaque { reason } => {
                let details = Details {
                    topic: Some(self.channel.info.name.clone()),
                    ..Details::default()
                };
                Err(exception(
                    py,
                    "DecodeError",
                    &format!("{}: {reason}", self.channel.info.name),
                    details,
                ))
            }
        }
    }

    /// With the definition of its type: it is decoded without its bag, too.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let info = &this.channel.info;
        let defined = match this.decoder(py)? {
            Decoder::Cdr(plan) => Some(pickle::parts(&plan, plan.root_index())?),
            Decoder::Json(_) | Decoder::Opaque { .. } => None,
        };
        let publisher = info.publisher.as_ref().map(serde_json::to_string);
        let words = (
            (&info.name, &info.type_name, &info.serialization_format),
            defined,
            (this.log_time, this.publish_time, this.stamp, this.sequence),
            this.raw(py),
            publisher.and_then(Result::ok),
        );
        py.import("holdall._writer")?
            .call_method1("_reduced_message", words)
    }

    /// The same message in memory of its own.
    fn __copy__(&self, py: Python<'_>) -> Self {
        Self {
            payload: self.bytes(py),
            channel: Arc::clone(&self.channel),
            decoded: PyOnceLock::new(),
            ..*self
        }
    }

    fn __deepcopy__(&self, py: Python<'_>, _memo: &Bound<'_, PyAny>) -> Self {
        self.__copy__(py)
    }

    fn __repr__(&self) -> String {
        format!(
            "<message of {} ({}) at {}, {} bytes>",
            self.channel.info.name,
            self.channel.info.type_name,
            self.log_time,
            self.payload.len()
        )
    }
}

impl Message {
    /// A message without its bag.
    pub fn alone(
        py: Python<'_>,
        info: TopicInfo,
        decoder: Decoder,
        (log_time, publish_time, stamp, sequence): (i64, i64, i64, u32),
        raw: &[u8],
    ) -> Self {
        Self {
            stamp,
            log_time,
            publish_time,
            sequence,
            payload: Bytes::copy_from_slice(raw),
            decoded: PyOnceLock::new(),
            channel: Arc::new(Channel {
                name: PyString::intern(py, &info.name).unbind(),
                topic: info.name.as_str().into(),
                info: Arc::new(info),
                decoder: OnceLock::from(decoder),
                decoders: Arc::new(Mutex::new(Decoders::new(BagSet::from(Vec::new())))),
            }),
        }
    }

    /// The serialized bytes, with what was assigned.
    fn bytes(&self, py: Python<'_>) -> Bytes {
        let decoded = self.decoded.get(py);
        let whole = decoded.and_then(|decoded| Some(decoded.get().whole()?.0));
        whole.unwrap_or_else(|| self.payload.clone())
    }

    fn decoder(&self, py: Python<'_>) -> PyResult<Decoder> {
        if let Some(decoder) = self.channel.decoder.get() {
            return Ok(decoder.clone());
        }
        let found = detached(py, || lock(&self.channel.decoders).decoder(&self.channel.info))?;
        let found = found.map_err(|error| choice_error(py, &ChoiceError::from(error)))?;
        Ok(self.channel.decoder.get_or_init(|| found).clone())
    }
}

/// The messages that are selected, in order.
type Selected = Box<dyn Iterator<Item = Result<BagMessage, ChoiceError>> + Send>;

struct Reading {
    /// `None` once closed.
    messages: Option<Selected>,
    ahead: VecDeque<Result<BagMessage, ChoiceError>>,
    pickers: HashMap<String, Picker>,
    skipped: u64,
}

/// The channels that were met, by the address of their topic.
#[derive(Default)]
struct Channels {
    known: HashMap<usize, Arc<Channel>>,
    /// The channel of the last message: one channel's messages often follow one another.
    last: Option<(usize, Arc<Channel>)>,
}

/// An iteration; it can be ended at any time.
#[pyclass(frozen, module = "holdall._native")]
pub(crate) struct Messages {
    reading: Mutex<Reading>,
    channels: Mutex<Channels>,
    decoders: SharedDecoders,
    pick: Pick,
    skips_damage: bool,
}

impl Messages {
    pub fn new(messages: Selected, decoders: SharedDecoders, pick: Pick, skips_damage: bool) -> Self {
        Self {
            reading: Mutex::new(Reading {
                messages: Some(messages),
                ahead: VecDeque::new(),
                pickers: HashMap::new(),
                skipped: 0,
            }),
            channels: Mutex::default(),
            decoders,
            pick,
            skips_damage,
        }
    }

    /// The next message, read ahead with those after it.
    fn take(&self) -> Option<Result<BagMessage, ChoiceError>> {
        let reading = &mut *lock(&self.reading);
        if let Some(next) = reading.ahead.pop_front() {
            return Some(next);
        }
        let mut bytes = 0;
        while reading.ahead.len() < AHEAD_MAX && bytes < AHEAD_BYTES_MAX {
            let Some(next) = reading.messages.as_mut().and_then(Iterator::next) else {
                reading.messages = None;
                break;
            };
            match &next {
                Ok(message) => {
                    let (is_taken, is_done) = self.pick(message, &mut reading.pickers);
                    if is_done {
                        reading.messages = None;
                    }
                    if !is_taken {
                        continue;
                    }
                    bytes += message.payload.len();
                }
                Err(_) if self.skips_damage => {
                    reading.skipped += 1;
                    continue;
                }
                Err(_) => {}
            }
            reading.ahead.push_back(next);
        }
        reading.ahead.pop_front()
    }

    /// Appends the log time of each of the next messages; true at the end.
    pub fn take_times(&self, times: &mut Vec<u8>) -> Result<bool, ChoiceError> {
        for _ in 0..TIMES_AT_ONCE {
            match self.take() {
                Some(message) => times.extend(message?.log_time.as_nanos().to_ne_bytes()),
                None => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Whether a message is taken, and whether it is the last one: only messages of one topic are picked by number.
    fn pick(&self, message: &BagMessage, pickers: &mut HashMap<String, Picker>) -> (bool, bool) {
        if self.pick == Pick::default() {
            return (true, false);
        }
        let name = &message.topic.name;
        if !pickers.contains_key(name) {
            pickers.insert(name.clone(), Picker::new(self.pick));
        }
        let picked = pickers.get_mut(name).map(|picker| {
            let is_taken = picker.takes(message.stamp.as_nanos());
            (is_taken, picker.is_done())
        });
        picked.unwrap_or((true, false))
    }

    fn channel(&self, py: Python<'_>, info: &Arc<TopicInfo>) -> Arc<Channel> {
        let address = Arc::as_ptr(info) as usize;
        let known = |channels: &mut Channels| {
            if let Some((last, channel)) = &channels.last
                && *last == address
            {
                return Some(Arc::clone(channel));
            }
            let channel = Arc::clone(channels.known.get(&address)?);
            channels.last = Some((address, Arc::clone(&channel)));
            Some(channel)
        };
        if let Some(channel) = known(&mut lock(&self.channels)) {
            return channel;
        }
        // Made without the lock: nothing of Python runs within it. The entry keeps the topic alive, so that its address is used once.
        let channel = Arc::new(Channel {
            info: Arc::clone(info),
            name: PyString::intern(py, &info.name).unbind(),
            topic: info.name.as_str().into(),
            decoder: OnceLock::new(),
            decoders: Arc::clone(&self.decoders),
        });
        let mut channels = lock(&self.channels);
        Arc::clone(channels.known.entry(address).or_insert(channel))
    }
}

#[pymethods]
impl Messages {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        // A message read ahead is taken without leaving the interpreter.
        let ready = self
            .reading
            .try_lock()
            .ok()
            .and_then(|mut reading| reading.ahead.pop_front());
        let next = match ready {
            Some(next) => Some(next),
            None => detached(py, || self.take())?,
        };
        match next {
            None => Ok(None),
            Some(Err(error)) => Err(choice_error(py, &error)),
            Some(Ok(message)) => Ok(Some(Message {
                stamp: message.stamp.as_nanos(),
                log_time: message.log_time.as_nanos(),
                publish_time: message.publish_time.as_nanos(),
                sequence: message.sequence,
                channel: self.channel(py, &message.topic),
                payload: message.payload,
                decoded: PyOnceLock::new(),
            })),
        }
    }

    /// Ends the iteration and closes its files.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || {
            let mut reading = lock(&self.reading);
            reading.messages = None;
            reading.ahead.clear();
        })
    }

    /// Damaged parts that were passed over.
    #[getter]
    fn skipped(&self) -> u64 {
        lock(&self.reading).skipped
    }
}
