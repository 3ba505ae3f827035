//! One side of a run: publishes to a schedule or receives, and keeps a record of each message. It talks to its parent by lines: events on
//! standard output, orders on standard input. `helpers/tcpros_worker.py` does the same for ROS 1.

mod discover;
mod link;
mod plain;
mod publish;
mod shape;
mod subscribe;

use clap::{
    ArgAction, Args, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
    value_parser,
};
use holdall_io::fs::write_atomically_unsynced;
use holdall_program::names::TransportName;
pub use link::Join;
pub use publish::publish_into_memory;
use serde::{Deserialize, Serialize};
pub use shape::Shape;
use std::{
    fs,
    io::{self, BufRead, Write},
    net::SocketAddr,
    ops::Range,
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

/// Which side a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Sends.
    Publisher,
    /// Receives.
    Subscriber,
    /// A node without topics.
    Idle,
    /// Both in one thread, which shows the costs of the measurement itself.
    Both,
}

impl Role {
    /// The name for the flag `--role`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Publisher => "publisher",
            Self::Subscriber => "subscriber",
            Self::Idle => "idle",
            Self::Both => "both",
        }
    }
}

/// How messages travel between two workers of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    /// Through a transport of this program.
    Transport,
    /// Datagrams without repair, 1472 bytes each.
    Udp(SocketAddr),
    /// A stream.
    Tcp(SocketAddr),
    /// A copy in memory.
    Memory,
}

/// The task of a worker, as the flags of its process say it.
#[derive(Args, Clone, Debug)]
pub struct WorkerPlan {
    /// Its side
    #[arg(long, value_name = "SIDE")]
    pub role: Role,

    /// Through this transport
    #[arg(long, value_name = "NAME", conflicts_with_all = ["udp", "tcp"])]
    pub transport: Option<TransportName>,

    /// By datagrams to or at this address
    #[arg(long, value_name = "ADDRESS", conflicts_with = "tcp")]
    pub udp: Option<SocketAddr>,

    /// By a stream to or at this address
    #[arg(long, value_name = "ADDRESS")]
    pub tcp: Option<SocketAddr>,

    /// The topic's name
    #[arg(long, value_name = "NAME")]
    pub topic: String,

    /// Join when started, send nothing, and report when this many processes of the other side are known
    #[arg(long = "nodes", value_name = "N")]
    pub others: Option<usize>,

    /// Type of the messages: `bytes`, `point_cloud` or `poses`
    #[arg(long = "message", value_name = "NAME", default_value_t)]
    pub shape: Shape,

    /// Content of a message in bytes
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(8..=1 << 30).map(|bytes| bytes as usize))]
    pub bytes: usize,

    /// Messages a second
    #[arg(long = "rate", value_name = "HZ")]
    pub rate_hz: f64,

    /// Messages that are planned
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=1 << 32))]
    pub count: u64,

    /// Whether lost messages are sent again
    #[arg(
        long = "reliability",
        value_name = "NAME",
        action = ArgAction::Set,
        value_parser = PossibleValuesParser::new(["reliable", "best-effort"]).map(|name| name == "reliable")
    )]
    pub is_reliable: bool,

    /// Messages to keep for late receivers
    #[arg(long, value_name = "N")]
    pub depth: u64,

    /// The file for a record of each message
    #[arg(long, value_name = "FILE")]
    pub records: PathBuf,
}

impl WorkerPlan {
    /// How messages travel.
    fn carrier(&self) -> Carrier {
        match (self.udp, self.tcp, self.transport) {
            (Some(address), ..) => Carrier::Udp(address),
            (_, Some(address), _) => Carrier::Tcp(address),
            (_, _, Some(_)) => Carrier::Transport,
            _ => Carrier::Memory,
        }
    }

    /// When message `number` is due, after the start.
    pub fn due(&self, number: u64) -> Duration {
        Duration::from_secs_f64(number as f64 / self.rate_hz)
    }

    /// The place of the number in a message.
    fn number(&self) -> Range<usize> {
        let at = self.shape.number_at();
        at..at + 8
    }
}

/// A message that was handed to the middleware; times of the monotonic clock in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentRecord {
    /// When the schedule wanted it.
    pub due: u64,
    /// Time before `publish`.
    pub before: u64,
    /// Time after `publish`.
    pub after: u64,
    /// The middleware took it.
    pub is_accepted: bool,
    /// The publisher knew a subscription.
    pub is_matched: bool,
}

/// A message that was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceivedRecord {
    /// Its number.
    pub number: u64,
    /// When it was received, in nanoseconds of the monotonic clock.
    pub at: u64,
}

const SENT_WORDS: usize = 4;
const RECEIVED_WORDS: usize = 2;

/// Reads the file of a publisher.
///
/// # Errors
/// A file that cannot be read or has another format.
pub fn read_sent(path: &Path) -> io::Result<Vec<SentRecord>> {
    let one = |[due, before, after, flags]: [u64; SENT_WORDS]| SentRecord {
        due,
        before,
        after,
        is_accepted: flags & 1 != 0,
        is_matched: flags & 2 != 0,
    };
    read_records(path, one)
}

/// Reads the file of a subscriber.
///
/// # Errors
/// A file that cannot be read or has another format.
pub fn read_received(path: &Path) -> io::Result<Vec<ReceivedRecord>> {
    let one = |[number, at]: [u64; RECEIVED_WORDS]| ReceivedRecord { number, at };
    read_records(path, one)
}

fn read_records<const N: usize, T>(path: &Path, one: impl Fn([u64; N]) -> T) -> io::Result<Vec<T>> {
    let bytes = fs::read(path)?;
    let (path, length, record) = (path.display(), bytes.len(), 8 * N);
    if !length.is_multiple_of(record) {
        let text = format!("{path}: {length} bytes are not a multiple of the record's {record}");
        return Err(io::Error::other(text));
    }
    let word = |bytes: &[u8], place: usize| {
        let word = bytes[8 * place..].first_chunk();
        word.map_or(0, |word| u64::from_le_bytes(*word))
    };
    let records = bytes.chunks_exact(record);
    Ok(records
        .map(|bytes| one(std::array::from_fn(|place| word(bytes, place))))
        .collect())
}

fn write_sent(path: &Path, records: &[SentRecord]) -> io::Result<()> {
    let words = |one: &SentRecord| {
        let flags = u64::from(one.is_accepted) | u64::from(one.is_matched) << 1;
        [one.due, one.before, one.after, flags]
    };
    write_records(path, records.iter().flat_map(words))
}

fn write_received(path: &Path, records: &[ReceivedRecord]) -> io::Result<()> {
    write_records(path, records.iter().flat_map(|one| [one.number, one.at]))
}

fn write_records(path: &Path, words: impl Iterator<Item = u64>) -> io::Result<()> {
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    write_atomically_unsynced(path, &bytes).map_err(io::Error::other)
}

/// Moves the times of a worker's records, which another machine's clock has stamped; both kinds, in their stored form.
pub(crate) fn shift_records(bytes: &[u8], role: Role, by_ns: i64) -> Vec<u8> {
    let (record, times) = match role {
        Role::Publisher => (SENT_WORDS, 0..3),
        _ => (RECEIVED_WORDS, 1..2),
    };
    let shifted = |(place, word): (usize, &[u8])| {
        let value = word.try_into().map_or(0, u64::from_le_bytes);
        let is_time = times.contains(&(place % record));
        if is_time {
            value.saturating_add_signed(by_ns)
        } else {
            value
        }
        .to_le_bytes()
    };
    bytes.chunks_exact(8).enumerate().flat_map(shifted).collect()
}

/// A worker's report, one JSON object on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum WorkerEvent {
    /// It can be started.
    Ready,
    /// It knows the other side.
    Matched,
    /// All planned messages were sent, or its time is over.
    Sent,
    /// Messages received until now, reported several times a second.
    Received {
        /// Their number.
        count: u64,
    },
    /// It knows all of the other side.
    Discovered {
        /// When, in nanoseconds of the monotonic clock.
        at: u64,
    },
    /// Its records are stored.
    Done,
}

impl WorkerEvent {
    /// The event of a line, if it is one.
    pub fn read(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }

    fn print(self) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        serde_json::to_writer(&mut stdout, &self)?;
        writeln!(stdout)?;
        stdout.flush()
    }
}

/// An order to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// The schedule begins at this time of the monotonic clock.
    Start(Duration),
    /// Store the records and end.
    End,
}

/// A parent sends two.
const ORDERS_MAX: usize = 16;

/// Orders that arrive on standard input.
struct Orders(Receiver<Order>);

impl Orders {
    fn start() -> io::Result<Self> {
        let (send, receive) = mpsc::sync_channel(ORDERS_MAX);
        let read = move || {
            for line in io::stdin().lock().lines() {
                let line = line.unwrap_or_default();
                let start = line.strip_prefix("start ").and_then(|nanos| nanos.parse().ok());
                let order = start.map_or(Order::End, |nanos| Order::Start(Duration::from_nanos(nanos)));
                if send.send(order).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("worker-orders".to_owned())
            .spawn(read)?;
        Ok(Self(receive))
    }

    /// The next order, if one arrives within this time. The end of the input is an order to end.
    fn within(&self, time: Duration) -> Option<Order> {
        match self.0.recv_timeout(time) {
            Ok(order) => Some(order),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Order::End),
        }
    }
}

/// Works to the end of `plan`. `join` opens the transport where the plan names one.
///
/// # Errors
/// A transport or socket that cannot be used, or records that cannot be stored.
pub fn work(plan: &WorkerPlan, join: Join<'_>) -> io::Result<()> {
    let orders = Orders::start()?;
    if let Some(others) = plan.others {
        return discover::run(plan, others, join, &orders);
    }
    match plan.role {
        Role::Publisher => publish::run(plan, link::outlet(plan, join)?, &orders),
        Role::Subscriber => subscribe::run(plan, &mut *link::inlet(plan, join)?, &orders),
        Role::Idle => {
            let _node = match plan.carrier() {
                Carrier::Transport => Some(join()?),
                _ => None,
            };
            publish::run_idle(plan, &orders)
        }
        Role::Both => publish::run_both(plan, &orders),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_another_clock_get_the_times_of_this_one() {
        let sent = SentRecord {
            due: 100,
            before: 110,
            after: 120,
            is_accepted: true,
            is_matched: false,
        };
        let received = ReceivedRecord { number: 7, at: 90 };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records");
        write_sent(&path, &[sent, sent]).unwrap();
        fs::write(
            &path,
            shift_records(&fs::read(&path).unwrap(), Role::Publisher, -50),
        )
        .unwrap();
        let there = read_sent(&path).unwrap();
        assert_eq!(there.len(), 2);
        assert_eq!((there[1].due, there[1].before, there[1].after), (50, 60, 70));
        assert!(there[1].is_accepted && !there[1].is_matched);
        write_received(&path, &[received]).unwrap();
        fs::write(
            &path,
            shift_records(&fs::read(&path).unwrap(), Role::Subscriber, 10),
        )
        .unwrap();
        assert_eq!(
            read_received(&path).unwrap(),
            [ReceivedRecord { number: 7, at: 100 }]
        );
    }
}
