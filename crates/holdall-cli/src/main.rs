//! The `holdall` command: parses arguments, calls the library, renders the outcome, and turns it into an exit code.

fn main() {}
