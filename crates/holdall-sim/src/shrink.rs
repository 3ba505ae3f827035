//! Makes a failing seed small: leaves out events as long as the same invariant breaks.

use crate::{
    mutation::Mutation,
    plan::Plan,
    run::run,
    verdict::{Invariant, Violation},
};

/// Recordings that shrinking may take.
const RUNS_MAX: usize = 2_000;

/// Numbers of events that still break the invariant, and how. Leaves out ever smaller runs of events (Zeller's ddmin).
pub fn shrink(
    plan: &Plan,
    invariant: Invariant,
    mutation: Option<Mutation>,
) -> (Vec<usize>, Option<Violation>) {
    let mut kept: Vec<usize> = (0..plan.events.len()).collect();
    let mut violation = None;
    let mut runs = 0;
    let mut piece = kept.len().div_ceil(2).max(1);
    loop {
        let mut smaller = false;
        let mut start = 0;
        while start < kept.len() && runs < RUNS_MAX {
            let end = (start + piece).min(kept.len());
            let mut without = kept.clone();
            without.drain(start..end);
            runs += 1;
            match run(&plan.only(&without), mutation) {
                Err(broken) if broken.invariant == invariant => {
                    kept = without;
                    violation = Some(broken);
                    smaller = true;
                }
                _ => start = end,
            }
        }
        if runs >= RUNS_MAX || (piece == 1 && !smaller) {
            return (kept, violation);
        }
        piece = (piece / 2).max(1);
    }
}
