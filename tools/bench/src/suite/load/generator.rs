//! Sends the publishers' messages, each publisher at its own rate, from few threads that never wait for late
//! receivers.

use super::publishers::Publishers;
use crate::{
    candidate::producers::gid,
    error::BenchResult,
    measure::{Latencies, side_by_side},
    workload::Schedule,
};
use holdall_io::{
    clock::{Clock, wake_this_thread_exactly},
    process::thread_cpu_time,
};
use holdall_model::{
    message::{MessageHeader, Payload},
    time::Timestamp,
};
use holdall_transport::Sink;
use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc, time::Duration};

/// Messages of at least this size are offered as loans, as transports do.
const LOAN_BYTES_MIN: usize = 64 << 10;

/// Messages due within this time are sent without sleeping again: a sleep costs as much as several messages.
const WAKE_GRAIN: Duration = Duration::from_micros(50);

/// Many publishers send in bunches: a message waits at most for this part of the shortest period, …
const BUNCH_PERIOD_PART: f64 = 40.0;

/// … and never longer than this. Setting a timer and waking up is the most expensive step of a generator: 15
/// µs on a virtual machine.
const BUNCH_MAX: Duration = Duration::from_micros(500);

/// Messages sent, and their precision.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    /// Messages of each publisher.
    pub messages: Vec<u64>,
    /// How long offers took.
    pub offers: Latencies,
    /// How much later than planned messages were offered.
    pub lateness: Latencies,
    /// Processor time of the generator, offers included.
    pub cpu: Duration,
    /// Time from the first due time to the end of the last offer.
    pub elapsed: Duration,
}

/// Sends everything, publisher `i` to `sinks[i]`, and returns when all of it was offered. With `loans` large
/// messages are lent, as a transport lends its receive buffers; without, every message is copied into one
/// piece, as a node does.
///
/// # Errors
/// When a thread cannot be started.
pub fn generate(
    publishers: &Publishers,
    sinks: &[Arc<dyn Sink>],
    threads: u32,
    loans: bool,
    clock: &dyn Clock,
) -> BenchResult<Sent> {
    // Late enough that every thread is ready.
    let start = clock.monotonic() + Duration::from_millis(20);
    let threads = threads.max(1);
    let run = |thread| {
        let one = Generator {
            publishers,
            sinks,
            loans,
            clock,
        };
        one.run(thread, threads, start)
    };
    let mut all = Sent {
        messages: vec![0; publishers.publishers.len()],
        ..Sent::default()
    };
    for one in side_by_side("generator", threads, run)? {
        let sums = all.messages.iter_mut().zip(&one.messages);
        sums.for_each(|(sum, part)| *sum += part);
        all.offers.merge(&one.offers);
        all.lateness.merge(&one.lateness);
        all.cpu += one.cpu;
        all.elapsed = all.elapsed.max(one.elapsed);
    }
    Ok(all)
}

struct Generator<'a> {
    publishers: &'a Publishers,
    sinks: &'a [Arc<dyn Sink>],
    loans: bool,
    clock: &'a dyn Clock,
}

impl Generator<'_> {
    fn run(self, thread: u32, threads: u32, start: Duration) -> Sent {
        wake_this_thread_exactly();
        let schedules = self.schedules(start);
        let bunch = self.bunch(threads);
        let mut sent = Sent {
            messages: vec![0; schedules.len()],
            ..Sent::default()
        };
        // Every thread gets a share of each group: neighbours of a group go to different threads.
        let own = (0..schedules.len()).filter(|index| index % threads as usize == thread as usize);
        let mut due: BinaryHeap<_> = own
            .filter_map(|index| Some(Reverse((schedules[index]?.due(0), index))))
            .collect();
        let mut buffer = Vec::new();
        let mut now = self.clock.monotonic();
        while let Some(Reverse((at, index))) = due.pop() {
            if at > now {
                now = self.clock.monotonic();
                if at > now + WAKE_GRAIN {
                    self.clock.sleep_until(at + bunch);
                    now = self.clock.monotonic();
                }
            }
            sent.lateness.record(now.saturating_sub(at));
            self.offer(index, sent.messages[index], &mut buffer);
            let after = self.clock.monotonic();
            sent.offers.record(after.saturating_sub(now));
            now = after;
            sent.messages[index] += 1;
            let left = sent.messages[index] < self.publishers.group_of(index).config.msg_count_each;
            if let Some(schedule) = schedules[index].filter(|_| left) {
                due.push(Reverse((schedule.due(sent.messages[index]), index)));
            }
        }
        sent.elapsed = now.saturating_sub(start);
        sent.cpu = thread_cpu_time().total();
        sent
    }

    /// Publishers of a group start one after the other within a period, so that they are not due at the same
    /// time. Rates were checked when the file was read.
    fn schedules(&self, start: Duration) -> Vec<Option<Schedule>> {
        let of = |publisher: &super::Publisher| {
            let config = &self.publishers.groups[publisher.group].config;
            Schedule::new(start, config.rate_hz, publisher.place, config.publishers_count)
        };
        self.publishers.publishers.iter().map(of).collect()
    }

    /// How long a thread sleeps beyond the next message, so that others are due as well when it wakes; zero
    /// without others.
    fn bunch(&self, threads: u32) -> Duration {
        let groups = self.publishers.groups.iter().map(|group| &group.config);
        let rate_hz: f64 = groups
            .clone()
            .map(|group| group.rate_hz * f64::from(group.publishers_count))
            .sum();
        let shortest_s = groups.map(|group| 1.0 / group.rate_hz).fold(1.0, f64::min);
        let wait = Duration::from_secs_f64(shortest_s / BUNCH_PERIOD_PART).min(BUNCH_MAX);
        let due_meanwhile = wait.as_secs_f64() * rate_hz / f64::from(threads);
        if due_meanwhile < 2.0 { Duration::ZERO } else { wait }
    }

    fn offer(&self, publisher: usize, index: u64, buffer: &mut Vec<u8>) {
        let group = self.publishers.group_of(publisher);
        let place = self.publishers.publishers[publisher].place;
        let stamp: Timestamp = self.clock.now();
        let header = MessageHeader {
            publisher: Some(gid(publisher as u64)),
            sequence: Some(index + 1),
            publish_time: Some(stamp),
            log_time: stamp,
        };
        let payload = if let Some(whole) = group.whole(place, index) {
            Payload::Borrowed(whole)
        } else if self.loans && group.frame.message_bytes() >= LOAN_BYTES_MIN {
            Payload::Loaned(group.loan(place, index))
        } else {
            group.assemble(place, index, buffer);
            Payload::Borrowed(buffer)
        };
        self.sinks[publisher].offer(header, payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::config::ProducerConfig;
    use holdall_io::clock::SystemClock;
    use std::sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    };

    #[derive(Default)]
    struct Received(Mutex<Vec<(u64, usize)>>);

    impl Sink for Received {
        fn offer(&self, header: MessageHeader, payload: Payload<'_>) {
            self.0
                .lock()
                .unwrap()
                .push((header.sequence.unwrap(), payload.len()));
        }
    }

    #[test]
    fn every_publisher_sends_its_messages_in_order() {
        let text = "rosbag2_performance_benchmarking_node: {ros__parameters: {publishers: {publisher_groups: [a, b], \
                    a: {publishers_count: 3, topic_root: a, msg_size_bytes: 100, msg_count_each: 40, rate_hz: 4000}, \
                    b: {publishers_count: 1, topic_root: b, msg_size_bytes: 100000, msg_count_each: 5, rate_hz: 1000}}}}";
        let publishers = Publishers::new(&ProducerConfig::parse(text).unwrap(), 1).unwrap();
        let received: Vec<Arc<Received>> = (0..4).map(|_| Arc::new(Received::default())).collect();
        let sinks: Vec<Arc<dyn Sink>> = received
            .iter()
            .map(|one| Arc::clone(one) as Arc<dyn Sink>)
            .collect();
        let sent = generate(&publishers, &sinks, 2, true, &SystemClock).unwrap();
        assert_eq!(sent.messages, [40, 40, 40, 5]);
        for (index, (count, bytes)) in [(40, 108), (40, 108), (40, 108), (5, 100_008)]
            .into_iter()
            .enumerate()
        {
            let expected: Vec<(u64, usize)> = (1..=count).map(|sequence| (sequence, bytes)).collect();
            assert_eq!(*received[index].0.lock().unwrap(), expected);
        }
    }

    /// A clock that advances by a microsecond with every reading and by the whole time of a sleep; it counts
    /// both.
    #[derive(Default)]
    struct CountingClock {
        nanos: AtomicU64,
        readings: AtomicU64,
        sleeps: AtomicU64,
    }

    impl Clock for CountingClock {
        fn now(&self) -> Timestamp {
            self.readings.fetch_add(1, Ordering::Relaxed);
            Timestamp::from_nanos(0)
        }

        fn monotonic(&self) -> Duration {
            self.readings.fetch_add(1, Ordering::Relaxed);
            Duration::from_nanos(self.nanos.fetch_add(1000, Ordering::Relaxed))
        }

        fn sleep_until(&self, deadline: Duration) {
            self.sleeps.fetch_add(1, Ordering::Relaxed);
            let nanos = u64::try_from(deadline.as_nanos()).unwrap();
            self.nanos.fetch_max(nanos, Ordering::Relaxed);
        }
    }

    /// 100 000 messages a second of 1000 publishers: one thread suffices, and every publisher sends on time.
    #[test]
    fn a_thousand_publishers_need_one_thread() {
        let text = "rosbag2_performance_benchmarking_node: {ros__parameters: {publishers: {publisher_groups: [a], \
                    a: {publishers_count: 1000, topic_root: a, msg_size_bytes: 100, msg_count_each: 20, rate_hz: 100}}}}";
        let publishers = Publishers::new(&ProducerConfig::parse(text).unwrap(), 1).unwrap();
        let received: Vec<Arc<Received>> = (0..1000).map(|_| Arc::new(Received::default())).collect();
        let sinks: Vec<Arc<dyn Sink>> = received
            .iter()
            .map(|one| Arc::clone(one) as Arc<dyn Sink>)
            .collect();
        let sent = generate(&publishers, &sinks, 1, true, &CountingClock::default()).unwrap();
        assert_eq!(sent.messages, vec![20; 1000]);
        assert!(received.iter().all(|one| one.0.lock().unwrap().len() == 20));
        // The last of 20 000 is due 199.99 ms after the first.
        let late_s = sent.elapsed.as_secs_f64() - 0.199_99;
        assert!(late_s.abs() < 0.000_4, "{late_s}");
        let worst = sent.lateness.summary().unwrap().max_ns;
        // Bunches of a quarter of a millisecond.
        assert!(worst < 350_000, "{worst} ns late");
    }

    /// At 10 kHz the rate is kept to a thousandth, and at 500 MB/s a message costs a few clock readings, at
    /// most one sleep, and no copy; `docs/benchmarks/suite.md` has the processor time of that.
    #[test]
    fn rates_are_kept_and_a_message_costs_little() {
        let one = |publishers: u64, size: usize, rate: u64| {
            let each = rate / publishers;
            let text = format!(
                "rosbag2_performance_benchmarking_node: {{ros__parameters: {{publishers: {{publisher_groups: [a], a: {{\
                 publishers_count: {publishers}, topic_root: a, msg_size_bytes: {size}, msg_count_each: {each}, rate_hz: {each}}}}}}}}}"
            );
            let publishers = Publishers::new(&ProducerConfig::parse(&text).unwrap(), 1).unwrap();
            let received = Arc::new(Received::default());
            let clock = CountingClock::default();
            let sinks = vec![Arc::clone(&received) as Arc<dyn Sink>; publishers.publishers.len()];
            let sent = generate(&publishers, &sinks, 1, true, &clock).unwrap();
            assert_eq!(received.0.lock().unwrap().len() as u64, rate);
            let found_hz = (rate - 1) as f64 / sent.elapsed.as_secs_f64();
            let per_message = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64 / rate as f64;
            (
                found_hz / rate as f64 - 1.0,
                per_message(&clock.readings),
                per_message(&clock.sleeps),
                sent.lateness.summary().unwrap().max_ns,
            )
        };
        // With a hundred publishers at 100 Hz each, several messages are sent at a time, at most a fortieth
        // of their period late.
        for (publishers, size, rate, sleeps_max, late_max_ns) in [
            (1, 100, 10_000, 1.01, 20_000),
            (1, 50_000, 10_000, 1.01, 20_000),
            (1, 1_000_000, 500, 1.01, 20_000),
            (100, 50_000, 10_000, 0.51, 270_000),
            (1000, 5_000, 100_000, 0.05, 270_000),
        ] {
            let (error, readings, sleeps, late_ns) = one(publishers, size, rate);
            let what = format!("{publishers} × {size} B, {rate} messages a second");
            assert!(error.abs() < 0.001, "{what}: rate off by {error}");
            assert!(
                readings <= 5.01 && sleeps <= sleeps_max,
                "{what}: {readings} readings, {sleeps} sleeps"
            );
            assert!(late_ns <= late_max_ns, "{what}: {late_ns} ns late");
        }
    }
}
