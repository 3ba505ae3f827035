//! Publishes topics at a rate into shared memory and reports how exactly it kept the rate, to measure how
//! much a recorder disturbs publishers.
//!
//! `iceoryx2_rate TOPICS BYTES HZ SECONDS`: one thread for each topic, each a part of a period after the one before.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it prints its result")]

use holdall_io::clock::{Clock, SystemClock, wake_this_thread_exactly};
use holdall_model::qos::QosProfile;
use holdall_transport::{PublishRequest, Transport, iceoryx2::Iceoryx2Transport};
use std::{error::Error, sync::Arc, thread, time::Duration};

/// Sends until `until`; returns how many were sent, and the nanoseconds between each two.
fn run(
    mut publisher: Box<dyn holdall_transport::Publisher>,
    bytes: usize,
    period: Duration,
    begin: Duration,
    until: Duration,
) -> (u64, Vec<u64>) {
    wake_this_thread_exactly();
    let payload: Vec<u8> = (0..bytes).map(|at| (at / 64 % 251) as u8).collect();
    let (mut sent, mut periods, mut last) = (0, Vec::new(), None);
    let mut next = begin;
    while next < until {
        SystemClock.sleep_until(next);
        let now = SystemClock.monotonic();
        if let Some(last) = last.replace(now) {
            periods.push((now - last).as_nanos() as u64);
        }
        match publisher.publish(&payload) {
            Ok(()) => sent += 1,
            Err(error) => eprintln!("{error}"),
        }
        next += period;
    }
    (sent, periods)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<f64> = std::env::args()
        .skip(1)
        .map(|text| text.parse())
        .collect::<Result<_, _>>()?;
    let [topics, bytes, hertz, seconds] = arguments[..] else {
        return Err("usage: iceoryx2_rate TOPICS BYTES HZ SECONDS".into());
    };
    let mut transport = Iceoryx2Transport::new("iceoryx2_rate", Arc::new(SystemClock))?;
    let mut publishers = Vec::new();
    for number in 0..topics as usize {
        publishers.push(transport.publish(&PublishRequest {
            topic: format!("/camera{number}/image_raw"),
            type_name: "sensor_msgs/msg/Image".to_owned(),
            qos: QosProfile::ROS_DEFAULT,
            ..PublishRequest::default()
        })?);
    }
    // Time for a recorder to find them.
    thread::sleep(Duration::from_secs(2));
    println!("begin");
    let begin = SystemClock.monotonic() + Duration::from_millis(50);
    let until = begin + Duration::from_secs_f64(seconds);
    let period = Duration::from_secs_f64(1.0 / hertz);
    let threads: Vec<_> = publishers
        .into_iter()
        .enumerate()
        .map(|(number, publisher)| {
            let begin = begin + period.mul_f64(number as f64 / topics);
            thread::spawn(move || run(publisher, bytes as usize, period, begin, until))
        })
        .collect();
    let (mut sent, mut periods) = (0, Vec::new());
    for thread in threads {
        let (count, of_thread) = thread.join().map_err(|_| "a publisher panicked")?;
        sent += count;
        periods.extend(of_thread);
    }
    periods.sort_unstable();
    let at = |part: f64| {
        periods
            .get((periods.len() as f64 * part) as usize)
            .copied()
            .unwrap_or(0) as f64
            / 1e3
    };
    println!(
        "sent {sent}, {:.0} MB/s, period p50 {:.0} us, p99 {:.0} us, max {:.0} us",
        sent as f64 * bytes / seconds / 1e6,
        at(0.5),
        at(0.99),
        at(1.0 - f64::EPSILON)
    );
    thread::sleep(Duration::from_secs(1));
    Ok(())
}
