//! Turns the library's results into text for people and JSON for programs. Pure: nothing is printed here.

pub mod attach;
pub mod audit;
pub mod check;
pub mod contract;
pub mod diff;
pub mod events;
pub mod export;
mod fit;
pub mod info;
pub mod labels;
pub mod listen;
pub mod migrate;
pub mod overview;
pub mod paint;
pub mod past_events;
pub mod play;
pub mod preflight;
pub mod ps;
pub mod record;
pub mod regress;
pub mod repair;
#[cfg(test)]
mod sample_tests;
pub mod timeline;
pub mod tools;
#[cfg(feature = "parquet")]
pub mod training;
pub mod unheard;

pub use holdall_program::{hint, line, rate};

use comfy_table::{LineStyle, TableStyle};

/// Tables of topics: a line below the header, nothing else.
const TABLE_STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::new('─', '─', '─', '─'));
