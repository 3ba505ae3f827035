//! Chores of the project as one program: `cargo run -p xtask -- tidy` checks the rules of the house.

// A program for the terminal: its findings are its output.
#![allow(clippy::print_stderr)]

mod arrows;
mod environment;
mod file_calls;
mod flags;
mod ids;
mod lengths;
mod markdown;
mod only_tests;
mod outside;
mod owners;
mod packages;
mod tidy;
mod units;
mod words;

use std::process::ExitCode;

fn main() -> ExitCode {
    let command = std::env::args().nth(1);
    match command.as_deref() {
        Some("tidy") => tidy::run(),
        _ => {
            eprintln!("usage: cargo run -p xtask -- tidy");
            ExitCode::from(2)
        }
    }
}
