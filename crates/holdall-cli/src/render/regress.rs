//! Results of regression runs, for people.

use holdall_model::{
    regress::{CaseOutcome, CaseResult},
    text::{Outside, OutsidePath},
};
use std::path::Path;

/// Problems of a case that are shown.
const PROBLEMS_MAX: usize = 10;

/// A case that has ended.
pub fn line(result: &CaseResult) -> String {
    let word = match result.outcome {
        CaseOutcome::Passed => "passed",
        CaseOutcome::Failed => "FAILED",
        CaseOutcome::Error => "ERROR ",
    };
    let mut text = format!("{word}  {}  {:.1} s", result.case, result.seconds);
    let times = result.play["steps"]["times_real_time"].as_f64();
    if let Some(times) = times.filter(|_| result.outcome != CaseOutcome::Error) {
        text.push_str(&format!(", {times:.2} times real time"));
    }
    for problem in result.problems.iter().take(PROBLEMS_MAX) {
        text.push_str(&format!("\n        {}", Outside(problem)));
    }
    if let Some(more) = result
        .problems
        .len()
        .checked_sub(PROBLEMS_MAX)
        .filter(|more| *more > 0)
    {
        text.push_str(&format!("\n        and {more} more"));
    }
    for note in result.notes.iter().take(PROBLEMS_MAX) {
        text.push_str(&format!("\n        ({})", Outside(note)));
    }
    text
}

/// The last line.
pub fn summary(results: &[CaseResult], folder: &Path) -> String {
    let count = |outcome| results.iter().filter(|result| result.outcome == outcome).count();
    format!(
        "{} passed, {} failed, {} could not be run; results in {}",
        count(CaseOutcome::Passed),
        count(CaseOutcome::Failed),
        count(CaseOutcome::Error),
        OutsidePath(folder)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_has_a_line_and_its_problems() {
        let failed = CaseResult {
            case: "yard".to_owned(),
            outcome: CaseOutcome::Failed,
            problems: vec!["/a: 1 of 2 differ".to_owned()],
            seconds: 2.0,
            ..CaseResult::default()
        };
        assert_eq!(line(&failed), "FAILED  yard  2.0 s\n        /a: 1 of 2 differ");
        let text = summary(&[failed], Path::new("out"));
        assert_eq!(text, "0 passed, 1 failed, 0 could not be run; results in out");
    }
}
