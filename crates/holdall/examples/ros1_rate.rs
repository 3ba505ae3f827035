//! How fast a ROS 1 bag is read unconverted, read and converted to ROS 2, and how fast its payloads are merely copied.
//!
//! `cargo run --release -p holdall --example ros1_rate -- old.bag`

#![allow(clippy::print_stdout, clippy::disallowed_methods)]

use holdall::reader::{Bag, BagSet, MessageFilter, ReadError, Ros1View};
use std::{error::Error, hint::black_box, path::Path, time::Instant};

/// Times that each is done; the best counts.
const ROUNDS: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("say which bag")?;
    let path = Path::new(&path);
    for (name, view) in [
        ("read", Ros1View::AsStored),
        ("read and converted", Ros1View::BagsConverted),
    ] {
        let mut best = f64::INFINITY;
        let mut found = (0, 0);
        for _ in 0..ROUNDS {
            let start = Instant::now();
            found = read(path, view, |_| ())?;
            best = best.min(start.elapsed().as_secs_f64());
        }
        tell(name, found, best);
    }
    let mut best = f64::INFINITY;
    let mut found = (0, 0);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        found = read(path, Ros1View::AsStored, |payload| {
            drop(black_box(payload.to_vec()))
        })?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    tell("read and copied", found, best);
    Ok(())
}

/// Messages and bytes.
fn read(path: &Path, view: Ros1View, mut with: impl FnMut(&[u8])) -> Result<(u64, u64), ReadError> {
    let bags = BagSet::from(vec![Bag::open_with(path, view)?]);
    let mut found = (0, 0);
    for message in bags.messages(&MessageFilter::default()) {
        let payload = message?.payload;
        with(&payload);
        found = (found.0 + 1, found.1 + payload.len() as u64);
    }
    Ok(found)
}

fn tell(name: &str, (messages, bytes): (u64, u64), seconds: f64) {
    println!(
        "{name:20} {messages} messages, {:.0} MB: {:.0} messages/s, {:.0} MB/s",
        bytes as f64 / 1e6,
        messages as f64 / seconds,
        bytes as f64 / 1e6 / seconds
    );
}
