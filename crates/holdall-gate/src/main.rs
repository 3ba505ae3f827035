//! The program that `holdall bench gate` runs, plainly and under valgrind: one workload of the data path, in
//! one thread.
#![forbid(unsafe_code)]

mod intake;
mod measured;
mod payload;
mod storage;
mod workload;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::{
    alloc::System,
    env, fmt,
    io::{self, Write},
    process::ExitCode,
};
use workload::{Workload, all};

/// Counts allocations. It costs a few instructions for each, which every count of the gate includes.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes that one measurement of memory copying copies.
const COPY_BYTES: u64 = 1 << 30;

/// Bytes of one copy: a piece of a large message.
const COPY_BLOCK_BYTES: usize = 1 << 20;

const USAGE: &str = "\
usage: holdall-gate list              the workloads, as JSON
       holdall-gate memcpy            how fast memory is copied here, as JSON
       holdall-gate NAME [MESSAGES]   runs a workload and prints what it took, as JSON

Started by `holdall bench gate`.";

/// Why a run failed, in one sentence.
type Failed = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let answer = match words[..] {
        ["list"] => answer(&all().map(Workload::described).collect::<Vec<_>>()),
        ["memcpy"] => answer(&holdall_io::limits::measure_memcpy(COPY_BYTES, COPY_BLOCK_BYTES)),
        [name] => run(name, None),
        [name, messages] => run(name, Some(messages)),
        _ => return refuse(USAGE),
    };
    match answer.and_then(|text| Ok(writeln!(io::stdout(), "{text}")?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(error),
    }
}

fn run(name: &str, messages: Option<&str>) -> Result<String, Failed> {
    let workload = all()
        .find(|one| one.name() == name)
        .ok_or_else(|| format!("no workload {name}; `holdall-gate list` prints their names"))?;
    let messages = match messages {
        None => workload.messages,
        Some(text) => text
            .parse()
            .map_err(|_| format!("{text}: expected a number of messages"))?,
    };
    answer(&workload.run(messages, ALLOCATOR)?)
}

fn answer(value: &impl serde::Serialize) -> Result<String, Failed> {
    Ok(serde_json::to_string(value)?)
}

fn refuse(reason: impl fmt::Display) -> ExitCode {
    // When standard error is closed, the reason cannot be printed anywhere.
    let _printed = writeln!(io::stderr(), "{reason}").is_ok();
    ExitCode::from(2)
}
