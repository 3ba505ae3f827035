//! Work on whole bags: one file or folder per verb. Inputs are never changed; outputs appear whole or not at all.

pub mod check;
