//! The arguments of `holdall bench`: those of the program `holdall-bench`.

use clap::Args;
use std::ffi::OsString;

/// What `holdall-bench` gets.
#[derive(Args, Clone, Debug)]
pub struct BenchArguments {
    /// The arguments of holdall-bench; --help lists them
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true, num_args = 0..)]
    pub arguments: Vec<OsString>,
}
