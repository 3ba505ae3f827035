//! The messages of one topic as columns, a part of the bag at a time.

mod parallel;

pub use parallel::{Next, ParallelTable};

use crate::{
    decode::{ChoiceError, Decoders, Fields, MessageChoice, TimeBase},
    reader::{BagMessage, BagSet},
};
pub use holdall_model::dynamic::columns::{Array, Batch, Column, ColumnOptions, UnknownField};
use holdall_model::dynamic::{DecodeError, TypePlan, columns::ColumnBuilder};
use std::{num::NonZeroU64, sync::Arc, time::Duration};

/// Which messages and fields of a topic become rows and columns.
#[derive(Clone, Debug, Default)]
pub struct TableOptions {
    /// The fields, and the form of their columns.
    pub columns: ColumnOptions,
    /// Which of the selected messages are read.
    pub pick: Pick,
    /// A message that cannot be decoded is counted and left out. Otherwise it is an error.
    pub skip_undecodable: bool,
}

/// Rows of a topic: the stamps of each message and the columns of its fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// Names of the columns for the stamps, as [`stamp_names`] has them.
    pub stamp_names: Arc<[String]>,
    /// Stamps of the headers in nanoseconds since the Unix epoch, if they are the clock.
    pub header_stamps: Option<Vec<i64>>,
    /// Reception times, in the same form.
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
        if let (Some(stamps), Some(more)) = (&mut self.header_stamps, &mut other.header_stamps) {
            stamps.append(more);
        }
        self.log_times.append(&mut other.log_times);
        self.publish_times.append(&mut other.publish_times);
        self.sequences.append(&mut other.sequences);
        self.batch.append(other.batch);
    }
}

/// Names of the columns for log time, publish time and sequence number, after the one for the header's stamp where that is the clock: with the
/// prefix `bag_` if the message has a field of the same name. All tables have them: Arrow's, Parquet's and CSV's.
pub fn stamp_names(plan: &TypePlan, time: TimeBase) -> Vec<String> {
    let header = (time == TimeBase::HeaderStamp).then_some("header_stamp");
    let names = header.into_iter().chain(["log_time", "publish_time", "sequence"]);
    names
        .map(|name| {
            let taken = plan.root().field(name).is_some();
            format!("{}{name}", if taken { "bag_" } else { "" })
        })
        .collect()
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

/// Which of a topic's selected messages are taken; all by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pick {
    /// One in each span of this length.
    pub every: Option<Duration>,
    /// Those with these numbers, among the ones that `every` leaves.
    pub numbers: Option<Numbers>,
}

/// Numbers of messages, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// The first.
    pub start: u64,
    /// The first that is not one of them.
    pub end: Option<u64>,
    /// The distance between two.
    pub step: NonZeroU64,
}

/// Picks messages of one topic, which come in order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Picker {
    pick: Pick,
    next: Option<i64>,
    counted: u64,
}

impl Picker {
    /// Begins to pick.
    pub fn new(pick: Pick) -> Self {
        Self {
            pick,
            ..Self::default()
        }
    }

    /// Whether the next message, with this stamp, is taken.
    pub fn takes(&mut self, nanos: i64) -> bool {
        if !self.is_due(nanos) {
            return false;
        }
        let number = self.counted;
        self.counted += 1;
        self.pick.numbers.is_none_or(|Numbers { start, end, step }| {
            let is_within = number >= start && end.is_none_or(|end| number < end);
            is_within && (number - start).is_multiple_of(step.get())
        })
    }

    /// Whether no later message is taken.
    pub fn is_done(&self) -> bool {
        let end = self.pick.numbers.and_then(|numbers| numbers.end);
        end.is_some_and(|end| self.counted >= end)
    }

    fn is_due(&mut self, nanos: i64) -> bool {
        let every = self.pick.every;
        let Some(span) = every
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
    stamp_names: Arc<[String]>,
    picker: Picker,
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
    headers: Option<Vec<i64>>,
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
        let time = choice.time;
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
            stamp_names: stamp_names(fields.plan(), time).into(),
            fields,
            builder,
            picker: Picker::new(options.pick),
            skip_undecodable: options.skip_undecodable,
            pending: None,
            skipped: 0,
            first_skipped: None,
            stamps: Stamps {
                headers: (time == TimeBase::HeaderStamp).then(Vec::new),
                ..Stamps::default()
            },
        })
    }

    /// The columns without rows.
    pub fn empty(&self) -> Rows {
        let headers = self.stamps.headers.as_ref().map(|_| Vec::new());
        self.rows(
            Stamps {
                headers,
                ..Stamps::default()
            },
            self.builder.take_none(),
        )
    }

    fn rows(&self, stamps: Stamps, batch: Batch) -> Rows {
        Rows {
            stamp_names: Arc::clone(&self.stamp_names),
            header_stamps: stamps.headers,
            log_times: stamps.log_times,
            publish_times: stamps.publish_times,
            sequences: stamps.sequences,
            batch,
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
            let next = if self.picker.is_done() {
                None
            } else {
                self.messages.next()
            };
            let Some(message) = next else {
                return Ok(false);
            };
            self.row(&message?)?;
        }
        Ok(true)
    }

    /// The rows that were read so far.
    pub fn take(&mut self) -> Rows {
        let headers = self.stamps.headers.as_ref().map(|_| Vec::new());
        let stamps = std::mem::replace(
            &mut self.stamps,
            Stamps {
                headers,
                ..Stamps::default()
            },
        );
        let batch = self.builder.take();
        self.rows(stamps, batch)
    }

    /// Appends a message.
    fn row(&mut self, message: &BagMessage) -> Result<(), TableError> {
        if !self.picker.takes(message.stamp.as_nanos()) {
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
                if let Some(headers) = &mut self.stamps.headers {
                    headers.push(message.stamp.as_nanos());
                }
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

    const STAMPS: [i64; 12] = [0, 3, 9, 10, 12, 19, 31, 39, 40, 41, 49, 100];

    fn taken(pick: Pick) -> Vec<i64> {
        let mut picker = Picker::new(pick);
        STAMPS.into_iter().filter(|stamp| picker.takes(*stamp)).collect()
    }

    fn numbers(start: u64, end: Option<u64>, step: u64) -> Option<Numbers> {
        let step = NonZeroU64::new(step).unwrap();
        Some(Numbers { start, end, step })
    }

    #[test]
    fn one_message_is_taken_in_each_span() {
        let every = |nanos| Some(Duration::from_nanos(nanos));
        let pick = |every| taken(Pick { every, numbers: None });
        assert_eq!(pick(every(10)), [0, 10, 31, 40, 100]);
        assert_eq!((pick(None), pick(every(0))), (STAMPS.to_vec(), STAMPS.to_vec()));
    }

    #[test]
    fn messages_are_taken_by_number_among_those_that_a_span_leaves() {
        let every = Some(Duration::from_nanos(10));
        assert_eq!(
            taken(Pick {
                every: None,
                numbers: numbers(2, Some(8), 3)
            }),
            [9, 19]
        );
        assert_eq!(
            taken(Pick {
                every,
                numbers: numbers(1, None, 2)
            }),
            [10, 40]
        );
        let mut picker = Picker::new(Pick {
            every: None,
            numbers: numbers(0, Some(2), 1),
        });
        assert!(
            picker.takes(1) && !picker.is_done() && picker.takes(2) && picker.is_done() && !picker.takes(3)
        );
    }
}
