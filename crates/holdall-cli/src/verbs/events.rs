//! `holdall events`: what triggers would have caught in bags.

use super::input;
use crate::{
    VerbResult,
    args::events::EventsArguments,
    exit::{Failure, Outcome},
    output,
    render::past_events::{self, OfBag},
    resolve::record_triggers,
    terminal::log,
};
use holdall::{
    reader::{Bag, BagSet},
    record::options::TriggerOptions,
    tools::{self, manage::AddedMarkers},
};
use holdall_io::fs;
use holdall_model::{
    text::OutsidePath,
    trigger::{EventLabel, EventScore, Found, Trigger},
};
use regex::Regex;
use std::{collections::BTreeMap, path::Path};
use tracing::{level_filters::LevelFilter, warn};

/// The longest file of labels, in bytes.
const LABELS_BYTES_MAX: u64 = 16 << 20;

/// Finds the events of each bag.
pub fn run(args: &EventsArguments) -> VerbResult {
    let triggers = record_triggers::parse("--trigger", &args.trigger).map_err(Failure::refused)?;
    let labels = Labels::read(args)?;
    log::start(LevelFilter::WARN);
    let defaults = TriggerOptions::default();
    let named = input::resolve(&args.bags)?;
    let mut found = Vec::new();
    for bag in input::open_each(&named, &args.definitions)? {
        let events = tools::events::find(
            &bag,
            &triggers,
            args.before.unwrap_or(defaults.before),
            args.after.unwrap_or(defaults.after),
        );
        let events = events.map_err(Failure::failed)?;
        let score = labels.as_ref().map(|labels| labels.score(&bag, &events));
        found.push(OfBag {
            path: bag.path().to_owned(),
            start: BagSet::from(vec![bag]).log_times().map(|(start, _)| start),
            found: events,
            score: score.transpose()?,
            written: None,
        });
    }
    refuse_useless(&triggers, found.iter().map(|of| &of.found))?;
    for fault in found.iter().flat_map(|of| &of.found.faults) {
        warn!("{fault}");
    }
    if args.write_markers {
        for of in &mut found {
            of.written = Some(write_markers(&of.path, &of.found)?);
        }
    }
    let text = match args.json {
        true => past_events::json(&found),
        false => past_events::text(&found),
    };
    output::result(&text)?;
    Ok(Outcome::Done)
}

/// A trigger that can fire in none of the bags.
fn refuse_useless<'a>(triggers: &[Trigger], found: impl Iterator<Item = &'a Found>) -> Result<(), Failure> {
    let mut bags = 0;
    let mut faults: BTreeMap<usize, (usize, &str)> = BTreeMap::new();
    for of in found {
        bags += 1;
        for (number, fault) in &of.useless {
            faults.entry(*number).or_insert((0, fault)).0 += 1;
        }
    }
    let useless = faults.iter().find(|(_, (count, _))| *count == bags);
    match useless.and_then(|(number, (_, fault))| Some((triggers.get(*number)?, fault))) {
        Some((trigger, fault)) => Err(Failure::refused(format!("--trigger {trigger}: {fault}"))),
        None => Ok(()),
    }
}

fn write_markers(path: &Path, found: &Found) -> Result<AddedMarkers, Failure> {
    let marked = found.events.iter().filter(|event| event.is_marked);
    let markers: Vec<_> = marked.filter_map(|event| event.marker().ok()).collect();
    tools::manage::add_markers(path, &markers).map_err(Failure::failed)
}

/// What is known of the bags.
struct Labels {
    /// The path as it was given, and the text.
    file: Option<(String, String)>,
    markers: Option<Regex>,
}

impl Labels {
    fn read(args: &EventsArguments) -> Result<Option<Self>, Failure> {
        let file = args.labels.as_deref().map(|path| {
            let text = fs::read_to_string(path, LABELS_BYTES_MAX).map_err(Failure::refused)?;
            Ok((OutsidePath(path).to_string(), text))
        });
        let markers = args.label_markers.as_deref().map(|pattern| {
            Regex::new(&format!("^(?:{pattern})$"))
                .map_err(|_| Failure::refused(format!("--label-markers {pattern}: not a regular expression")))
        });
        let labels = Self {
            file: file.transpose()?,
            markers: markers.transpose()?,
        };
        Ok((labels.file.is_some() || labels.markers.is_some()).then_some(labels))
    }

    /// How events fit the labels of the bag's own time.
    fn score(&self, bag: &Bag, found: &Found) -> Result<EventScore, Failure> {
        let Some((first, last)) = BagSet::from(vec![bag.clone()]).log_times() else {
            return Ok(EventScore::default());
        };
        let mut labels = Vec::new();
        if let Some((path, text)) = &self.file {
            let all = EventLabel::parse_lines(text, first)
                .map_err(|(line, error)| Failure::refused(format!("{path}: line {line}: {error}")))?;
            labels.extend(
                all.into_iter()
                    .filter(|label| label.start <= last && first <= label.end),
            );
        }
        if let Some(name) = &self.markers {
            let markers = bag.markers().map_err(Failure::failed)?;
            labels.extend(EventLabel::of_markers(&markers, name));
        }
        Ok(EventScore::of(&found.events, &labels))
    }
}
