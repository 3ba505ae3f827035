//! Ladders: the same load in growing amounts, and the step on which each recorder loses its first message.

use super::{config::Experiment, table::Row};
use crate::engine::grouped;

/// The result of a recorder on a ladder.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Climb {
    /// The ladder.
    pub ladder: String,
    /// Recorder and storage.
    pub recorder: String,
    /// The highest step up to which no repetition lost a message: bytes a second and the case's label.
    pub whole: Option<(f64, String)>,
    /// The lowest step with a loss.
    pub first_loss: Option<(f64, String)>,
}

/// All recorders on all ladders of an experiment.
pub(crate) fn climbs(rows: &[Row<'_>], experiment: &Experiment) -> Vec<Climb> {
    let ladder_of = |case: &str| {
        experiment
            .cases
            .iter()
            .find(|one| one.label == case)?
            .ladder
            .clone()
    };
    let on_ladder = rows.iter().filter_map(|row| Some((ladder_of(row.case)?, row)));
    let each = grouped(on_ladder, |(ladder, row)| {
        (ladder.clone(), format!("{}, {}", row.recorder, row.storage()))
    });
    let climb = |((ladder, recorder), steps): ((String, String), Vec<(String, &Row<'_>)>)| {
        let climb = Climb {
            ladder,
            recorder,
            whole: None,
            first_loss: None,
        };
        climbed(climb, steps.into_iter().map(|(_, row)| row).collect())
    };
    each.into_iter().map(climb).collect()
}

fn climbed(mut climb: Climb, mut steps: Vec<&Row<'_>>) -> Climb {
    let offered = |row: &Row<'_>| row.median(|run| run.times.offered_bytes_per_s);
    steps.sort_by(|a, b| offered(a).total_cmp(&offered(b)));
    for row in steps {
        let step = Some((offered(row), row.case.to_owned()));
        if row.runs.iter().any(|run| run.counts.recorded < run.counts.sent) {
            climb.first_loss = step;
            break;
        }
        climb.whole = step;
    }
    climb
}

/// One sentence for each.
pub fn sentences(rows: &[Row<'_>], experiment: &Experiment) -> Vec<String> {
    let sentence = |climb: Climb| {
        let whole = climb
            .whole
            .map_or("no step without a loss".to_owned(), |(_, case)| {
                format!("complete up to {case}")
            });
        let lost = climb
            .first_loss
            .map_or("no loss on any step".to_owned(), |(_, case)| {
                format!("first loss at {case}")
            });
        format!("ladder {}: {}: {whole}, {lost}", climb.ladder, climb.recorder)
    };
    climbs(rows, experiment).into_iter().map(sentence).collect()
}
