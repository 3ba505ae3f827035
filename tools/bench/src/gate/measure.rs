//! Counts the costs of all workloads.

use super::{
    baseline::{Baseline, Costs, Functions},
    program::{Workload, WorkloadProgram},
    valgrind::{self, Instructions},
};
use crate::{
    engine::{OnProgress, Progress},
    error::{BenchError, BenchResult},
};
use std::env::consts::ARCH;

/// Functions that cost less than this part of a message's instructions are left out of the baseline.
const FUNCTION_SHARE_MIN: f64 = 0.002;

/// Number of plain runs; the fastest one counts: other work on the machine slows the rest.
const PLAIN_RUNS: usize = 5;

/// Counts the workloads with one of `only` in their names, all when it is empty.
///
/// # Errors
/// No valgrind; no such workload; a program that fails.
pub fn measure(
    program: &WorkloadProgram,
    only: &[String],
    on_progress: &mut OnProgress<'_>,
) -> BenchResult<Baseline> {
    let valgrind = valgrind::version()?;
    let all = program.workloads()?;
    let is_wanted =
        |workload: &&Workload| only.is_empty() || only.iter().any(|text| workload.name.contains(text));
    let wanted: Vec<&Workload> = all.iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        return Err(BenchError::option("--only", names.join(", "), only.join(", ")));
    }
    let memcpy = program.memcpy_bytes_per_s()?;
    let mut measured = Baseline {
        rustc: program.rustc.clone(),
        architecture: ARCH.to_owned(),
        valgrind,
        ..Baseline::default()
    };
    for (index, workload) in wanted.iter().enumerate() {
        on_progress(Progress::Running {
            name: workload.name.clone(),
            number: index + 1,
            of: wanted.len(),
            round: 0,
        });
        let costs = costs(program, workload, memcpy)?;
        measured.workloads.insert(workload.name.clone(), costs);
    }
    Ok(measured)
}

fn costs(program: &WorkloadProgram, workload: &Workload, memcpy: f64) -> BenchResult<Costs> {
    let folder = tempfile::tempdir().map_err(BenchError::io("create", "a temporary folder"))?;
    let (name, messages) = (workload.name.as_str(), workload.messages);
    let mut plain = program.run(name, messages)?;
    for _ in 1..PLAIN_RUNS {
        plain.elapsed_s = plain.elapsed_s.min(program.run(name, messages)?.elapsed_s);
    }
    let instructions = valgrind::instructions(&program.path, &[name, &messages.to_string()], folder.path())?;
    // DHAT counts from start to end: the difference between two message counts is the cost of the messages.
    let copied =
        |messages: u64| valgrind::copied_bytes(&program.path, &[name, &messages.to_string()], folder.path());
    let more_copied = copied(messages)?.saturating_sub(copied(messages / 2)?);
    let message_bytes = plain.bytes as f64 / messages as f64;
    let more_messages = (messages - messages / 2) as f64;
    Ok(Costs {
        instructions: instructions.own_total() as f64 / messages as f64,
        allocations: plain.allocations as f64 / messages as f64,
        copies: more_copied as f64 / more_messages / message_bytes,
        ratio_to_memcpy: plain.bytes as f64 / plain.elapsed_s.max(1e-9) / memcpy.max(1.0),
        functions: functions(&instructions, messages),
    })
}

/// Instructions of a message by function, without the negligible ones.
fn functions(instructions: &Instructions, messages: u64) -> Functions {
    let least = instructions.own_total() as f64 * FUNCTION_SHARE_MIN;
    let own = instructions.own.iter().map(|(name, cost)| (name, *cost as f64));
    own.filter(|(_, cost)| *cost >= least)
        .map(|(name, cost)| (name.clone(), cost / messages as f64))
        .collect()
}
