//! A bug in one of the recorder's threads ends the recording with a closed bag.

use super::*;
use holdall_model::time::Timestamp;
use holdall_transport::{GraphEvent, Sink, SubscribeRequest, Subscription, TransportError};
use std::{sync::Mutex, thread};

/// A clock that panics once on the thread of this name.
#[derive(Default)]
struct FaultyClock(Mutex<Option<&'static str>>);

impl Clock for FaultyClock {
    fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    fn monotonic(&self) -> Duration {
        let mut faulty = self.0.lock().unwrap();
        if faulty.is_some() && thread::current().name() == *faulty {
            *faulty = None;
            drop(faulty);
            panic!("a bug that the test made");
        }
        SystemClock.monotonic()
    }

    fn sleep_until(&self, deadline: Duration) {
        SystemClock.sleep_until(deadline);
    }
}

/// Records 100 messages, has the thread panic, and returns the report when the recording has ended by itself.
fn record_until_a_bug_in(name: &'static str) -> Recorded {
    let mut world = World::new();
    world.options.safety.max_loss_window = Some(Duration::from_millis(50));
    let clock = Arc::new(FaultyClock::default());
    let transport = MemoryTransport::new(&world.network, node("recorder"), world.clock());
    let platform = Platform {
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        open_disk: os_disk(DiskMode::Buffered, BlockPoolOptions::default()),
        ..Platform::default()
    };
    let recorder = Recorder::start_on(world.options.clone(), vec![Box::new(transport)], platform);
    let recorder = recorder.unwrap_or_else(|error| panic!("{error}"));
    let recording = Recording {
        control: recorder.control(),
        recorder,
        output: world.options.output.clone(),
    };
    let publisher = world.publisher("/t", RELIABLE);
    recording.wait_matched(&publisher);
    for number in 0..100 {
        publisher.send(&payload(number, 100));
    }
    recording.wait_until("all messages are durable", |recording| {
        let status = recording.recorder.status();
        status.topics.iter().map(|topic| topic.durable).sum::<u64>() == 100
    });
    *clock.0.lock().unwrap() = Some(name);
    assert!(
        recording.recorder.wait_finished(PATIENCE),
        "the recording did not end by itself"
    );
    let recorded = Recorded {
        report: recording.recorder.stop(),
        output: recording.output,
    };
    // Read before the folder is removed.
    let bytes = fs::read(&recorded.report.files[0]).unwrap();
    let ignore_end = mcap::read::Options::IgnoreEndMagic.into();
    let stream = mcap::MessageStream::new_with_options(&bytes, ignore_end).unwrap();
    assert_eq!(stream.take_while(Result::is_ok).count(), 100);
    let summary = mcap::Summary::read(&bytes).unwrap().unwrap();
    assert_eq!(summary.stats.unwrap().message_count, 100, "it has its index");
    assert_eq!(recorded.metadata().message_count, 100);
    recorded
}

#[test]
fn a_bug_in_the_recording_thread_ends_the_recording_with_a_closed_bag() {
    let recorded = record_until_a_bug_in("record");
    let failure = recorded.report.failure.unwrap();
    assert!(failure.contains("internal reason"), "{failure}");
}

#[test]
fn a_bug_in_the_writing_thread_ends_the_recording_with_a_closed_bag() {
    let recorded = record_until_a_bug_in("drain");
    let failure = recorded.report.failure.unwrap();
    assert!(
        failure.contains("writing thread failed for an internal reason"),
        "{failure}"
    );
}

/// A transport that panics when it is dropped.
struct BadEnd(MemoryTransport);

impl Transport for BadEnd {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn end_proof(&self) -> holdall_transport::EndProof {
        self.0.end_proof()
    }

    fn poll_graph(&mut self, events: &mut Vec<GraphEvent>) -> Result<(), TransportError> {
        self.0.poll_graph(events)
    }

    fn subscribe(
        &mut self,
        request: &SubscribeRequest,
        sink: Arc<dyn Sink>,
    ) -> Result<Box<dyn Subscription>, TransportError> {
        self.0.subscribe(request, sink)
    }

    fn publish(&mut self, request: &PublishRequest) -> Result<Box<dyn Publisher>, TransportError> {
        self.0.publish(request)
    }

    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

impl Drop for BadEnd {
    fn drop(&mut self) {
        panic!("a bug that the test made");
    }
}

#[test]
fn a_bug_in_a_transports_end_takes_nothing_from_the_report() {
    let mut world = World::new();
    let publisher = world.publisher("/t", RELIABLE);
    let transport = MemoryTransport::new(&world.network, node("recorder"), world.clock());
    let recording = world.record_over(vec![Box::new(BadEnd(transport))]);
    let recording = recording.unwrap_or_else(|error| panic!("{error}"));
    recording.wait_matched(&publisher);
    publisher.send(&payload(0, 100));
    recording.wait_recorded(1);
    let recorded = recording.stop();
    assert_eq!(recorded.report.failure, None);
    assert_eq!((recorded.report.files.len(), recorded.messages().len()), (1, 1));
}
