//! The messages of one topic as columns, a part of the bag at a time.

mod parallel;

pub use parallel::{Next, ParallelTable};

use crate::{
    decode::{ChoiceError, Decoders, Fields, MessageChoice},
    reader::{BagMessage, BagSet},
};
pub use holdall_model::dynamic::columns::{Array, Batch, Column, ColumnOptions, UnknownField};
use holdall_model::dynamic::{DecodeError, columns::ColumnBuilder};
use std::{sync::Arc, time::Duration};

/// Which messages and fields of a topic become rows and columns.
#[derive(Clone, Debug, Default)]
pub struct TableOptions {
    /// The fields, and the form of their columns.
    pub columns: ColumnOptions,
    /// Of messages that follow one another within this span, only the first one is read.
    pub every: Option<Duration>,
    /// A message that cannot be decoded is counted and left out. Otherwise it is an error.
    pub skip_undecodable: bool,
}

/// Rows of a topic: the stamps of each message and the columns of its fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// Reception times in nanoseconds since the Unix epoch.
    pub log_times: Vec<i64>,
    /// Send times, in the same form.
    pub publish_times: Vec<i64>,
    /// Low 32 bits of the publishers' sequence numbers.
    pub sequences: Vec<u32>,
    /// The fields.
    pub batch: Batch,
}

impl Rows {
    /// Appends rows of the same columns.
    pub fn append(&mut self, mut other: Self) {
        self.log_times.append(&mut other.log_times);
        self.publish_times.append(&mut other.publish_times);
        self.sequences.append(&mut other.sequences);
        self.batch.append(other.batch);
    }
}

/// Why a topic cannot be read as a table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The messages cannot be selected or read.
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    /// A field that the type does not have.
    #[error("{topic}: {source}")]
    Field {
        /// The topic.
        topic: String,
        /// The cause.
        source: UnknownField,
    },
    /// A topic whose messages cannot be decoded.
    #[error("{topic}: {reason}")]
    Opaque {
        /// The topic.
        topic: String,
        /// The cause.
        reason: String,
    },
    /// A message that cannot be decoded.
    #[error("{topic}, message of {log_time} ns: {source}")]
    Decode {
        /// The topic.
        topic: String,
        /// Reception time.
        log_time: i64,
        /// The cause.
        source: DecodeError,
    },
    /// A message of another type than the topic's first.
    #[error("{topic}, message of {log_time} ns: its type is {found}, not {expected}")]
    OtherType {
        /// The topic.
        topic: String,
        /// Reception time.
        log_time: i64,
        /// The type of the columns.
        expected: String,
        /// The message's type.
        found: String,
    },
}

/// Leaves out messages that follow another one too soon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Every {
    span: Option<Duration>,
    next: Option<i64>,
}

impl Every {
    /// Keeps one message in each `span`; all for `None`.
    pub fn new(span: Option<Duration>) -> Self {
        Self { span, next: None }
    }

    /// Whether a message with this stamp is kept; stamps come in order.
    pub fn keeps(&mut self, nanos: i64) -> bool {
        let Some(span) = self
            .span
            .and_then(|span| i64::try_from(span.as_nanos()).ok())
            .filter(|span| *span > 0)
        else {
            return true;
        };
        let Some(next) = self.next else {
            self.next = Some(nanos.saturating_add(span));
            return true;
        };
        if nanos < next {
            return false;
        }
        // On the grid of the first message, so that a late one does not move those after it.
        let passed = nanos.saturating_sub(next) / span;
        self.next = Some(next.saturating_add(passed.saturating_add(1).saturating_mul(span)));
        true
    }
}

type Messages = Box<dyn Iterator<Item = Result<BagMessage, ChoiceError>> + Send>;

/// Reads a topic as rows.
///
/// ```
/// use holdall::{BagSet, decode::{Decoders, MessageChoice}, table::{Array, TableOptions, TableReader}};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("lab");
/// # let mut writer = holdall::Writer::create(&path)?;
/// # let topic = writer.add_topic("/odom", "std_msgs/msg/UInt8")?;
/// # writer.write(topic, holdall::Timestamp::from_nanos(5), &[0, 1, 0, 0, 7])?;
/// # writer.close()?;
/// let bags = BagSet::open(&[path])?;
/// let mut decoders = Decoders::new(bags.clone());
/// let mut reader = TableReader::open(&bags, &mut decoders, "/odom", MessageChoice::default(), &TableOptions::default())?;
/// let rows = reader.next_rows(1000, 1 << 20)?.expect("one message");
/// assert_eq!((rows.log_times, rows.batch.columns[0].name.as_str()), (vec![5], "data"));
/// assert!(matches!(&rows.batch.columns[0].array, Array::Plain { bytes, .. } if bytes[..] == [7]));
/// # Ok(())
/// # }
/// ```
pub struct TableReader {
    topic: String,
    type_name: String,
    messages: Messages,
    fields: Fields,
    builder: ColumnBuilder,
    every: Every,
    skip_undecodable: bool,
    /// An error that comes after the rows before it.
    pending: Option<TableError>,
    skipped: u64,
    first_skipped: Option<String>,
    stamps: Stamps,
}

/// The stamps of the rows so far.
#[derive(Default)]
struct Stamps {
    log_times: Vec<i64>,
    publish_times: Vec<i64>,
    sequences: Vec<u32>,
}

impl TableReader {
    /// Begins to read the messages of `topic` that `choice` selects otherwise.
    ///
    /// # Errors
    /// A topic, a field or a condition that the bags do not have; a topic that cannot be decoded.
    pub fn open(
        bags: &BagSet,
        decoders: &mut Decoders,
        topic: &str,
        choice: MessageChoice,
        options: &TableOptions,
    ) -> Result<Self, TableError> {
        let choice = MessageChoice {
            topics: vec![topic.to_owned()],
            ..choice
        };
        let messages = choice.messages(bags, decoders)?;
        let found = bags.topics().into_iter().find(|known| known.name == topic);
        let info = found.unwrap_or_default();
        let decoder = decoders.find(&info).map_err(ChoiceError::from)?;
        let fields = decoder.fields().map_err(|reason| TableError::Opaque {
            topic: topic.to_owned(),
            reason,
        })?;
        let builder = ColumnBuilder::new(Arc::clone(fields.plan()), &options.columns);
        let builder = builder.map_err(|source| TableError::Field {
            topic: topic.to_owned(),
            source,
        })?;
        Ok(Self {
            topic: topic.to_owned(),
            type_name: info.type_name,
            messages,
            fields,
            builder,
            every: Every::new(options.every),
            skip_undecodable: options.skip_undecodable,
            pending: None,
            skipped: 0,
            first_skipped: None,
            stamps: Stamps::default(),
        })
    }

    /// The columns without rows.
    pub fn empty(&self) -> Rows {
        Rows {
            log_times: Vec::new(),
            publish_times: Vec::new(),
            sequences: Vec::new(),
            batch: self.builder.take_none(),
        }
    }

    /// Number of messages that were left out because they cannot be decoded, and why the first one cannot.
    pub fn skipped(&self) -> (u64, Option<&str>) {
        (self.skipped, self.first_skipped.as_deref())
    }

    /// The next rows, at most `rows_max`, until they take `bytes_max` bytes; `None` at the end. An error comes after the rows before it, and
    /// reading continues after it.
    ///
    /// # Errors
    /// A damaged part of the bag; a message that cannot be decoded, unless those are skipped.
    pub fn next_rows(&mut self, rows_max: usize, bytes_max: usize) -> Result<Option<Rows>, TableError> {
        match self.fill(rows_max, bytes_max) {
            Err(error) if self.stamps.log_times.is_empty() => return Err(error),
            Err(error) => self.pending = Some(error),
            Ok(_) => {}
        }
        let rows = self.take();
        Ok((!rows.log_times.is_empty()).then_some(rows))
    }

    /// Reads until there are `rows_max` rows, or until they take `bytes_max` bytes; false at the end of the bags.
    ///
    /// # Errors
    /// As [`TableReader::next_rows`]; the rows before the error stay.
    pub fn fill(&mut self, rows_max: usize, bytes_max: usize) -> Result<bool, TableError> {
        if let Some(error) = self.pending.take() {
            return Err(error);
        }
        while self.stamps.log_times.len() < rows_max {
            // The sum over all columns is taken now and then only.
            if self.stamps.log_times.len() % 256 == 255 && self.builder.bytes() >= bytes_max {
                break;
            }
            let Some(message) = self.messages.next() else {
                return Ok(false);
            };
            self.row(&message?)?;
        }
        Ok(true)
    }

    /// The rows that were read so far.
    pub fn take(&mut self) -> Rows {
        let stamps = std::mem::take(&mut self.stamps);
        Rows {
            log_times: stamps.log_times,
            publish_times: stamps.publish_times,
            sequences: stamps.sequences,
            batch: self.builder.take(),
        }
    }

    /// Appends a message.
    fn row(&mut self, message: &BagMessage) -> Result<(), TableError> {
        if !self.every.keeps(message.stamp.as_nanos()) {
            return Ok(());
        }
        let log_time = message.log_time.as_nanos();
        let pushed = if message.topic.type_name == self.type_name {
            self.fields
                .payload(&message.payload)
                .and_then(|payload| self.builder.push(&payload))
                .map_err(|source| TableError::Decode {
                    topic: self.topic.clone(),
                    log_time,
                    source,
                })
        } else {
            Err(TableError::OtherType {
                topic: self.topic.clone(),
                log_time,
                expected: self.type_name.clone(),
                found: message.topic.type_name.clone(),
            })
        };
        match pushed {
            Ok(()) => {
                self.stamps.log_times.push(log_time);
                self.stamps.publish_times.push(message.publish_time.as_nanos());
                self.stamps.sequences.push(message.sequence);
                Ok(())
            }
            Err(error) if self.skip_undecodable => {
                self.skipped += 1;
                self.first_skipped.get_or_insert_with(|| error.to_string());
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_is_kept_in_each_span() {
        let mut every = Every::new(Some(Duration::from_nanos(10)));
        let kept: Vec<i64> = [0, 3, 9, 10, 12, 19, 31, 39, 40, 41, 49, 100]
            .into_iter()
            .filter(|stamp| every.keeps(*stamp))
            .collect();
        assert_eq!(kept, [0, 10, 31, 40, 100]);
        assert!(Every::default().keeps(5) && Every::new(Some(Duration::ZERO)).keeps(5));
    }
}
