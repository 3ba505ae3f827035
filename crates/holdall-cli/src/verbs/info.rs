//! `holdall info`: what is in a bag, and what was lost.

use super::input;
use crate::{
    VerbResult,
    args::info::{InfoArguments, Sort},
    exit::{Failure, Outcome},
    output,
    render::{
        info::BagView,
        timeline::{Layout, Timeline},
    },
    terminal::log,
};
use holdall::{
    reader::{Bag, BagContents, BagFile, BagSet, ReadError, Ros1View},
    tools::attach,
};
use holdall_model::{marker::Marker, text::one_line};
use jiff::tz::TimeZone;
use std::path::Path;
use tracing::{level_filters::LevelFilter, warn};

/// Shows a bag.
pub fn run(args: &InfoArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let named = input::resolve(std::slice::from_ref(&args.bag))?;
    let bag = Bag::open_with(&named.paths[0], Ros1View::AsStored)
        .map_err(|error| Failure::opening(error, &named.paths))?;
    for notice in bag.notices() {
        warn!("{notice}");
    }
    output::result(&text_of(&bag, args)?)?;
    if args.timeline {
        let markers = bag.markers().map_err(Failure::failed)?;
        let (lanes, damage) = timeline(&bag, &markers).map_err(Failure::failed)?;
        output::result(&format!("\n{lanes}"))?;
        if let Some(damage) = damage {
            return Err(Failure::failed(format!(
                "messages are missing in the lanes: {damage}"
            )));
        }
    }
    Ok(Outcome::Done)
}

/// The JSON of a bag for `--json`.
pub fn json(path: &Path) -> Result<String, Failure> {
    let bag = Bag::open_with(path, Ros1View::AsStored).map_err(Failure::failed)?;
    let args = InfoArguments {
        bag: path.to_owned(),
        storage: None,
        topic_name: false,
        verbose: false,
        timeline: false,
        sort: Sort::Name,
        json: true,
    };
    text_of(&bag, &args)
}

fn text_of(bag: &Bag, args: &InfoArguments) -> Result<String, Failure> {
    let state = bag.state().map_err(Failure::failed)?;
    let contents = if args.verbose {
        Some(BagContents::read(bag).map_err(Failure::failed)?)
    } else {
        None
    };
    // A bag of another recorder, and one without channels of publishers, has only publishers that it does not
    // identify.
    let mut publishers = Vec::new();
    if args.verbose {
        publishers = bag.publishers().map_err(Failure::failed)?;
        if publishers.iter().all(|counted| counted.publisher.is_none()) {
            publishers.clear();
        }
    }
    let undefined = bag.undefined_topics().map_err(Failure::failed)?;
    let repeated = bag.hidden_by_topic();
    let markers = bag.markers().map_err(Failure::failed)?;
    // A file without its end would be read whole for them; attachments are made in complete bags only.
    let is_complete = bag.notices().is_empty() && bag.writer().is_none();
    let attached = if is_complete || args.verbose {
        attach::contents_of(bag).unwrap_or_default()
    } else {
        attach::Contents::default()
    };
    let view = BagView {
        metadata: bag.metadata(),
        duration_without_jumps: bag.duration_without_jumps(),
        bytes: bag.size_bytes(),
        state: &state,
        contents: contents.as_ref(),
        publishers: &publishers,
        undefined: &undefined,
        markers: &markers,
        attachments: &attached.attachments,
        repeated: &repeated,
        sort: args.sort,
    };
    Ok(if args.json {
        view.json().map_err(Failure::failed)?
    } else if args.topic_name {
        let names = view.topic_names().into_iter().map(one_line);
        names.collect::<Vec<_>>().join("\n")
    } else {
        let text = view.text(&TimeZone::system());
        match bag.files().iter().any(BagFile::is_sealed) {
            true => format!("{}\nEncrypted:         yes", text.trim_end_matches('\n')),
            false => text,
        }
    })
}

/// When each topic has messages, from the index of each file that has one; and the first damage in other files.
fn timeline(bag: &Bag, markers: &[Marker]) -> Result<(String, Option<String>), ReadError> {
    let bags = BagSet::from(vec![bag.clone()]);
    let topics = bags.topics();
    let names = topics.iter().map(|topic| topic.name.as_str());
    let layout = Layout::new(names, output::columns());
    let mut counted = bags.over_time(layout.cells, u64::MAX)?;
    let damage = counted.damage.take();
    let timeline = Timeline::new(topics.into_iter().map(|topic| topic.name), counted, layout);
    let text = timeline.text(markers.iter().map(|marker| marker.time.as_nanos()));
    Ok((text, damage))
}
