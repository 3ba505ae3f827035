//! Reads bags into columns of time, slices of time side by side.

use super::{
    Picture,
    clock::{Clocked, bounds, recorded},
    columns::{Lane, Line},
    losses::add_losses,
};
use holdall_bag::{
    decode::{ChoiceError, Decoders, Fields, TimeBase},
    reader::{BagMessage, BagSet, MessageFilter, Moment, ReadError},
};
use holdall_model::{
    contract::Violation,
    dynamic::expression::{ExpressionError, Formula, split_topic},
    time::Timestamp,
    topic::TopicInfo,
};
use holdall_tools::tools::contract;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::RangeInclusive,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Columns that are collected; pictures merge them as far as they need.
const COLUMNS: usize = 2048;

/// Topics that get a lane.
const LANES_MAX: usize = 200;

/// Number of messages from which slices of time are read in parallel.
const SLICED_FROM: u64 = 50_000;

/// Most slices.
const SLICES_MAX: usize = 16;

/// Messages between two reports of progress.
const REPORT_EVERY: u64 = 4096;

/// Sentences about unreadable parts.
const NOTICES_MAX: usize = 20;

/// A topic, or a value of its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// As it was written.
    pub text: String,
    /// The topic.
    pub topic: String,
    /// The value: a field, or a calculation with fields; `None` for its messages alone.
    pub value: Option<String>,
}

impl FromStr for Wanted {
    type Err = ExpressionError;

    /// `/imu`, `/imu.linear_acceleration.z`, or `/imu: abs(linear_acceleration.z) - 9.81`.
    fn from_str(text: &str) -> Result<Self, ExpressionError> {
        let (topic, value) = if text.contains(':') {
            let (topic, value) = split_topic(text)?;
            (topic, Some(value))
        } else {
            // No name of a topic has a dot.
            text.split_once('.')
                .map_or((text, None), |(topic, value)| (topic, Some(value)))
        };
        let slash = if topic.starts_with('/') { "" } else { "/" };
        Ok(Self {
            text: text.to_owned(),
            topic: format!("{slash}{topic}"),
            value: value.map(str::to_owned),
        })
    }
}

/// Values to draw.
#[derive(Clone, Debug, Default)]
pub struct PlotOptions {
    /// Topics and values; none for all topics.
    pub wanted: Vec<Wanted>,
    /// Start, instead of `start_offset`.
    pub start: Option<Moment>,
    /// End, instead of `duration`.
    pub end: Option<Moment>,
    /// Start, as a span after the first message.
    pub start_offset: Duration,
    /// Length; `None` to the end.
    pub duration: Option<Duration>,
    /// The clock of the horizontal axis. With `HeaderStamp`, topics without one are left out, unless they are named; losses, markers and files
    /// are only known by the recorder's clock, and are left out too.
    pub time: TimeBase,
    /// The subject of the picture.
    pub title: String,
}

/// Why no picture could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlotError {
    /// A bag cannot be read.
    #[error(transparent)]
    Bag(#[from] ReadError),
    /// Messages cannot be selected by the chosen clock.
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    /// A topic that the bags do not have.
    #[error("there is no topic {topic} in the bag; its topics are {known}")]
    UnknownTopic {
        /// The name that was given.
        topic: String,
        /// The bag's topics.
        known: String,
    },
    /// A value that the topic's type does not have.
    #[error("{topic}: {source}")]
    Value {
        /// The topic.
        topic: String,
        /// The cause.
        source: ExpressionError,
    },
    /// A topic that cannot be decoded.
    #[error("{topic}: its fields cannot be read: {reason}")]
    Opaque {
        /// The topic.
        topic: String,
        /// The cause.
        reason: String,
    },
    /// The bags have no message in that time.
    #[error("there is no message to draw")]
    Empty,
}

/// Reads the values to draw. `progress` is called now and then with the number of messages so far.
///
/// # Errors
/// A topic or a value that the bags do not have; bags without a message; a file that cannot be opened. Damaged parts are named in the picture.
pub fn collect(
    bags: &BagSet,
    options: &PlotOptions,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Picture, PlotError> {
    let topics = chosen(bags, &options.wanted)?;
    let lines = lines(bags, options, &topics)?;
    let clocked = Clocked::of(bags, options, &topics)?;
    let ends = match &clocked {
        Some(clocked) => clocked.ends(bags)?,
        None => recorded(bags),
    };
    let (start, span) = bounds(ends, options, bags)
        .map_err(ChoiceError::from)?
        .ok_or(PlotError::Empty)?;
    let (shown, left_out) = with_lanes(bags, &topics);
    let plan = Plan {
        bags,
        topics: &shown,
        formulas: &lines,
        filter: filter(options, &topics),
        clocked: clocked.as_ref(),
        start,
        span,
        read: AtomicU64::new(0),
        progress,
    };
    let mut drawn = plan.read();
    let by_header = options.time == TimeBase::HeaderStamp;
    if by_header {
        drawn.lanes.retain(|lane| lane.messages > 0);
    } else {
        add_losses(bags, &mut drawn.lanes)?;
    }
    drawn.lanes.sort_by(|a, b| a.name.cmp(&b.name));
    let end = start.saturating_add(span);
    let within = |time: &i64| !by_header && (start..=end).contains(time);
    let files = bags.bags().iter().flat_map(|bag| &bag.metadata().files);
    let mut splits: Vec<i64> = files
        .filter_map(|file| Some(file.starting_time?.as_nanos()))
        .collect();
    splits.sort_unstable();
    Ok(Picture {
        title: options.title.clone(),
        start,
        span,
        columns: COLUMNS,
        messages: drawn.lanes.iter().map(|lane| lane.messages).sum(),
        lanes: drawn.lanes,
        left_out,
        lines: drawn.lines,
        markers: bags
            .markers()?
            .into_iter()
            .filter(|marker| within(&marker.time.as_nanos()))
            .collect(),
        violations: match by_header {
            true => Vec::new(),
            false => violations(bags, start..=end)?,
        },
        splits: splits.into_iter().skip(1).filter(within).collect(),
        notices: drawn.notices,
        remarks: clocked.map(|clocked| clocked.remarks).unwrap_or_default(),
    })
}

/// What the contracts of the recordings found wrong, where any of it is in the picture.
fn violations(bags: &BagSet, shown: RangeInclusive<i64>) -> Result<Vec<Violation>, PlotError> {
    let mut found = Vec::new();
    for bag in bags.bags() {
        let is_shown = |violation: &Violation| {
            let until = violation.until.map_or(i64::MAX, Timestamp::as_nanos);
            violation.since.as_nanos() <= *shown.end() && until >= *shown.start()
        };
        found.extend(contract::violations(bag)?.into_iter().filter(is_shown));
    }
    Ok(found)
}

/// The topics that are wanted, each once.
fn chosen(bags: &BagSet, wanted: &[Wanted]) -> Result<Vec<TopicInfo>, PlotError> {
    let all = bags.topics();
    for one in wanted {
        if !all.iter().any(|topic| topic.name == one.topic) {
            return Err(PlotError::UnknownTopic {
                topic: one.topic.clone(),
                known: holdall_bag::decode::known_topics(
                    &one.topic,
                    all.iter().map(|topic| topic.name.as_str()),
                ),
            });
        }
    }
    let is_wanted = |topic: &TopicInfo| wanted.is_empty() || wanted.iter().any(|one| one.topic == topic.name);
    let mut known = BTreeSet::new();
    Ok(all
        .into_iter()
        .filter(|topic| is_wanted(topic) && known.insert(topic.name.clone()))
        .collect())
}

/// The topics that get a lane, those with most messages, and how many do not.
fn with_lanes(bags: &BagSet, topics: &[TopicInfo]) -> (Vec<TopicInfo>, usize) {
    let mut counts: HashMap<&str, u64> = HashMap::new();
    for bag in bags.bags() {
        for topic in &bag.metadata().topics_with_message_count {
            *counts.entry(topic.topic_metadata.name.as_str()).or_default() += topic.message_count;
        }
    }
    let mut shown = topics.to_vec();
    shown.sort_by_key(|topic| std::cmp::Reverse(counts.get(topic.name.as_str()).copied().unwrap_or(0)));
    shown.truncate(LANES_MAX);
    let left_out = topics.len() - shown.len();
    (shown, left_out)
}

/// A value with its extractor.
struct Computed {
    name: String,
    topic: String,
    fields: Fields,
    formula: Formula,
}

fn lines(bags: &BagSet, options: &PlotOptions, topics: &[TopicInfo]) -> Result<Vec<Computed>, PlotError> {
    let mut decoders = Decoders::new(bags.clone());
    let mut found = Vec::new();
    for one in &options.wanted {
        let Some(value) = &one.value else { continue };
        let Some(topic) = topics.iter().find(|topic| topic.name == one.topic) else {
            continue;
        };
        let fields = decoders.find(topic)?.fields();
        let fields = fields.map_err(|reason| PlotError::Opaque {
            topic: one.topic.clone(),
            reason,
        })?;
        let formula =
            Formula::compile(Arc::clone(fields.plan()), value).map_err(|source| PlotError::Value {
                topic: one.topic.clone(),
                source,
            })?;
        found.push(Computed {
            name: one.text.clone(),
            topic: one.topic.clone(),
            fields,
            formula,
        });
    }
    Ok(found)
}

fn filter(options: &PlotOptions, topics: &[TopicInfo]) -> MessageFilter {
    let names = topics.iter().map(|topic| topic.name.clone()).collect();
    MessageFilter {
        topics: (!options.wanted.is_empty()).then(|| Arc::new(names)),
        ..MessageFilter::default()
    }
}

/// How bags are read.
struct Plan<'a> {
    bags: &'a BagSet,
    topics: &'a [TopicInfo],
    formulas: &'a [Computed],
    filter: MessageFilter,
    clocked: Option<&'a Clocked>,
    start: i64,
    span: i64,
    read: AtomicU64,
    progress: &'a (dyn Fn(u64) + Sync),
}

/// Messages read from a slice.
struct Slice {
    lanes: Vec<Lane>,
    lines: Vec<Line>,
    notices: Vec<String>,
}

impl Plan<'_> {
    fn read(&self) -> Slice {
        let messages: u64 = self
            .bags
            .bags()
            .iter()
            .map(|bag| bag.metadata().message_count)
            .sum();
        let count = match messages {
            _ if self.clocked.is_some() => 1,
            0..SLICED_FROM => 1,
            _ => holdall_io::machine::processor_count().clamp(1, SLICES_MAX),
        };
        let mut slices = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..count)
                .map(|number| scope.spawn(move || self.slice(number, count)))
                .collect();
            let slices = threads.into_iter().map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            slices.collect::<Vec<_>>()
        })
        .into_iter();
        let mut all = slices.next().unwrap_or_else(|| self.empty());
        for later in slices {
            for (lane, later) in all.lanes.iter_mut().zip(&later.lanes) {
                lane.append(later, |time| self.column(time));
            }
            for (line, later) in all.lines.iter_mut().zip(&later.lines) {
                line.append(later);
            }
            all.notices.extend(later.notices);
        }
        // A damaged chunk is met by each slice that it belongs to.
        let mut known = BTreeSet::new();
        all.notices.retain(|notice| known.insert(notice.clone()));
        all.notices.truncate(NOTICES_MAX);
        all
    }

    fn empty(&self) -> Slice {
        Slice {
            lanes: self
                .topics
                .iter()
                .map(|topic| Lane::new(&topic.name, &topic.type_name, COLUMNS))
                .collect(),
            lines: self
                .formulas
                .iter()
                .map(|one| Line::new(&one.name, COLUMNS))
                .collect(),
            notices: Vec::new(),
        }
    }

    fn column(&self, time: i64) -> usize {
        let part = time.saturating_sub(self.start) as f64 / self.span as f64;
        ((part * COLUMNS as f64) as usize).min(COLUMNS - 1)
    }

    /// Reads one of `count` slices of the time.
    fn slice(&self, number: usize, count: usize) -> Slice {
        let end = self.start.saturating_add(self.span);
        let border = |number: usize| {
            let offset = i128::from(self.span) * number as i128 / count as i128;
            self.start
                .saturating_add(i64::try_from(offset).unwrap_or(i64::MAX))
        };
        let until = if number + 1 == count {
            end
        } else {
            border(number + 1) - 1
        };
        let filter = MessageFilter {
            from: Some(Timestamp::from_nanos(border(number))),
            until: Some(Timestamp::from_nanos(until)),
            ..self.filter.clone()
        };
        let mut slice = self.empty();
        let mut places = Places::new(self);
        let mut unreported = 0;
        for message in self.messages(&filter) {
            match message {
                Ok(message) => self.add(&mut slice, &mut places, &message),
                Err(error) if slice.notices.len() < NOTICES_MAX => slice.notices.push(error),
                Err(_) => {}
            }
            unreported += 1;
            if unreported == REPORT_EVERY {
                unreported = 0;
                (self.progress)(self.read.fetch_add(REPORT_EVERY, Ordering::Relaxed) + REPORT_EVERY);
            }
        }
        slice
    }

    /// The messages of a slice; errors are sentences.
    fn messages(&self, slice: &MessageFilter) -> Box<dyn Iterator<Item = Result<BagMessage, String>>> {
        let Some(clocked) = self.clocked else {
            let messages = self.bags.messages(slice);
            return Box::new(messages.map(|message| message.map_err(|error| error.to_string())));
        };
        let (start, end) = (self.start, self.start.saturating_add(self.span));
        match clocked.messages(self.bags) {
            Ok(messages) => Box::new(
                messages
                    .map(|message| message.map_err(|error| error.to_string()))
                    .filter(move |message| {
                        let stamp = message.as_ref().map(|message| message.stamp.as_nanos());
                        stamp.map_or(true, |stamp| (start..=end).contains(&stamp))
                    }),
            ),
            Err(error) => Box::new(std::iter::once(Err(error.to_string()))),
        }
    }

    fn add(&self, slice: &mut Slice, places: &mut Places, message: &BagMessage) {
        let time = message.stamp.as_nanos();
        let column = self.column(time);
        let place = places.of(&message.topic);
        if let Some(lane) = place.lane {
            slice.lanes[lane].add(column, time, message.payload.len() as u64);
        }
        for at in &place.lines {
            let Computed { fields, formula, .. } = &self.formulas[*at];
            let line = &mut slice.lines[*at];
            let payload = fields.payload(&message.payload);
            match payload.and_then(|payload| formula.value(&payload)) {
                Ok(value) if formula.type_name() == message.topic.type_name => {
                    if let Some(value) = value {
                        line.add(column, value);
                    }
                }
                _ => line.undecoded += 1,
            }
        }
    }
}

/// Where the messages of a topic go.
#[derive(Clone, Default)]
struct Place {
    lane: Option<usize>,
    lines: Vec<usize>,
}

/// The places of topics, by name, and by the address of the topic that messages refer to, which is kept alive.
struct Places {
    by_name: BTreeMap<String, Place>,
    by_address: HashMap<usize, (Arc<TopicInfo>, Place)>,
}

impl Places {
    fn new(plan: &Plan<'_>) -> Self {
        let mut by_name: BTreeMap<String, Place> = BTreeMap::new();
        for (at, topic) in plan.topics.iter().enumerate() {
            by_name.entry(topic.name.clone()).or_default().lane = Some(at);
        }
        for (at, one) in plan.formulas.iter().enumerate() {
            by_name.entry(one.topic.clone()).or_default().lines.push(at);
        }
        Self {
            by_name,
            by_address: HashMap::new(),
        }
    }

    fn of(&mut self, topic: &Arc<TopicInfo>) -> &Place {
        let place = self
            .by_address
            .entry(Arc::as_ptr(topic) as usize)
            .or_insert_with(|| {
                let place = self.by_name.get(&topic.name).cloned().unwrap_or_default();
                (Arc::clone(topic), place)
            });
        &place.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_bag::Writer;
    use std::path::Path;

    /// A bag with `/a` each 10 ns, `/b` each 100 ns, and a spike in `/a`.
    fn bag(folder: &Path, count: i64) -> BagSet {
        let path = folder.join("lab");
        let mut writer = Writer::create(&path).unwrap();
        let a = writer.add_topic("/a", "std_msgs/msg/UInt8").unwrap();
        let b = writer.add_topic("/b", "std_msgs/msg/String").unwrap();
        for number in 0..count {
            let time = Timestamp::from_nanos(1_000_000 + number * 10);
            let value = if number == count / 3 {
                250
            } else {
                (number % 100) as u8
            };
            writer.write(a, time, &[0, 1, 0, 0, value]).unwrap();
            if number % 10 == 0 {
                writer.write(b, time, &[0, 1, 0, 0, 2, 0, 0, 0, b'x', 0]).unwrap();
            }
        }
        writer.close().unwrap();
        BagSet::open(&[path]).unwrap()
    }

    fn options(wanted: &[&str]) -> PlotOptions {
        PlotOptions {
            wanted: wanted.iter().map(|text| text.parse().unwrap()).collect(),
            ..PlotOptions::default()
        }
    }

    #[test]
    fn everything_is_counted_and_spikes_stay_also_in_slices() {
        let folder = tempfile::tempdir().unwrap();
        let count = i64::try_from(SLICED_FROM).unwrap() + 1000;
        let bags = bag(folder.path(), count);
        let picture = collect(&bags, &options(&["/a.data", "b", "/a: data > 200"]), &|_| {}).unwrap();
        let lanes: Vec<(&str, u64)> = picture
            .lanes
            .iter()
            .map(|lane| (lane.name.as_str(), lane.messages))
            .collect();
        assert_eq!(
            lanes,
            [("/a", count.unsigned_abs()), ("/b", count.unsigned_abs() / 10)]
        );
        assert_eq!(
            picture.lanes[0].cells.iter().map(|cell| cell.count).sum::<u64>(),
            count.unsigned_abs()
        );
        let gaps: BTreeSet<u64> = picture.lanes[0].cells.iter().map(|cell| cell.gap_max).collect();
        assert_eq!(gaps, BTreeSet::from([10]), "also between two slices");
        assert_eq!(picture.lines[0].range(), Some((0.0, 250.0)));
        assert_eq!(
            picture.lines[1]
                .cells
                .iter()
                .flatten()
                .filter(|cell| cell.max == 1.0)
                .count(),
            1
        );
        assert_eq!((picture.start, picture.span), (1_000_000, (count - 1) * 10));
    }

    #[test]
    fn a_part_of_the_time_is_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let bags = bag(folder.path(), 1000);
        let part = PlotOptions {
            start_offset: Duration::from_nanos(100),
            duration: Some(Duration::from_nanos(99)),
            ..PlotOptions::default()
        };
        let picture = collect(&bags, &part, &|_| {}).unwrap();
        assert_eq!((picture.start, picture.span), (1_000_100, 99));
        assert_eq!(picture.lanes[0].messages, 10);
    }

    #[test]
    fn header_stamps_are_a_clock_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lab");
        let mut writer = Writer::create(&path).unwrap();
        let stamped = writer.add_topic("/stamped", "std_msgs/msg/UInt8").unwrap();
        let point = writer
            .add_topic("/point", "geometry_msgs/msg/PointStamped")
            .unwrap();
        for number in 0_u32..10 {
            let time = Timestamp::from_nanos(i64::from(number) * 1_000_000_000);
            let head = [
                0,
                1,
                0,
                0,
                100 + number as u8,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                1,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
            ];
            let payload = [&head[..], &f64::from(number).to_le_bytes(), &[0; 16]].concat();
            writer.write(point, time, &payload).unwrap();
            writer.write(stamped, time, &[0, 1, 0, 0, 7]).unwrap();
        }
        writer.close().unwrap();
        let bags = BagSet::open(&[path]).unwrap();
        let by_header = |wanted: &[&str]| PlotOptions {
            time: TimeBase::HeaderStamp,
            ..options(wanted)
        };
        let picture = collect(&bags, &by_header(&[]), &|_| {}).unwrap();
        assert_eq!((picture.start, picture.span), (100_000_000_000, 9_000_000_000));
        assert_eq!((picture.lanes.len(), picture.messages), (1, 10));
        assert!(
            picture.remarks[0].starts_with("/stamped: left out"),
            "{:?}",
            picture.remarks
        );
        let picture = collect(&bags, &by_header(&["/point.point.x"]), &|_| {}).unwrap();
        assert_eq!(picture.lines[0].range(), Some((0.0, 9.0)));
        let refused = collect(&bags, &by_header(&["/stamped"]), &|_| {}).unwrap_err();
        assert!(refused.to_string().contains("has no header.stamp"), "{refused}");
    }

    #[test]
    fn what_the_bag_does_not_have_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let bags = bag(folder.path(), 10);
        let refusal = |wanted: &str| {
            collect(&bags, &options(&[wanted]), &|_| {})
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            refusal("/c"),
            "there is no topic /c in the bag; its topics are /a, /b"
        );
        assert!(refusal("/a.speed").contains("has no field speed; its fields are data"));
        assert!(refusal("/b.data").contains("a text is not a number"));
        assert!("/a b: x".parse::<Wanted>().is_err());
    }

    #[test]
    fn the_forms_of_a_wanted_value_are_read() {
        let parts = |text: &str| {
            let wanted: Wanted = text.parse().unwrap();
            (wanted.topic, wanted.value)
        };
        assert_eq!(parts("imu"), ("/imu".to_owned(), None));
        assert_eq!(
            parts("/imu.a.b[0]"),
            ("/imu".to_owned(), Some("a.b[0]".to_owned()))
        );
        assert_eq!(
            parts("/imu: abs(a.b) * 2.5"),
            ("/imu".to_owned(), Some("abs(a.b) * 2.5".to_owned()))
        );
    }
}
