//! `holdall info`: what is in a bag, and what was lost.

use super::input;
use crate::{
    VerbResult,
    args::info::InfoArguments,
    exit::{Failure, Outcome},
    output,
    render::{
        info::BagView,
        overview::{self, Overview},
        paint::Paint,
        timeline::{Layout, Timeline},
    },
    terminal::log,
};
use holdall::{
    reader::{Bag, BagSet, BagSummary, Ros1View},
    tools::overview::summary_for_people,
};
use holdall_model::{marker::Marker, text::one_line};
use jiff::tz::TimeZone;
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
        let (lanes, damage) = timeline(&bag, &markers);
        output::result(&format!("\n{lanes}"))?;
        if let Some(damage) = damage {
            return Err(Failure::failed(format!(
                "messages are missing in the lanes: {damage}"
            )));
        }
    }
    Ok(Outcome::Done)
}

fn text_of(bag: &Bag, args: &InfoArguments) -> Result<String, Failure> {
    let columns = output::columns().filter(|_| !args.ros && !args.json && !args.topic_name);
    let summary = match args.verbose {
        true => BagSummary::read(bag),
        false if columns.is_some() => summary_for_people(bag),
        false => BagSummary::of(bag),
    };
    let summary = summary.map_err(Failure::failed)?;
    let view = BagView {
        summary: &summary,
        sort: args.sort,
    };
    Ok(if args.json {
        serde_json::to_string_pretty(&summary).map_err(Failure::failed)?
    } else if args.topic_name {
        let names = view.topic_names().into_iter().map(one_line);
        names.collect::<Vec<_>>().join("\n")
    } else if let Some(columns) = columns {
        overview::text(&Overview {
            summary: &summary,
            path: &args.bag,
            sort: args.sort,
            zone: &TimeZone::system(),
            columns,
            paint: Paint::stdout(),
            all: args.verbose,
        })
    } else {
        view.text(&TimeZone::system())
    })
}

/// When each topic has messages, from the index of each file that has one; and the first damage in other files.
fn timeline(bag: &Bag, markers: &[Marker]) -> (String, Option<String>) {
    let bags = BagSet::from(vec![bag.clone()]);
    let topics = bags.topics();
    let names = topics.iter().map(|topic| topic.name.as_str());
    let layout = Layout::new(names, output::columns());
    let mut counted = bags.over_time(layout.cells, u64::MAX, &mut |_| true);
    let damage = counted.damage.take();
    let timeline = Timeline::new(topics.into_iter().map(|topic| topic.name), counted, layout);
    let text = timeline.text(markers.iter().map(|marker| marker.time.as_nanos()));
    (text, damage)
}
