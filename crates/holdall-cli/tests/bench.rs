//! `holdall bench` runs the program `holdall-bench`, and says how to get it where it is not installed.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Prints its arguments and a variable, and ends with code 7, or by a signal.
const BENCH: &str = r#"#!/bin/sh
[ "$1" = die ] && kill -KILL $$
printf '%s\n' "$VARIABLE" "$@"
exit 7
"#;

/// A folder with the program under its own name, so that what is beside it is the test's.
fn installed() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().join("holdall");
    fs::hard_link(env!("CARGO_BIN_EXE_holdall"), &program).unwrap();
    (folder, program)
}

fn write_bench(folder: &Path) {
    let path = folder.join("holdall-bench");
    fs::write(&path, BENCH).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn run(program: &Path, path: &Path, arguments: &[&str]) -> Output {
    Command::new(program)
        .env_clear()
        .env("VARIABLE", "value")
        .env("PATH", format!("{}:/usr/bin:/bin", path.display()))
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn arguments_environment_and_exit_code_are_those_of_the_other_program() {
    let (folder, program) = installed();
    write_bench(folder.path());
    let arguments = [
        "run",
        "--help",
        "-x",
        "--",
        "a b",
        "--",
        "--version",
        "--identity",
        "k",
    ];
    let output = run(
        &program,
        Path::new("/nowhere"),
        &[&["bench"], &arguments[..]].concat(),
    );
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        printed.lines().collect::<Vec<_>>(),
        [&["value"], &arguments[..]].concat()
    );
    assert_eq!(output.status.code(), Some(7));
    for alone in [
        &["bench"][..],
        &["bench", "--help"],
        &["bench", "-V"],
        &["bench", "--", "x"],
        &["bench", "--"],
        &["bench", "--", "--"],
    ] {
        let output = run(&program, Path::new("/nowhere"), alone);
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(printed.lines().skip(1).collect::<Vec<_>>(), alone[1..]);
    }
}

#[test]
fn a_signal_that_ends_the_other_program_ends_this_one() {
    let (folder, program) = installed();
    write_bench(folder.path());
    let output = run(&program, Path::new("/nowhere"), &["bench", "die"]);
    assert_eq!((output.status.code(), output.status.signal()), (None, Some(9)));
}

#[test]
fn the_program_in_path_is_run_when_none_is_beside_this_one() {
    let (_folder, program) = installed();
    let elsewhere = tempfile::tempdir().unwrap();
    write_bench(elsewhere.path());
    assert_eq!(
        run(&program, elsewhere.path(), &["bench", "list"]).status.code(),
        Some(7)
    );
}

#[test]
fn a_missing_program_is_named_with_the_command_that_installs_it() {
    let (_folder, program) = installed();
    for arguments in [&["bench"][..], &["bench", "--help"], &["bench", "run", "A6"]] {
        let output = run(&program, Path::new("/nowhere"), arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), output.stdout.len()),
            (Some(2), 0),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(
            said.contains("holdall-bench") && said.contains("make install-bench"),
            "{said}"
        );
    }
}
