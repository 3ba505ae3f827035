//! Measures how many pictures a second a page gets while people scrub: `scrub BAG TOPIC COUNT SIDE`, at times spread over the bag.

#![allow(clippy::print_stdout, reason = "an example prints its figures")]

use holdall::{
    Bag, BagSet, Timestamp,
    decode::Decoders,
    look::{Budget, Found, PictureOptions, Step, find, picture},
};
use std::{error::Error, time::Duration};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, bag, topic, count, side] = &arguments[..] else {
        return Err("scrub BAG TOPIC COUNT SIDE".into());
    };
    let (count, side): (i64, u32) = (count.parse()?, side.parse()?);
    let bags = BagSet::from(vec![Bag::open(bag)?.kept_open(64)]);
    let topics = bags.topics();
    let about = topics
        .iter()
        .find(|known| known.name == *topic)
        .ok_or("no such topic")?;
    let fields = Decoders::new(bags.clone()).find(about)?.fields()?;
    let (first, last) = bags.log_times().ok_or("an empty bag")?;
    let span = last.as_nanos() - first.as_nanos();
    let clock = holdall::SystemClock;
    let begin = holdall::Clock::monotonic(&clock);
    let mut bytes = 0;
    for number in 0..count {
        // Far from one another, in no order.
        let time = first.as_nanos() + (number * 7919 % count) * (span / count);
        let step = Step::At(Timestamp::from_nanos(time));
        let Found::Message(_, message) = find(&bags, topic, step, None, Budget(Duration::from_secs(10)))?
        else {
            continue;
        };
        let payload = fields.payload(&message.payload)?;
        let options = PictureOptions {
            side_max: Some(side),
            ..PictureOptions::default()
        };
        bytes += picture(fields.plan(), &payload, &options)?.bytes.len();
    }
    let took = holdall::Clock::monotonic(&clock)
        .saturating_sub(begin)
        .as_secs_f64();
    println!(
        "{topic}: {:.1} pictures a second, {} kB each",
        count as f64 / took,
        bytes as i64 / count / 1000
    );
    Ok(())
}
