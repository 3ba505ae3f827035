//! The machine that has the other side of a run: starts workers when `peer` asks for them.

use super::{
    peer::{ANSWER_MAX, Ask, Facts, Line},
    programs::{Site, WorkerSpec},
    sides::{DONE_MAX, Usage, broken, event, free_port},
};
use crate::{
    error::{BenchError, BenchResult},
    machine::Machine,
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
    line.greet(false)?;
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
        // The other machine reads them after an answer that says how long they are, and a line after a reason.
        let records = std::mem::take(&mut host.records);
        if answer.is_ok() {
            line.writer.write_all(&records).map_err(failed)?;
        }
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
            Ask::Reset => {
                self.workers.clear();
                json!(null)
            }
            Ask::Absence(side) => json!(self.site.absence(&side)),
            Ask::Facts(sides) => json!(Facts {
                machine: Machine::inspect(self.folder),
                settings: self.site.settings_of(&sides),
            }),
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

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_io::clock::SystemClock;
    use serde_json::from_str;
    use std::{
        io::{BufRead, BufReader},
        net::TcpStream,
        thread,
    };

    /// What a host answers to these lines, and how the connection ended there.
    fn answers(lines: &[Value]) -> (Vec<Value>, BenchResult<()>) {
        let folder = tempfile::tempdir().unwrap();
        let site = Site::find(Path::new("holdall-bench"), None, folder.path()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        thread::scope(|scope| {
            let served = scope.spawn(|| serve(&listener, &site, folder.path(), &clock));
            let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut read = BufReader::new(stream.try_clone().unwrap());
            let mut answers = Vec::new();
            for line in lines {
                writeln!(stream, "{line}").unwrap();
                let mut answer = String::new();
                read.read_line(&mut answer).unwrap();
                answers.push(from_str(&answer).unwrap());
            }
            stream.shutdown(std::net::Shutdown::Both).unwrap();
            (answers, served.join().unwrap().map(drop))
        })
    }

    #[test]
    fn another_version_is_refused_with_both_and_what_to_do() {
        for (hello, there) in [
            (json!({"hello": 2}), "speaks version 2 "),
            (json!({"hello": {"version": 1}}), "speaks version 1 "),
            (json!({"reset": null}), "speaks an unknown version "),
        ] {
            let (answers, ended) = answers(&[hello]);
            assert_eq!(answers, [json!({"Ok": 3})]);
            let error = ended.unwrap_err().to_string();
            for text in [there, "this machine version 3", "install the same holdall-bench"] {
                assert!(error.contains(text), "{text}: {error}");
            }
        }
    }

    #[test]
    fn a_host_describes_itself_and_its_reasons_are_lines() {
        let udp = json!({"facts": ["udp"]});
        let (answers, ended) = answers(&[json!({"hello": 3}), json!({"end": 7}), udp]);
        ended.unwrap();
        assert!(answers[1]["Err"].as_str().unwrap().contains("worker 7"));
        let facts = &answers[2]["Ok"];
        assert!(facts["machine"]["cores"].as_u64().unwrap() > 0);
        assert_eq!(facts["settings"][0][0], "udp");
    }
}
