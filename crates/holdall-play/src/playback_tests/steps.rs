//! Lock-step: acknowledgements that do not come, servers that come late, and what is hashed.

use super::{
    super::{
        discovery::SETTLE_POLL,
        options::{Lockstep, Pace},
        requests::{Replay, RequestReplay},
        status::StepReport,
        steps::listeners,
    },
    *,
};
use holdall_bag::reader::{Bag, BagSet};
use holdall_io::clock::{Clock, SystemClock};
use holdall_transport::ServiceReply;

/// A service of which this many servers exist, which never answer.
pub(super) struct Servers(pub Arc<AtomicUsize>);

impl ServiceClient for Servers {
    fn is_ready(&mut self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }

    fn send(&mut self, _payload: &[u8]) -> Result<u64, TransportError> {
        Ok(1)
    }

    fn poll(&mut self, _replies: &mut Vec<ServiceReply>) {}
}

/// A transport with this many reliable subscriptions, which have acknowledged this number of messages of each topic, and another one.
fn heard_by(reliable_subscriptions: usize, acknowledged: u64) -> Notebook {
    let notebook = Notebook::default();
    notebook.matched.store(1, Ordering::SeqCst);
    *notebook.delivery.lock().unwrap() = Some(Delivery {
        acknowledged,
        subscriptions: reliable_subscriptions + 1,
        reliable_subscriptions,
        kept_max: 1000,
    });
    notebook
}

fn lockstep(rule: &str) -> PlayOptions {
    PlayOptions {
        lockstep: Lockstep {
            rules: vec![rule.parse().expect("a rule")],
            ..Lockstep::default()
        },
        ..options()
    }
}

fn report(stage: Stage) -> StepReport {
    stage
        .playback
        .into_played()
        .parts
        .steps
        .report()
        .expect("lock-step")
}

#[test]
fn acknowledged_messages_are_answered() {
    let mut stage = Stage::over(
        heard_by(1, u64::MAX),
        &[(0, 0), (10, 1), (20, 0)],
        lockstep("ack"),
    );
    assert_eq!(stage.run_until(ms(1000)), Next::Ended);
    let steps = report(stage);
    assert_eq!((steps.steps, steps.answered, steps.missing), (3, 3, 0));
}

#[test]
fn messages_that_no_reliable_subscription_takes_are_missing_at_once_and_named() {
    let mut stage = Stage::over(heard_by(0, u64::MAX), &[(0, 0), (20, 0)], lockstep("/a=ack"));
    assert_eq!(stage.run_until(ms(1000)), Next::Ended);
    assert_eq!(stage.on("/a"), pairs(&[(0, "0"), (20, "20")]));
    let steps = report(stage);
    assert_eq!((steps.steps, steps.answered, steps.missing), (2, 0, 2));
    let first = steps.first_missing.expect("a sentence");
    assert!(
        first.ends_with("has none by ack: no reliable subscription is matched"),
        "{first}"
    );
}

#[test]
fn without_a_reliable_subscription_playback_ends_after_three_messages() {
    let messages = [(0, 0), (10, 0), (20, 0), (30, 0)];
    let mut stage = Stage::over(heard_by(0, u64::MAX), &messages, lockstep("/a=ack"));
    assert_eq!(stage.run_until(ms(1000)), Next::Ended);
    assert_eq!(stage.status().published, 3);
    let failure = stage.playback.into_played().failure.expect("a sentence");
    assert!(
        failure.starts_with("too many answers in a row did not come: message 1")
            && failure.ends_with("no reliable subscription is matched"),
        "{failure}"
    );
}

#[test]
fn a_subscription_that_leaves_has_acknowledged_nothing() {
    let mut stage = Stage::over(heard_by(1, 0), &[(0, 0), (20, 0)], lockstep("/a=ack"));
    stage.run_until(ms(15));
    assert_eq!(stage.status().published, 1, "it waits");
    // Without a reader all counts as acknowledged.
    let left = heard_by(0, u64::MAX);
    *stage.notebook.delivery.lock().unwrap() = *left.delivery.lock().unwrap();
    assert_eq!(stage.run_until(ms(1000)), Next::Ended);
    let steps = report(stage);
    assert_eq!((steps.steps, steps.answered, steps.missing), (2, 0, 2));
}

#[test]
fn topics_that_nothing_acknowledges_make_no_steps_unless_they_are_named() {
    for (rule, others, expected) in [("ack", 0, 0), ("ack", 1, 0), ("/a=ack", 0, 1), ("/a=ack", 1, 1)] {
        let notebook = heard_by(0, u64::MAX);
        if let Some(delivery) = &mut *notebook.delivery.lock().unwrap() {
            delivery.subscriptions = others;
        }
        let mut stage = Stage::over(notebook, &[(0, 0), (10, 1), (20, 1)], lockstep(rule));
        assert_eq!(stage.run_until(ms(1000)), Next::Ended);
        assert_eq!(stage.status().published, 3);
        let steps = report(stage);
        assert_eq!((steps.steps, steps.missing), (expected, expected), "{rule}");
    }
}

#[test]
fn playback_waits_for_the_server_of_a_step_however_late_it_comes() {
    let options = PlayOptions {
        pace: Pace::Listeners,
        requests: RequestReplay {
            services: true,
            ..RequestReplay::default()
        },
        ..lockstep("service /call")
    };
    let topic = TopicInfo {
        name: "/call/_service_event".to_owned(),
        type_name: "std_srvs/srv/Trigger_Event".to_owned(),
        serialization_format: "cdr".to_owned(),
        ..TopicInfo::default()
    };
    let topics = std::slice::from_ref(&topic);
    let notebook = Notebook::default();
    let bags = BagSet::from(Vec::<Bag>::new());
    let (wake, clock): (_, Arc<dyn Clock>) = (Arc::default(), Arc::new(SystemClock));
    let replay = Replay::new(options.requests, &bags, &wake, &clock);
    let choice = TopicChoice::new(&options).expect("valid options");
    let mut transports = notebook.as_transports();
    let publications =
        Publications::create(topics, &options, &choice, &mut transports, Some(replay)).expect("a client");
    let steps = Steps::new(&options.lockstep, &publications, topics, None, &wake).expect("rules");
    let [mut patient, mut limited] = [None, Some(ms(20_000))].map(|timeout| {
        let required = listeners(&options.lockstep, &[]);
        Discovery::new(Duration::ZERO, required, timeout)
    });
    for now in [0, 6000, 19_000].map(ms) {
        for discovery in [&mut patient, &mut limited] {
            let settled = discovery.settled_at(&publications, &steps, now);
            assert_eq!(settled, Ok(now + SETTLE_POLL));
        }
    }
    let late = ms(60_000);
    let ended = limited.settled_at(&publications, &steps, late);
    assert_eq!(ended, Err("after 20 s service /call has no server".to_owned()));
    assert_eq!(
        patient.settled_at(&publications, &steps, late),
        Ok(late + SETTLE_POLL)
    );
    notebook.matched.store(1, Ordering::SeqCst);
    assert_eq!(
        patient.settled_at(&publications, &steps, late),
        Ok(late + ms(300))
    );
}

#[test]
fn the_clock_before_the_first_message_stands_still_and_is_not_hashed() {
    let runs = [0, 700].map(|wait| {
        let options = PlayOptions {
            clock: ClockSource::Rate(50.0),
            discovery_wait: ms(wait),
            ..lockstep("/a=ack")
        };
        let mut stage = Stage::over(heard_by(1, u64::MAX), &[(0, 0), (40, 0)], options);
        assert_eq!(stage.run_until(ms(10_000)), Next::Ended);
        let (began, _) = stage.on("/a")[0];
        let early: Vec<i64> = stage
            .clock()
            .into_iter()
            .filter_map(|(when, time)| (when < began).then_some(time))
            .collect();
        assert!(early.iter().all(|time| *time == 0), "{early:?}");
        (early.len(), report(stage).published_sha256)
    });
    let [(none, at_once), (many, waited)] = runs;
    assert!(none == 0 && many > 10, "{none} and {many}");
    assert_eq!(at_once, waited);
}
