//! Chores of the project as one program: `cargo xtask tidy` checks the rules of the house.

fn main() {}
