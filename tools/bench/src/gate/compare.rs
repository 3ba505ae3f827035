//! Compares costs with the baseline, figure by figure, and names the functions that grew.

use super::baseline::{Baseline, Costs, Functions};
use serde::Serialize;
use std::fmt::Write;

/// Another compiler makes other instructions of the same code: then only this many times the tolerance fails.
const OTHER_COMPILER_FACTOR: f64 = 4.0;

/// Allocations of a message that do not count as growth: a segment or an index more somewhere.
const ALLOCATIONS_SLACK: f64 = 0.01;

/// Copies of a payload that do not count as growth.
const COPIES_SLACK: f64 = 0.02;

/// Wall-clock time is measured, not counted, and processors differ in the cost of copying relative to
/// computing: only a ratio below this part of the baseline's is beyond noise.
const RATIO_SHARE_MIN: f64 = 0.25;

/// Above this ratio the bytes were not moved and the time is a few microseconds: the ratio is shown and not
/// compared.
const RATIO_MAX: f64 = 2.0;

/// Functions that are shown for each workload.
const FUNCTIONS_SHOWN: usize = 3;

/// How a figure compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// Unchanged within the tolerance.
    Kept,
    /// Better by more than the tolerance: renew the baseline, or a later loss goes unseen.
    Better,
    /// Worse by more than the tolerance.
    Worse,
    /// Nothing to compare with.
    New,
}

/// One figure of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Figure in the baseline.
    pub before: f64,
    /// Now.
    pub now: f64,
    /// How it compares.
    pub judgement: Judgement,
}

impl Figure {
    fn of(before: Option<f64>, now: f64, judge: impl Fn(f64, f64) -> Judgement) -> Self {
        Self {
            before: before.unwrap_or(0.0),
            now,
            judgement: before.map_or(Judgement::New, |before| judge(before, now)),
        }
    }

    fn percent(self) -> f64 {
        100.0 * (self.now / self.before.max(1e-9) - 1.0)
    }
}

/// A function whose part of a message's instructions has changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FunctionChange {
    /// Its name.
    pub name: String,
    /// Instructions of a message in the baseline; 0 when it was absent, or too small to be listed.
    pub before: f64,
    /// Instructions of a message now.
    pub now: f64,
}

/// One workload, compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Its name.
    pub workload: String,
    /// Instructions of a message.
    pub instructions: Figure,
    /// Allocations of a message.
    pub allocations: Figure,
    /// Payloads copied for a message.
    pub copies: Figure,
    /// Bytes a second divided by the speed of memcpy.
    pub ratio_to_memcpy: Figure,
    /// Functions that grew, largest growth first; filled when instructions are worse.
    pub grown: Vec<FunctionChange>,
}

impl Comparison {
    fn of(workload: &str, before: Option<&Costs>, now: &Costs, tolerance: f64) -> Self {
        // A cost may not grow by more than `tolerance` and `slack`.
        let cost = |of: fn(&Costs) -> f64, tolerance: f64, slack: f64| {
            Figure::of(before.map(of), of(now), |before, now| {
                let allowed = before * tolerance + slack;
                match now - before {
                    more if more > allowed => Judgement::Worse,
                    more if more < -allowed => Judgement::Better,
                    _ => Judgement::Kept,
                }
            })
        };
        let speed = |before: f64, now: f64| match before < RATIO_MAX && now < before * RATIO_SHARE_MIN {
            true => Judgement::Worse,
            false => Judgement::Kept,
        };
        let instructions = cost(|costs| costs.instructions, tolerance, 0.0);
        let is_worse = instructions.judgement == Judgement::Worse;
        let grown = before.filter(|_| is_worse);
        let ratio = before.map(|before| before.ratio_to_memcpy);
        Self {
            workload: workload.to_owned(),
            instructions,
            allocations: cost(|costs| costs.allocations, tolerance, ALLOCATIONS_SLACK),
            copies: cost(|costs| costs.copies, tolerance, COPIES_SLACK),
            ratio_to_memcpy: Figure::of(ratio, now.ratio_to_memcpy, speed),
            grown: grown.map_or_else(Vec::new, |before| self::grown(&before.functions, &now.functions)),
        }
    }

    fn figures(&self) -> [Figure; 4] {
        [
            self.instructions,
            self.allocations,
            self.copies,
            self.ratio_to_memcpy,
        ]
    }

    fn has(&self, judgement: Judgement) -> bool {
        self.figures().iter().any(|figure| figure.judgement == judgement)
    }
}

/// Functions that cost more than before, largest growth first.
fn grown(before: &Functions, now: &Functions) -> Vec<FunctionChange> {
    let mut changes: Vec<FunctionChange> = now
        .iter()
        .map(|(name, now)| FunctionChange {
            name: name.clone(),
            before: before.get(name).copied().unwrap_or(0.0),
            now: *now,
        })
        .filter(|change| change.now > change.before)
        .collect();
    changes.sort_by(|a, b| (b.now - b.before).total_cmp(&(a.now - a.before)));
    changes.truncate(FUNCTIONS_SHOWN);
    changes
}

/// All workloads, compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GateReport {
    /// True when nothing became worse.
    pub passed: bool,
    /// The tolerance, as a part of the baseline's instructions.
    pub tolerance: f64,
    /// Differences that weaken the comparison, such as another compiler.
    pub remarks: Vec<String>,
    /// Workloads of the baseline that were not counted.
    pub missing: Vec<String>,
    /// Comparisons by workload.
    pub workloads: Vec<Comparison>,
}

impl GateReport {
    /// Compares `now` with `before`; `tolerance` is a fraction. Workloads that are only in the baseline are
    /// reported when `is_all`.
    pub fn of(before: &Baseline, now: &Baseline, tolerance: f64, is_all: bool) -> Self {
        let mut remarks = Vec::new();
        let mut tolerance = tolerance;
        if before.rustc != now.rustc {
            tolerance *= OTHER_COMPILER_FACTOR;
            remarks.push(format!(
                "the baseline was counted with {}, this with {}: it makes other instructions of the same code, so only {:.0} % more fails; renew the baseline",
                before.rustc,
                now.rustc,
                100.0 * tolerance
            ));
        }
        if before.architecture != now.architecture {
            // Instructions are not comparable at all; allocations and copies are.
            tolerance = f64::INFINITY;
            remarks.push(format!(
                "the baseline was counted on {}, this is {}: instructions are not compared",
                before.architecture, now.architecture
            ));
        }
        if before.valgrind != now.valgrind {
            remarks.push(format!(
                "the baseline was counted by {}, this by {}",
                before.valgrind, now.valgrind
            ));
        }
        let workloads: Vec<Comparison> = now
            .workloads
            .iter()
            .map(|(name, costs)| Comparison::of(name, before.workloads.get(name), costs, tolerance))
            .collect();
        let missing: Vec<String> = before
            .workloads
            .keys()
            .filter(|name| is_all && !now.workloads.contains_key(*name))
            .cloned()
            .collect();
        let holds = |one: &Comparison| !one.has(Judgement::Worse) && !one.has(Judgement::New);
        Self {
            passed: missing.is_empty() && workloads.iter().all(holds),
            tolerance,
            remarks,
            missing,
            workloads,
        }
    }

    /// A text for people: a line for each workload, the growth below it, and a verdict at the end.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |line: String| {
            // Writing into a string does not fail.
            let _written = writeln!(text, "{line}").is_ok();
        };
        line(format!(
            "{:<14} {:>26} {:>19} {:>17} {:>17}",
            "of a message", "instructions", "allocations", "copies", "÷ memcpy"
        ));
        for one in &self.workloads {
            line(row(one));
            for change in &one.grown {
                line(format!(
                    "    {:>12.1} → {:<12.1} {}",
                    change.before, change.now, change.name
                ));
            }
        }
        for workload in &self.missing {
            line(format!("{workload}: in the baseline but not counted"));
        }
        for remark in &self.remarks {
            line(remark.clone());
        }
        line(self.sentence());
        text
    }

    fn sentence(&self) -> String {
        let count = |judgement| self.workloads.iter().filter(|one| one.has(judgement)).count();
        let (worse, new) = (
            count(Judgement::Worse),
            count(Judgement::New) + self.missing.len(),
        );
        if worse > 0 {
            return format!(
                "failed: {worse} of {} workloads cost more than the baseline allows (instructions: {:.0} % more); if that is intended, renew it: holdall bench gate --renew",
                self.workloads.len(),
                100.0 * self.tolerance
            );
        }
        if new > 0 {
            return "failed: the baseline has other workloads; renew it: holdall bench gate --renew"
                .to_owned();
        }
        match count(Judgement::Better) {
            0 => "passed".to_owned(),
            better => format!(
                "passed; {better} workloads cost less than the baseline: renew it, or a later loss goes unseen (holdall bench gate --renew)"
            ),
        }
    }
}

/// A workload's figures, before and now; `!` marks worse, `*` better, `+` new ones.
fn row(one: &Comparison) -> String {
    let mark = |figure: Figure| match figure.judgement {
        Judgement::Worse => "!",
        Judgement::Better => "*",
        Judgement::New => "+",
        Judgement::Kept => " ",
    };
    let both = |figure: Figure, digits: usize| {
        format!(
            "{:.digits$} → {:.digits$}{}",
            figure.before,
            figure.now,
            mark(figure)
        )
    };
    let instructions = one.instructions;
    let percent = match instructions.judgement {
        Judgement::New => String::new(),
        _ => format!(" {:+.1} %", instructions.percent()),
    };
    format!(
        "{:<14} {:>26} {:>19} {:>17} {:>17}",
        one.workload,
        format!(
            "{:.0} → {:.0}{percent}{}",
            instructions.before,
            instructions.now,
            mark(instructions)
        ),
        both(one.allocations, 3),
        both(one.copies, 3),
        both(one.ratio_to_memcpy, 3),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline(instructions: f64, functions: &[(&str, f64)]) -> Baseline {
        let costs = Costs {
            instructions,
            allocations: 0.001,
            copies: 1.0,
            ratio_to_memcpy: 0.5,
            functions: functions
                .iter()
                .map(|(name, cost)| ((*name).to_owned(), *cost))
                .collect(),
        };
        Baseline {
            rustc: "rustc 1.95.0".to_owned(),
            architecture: "x86_64".to_owned(),
            valgrind: "valgrind-3.19.0".to_owned(),
            workloads: [("record-100B".to_owned(), costs)].into(),
        }
    }

    fn report(before: &Baseline, now: &Baseline) -> GateReport {
        GateReport::of(before, now, 0.05, true)
    }

    #[test]
    fn six_percent_more_instructions_fail_with_the_function_that_grew() {
        let before = baseline(100.0, &[("offer", 60.0), ("write", 40.0)]);
        let now = baseline(106.0, &[("offer", 60.0), ("write", 45.0), ("index", 1.0)]);
        let report = report(&before, &now);
        assert!(!report.passed);
        let grown: Vec<&str> = report.workloads[0]
            .grown
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        assert_eq!(grown, ["write", "index"]);
        let text = report.text();
        assert!(
            text.contains("+6.0 %!") && text.contains("40.0 → 45.0") && text.contains("failed: 1 of 1"),
            "{text}"
        );
    }

    #[test]
    fn four_percent_more_pass_and_six_percent_less_ask_for_a_new_baseline() {
        let before = baseline(100.0, &[]);
        assert_eq!(
            report(&before, &baseline(104.0, &[])).text().lines().last(),
            Some("passed")
        );
        let better = report(&before, &baseline(94.0, &[]));
        assert!(better.passed && better.text().contains("renew it, or a later loss goes unseen"));
    }

    #[test]
    fn another_compiler_widens_and_another_architecture_lifts_the_bound() {
        let before = baseline(100.0, &[]);
        let mut now = baseline(115.0, &[]);
        now.rustc = "rustc 1.96.0".to_owned();
        let weaker = report(&before, &now);
        assert!(weaker.passed && weaker.remarks[0].contains("only 20 % more fails"));
        now.workloads.get_mut("record-100B").unwrap().instructions = 125.0;
        assert!(!report(&before, &now).passed);
        now.architecture = "aarch64".to_owned();
        assert!(report(&before, &now).passed);
    }

    #[test]
    fn allocations_copies_and_a_collapse_of_speed_fail_too() {
        let before = baseline(100.0, &[]);
        let worse = |change: fn(&mut Costs)| {
            let mut now = baseline(100.0, &[]);
            change(now.workloads.get_mut("record-100B").unwrap());
            !report(&before, &now).passed
        };
        assert!(worse(|costs| costs.allocations = 0.5));
        assert!(worse(|costs| costs.copies = 1.2));
        assert!(worse(|costs| costs.ratio_to_memcpy = 0.1));
        assert!(!worse(|costs| costs.ratio_to_memcpy = 0.2));
    }

    #[test]
    fn a_workload_that_only_one_side_has_fails() {
        let before = baseline(100.0, &[]);
        let mut now = baseline(100.0, &[]);
        let costs = now.workloads["record-100B"].clone();
        now.workloads.insert("read-100B".to_owned(), costs);
        assert!(!report(&before, &now).passed);
        let gone = report(&now, &before);
        assert!(!gone.passed && gone.text().contains("read-100B: in the baseline but not counted"));
        assert!(GateReport::of(&now, &before, 0.05, false).passed);
    }
}
