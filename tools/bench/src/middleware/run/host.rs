//! The machine that has the other side of a run: starts workers when `peer` asks for them.

use super::{
    peer::{ANSWER_MAX, Ask, Line, VERSION},
    programs::{Site, WorkerSpec},
    sides::{DONE_MAX, Usage, broken, event, free_port},
};
use crate::{
    error::{BenchError, BenchResult},
    middleware::worker::WorkerEvent,
    suite::live::child::Program,
};
use holdall_io::clock::Clock;
use serde_json::{Value, json};
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
        records: Vec::new(),
    };
    while let Some(ask) = line.read::<Ask>().map_err(failed)? {
        let answer = host.answer(ask).map_err(|error| error.to_string());
        line.write(&answer).map_err(failed)?;
        line.writer
            .write_all(&std::mem::take(&mut host.records))
            .map_err(failed)?;
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
    /// What follows the next answer.
    records: Vec<u8>,
}

impl Host<'_> {
    fn answer(&mut self, ask: Ask) -> BenchResult<Value> {
        Ok(match ask {
            Ask::Hello(_) => json!(VERSION),
            Ask::Reset => {
                self.workers.clear();
                json!(null)
            }
            Ask::Absence(side) => json!(self.site.absence(&side)),
            Ask::FreePort(own) => json!(free_port(own)?),
            Ask::Clock => json!(u64::try_from(self.clock.monotonic().as_nanos()).unwrap_or(u64::MAX)),
            Ask::Start(spec) => json!(self.start(&spec)?),
            Ask::Wait(worker, wanted, within_ms) => {
                let within = Duration::from_millis(within_ms).min(ANSWER_MAX);
                let deadline = self.clock.monotonic() + within;
                match self.worker(worker)?.wait_for(within, |line| event(line, wanted)) {
                    Err(_) if self.clock.monotonic() >= deadline => json!(null),
                    // Or it has ended.
                    found => json!(found?),
                }
            }
            Ask::Order(worker, start) => json!(self.worker(worker)?.send(&format!("start {start}"))?),
            Ask::Usage(worker) => json!(Usage::of(self.worker(worker)?)),
            Ask::End(worker) => json!(self.end(worker)?),
        })
    }

    fn worker(&mut self, number: usize) -> BenchResult<&mut Program> {
        self.workers
            .get_mut(&number)
            .ok_or_else(|| broken(format!("it was asked for worker {number}, which is not running")))
    }

    fn file(&self, number: usize) -> PathBuf {
        self.folder.join(format!("worker_{number}.records"))
    }

    fn start(&mut self, spec: &WorkerSpec) -> BenchResult<usize> {
        if self.workers.len() >= WORKERS_MAX {
            return Err(broken(format!(
                "it was asked for more than {WORKERS_MAX} workers"
            )));
        }
        let number = self.next;
        self.next += 1;
        let mut command = self.site.command(spec, &self.file(number))?;
        let name = format!("{} of {}", spec.role.name(), String::from(spec.side.clone()));
        let program = Program::start(&name, &mut command, self.clock)?;
        self.workers.insert(number, program);
        Ok(number)
    }

    fn end(&mut self, number: usize) -> BenchResult<usize> {
        self.worker(number)?.send("end")?;
        let done = |line: &str| event(line, WorkerEvent::Done);
        self.worker(number)?.wait_for(DONE_MAX, done)?;
        if let Some(program) = self.workers.remove(&number) {
            program.finish(DONE_MAX)?;
        }
        let path = self.file(number);
        self.records = fs::read(&path).map_err(BenchError::io("read", &path))?;
        fs::remove_file(&path).map_err(BenchError::io("remove", &path))?;
        Ok(self.records.len())
    }
}
