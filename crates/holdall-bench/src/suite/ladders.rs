//! Ladders: the same load in growing amounts, and the step on which each recorder loses its first message.

use super::{config::Experiment, table::Row};

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
    let mut climbs: Vec<(Climb, Vec<&Row<'_>>)> = Vec::new();
    for row in rows {
        let Some(ladder) = ladder_of(row.case) else {
            continue;
        };
        let recorder = format!("{}, {}", row.recorder, row.storage());
        match climbs
            .iter_mut()
            .find(|(climb, _)| climb.ladder == ladder && climb.recorder == recorder)
        {
            Some((_, steps)) => steps.push(row),
            None => {
                let climb = Climb {
                    ladder,
                    recorder,
                    whole: None,
                    first_loss: None,
                };
                climbs.push((climb, vec![row]));
            }
        }
    }
    climbs
        .into_iter()
        .map(|(climb, steps)| climbed(climb, steps))
        .collect()
}

fn climbed(mut climb: Climb, mut steps: Vec<&Row<'_>>) -> Climb {
    let offered = |row: &Row<'_>| row.median(|run| run.offered_bytes_per_s);
    steps.sort_by(|a, b| offered(a).total_cmp(&offered(b)));
    for row in steps {
        let step = Some((offered(row), row.case.to_owned()));
        if row.runs.iter().any(|run| run.recorded < run.sent) {
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
