//! When a publisher was found decides what it may have lost, however late that is carried out.

use super::*;
use crate::SteppedRecorder;
use holdall_bag::writer::OsFolder;
use holdall_model::time::Timestamp;
use holdall_transport::{GraphEvent, Sink, SubscribeRequest, Subscription, TransportError};

/// A transport whose second poll takes 600 ms, and then shows a publisher that is older than the recording.
struct SlowPoll {
    inner: MemoryTransport,
    clock: Arc<TestClock>,
    created: Timestamp,
    polls: u32,
}

impl Transport for SlowPoll {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn end_proof(&self) -> holdall_transport::EndProof {
        self.inner.end_proof()
    }

    fn poll_graph(&mut self, events: &mut Vec<GraphEvent>) -> Result<(), TransportError> {
        self.polls += 1;
        match self.polls {
            1 => return Ok(()),
            2 => self.clock.advance(Duration::from_millis(600)),
            _ => {}
        }
        self.inner.poll_graph(events)?;
        for event in events {
            if let GraphEvent::Publisher(publisher) = event {
                publisher.created = Some(self.created);
            }
        }
        Ok(())
    }

    fn subscribe(
        &mut self,
        request: &SubscribeRequest,
        sink: Arc<dyn Sink>,
    ) -> Result<Box<dyn Subscription>, TransportError> {
        self.inner.subscribe(request, sink)
    }

    fn publish(&mut self, request: &PublishRequest) -> Result<Box<dyn Publisher>, TransportError> {
        self.inner.publish(request)
    }

    fn now(&self) -> Timestamp {
        self.inner.now()
    }
}

#[test]
fn what_an_older_publisher_sent_before_a_slow_poll_found_it_is_no_loss() {
    let world = World::new();
    let publisher = world.publisher("/t", RELIABLE);
    publisher.lose(3);
    let created = world.clock.now();
    world.clock.advance(Duration::from_secs(1));
    let transport = SlowPoll {
        inner: MemoryTransport::new(&world.network, node("recorder"), world.clock()),
        clock: Arc::clone(&world.clock),
        created,
        polls: 0,
    };
    let mut recorder = SteppedRecorder::new(
        world.options.clone(),
        vec![Box::new(transport)],
        world.clock(),
        os_disk(DiskMode::Buffered, BlockPoolOptions::default()),
        Box::<OsFolder>::default(),
    )
    .unwrap();
    recorder.step_session();
    world.end_initial_discovery();
    recorder.step_session();
    assert_eq!(publisher.matched_subscriptions(), 1);
    publisher.send(&payload(1, 8));
    recorder.step_session();
    let (report, ledger) = recorder.stop_with_ledger();
    assert_eq!((report.status.recorded, report.status.lost), (1, 0), "{ledger:?}");
}
