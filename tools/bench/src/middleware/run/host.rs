//! The machine that has the other side of a run: starts workers when `peer` asks for them.

use super::{
    peer::{ANSWER_MAX, Answer, Ask, Line, VERSION},
    programs::{Site, WorkerSpec},
    sides::{DONE_MAX, Usage, broken, event, free_port, newer},
};
use crate::{
    error::{BenchError, BenchResult},
    middleware::worker::WorkerEvent,
    suite::live::child::Program,
};
use holdall_io::clock::Clock;
use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Workers of one run: two streams of two sides, with room.
const WORKERS_MAX: usize = 16;

/// Waits for a machine that drives runs, and starts workers as it asks; returns when it has closed the connection.
///
/// # Errors
/// An address that cannot be listened on, or a connection that breaks.
pub(super) fn serve(
    listener: &TcpListener,
    site: &Site,
    folder: &Path,
    clock: &Arc<dyn Clock>,
) -> BenchResult<SocketAddr> {
    let failed = BenchError::io("listen on", "the control connection");
    let (stream, from) = listener.accept().map_err(failed)?;
    let failed = |error: io::Error| broken(format!("{from}: {error}"));
    let mut line = Line::new(stream).map_err(failed)?;
    let mut host = Host {
        site,
        folder,
        clock,
        workers: BTreeMap::new(),
        next: 0,
    };
    while let Some(ask) = line.read::<Ask>().map_err(failed)? {
        let (answer, bytes) = match host.answer(ask) {
            Ok(answered) => answered,
            Err(error) => {
                let reason = error.to_string();
                (Answer::Failed { reason }, Vec::new())
            }
        };
        line.write(&answer).map_err(failed)?;
        line.writer.write_all(&bytes).map_err(failed)?;
    }
    Ok(from)
}

/// The workers that another machine has requested.
struct Host<'a> {
    site: &'a Site,
    folder: &'a Path,
    clock: &'a Arc<dyn Clock>,
    workers: BTreeMap<usize, Program>,
    next: usize,
}

impl Host<'_> {
    fn answer(&mut self, ask: Ask) -> BenchResult<(Answer, Vec<u8>)> {
        let answer = match ask {
            Ask::Hello { .. } => Answer::Hello { version: VERSION },
            Ask::Reset => {
                self.workers.clear();
                Answer::Done
            }
            Ask::Absence { side } => Answer::Absence {
                reason: self.site.absence(&side),
            },
            Ask::FreePort { own } => Answer::Port {
                port: free_port(own)?,
            },
            Ask::Clock => Answer::Clock {
                nanos: u64::try_from(self.clock.monotonic().as_nanos()).unwrap_or(u64::MAX),
            },
            Ask::Start { spec } => self.start(&spec)?,
            Ask::Wait {
                worker,
                event: wanted,
                within_ms,
            } => {
                let deadline = self.clock.monotonic() + Duration::from_millis(within_ms).min(ANSWER_MAX);
                let within = deadline.saturating_sub(self.clock.monotonic());
                match self.worker(worker)?.wait_for(within, |line| event(line, wanted)) {
                    Ok(()) => Answer::Waited { is_seen: true },
                    Err(_) if self.clock.monotonic() >= deadline => Answer::Waited { is_seen: false },
                    // It has ended.
                    Err(error) => return Err(error),
                }
            }
            Ask::Received {
                worker,
                than,
                within_ms,
            } => {
                let within = Duration::from_millis(within_ms).min(ANSWER_MAX);
                let found = self.worker(worker)?.wait_for(within, |line| newer(line, than));
                Answer::Received { count: found.ok() }
            }
            Ask::Order { worker, start } => {
                self.worker(worker)?.send(&format!("start {start}"))?;
                Answer::Done
            }
            Ask::Usage { worker } => Answer::Usage {
                usage: Usage::of(self.worker(worker)?),
            },
            Ask::End { worker } => return self.end(worker),
        };
        Ok((answer, Vec::new()))
    }

    fn worker(&mut self, number: usize) -> BenchResult<&mut Program> {
        self.workers
            .get_mut(&number)
            .ok_or_else(|| broken(format!("it was asked for worker {number}, which is not running")))
    }

    fn records(&self, number: usize) -> PathBuf {
        self.folder.join(format!("worker_{number}.records"))
    }

    fn start(&mut self, spec: &WorkerSpec) -> BenchResult<Answer> {
        if self.workers.len() >= WORKERS_MAX {
            return Err(broken(format!(
                "it was asked for more than {WORKERS_MAX} workers"
            )));
        }
        let number = self.next;
        self.next += 1;
        let mut command = self.site.command(spec, &self.records(number))?;
        let name = format!("{} of {}", spec.role.name(), String::from(spec.side.clone()));
        let program = Program::start(&name, &mut command, self.clock)?;
        self.workers.insert(number, program);
        Ok(Answer::Worker { worker: number })
    }

    fn end(&mut self, number: usize) -> BenchResult<(Answer, Vec<u8>)> {
        self.worker(number)?.send("end")?;
        let done = |line: &str| event(line, WorkerEvent::Done);
        self.worker(number)?.wait_for(DONE_MAX, done)?;
        if let Some(program) = self.workers.remove(&number) {
            program.finish(DONE_MAX)?;
        }
        let path = self.records(number);
        let bytes = fs::read(&path).map_err(BenchError::io("read", &path))?;
        fs::remove_file(&path).map_err(BenchError::io("remove", &path))?;
        let answer = Answer::Records {
            bytes: bytes.len() as u64,
        };
        Ok((answer, bytes))
    }
}
