//! `holdall diff`: the differences between two bags.

use super::input;
use crate::{
    VerbResult,
    args::diff::DiffArguments,
    exit::{Failure, Outcome},
    output,
    render::{self, diff::FieldChanges},
    terminal::log,
};
use holdall::{
    decode::Decoders,
    definitions::DefinitionFolders,
    diff::{DiffOptions, Difference, Side, changed_fields, compare},
    reader::BagSet,
    recode::{self, DecodedTopic, Tolerance},
};
use holdall_model::topic::TopicInfo;
use std::{path::Path, sync::Arc};
use tracing::{level_filters::LevelFilter, warn};

/// Compares two bags. Errors during the comparison have exit code 2, as with `diff`.
pub fn run(args: &DiffArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let named = input::resolve(&[args.first.clone(), args.second.clone()])?;
    let folders = input::definition_folders(&args.definitions)?;
    let (first, second) = (open(&named.paths[0], &folders)?, open(&named.paths[1], &folders)?);
    if args.decoded {
        return compare_decoded(&first, &second, args);
    }
    let options = DiffOptions {
        messages: !args.summary,
        told_max: args.count,
        ..DiffOptions::default()
    };
    let difference = compare(&first, &second, &options).map_err(Failure::refused)?;
    let fields = if args.fields {
        field_changes(&difference, &first)?
    } else {
        Vec::new()
    };
    if args.json {
        let json = render::diff::json(&difference, &fields).map_err(Failure::failed)?;
        output::result(&json)?;
    } else if !difference.is_empty() {
        output::result(&render::diff::text(&difference, &fields))?;
    }
    Ok(if difference.is_empty() {
        Outcome::Done
    } else {
        Outcome::Different
    })
}

fn compare_decoded(first: &BagSet, second: &BagSet, args: &DiffArguments) -> VerbResult {
    let tolerance = Tolerance::read(&args.tolerance).map_err(Failure::refused)?;
    let topics = recode::compare(first, second, &tolerance).map_err(Failure::refused)?;
    if args.json {
        output::result(&render::diff::decoded_json(&topics).map_err(Failure::failed)?)?;
    } else {
        output::result(&render::diff::decoded(&topics))?;
    }
    Ok(if topics.iter().all(DecodedTopic::is_same) {
        Outcome::Done
    } else {
        Outcome::Different
    })
}

fn open(path: &Path, folders: &Arc<DefinitionFolders>) -> Result<BagSet, Failure> {
    let failure = |error| Failure::refused(Failure::opening(error, &[path.to_owned()]).sentence());
    let bags = BagSet::open(&[path]).map_err(failure)?.with_definitions(folders);
    bags.notices().iter().for_each(|notice| warn!("{notice}"));
    Ok(bags)
}

/// The fields that differ, for pairs of messages of the same topic, type and time.
fn field_changes(difference: &Difference, first: &BagSet) -> Result<Vec<FieldChanges>, Failure> {
    let mut decoders = Decoders::new(first.clone());
    let topics = first.topics();
    let lone_messages = &difference.first_messages;
    let mut found = Vec::new();
    for one in lone_messages.iter().filter(|lone| lone.side == Side::First) {
        let partner = lone_messages.iter().find(|other| {
            other.side == Side::Second
                && (&other.topic, &other.type_name, other.log_time)
                    == (&one.topic, &one.type_name, one.log_time)
        });
        let topic = |topic: &&TopicInfo| topic.name == one.topic && topic.type_name == one.type_name;
        if let (Some(other), Some(topic)) = (partner, topics.iter().find(topic)) {
            let decoder = decoders.find(topic).map_err(Failure::refused)?;
            found.push(FieldChanges {
                topic: one.topic.clone(),
                log_time: one.log_time,
                fields: changed_fields(&decoder, &one.payload, &other.payload),
            });
        }
    }
    Ok(found)
}
