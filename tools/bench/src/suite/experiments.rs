//! The experiments that the program ships, by their short names.

use super::config::Experiment;
use crate::middleware::Evaluation;

/// Name and text of each, in the order of the published documents; B1 is `holdall bench run storage`, L1 and G1
/// are our own.
const TEXTS: [(&str, &str); 17] = [
    ("A1", include_str!("../../experiments/a1.yaml")),
    ("A2", include_str!("../../experiments/a2.yaml")),
    ("A3", include_str!("../../experiments/a3.yaml")),
    ("A4", include_str!("../../experiments/a4.yaml")),
    ("A5", include_str!("../../experiments/a5.yaml")),
    ("A6", include_str!("../../experiments/a6.yaml")),
    ("A7", include_str!("../../experiments/a7.yaml")),
    ("A8", include_str!("../../experiments/a8.yaml")),
    ("A9", include_str!("../../experiments/a9.yaml")),
    ("A10", include_str!("../../experiments/a10.yaml")),
    ("B2", include_str!("../../experiments/b2.yaml")),
    ("C1", include_str!("../../experiments/c1.yaml")),
    ("C2", include_str!("../../experiments/c2.yaml")),
    ("C3", include_str!("../../experiments/c3.yaml")),
    ("C4", include_str!("../../experiments/c4.yaml")),
    ("L1", include_str!("../../experiments/l1.yaml")),
    ("G1", include_str!("../../experiments/g1.yaml")),
];

/// The evaluations of middlewares, likewise.
const EVALUATIONS: [(&str, &str); 10] = [
    ("D1", include_str!("../../experiments/d1.yaml")),
    ("D1b", include_str!("../../experiments/d1b.yaml")),
    ("D2", include_str!("../../experiments/d2.yaml")),
    ("D3", include_str!("../../experiments/d3.yaml")),
    ("D4", include_str!("../../experiments/d4.yaml")),
    ("D4b", include_str!("../../experiments/d4b.yaml")),
    ("D4c", include_str!("../../experiments/d4c.yaml")),
    ("D5", include_str!("../../experiments/d5.yaml")),
    ("D6", include_str!("../../experiments/d6.yaml")),
    ("D7", include_str!("../../experiments/d7.yaml")),
];

/// All evaluations of middlewares.
pub fn evaluations() -> Vec<Evaluation> {
    EVALUATIONS
        .iter()
        .map(|(id, text)| parse_evaluation(id, text))
        .collect()
}

/// The evaluation with this name, in either case.
pub fn evaluation_by_id(id: &str) -> Option<Evaluation> {
    let (id, text) = EVALUATIONS
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(id))?;
    Some(parse_evaluation(id, text))
}

fn parse_evaluation(id: &str, text: &str) -> Evaluation {
    match Evaluation::parse(text) {
        Ok(evaluation) => evaluation,
        Err(error) => unreachable!("the shipped evaluation {id} is tested to be valid: {error}"),
    }
}

/// All experiments.
pub fn shipped() -> Vec<Experiment> {
    TEXTS.iter().map(|(id, text)| parse(id, text)).collect()
}

/// The one with this name, in either case.
pub fn by_id(id: &str) -> Option<Experiment> {
    let (id, text) = TEXTS.iter().find(|(name, _)| name.eq_ignore_ascii_case(id))?;
    Some(parse(id, text))
}

/// The text of one, as a start for a user's own files.
pub fn text_of(id: &str) -> Option<&'static str> {
    let all = TEXTS.iter().chain(&EVALUATIONS);
    all.into_iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(id))
        .map(|(_, text)| *text)
}

fn parse(id: &str, text: &str) -> Experiment {
    match Experiment::parse(text) {
        Ok(experiment) => experiment,
        Err(error) => unreachable!("the shipped experiment {id} is tested to be valid: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::config::{RecorderKind, Transport};

    #[test]
    fn shipped_experiments_are_valid_and_have_their_names() {
        let all = shipped();
        assert_eq!(all.len(), TEXTS.len());
        for (experiment, (id, _)) in all.iter().zip(TEXTS) {
            assert_eq!(experiment.id, id);
        }
        for (evaluation, (id, _)) in evaluations().iter().zip(EVALUATIONS) {
            assert_eq!(evaluation.id, id);
        }
    }

    #[test]
    fn sizes_and_rates_are_those_of_the_documents() {
        let of = |id: &str, case: usize| by_id(id).unwrap().cases[case].producers.clone();
        let about = |value: f64, expected: f64| (value / expected - 1.0).abs() < 0.005;
        assert!(about(of("a1", 0).bytes_per_s(), 100e6) && of("a1", 2).bytes() == 12_000_000_000);
        assert!(about(of("A2", 0).bytes_per_s(), 500e6) && of("A2", 0).bytes() == 5_000_000_000);
        for case in 0..5 {
            assert!(about(of("A3", case).bytes() as f64, 50e9), "{case}");
        }
        assert!(about(of("A3", 3).bytes_per_s(), 572e6));
        assert_eq!(of("A3", 3).publishers(), 30);
        for case in 0..4 {
            assert_eq!(of("A6", case).bytes_per_s(), 100e6, "{case}");
            assert_eq!(of("A6", case + 4).bytes_per_s(), 500e6, "{case}");
        }
        assert!(about(of("A7", 0).bytes_per_s(), 550e6));
        assert_eq!(by_id("A8").unwrap().benchmarks[0].repeat_each, 20);
        assert!(about(of("C1", 0).bytes_per_s(), 1.49e9) && of("C1", 0).duration_s() == 13.0);
        assert_eq!([0, 1, 2].map(|case| of("A10", case).publishers()), [10, 100, 500]);
        assert!(!of("A10", 0).wait_for_subscriptions);
    }

    #[test]
    fn every_published_figure_belongs_to_a_run() {
        for experiment in shipped() {
            for published in &experiment.published {
                let belongs = experiment.benchmarks.iter().any(|benchmark| {
                    let settings = &benchmark.settings;
                    settings
                        .iter()
                        .any(|setting| published.is_of(&published.case, benchmark.transport, setting))
                });
                let is_case = experiment.cases.iter().any(|case| case.label == published.case);
                assert!(belongs && is_case, "{}: {published:?}", experiment.id);
            }
        }
        let a6 = by_id("A6").unwrap();
        assert_eq!(a6.published.len(), 48);
        let synchronous = |published: &&crate::suite::config::Published| {
            published.recorder == Some(RecorderKind::Synchronous)
                && published.transport != Some(Transport::Dds)
        };
        assert_eq!(a6.published.iter().filter(synchronous).count(), 24);
    }
}
