//! Runs a program under valgrind and reads its counts: instructions by function (callgrind), bytes copied
//! (DHAT).

use crate::error::{BenchError, BenchResult};
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
};

/// How to install it.
const INSTALL: &str = "is not installed and is needed to count: install it (Debian: apt-get install valgrind; `make setup-build` does)";

/// The function of the workloads' program that is counted from call to return; names are mangled.
const COUNTED_FUNCTION: &str = "*counted_by_callgrind*";

/// The output of `valgrind --version`.
///
/// # Errors
/// When valgrind is missing.
pub(super) fn version() -> BenchResult<String> {
    let output = Command::new("valgrind").arg("--version").output();
    match output {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        _ => Err(BenchError::Absent {
            program: "valgrind",
            what_to_do: INSTALL,
        }),
    }
}

/// Instructions of the counted part of a run, by function and by owner of the code.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Instructions {
    /// Instructions of the program itself, by function.
    pub own: BTreeMap<String, u64>,
    /// Instructions of libraries: libc and its like.
    pub libraries: u64,
}

impl Instructions {
    /// Total of the program itself.
    pub(crate) fn own_total(&self) -> u64 {
        self.own.values().sum()
    }
}

/// Counts instructions of a run of `program`.
///
/// # Errors
/// A run that fails; an output that is not callgrind's.
pub(super) fn instructions(program: &Path, arguments: &[&str], folder: &Path) -> BenchResult<Instructions> {
    let out = folder.join("callgrind.out");
    let mut command = Command::new("valgrind");
    command
        .args(["-q", "--tool=callgrind", "--demangle=no"])
        .args(["--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--toggle-collect={COUNTED_FUNCTION}"))
        .arg(format!("--callgrind-out-file={}", out.display()));
    run(command, program, arguments)?;
    let text = fs::read_to_string(&out).map_err(BenchError::io("read", &out))?;
    let counted = parse_callgrind(&text, program).map_err(BenchError::verify(&out))?;
    fs::remove_file(&out).map_err(BenchError::io("remove", &out))?;
    Ok(counted)
}

/// Bytes that a whole run of `program` copies.
///
/// # Errors
/// A run that fails; an output that is not DHAT's.
pub(super) fn copied_bytes(program: &Path, arguments: &[&str], folder: &Path) -> BenchResult<u64> {
    let out = folder.join("dhat.out");
    let mut command = Command::new("valgrind");
    command
        .args(["-q", "--tool=dhat", "--mode=copy"])
        .arg(format!("--dhat-out-file={}", out.display()));
    run(command, program, arguments)?;
    let text = fs::read_to_string(&out).map_err(BenchError::io("read", &out))?;
    let copied = parse_dhat(&text).map_err(BenchError::verify(&out))?;
    fs::remove_file(&out).map_err(BenchError::io("remove", &out))?;
    Ok(copied)
}

fn run(mut command: Command, program: &Path, arguments: &[&str]) -> BenchResult<()> {
    let output = command
        .arg(program)
        .args(arguments)
        // Symbols are resolved before the counted part begins, and always in the same way.
        .env("LD_BIND_NOW", "1")
        .stdin(Stdio::null())
        .output()
        .map_err(BenchError::io("start", "valgrind"))?;
    if output.status.success() {
        return Ok(());
    }
    let printed = String::from_utf8_lossy(&output.stderr);
    let last = printed.lines().last().unwrap_or("nothing");
    let program = format!("valgrind {} {}", program.display(), arguments.join(" "));
    Err(BenchError::program(
        program,
        format!("failed ({}): {last}", output.status),
    ))
}

/// Sums the costs of each function by itself. In callgrind's format `ob=` and `fn=` name the owner of the
/// costs that follow, a line that begins with a digit is `<line> <cost>`, and the line after `calls=` is the
/// cost of the callee, already counted there.
fn parse_callgrind(text: &str, program: &Path) -> Result<Instructions, String> {
    let mut counted = Instructions::default();
    let (mut is_own, mut function, mut is_callee) = (false, String::new(), false);
    for line in text.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            is_own = Path::new(object) == program;
        } else if let Some(name) = line.strip_prefix("fn=") {
            function = shown(name);
        } else if line.starts_with("calls=") {
            is_callee = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            if std::mem::take(&mut is_callee) {
                continue;
            }
            let cost = line
                .split_ascii_whitespace()
                .nth(1)
                .and_then(|cost| cost.parse().ok());
            let cost: u64 = cost.ok_or_else(|| format!("expected a cost, found {line:?}"))?;
            if is_own {
                *counted.own.entry(function.clone()).or_insert(0) += cost;
            } else {
                counted.libraries += cost;
            }
        }
    }
    if counted.own.is_empty() {
        return Err(format!(
            "nothing was counted in {}: does it contain {COUNTED_FUNCTION}?",
            program.display()
        ));
    }
    Ok(counted)
}

/// A readable function name, without the parts that change with every build: hashes, and the `'2` of
/// recursion.
fn shown(mangled: &str) -> String {
    let name = mangled.split_once('\'').map_or(mangled, |(name, _)| name);
    format!("{:#}", rustc_demangle::demangle(name))
}

/// Sums the bytes (`tb`) of all program points (`pps`).
fn parse_dhat(text: &str) -> Result<u64, String> {
    let whole: serde_json::Value =
        serde_json::from_str(text).map_err(|error| format!("is not DHAT's: {error}"))?;
    let places = whole["pps"].as_array().ok_or("has no program points")?;
    Ok(places.iter().filter_map(|place| place["tb"].as_u64()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file as callgrind writes it: a call from one function to another and to libc, an inlined file, a recursion.
    const CALLGRIND: &str = "\
# callgrind format
version: 1
positions: line
events: Ir

ob=/t/holdall-gate
fl=???
fn=_ZN7holdall6record6intake5offer17h0123456789abcdefE
0 70
cob=/lib/libc.so.6
cfn=memcpy
calls=10 0
0 500
cfn=_ZN7holdall5cache5enter17hfedcba9876543210E
calls=10 0
0 130
fi=/rustc/library/core/src/slice.rs
0 5

fn=_ZN7holdall5cache5enter17hfedcba9876543210E
0 100
cfn=_ZN7holdall5cache5enter17hfedcba9876543210E'2
calls=3 0
0 30

fn=_ZN7holdall5cache5enter17hfedcba9876543210E'2
0 30

ob=/lib/libc.so.6
fl=???
fn=memcpy
0 500

totals: 705
";

    #[test]
    fn costs_are_summed_by_function_and_by_owner_of_the_code() {
        let counted = parse_callgrind(CALLGRIND, Path::new("/t/holdall-gate")).unwrap();
        let own: Vec<(&str, u64)> = counted
            .own
            .iter()
            .map(|(name, cost)| (name.as_str(), *cost))
            .collect();
        assert_eq!(
            own,
            [
                ("holdall::cache::enter", 130),
                ("holdall::record::intake::offer", 75)
            ]
        );
        assert_eq!((counted.own_total(), counted.libraries), (205, 500));
    }

    #[test]
    fn an_output_without_the_program_is_an_error() {
        let sentence = parse_callgrind(CALLGRIND, Path::new("/t/other")).unwrap_err();
        assert!(sentence.contains("nothing was counted in /t/other"), "{sentence}");
        assert!(parse_callgrind("ob=/t/a\nfn=x\n0 many\n", Path::new("/t/a")).is_err());
    }

    #[test]
    fn bytes_copied_are_summed_over_all_program_points() {
        let text = r#"{"dhatFileVersion":2,"mode":"copy","pps":[{"tb":45,"tbk":3,"fs":[1]},{"tb":100,"tbk":1,"fs":[2]}],"ftbl":[]}"#;
        assert_eq!(parse_dhat(text), Ok(145));
        assert!(parse_dhat("{}").is_err());
    }
}
