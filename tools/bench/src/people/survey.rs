//! A survey of users: answers on a scale of five, by question and cohort.

use crate::error::{BenchError, BenchResult};
use libm::erfc;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Steps of the scale, from "strongly disagree" to "strongly agree".
pub(crate) const STEPS: usize = 5;
/// The values of these steps.
const SCALE: [f64; STEPS] = [1.0, 2.0, 3.0, 4.0, 5.0];
/// The values that the published report gave them: strong answers count as weak ones and the other way round.
const SCALE_AS_PUBLISHED: [f64; STEPS] = [2.0, 1.0, 3.0, 5.0, 4.0];

/// A row of the data.
#[derive(Clone, Debug, Deserialize)]
struct Row {
    question: String,
    cohort: String,
    strongly_disagree: u64,
    disagree: u64,
    neutral: u64,
    agree: u64,
    strongly_agree: u64,
    #[serde(default)]
    not_applicable: u64,
}

/// The answers of a cohort to a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CohortAnswers {
    /// The cohort.
    pub cohort: String,
    /// Answers of each step.
    pub counts: [u64; STEPS],
    /// Who had no opinion.
    pub not_applicable: u64,
    /// Mean of 1 to 5; `None` without answers.
    pub mean: Option<f64>,
    /// Mean with the scale of the published report.
    pub mean_as_published: Option<f64>,
}

/// Two cohorts compared.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Probability of such a difference by chance: Mann–Whitney, two-sided, normal approximation with ties.
    pub p: f64,
    /// The same, corrected for the number of questions by Holm's method.
    pub p_holm: f64,
    /// Probability that an answer of the first cohort is higher than one of the second, less the opposite: -1 to 1.
    pub effect: f64,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Its name.
    pub name: String,
    /// Answers by cohort.
    pub cohorts: Vec<CohortAnswers>,
    /// A comparison of the first two cohorts other than `all`; `None` with fewer cohorts, or if one has no answers.
    pub comparison: Option<Comparison>,
}

/// Reads counts of answers.
///
/// # Errors
/// A file that cannot be read or has other columns.
pub(crate) fn read(path: &Path) -> BenchResult<Vec<Question>> {
    let broken = |error: csv::Error| BenchError::Verify {
        path: path.to_owned(),
        reason: format!("holds no counts of answers: {error}"),
    };
    let mut questions: Vec<Question> = Vec::new();
    for row in csv::Reader::from_path(path).map_err(broken)?.deserialize() {
        let row: Row = row.map_err(broken)?;
        let counts = [
            row.strongly_disagree,
            row.disagree,
            row.neutral,
            row.agree,
            row.strongly_agree,
        ];
        let answers = CohortAnswers {
            cohort: row.cohort,
            counts,
            not_applicable: row.not_applicable,
            mean: mean(&counts, &SCALE),
            mean_as_published: mean(&counts, &SCALE_AS_PUBLISHED),
        };
        match questions
            .iter_mut()
            .find(|question| question.name == row.question)
        {
            Some(question) => question.cohorts.push(answers),
            None => questions.push(Question {
                name: row.question,
                cohorts: vec![answers],
                comparison: None,
            }),
        }
    }
    compare(&mut questions);
    Ok(questions)
}

impl CohortAnswers {
    /// Mean and standard deviation of the answers; `None` without any. As published: with the scale of the published report.
    pub(crate) fn mean_and_deviation(&self, is_as_published: bool) -> Option<(f64, f64)> {
        let scale = if is_as_published {
            &SCALE_AS_PUBLISHED
        } else {
            &SCALE
        };
        let mean = mean(&self.counts, scale)?;
        let squares = self.counts.iter().zip(scale);
        let sum: f64 = squares
            .map(|(count, value)| *count as f64 * (value - mean).powi(2))
            .sum();
        let all = self.counts.iter().sum::<u64>() as f64;
        Some((mean, (sum / (all - 1.0).max(1.0)).sqrt()))
    }
}

fn mean(counts: &[u64; STEPS], scale: &[f64; STEPS]) -> Option<f64> {
    let all: u64 = counts.iter().sum();
    let sum: f64 = counts
        .iter()
        .zip(scale)
        .map(|(count, value)| *count as f64 * value)
        .sum();
    (all > 0).then(|| sum / all as f64)
}

/// Compares the first two cohorts of each question, and corrects for the number of questions.
fn compare(questions: &mut [Question]) {
    for question in questions.iter_mut() {
        let mut cohorts = question.cohorts.iter().filter(|answers| answers.cohort != "all");
        if let (Some(first), Some(second)) = (cohorts.next(), cohorts.next()) {
            question.comparison = mann_whitney(&first.counts, &second.counts);
        }
    }
    let mut compared: Vec<&mut Comparison> = questions
        .iter_mut()
        .filter_map(|question| question.comparison.as_mut())
        .collect();
    compared.sort_by(|a, b| a.p.total_cmp(&b.p));
    let count = compared.len();
    let mut least: f64 = 0.0;
    for (place, one) in compared.into_iter().enumerate() {
        // Never below a smaller one's.
        least = least.max((one.p * (count - place) as f64).min(1.0));
        one.p_holm = least;
    }
}

/// Whether answers of two cohorts differ. `None` when one has no answers, or all answers are equal.
fn mann_whitney(first: &[u64; STEPS], second: &[u64; STEPS]) -> Option<Comparison> {
    let [n1, n2] = [first, second].map(|counts| counts.iter().sum::<u64>() as f64);
    let all = n1 + n2;
    // Pairs in which the first is higher, ties half.
    let (mut higher, mut lower_of_second, mut ties) = (0.0, 0.0, 0.0);
    for (a, b) in first.iter().zip(second) {
        let (a, b) = (*a as f64, *b as f64);
        higher += a * (lower_of_second + b / 2.0);
        lower_of_second += b;
        ties += (a + b).powi(3) - (a + b);
    }
    let variance = n1 * n2 / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
    if variance.is_nan() || variance <= 0.0 {
        return None;
    }
    let distance = ((higher - n1 * n2 / 2.0).abs() - 0.5).max(0.0);
    let p = erfc(distance / variance.sqrt() / std::f64::consts::SQRT_2).min(1.0);
    Some(Comparison {
        p,
        p_holm: p,
        effect: 2.0 * higher / (n1 * n2) - 1.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    const HEAD: &str =
        "question,cohort,strongly_disagree,disagree,neutral,agree,strongly_agree,not_applicable\n";

    fn of(rows: &str) -> Vec<Question> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), format!("{HEAD}{rows}")).unwrap();
        read(file.path()).unwrap()
    }

    #[test]
    fn the_first_question_of_the_published_survey_has_both_means() {
        let questions = of("Q1,cyclone,3,2,1,13,10,1\nQ1,fast,3,4,3,19,30,0\n");
        let means: Vec<_> = questions[0]
            .cohorts
            .iter()
            .map(|answers| {
                (
                    format!("{:.2}", answers.mean.unwrap()),
                    format!("{:.2}", answers.mean_as_published.unwrap()),
                )
            })
            .collect();
        let expected = [("3.86", "4.00"), ("4.17", "3.97")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(means, expected);
    }

    #[test]
    fn equal_and_opposite_answers() {
        let questions = of(
            "Q1,a,5,0,0,0,5,0\nQ1,b,5,0,0,0,5,0\nQ2,a,0,0,0,0,20,0\nQ2,b,20,0,0,0,0,0\nQ3,a,0,0,4,0,0,0\nQ3,b,0,0,4,0,0,0\n",
        );
        let [equal, opposite] = [0, 1].map(|place: usize| questions[place].comparison.unwrap());
        assert!(equal.effect.abs() < 1e-12 && equal.p > 0.99);
        assert!((opposite.effect - 1.0).abs() < 1e-12 && opposite.p < 1e-6);
        assert!((opposite.p_holm / opposite.p - 2.0).abs() < 1e-9);
        assert_eq!(questions[2].comparison, None);
    }

    proptest! {
        #[test]
        fn a_comparison_turned_around_is_the_opposite(a in prop::array::uniform5(0_u64..40), b in prop::array::uniform5(0_u64..40)) {
            match (mann_whitney(&a, &b), mann_whitney(&b, &a)) {
                (Some(one), Some(other)) => {
                    prop_assert!((one.effect + other.effect).abs() < 1e-9 && (one.p - other.p).abs() < 1e-9);
                    prop_assert!((0.0..=1.0).contains(&one.p) && one.effect.abs() <= 1.0 + 1e-9);
                }
                (one, other) => prop_assert_eq!(one, other),
            }
        }
    }
}
