//! Planted faults in a fleet of simulated robots: precision, recall and delay by kind of rule.

use super::{
    fleet::{Expected, Simulated, simulate},
    planter::{Message, Random, SECOND, START},
    time,
};
use crate::{
    contract::{Arrival, Contract, Ending, Judge, Outcome, Sample, TopicSlot, Verdict, plan_of},
    message::PayloadRef,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
};

/// Recordings in an ordinary run; `HOLDALL_PLANTED=10000` makes the table of docs/contracts.md.
const RECORDINGS: u64 = 44;
/// How late messages come to the judge, at most.
const LATE_MAX: i64 = SECOND * 3 / 10;

type Seen = BTreeMap<(String, Option<String>), i64>;

/// The verdict on a recording, and when each broken rule was known first.
fn judge(simulated: &Simulated, seed: u64) -> (Verdict, Seen) {
    let contract = Contract::parse(&simulated.contract)
        .unwrap_or_else(|error| panic!("{error}: {}", simulated.contract));
    let mut judge = Judge::new(Arc::new(contract), time(START));
    let slots: Vec<TopicSlot> = simulated
        .infos
        .iter()
        .map(|info| judge.topic(info, &plan_of(None, info)).unwrap())
        .collect();
    let mut random = Random(seed);
    let late = if seed.is_multiple_of(2) { LATE_MAX } else { 1 };
    let mut order: Vec<(i64, &Message)> = simulated
        .messages
        .iter()
        .map(|message| (message.time + random.below(late), message))
        .collect();
    order.sort_by_key(|(at, _)| *at);
    let (mut seen, mut tick) = (Seen::new(), START);
    let mut advance = |judge: &mut Judge, until: i64| {
        while tick <= until {
            judge.advance(time(tick));
            for (violation, rule) in judge.take_news() {
                seen.entry((rule.kind().to_owned(), violation.topic))
                    .or_insert(tick);
            }
            tick += SECOND / 10;
        }
    };
    for (at, message) in order {
        advance(&mut judge, at);
        let slot = slots[message.topic];
        let sample = Sample::take(PayloadRef::Bytes(&message.payload), judge.want(slot), usize::MAX);
        let at = time(message.time);
        let arrival = Arrival {
            log_time: at,
            publish_time: at,
        };
        judge.message(slot, arrival, &sample);
    }
    advance(&mut judge, simulated.end);
    let ending = Ending {
        start: time(START),
        end: time(simulated.end),
        ..Ending::default()
    };
    (judge.end(&ending), seen)
}

/// What came of the recordings with one kind of fault.
#[derive(Default)]
struct Score {
    planted: u32,
    found: u32,
    /// Rules that failed without a fault.
    wrong: u32,
    /// Seconds from the fault to its alarm, and those beyond the rule's window.
    delays: Vec<f64>,
    beyond: Vec<f64>,
}

#[derive(Default)]
struct Table {
    scores: BTreeMap<&'static str, Score>,
    clean: u32,
    clean_passed: u32,
    /// Rules that failed of kinds for which no fault is planted.
    other_wrong: u32,
    undecided: u32,
    notes: Vec<String>,
}

impl Table {
    fn note(&mut self, text: String) {
        if self.notes.len() < 30 {
            self.notes.push(text);
        }
    }

    fn take(&mut self, seed: u64) {
        let simulated = simulate(seed);
        let (verdict, seen) = judge(&simulated, seed);
        if simulated.expected.is_empty() {
            self.clean += 1;
            self.clean_passed += u32::from(verdict.outcome == Outcome::Passed);
        }
        for expected in &simulated.expected {
            self.expected(seed, expected, &seen);
        }
        let failed = verdict
            .rules
            .iter()
            .filter(|rule| rule.outcome == Outcome::Failed);
        let failed: BTreeSet<_> = failed
            .map(|rule| (rule.kind.as_str(), rule.topic.as_deref()))
            .collect();
        for (kind, topic) in failed {
            let is_expected =
                |expected: &Expected| (expected.kind, expected.topic.as_deref()) == (kind, topic);
            let is_allowed =
                |allowed: &(&str, String)| (allowed.0, Some(allowed.1.as_str())) == (kind, topic);
            if simulated.expected.iter().any(is_expected) || simulated.allowed.iter().any(is_allowed) {
                continue;
            }
            match self.scores.iter_mut().find(|(name, _)| **name == kind) {
                Some((_, score)) => score.wrong += 1,
                None => self.other_wrong += 1,
            }
            let mut rules = verdict.rules.iter().filter(|rule| rule.kind == kind);
            let rule = rules
                .find(|rule| rule.topic.as_deref() == topic)
                .map(|rule| rule.rule);
            let mut violations = verdict
                .violations
                .iter()
                .filter(|violation| Some(violation.rule) == rule);
            let text = violations.find(|violation| violation.topic.as_deref() == topic);
            self.note(format!("seed {seed}: {kind} {topic:?} is wrong: {text:?}"));
        }
        let unknown = verdict
            .rules
            .iter()
            .filter(|rule| rule.outcome == Outcome::Unknown);
        let is_excused =
            |topic: &Option<String>| simulated.allowed.iter().any(|(_, of)| Some(of) == topic.as_ref());
        for rule in unknown.filter(|rule| !is_excused(&rule.topic)) {
            self.undecided += 1;
            self.note(format!("seed {seed}: {rule:?}"));
        }
    }

    fn expected(&mut self, seed: u64, expected: &Expected, seen: &Seen) {
        let score = self.scores.entry(expected.kind).or_default();
        score.planted += 1;
        let at = seen.get(&(expected.kind.to_owned(), expected.topic.clone()));
        let delay = at.map(|at| at - expected.begin);
        match delay.filter(|delay| (0..=expected.window + SECOND).contains(delay)) {
            Some(delay) => {
                score.found += 1;
                score.delays.push(delay as f64 / 1e9);
                score.beyond.push((delay - expected.window) as f64 / 1e9);
            }
            None => self.note(format!("seed {seed}: {expected:?} was seen after {delay:?} ns")),
        }
    }

    fn text(&mut self) -> String {
        let mut out = "| rule | planted | found | wrong | precision | recall | delay, median | 99 % | beyond the window, most |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n".to_owned();
        for (kind, score) in &mut self.scores {
            score.delays.sort_by(f64::total_cmp);
            score.beyond.sort_by(f64::total_cmp);
            let at = |share: usize| {
                score
                    .delays
                    .get(score.delays.len() * share / 100)
                    .copied()
                    .unwrap_or(f64::NAN)
            };
            let _ = writeln!(
                out,
                "| `{kind}` | {} | {} | {} | {:.4} | {:.4} | {:.2} s | {:.2} s | {:.2} s |",
                score.planted,
                score.found,
                score.wrong,
                score.precision(),
                score.recall(),
                at(50),
                at(99),
                score.beyond.last().copied().unwrap_or(f64::NAN),
            );
        }
        let _ = writeln!(
            out,
            "\nof {} recordings without a fault, {} passed; {} rules undecided",
            self.clean, self.clean_passed, self.undecided
        );
        out
    }
}

impl Score {
    fn precision(&self) -> f64 {
        f64::from(self.found) / f64::from(self.found + self.wrong).max(1.0)
    }

    fn recall(&self) -> f64 {
        f64::from(self.found) / f64::from(self.planted).max(1.0)
    }
}

#[test]
fn each_kind_of_planted_fault_is_found_in_time_and_nothing_else() {
    let recordings = std::env::var("HOLDALL_PLANTED").ok();
    let recordings = recordings.map_or(RECORDINGS, |number| {
        number.parse().expect("HOLDALL_PLANTED is a number")
    });
    let mut table = Table::default();
    (0..recordings).for_each(|seed| table.take(seed));
    let text = table.text();
    if recordings > RECORDINGS {
        #[allow(clippy::print_stdout, reason = "the table is what a long run is for")]
        {
            println!("{text}\n{:#?}", table.notes);
        }
    }
    assert_eq!(table.scores.len(), 10, "{text}");
    let is_good = |score: &Score| score.precision() >= 0.99 && score.recall() >= 0.99;
    assert!(
        table.other_wrong == 0 && table.scores.values().all(is_good),
        "{text}\n{:#?}",
        table.notes
    );
}
