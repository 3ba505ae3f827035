//! Sections of the page: the words, plots and tables of each kind of experiment.

use super::{Loaded, LoadedEvaluation, Storages, compare, plots};
use crate::{
    chart::Chart,
    engine::limits_text,
    kinds::storage::sheet,
    middleware::{self, PublishedEvaluation},
    people::{self, PeopleResult},
    sheet::Sheet,
    suite::{
        ladders,
        noise::Noise,
        table::{rows, sheets},
    },
};

/// One experiment on the page, as text that is not HTML yet.
pub(super) struct Section {
    /// Its short name.
    pub id: String,
    /// Its purpose, one clause.
    pub title: String,
    /// Where it comes from, and how much was run.
    pub about: String,
    /// The command that ran it.
    pub command: String,
    /// Why the figures mean little.
    pub banner: Option<String>,
    /// Sentences before the plots.
    pub notes: Vec<String>,
    /// The plots.
    pub charts: Vec<Chart>,
    /// The tables.
    pub sheets: Vec<Sheet>,
}

impl Loaded {
    /// Its section; beside another result of the same experiment if there is one.
    pub(super) fn section(&self, there: Option<&Self>) -> Section {
        let (result, experiment) = (&self.result, self.experiment.as_ref());
        let rows = rows(result, experiment);
        let noise = Noise::of(&result.runs);
        let mut notes = experiment.map_or_else(Vec::new, |experiment| ladders::sentences(&rows, experiment));
        let skipped = result.skipped.iter();
        notes.extend(skipped.map(|one| format!("Not run: {}, {}: {}", one.case, one.setting, one.reason)));
        notes.push(format!("Limits of these runs: {}.", noise.limits_text()));
        notes.push(format!("Noise of the machine: {}.", noise.text()));
        let (mut charts, mut compared) = (Vec::new(), None);
        if let Some(there) = there {
            let other = &there.result;
            notes.push(format!(
                "Compared with {}: scale {}, {} runs, {}; {}. ≈: the intervals overlap, or there are too few repetitions for intervals.",
                there.folder.display(),
                other.scale,
                other.runs.len(),
                other.machine.processor,
                other.command
            ));
            let changes = compare::changes(self, there);
            if changes.is_empty() {
                notes.push("Both folders have no setting in common.".to_owned());
            }
            charts = compare::charts(&changes);
            compared = Some(compare::sheet(&changes, there));
        }
        charts.extend(plots::of(self));
        let source = experiment.and_then(|experiment| experiment.source.as_ref());
        let source = source.map_or_else(String::new, |source| format!("{source}. "));
        Section {
            id: result.experiment.clone(),
            title: result.title.clone(),
            about: format!("{source}Scale {}, {} runs.", result.scale, result.runs.len()),
            command: result.command.clone(),
            banner: noise.too_noisy(result.machine.cores),
            notes,
            charts,
            sheets: compared.into_iter().chain(sheets(&rows)).collect(),
        }
    }
}

impl LoadedEvaluation {
    /// Its section, with published figures in grey.
    pub(super) fn section(&self, published: Option<&PublishedEvaluation>) -> Section {
        let result = &self.result;
        let context = middleware::Context {
            evaluation: self.evaluation.as_ref(),
            published,
        };
        let settings = result.settings.iter();
        let settings = settings.map(|(name, settings)| format!("{name}: {settings}"));
        let other = result.other_machine.as_ref();
        let other = other.map(|machine| format!("The other machine: {machine}."));
        let absent = result.absent.iter();
        let absent = absent.map(|one| format!("Not run: {}: {}", one.middleware, one.reason));
        let source = result.source.as_ref();
        let source = source.map_or_else(String::new, |source| format!("{source}. "));
        Section {
            id: result.experiment.clone(),
            title: result.title.clone(),
            about: format!(
                "{source}{} s after {} s of warm-up, {} runs.",
                result.duration_s,
                result.warm_up_s,
                result.runs.len()
            ),
            command: result.command.clone(),
            banner: None,
            notes: other
                .into_iter()
                .chain(settings)
                .chain(absent)
                .chain([middleware::WORDS.to_owned()])
                .collect(),
            charts: middleware::charts(result, &context),
            sheets: middleware::sheets(result),
        }
    }
}

impl Storages {
    /// Its section; beside another result if there is one.
    pub(super) fn section(&self, there: Option<&Self>) -> Section {
        let compared = there.map(|there| {
            format!(
                "Compared with {}: {}, {}.",
                there.path.display(),
                there.result.body.about(),
                there.result.machine.processor
            )
        });
        let words = "Durable: payload bytes through the time from the first message to the end of close and sync. Brackets: 95 % bootstrap interval \
             of the median. ÷ limit, ÷ rival: round by round.";
        let notes = [limits_text(&self.result.limit), words.to_owned()];
        Section {
            id: self.id.clone(),
            title: "raw write throughput of storages".to_owned(),
            about: format!("{}.", self.result.body.about()),
            command: self.result.command.clone(),
            banner: None,
            notes: compared.into_iter().chain(notes).collect(),
            charts: self.charts(there),
            sheets: vec![sheet(&self.result.body.cells)],
        }
    }
}

impl Section {
    /// Answers of users, items of repositories.
    pub(super) fn of_people(one: &PeopleResult) -> Self {
        Self {
            id: people::ID.to_owned(),
            title: "answers of users, issues and pull requests".to_owned(),
            about: people::WORDS.to_owned(),
            command: one.command.clone(),
            banner: None,
            notes: Vec::new(),
            charts: one.charts.clone(),
            sheets: one.sheets(),
        }
    }
}
