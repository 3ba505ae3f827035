//! Two machines: one drives the run and has one side of it, the other one, `host`, starts workers when asked. They speak over one connection, a JSON
//! object on a line each way; a worker's records follow its last answer as bytes.

use super::{
    programs::WorkerSpec,
    sides::{DONE_MAX, Usage, broken, free_port},
};
use crate::{
    error::BenchResult,
    machine::Machine,
    middleware::{
        name::MiddlewareSide,
        result::ClockOffset,
        worker::{Role, WorkerEvent, shift_records},
    },
};
use holdall_io::{clock::Clock, fs::write_atomically_unsynced, mutex::lock};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs},
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

/// Port that the other machine listens on by default.
pub const CONTROL_PORT: u16 = 7449;
/// Version of the questions and answers; a machine with another one is refused.
const VERSION: u64 = 3;
/// An order or an answer is far shorter.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Records of a run; the longest has some 10 MB.
const RECORDS_BYTES_MAX: u64 = 4 << 30;
/// Number of round trips; the shortest one is used.
const PINGS: usize = 100;
/// Longest time for an answer; longer tasks take several answers.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(20);
const CONNECT_MAX: Duration = Duration::from_secs(10);
const CONNECT_AGAIN: Duration = Duration::from_millis(100);

/// A question; the answer is what its line says, or a reason.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ask {
    /// End the workers of a run that failed: nothing.
    Reset,
    /// Why a side cannot be run there, if so.
    Absence(MiddlewareSide),
    /// [`Facts`] of that machine, with the settings of these sides there.
    Facts(Vec<MiddlewareSide>),
    /// A free port at this address.
    FreePort(IpAddr),
    /// Nanoseconds of the monotonic clock.
    Clock,
    /// The number of a worker that was started.
    Start(Box<WorkerSpec>),
    /// The event of a worker, if it comes within these milliseconds.
    Wait(usize, WorkerEvent, u64),
    /// Have a worker start at this time of the other machine's clock: nothing.
    Order(usize, u64),
    /// What a worker has used.
    Usage(usize),
    /// The length of a worker's records, which follow; it has ended.
    End(usize),
}

/// A machine as it describes itself.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Facts {
    pub machine: Machine,
    /// The settings of each side of a middleware.
    pub settings: Vec<(String, String)>,
}

/// One end of the connection.
pub(super) struct Line {
    reader: BufReader<TcpStream>,
    pub(super) writer: TcpStream,
}

impl Line {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self {
            reader: BufReader::new(stream.try_clone()?),
            writer: stream,
        })
    }

    /// Says which version this is, and reads that of the other machine. `is_first` speaks first.
    ///
    /// # Errors
    /// Another version, after that machine has learned of this one, or an answer without any.
    pub(super) fn greet(&mut self, is_first: bool) -> BenchResult<()> {
        let failed = |error: io::Error| broken(error.to_string());
        if is_first {
            self.write(&json!({"hello": VERSION})).map_err(failed)?;
        }
        let found: Value = self.read().map_err(failed)?.unwrap_or_default();
        if !is_first {
            self.write(&json!({"Ok": VERSION})).map_err(failed)?;
        }
        // Version 1 had an object for each.
        let places = [&found["hello"], &found["Ok"], &found["hello"]["version"]];
        let there = places.into_iter().find_map(Value::as_u64);
        if there == Some(VERSION) {
            return Ok(());
        }
        let there = there.map_or("an unknown version".to_owned(), |there| {
            format!("version {there}")
        });
        Err(broken(format!(
            "it speaks {there} of the protocol and this machine version {VERSION} (holdall-bench {}); install the same holdall-bench on both machines",
            env!("CARGO_PKG_VERSION")
        )))
    }

    pub(super) fn write(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.writer.write_all(&line)
    }

    fn ask<T: DeserializeOwned>(&mut self, ask: &Ask) -> BenchResult<T> {
        let answer = self.write(ask).and_then(|()| self.read::<Result<T, String>>());
        match answer.map_err(|error| broken(error.to_string()))? {
            None => Err(broken("it has closed the connection")),
            Some(answer) => answer.map_err(broken),
        }
    }

    /// The next line; `None` at the end.
    pub(super) fn read<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let mut line = Vec::new();
        (&mut self.reader)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        let value = serde_json::from_slice(&line).map_err(|error| {
            io::Error::other(format!(
                "a line that is neither an order nor an answer of this version: {error}"
            ))
        })?;
        Ok(Some(value))
    }
}

/// The connection to the other machine.
pub(super) struct Peer {
    line: Mutex<Line>,
    clock: Arc<dyn Clock>,
    /// Addresses of this machine and of the other one, on the connection.
    addresses: [IpAddr; 2],
    /// Which side the other machine has: 0 publishes.
    side_there: usize,
    /// The clock offset measured before the run.
    offset: Mutex<ClockOffset>,
    /// The first of the ports where workers meet.
    port: u16,
}

impl Peer {
    /// Connects to a machine where `holdall bench run --listen` waits, written `HOST` or `HOST:PORT`.
    ///
    /// # Errors
    /// A machine that cannot be reached, or runs another version.
    pub(super) fn connect(address: &str, side_there: usize, clock: &Arc<dyn Clock>) -> BenchResult<Self> {
        let failed = |error: io::Error| broken(format!("{address}: {error}"));
        let places: Vec<SocketAddr> = address
            .to_socket_addrs()
            .or_else(|_| (address, CONTROL_PORT).to_socket_addrs())
            .map_err(failed)?
            .collect();
        let deadline = clock.monotonic() + CONNECT_MAX;
        let stream = loop {
            let mut last = io::Error::other("has no address");
            let connected = places.iter().find_map(|place| {
                TcpStream::connect_timeout(place, CONNECT_MAX)
                    .map_err(|error| last = error)
                    .ok()
            });
            match connected {
                Some(stream) => break stream,
                None if clock.monotonic() >= deadline => return Err(failed(last)),
                // It may be about to listen.
                None => clock.sleep_until(clock.monotonic() + CONNECT_AGAIN),
            }
        };
        stream
            .set_read_timeout(Some(ANSWER_MAX + 2 * DONE_MAX))
            .map_err(failed)?;
        let addresses = [
            stream.local_addr().map_err(failed)?.ip(),
            stream.peer_addr().map_err(failed)?.ip(),
        ];
        let mut line = Line::new(stream).map_err(failed)?;
        line.greet(true)?;
        let mut peer = Self {
            line: Mutex::new(line),
            clock: Arc::clone(clock),
            addresses,
            side_there,
            offset: Mutex::new(ClockOffset::default()),
            port: 0,
        };
        peer.port = peer.port_of_subscriber()?;
        Ok(peer)
    }

    fn port_of_subscriber(&self) -> BenchResult<u16> {
        let own = self.address(1);
        if !self.is_remote(1) {
            return free_port(own);
        }
        self.ask(&Ask::FreePort(own))
    }

    /// Whether a side runs on the other machine.
    pub(super) fn is_remote(&self, side: usize) -> bool {
        side == self.side_there
    }

    /// The address of the machine of a side.
    pub(super) fn address(&self, side: usize) -> IpAddr {
        self.addresses[usize::from(self.is_remote(side))]
    }

    /// The address where pair `number` of workers meets: on the subscriber's machine.
    pub(super) fn meeting_place(&self, number: u16) -> SocketAddr {
        SocketAddr::from((self.address(1), self.port.saturating_add(number)))
    }

    /// Why a side cannot be run there.
    pub(super) fn absence(&self, side: &MiddlewareSide) -> BenchResult<Option<String>> {
        let reason: Option<String> = self.ask(&Ask::Absence(side.clone()))?;
        Ok(reason.map(|reason| format!("on the other machine: {reason}")))
    }

    /// What the other machine says of itself, and of these sides.
    pub(super) fn facts(&self, sides: Vec<MiddlewareSide>) -> BenchResult<Facts> {
        self.ask(&Ask::Facts(sides))
    }

    /// Begins a run: measures the clock, and ends the remains of a failed run.
    pub(super) fn begin(&self) -> BenchResult<()> {
        self.ask::<()>(&Ask::Reset)?;
        *lock(&self.offset) = self.measure_clock()?;
        Ok(())
    }

    /// Ends a run: the offset before and after it.
    pub(super) fn finish(&self) -> BenchResult<ClockOffset> {
        let after = self.measure_clock()?;
        let before = *lock(&self.offset);
        Ok(before.until(after))
    }

    /// The difference of the clocks by the shortest of many round trips.
    fn measure_clock(&self) -> BenchResult<ClockOffset> {
        let mut best: Option<ClockOffset> = None;
        for _ in 0..PINGS {
            let before = self.clock.monotonic().as_nanos() as i128;
            let nanos: u64 = self.ask(&Ask::Clock)?;
            let after = self.clock.monotonic().as_nanos() as i128;
            let middle = i128::midpoint(before, after);
            let offset = ClockOffset {
                offset_ns: i64::try_from(i128::from(nanos) - middle).unwrap_or(i64::MAX),
                error_us: (after - before) as f64 / 2e3,
                drift_us: 0.0,
            };
            if best.is_none_or(|best| offset.error_us < best.error_us) {
                best = Some(offset);
            }
        }
        best.ok_or_else(|| broken("its clock was not measured"))
    }

    /// Starts a worker there.
    pub(super) fn start(&self, spec: &WorkerSpec) -> BenchResult<Remote<'_>> {
        Ok(Remote {
            peer: self,
            worker: self.ask(&Ask::Start(Box::new(spec.clone())))?,
            role: spec.role,
        })
    }

    fn ask<T: DeserializeOwned>(&self, ask: &Ask) -> BenchResult<T> {
        lock(&self.line).ask(ask)
    }
}

/// A worker on the other machine.
pub(super) struct Remote<'a> {
    peer: &'a Peer,
    worker: usize,
    role: Role,
}

impl Remote<'_> {
    pub(super) fn wait_for(&self, within: Duration, wanted: WorkerEvent) -> BenchResult<WorkerEvent> {
        let deadline = self.peer.clock.monotonic() + within;
        loop {
            let left = deadline.saturating_sub(self.peer.clock.monotonic());
            let millis = u64::try_from(left.min(ANSWER_MAX).as_millis()).unwrap_or(u64::MAX);
            match self.peer.ask(&Ask::Wait(self.worker, wanted, millis))? {
                Some(event) => return Ok(event),
                None if left.is_zero() => {
                    return Err(broken(format!("its worker did not report {wanted:?} in time")));
                }
                None => {}
            }
        }
    }

    pub(super) fn usage(&self) -> BenchResult<Usage> {
        self.peer.ask(&Ask::Usage(self.worker))
    }

    /// Orders the start at a time of this machine's clock.
    pub(super) fn start(&self, at: Duration) -> BenchResult<()> {
        let offset = lock(&self.peer.offset).offset_ns;
        let at = i128::try_from(at.as_nanos()).unwrap_or_default() + i128::from(offset);
        let start = u64::try_from(at).map_err(|_| broken("its clock is before its start"))?;
        self.peer.ask(&Ask::Order(self.worker, start))
    }

    /// Orders the end, and stores the records with times of this machine's clock.
    pub(super) fn end(self, records: &Path) -> BenchResult<()> {
        let mut line = lock(&self.peer.line);
        let length: u64 = line.ask(&Ask::End(self.worker))?;
        if length > RECORDS_BYTES_MAX {
            return Err(broken(format!("{length} bytes of records")));
        }
        let mut bytes = Vec::new();
        let read = (&mut line.reader).take(length).read_to_end(&mut bytes);
        let found = read.map_err(|error| broken(error.to_string()))?;
        if found as u64 != length {
            return Err(broken(format!(
                "expected {length} bytes of records, found {found}"
            )));
        }
        let back = lock(&self.peer.offset).offset_ns.saturating_neg();
        let shifted = shift_records(&bytes, self.role, back);
        Ok(write_atomically_unsynced(records, &shifted)?)
    }
}
