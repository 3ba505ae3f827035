//! Requirements for every transport; each backend joins with one line at the end.

#[cfg(feature = "dds")]
mod dds;
mod support;
#[cfg(feature = "zenoh")]
mod zenoh;

use holdall_model::{
    message::{MessageHeader, Payload},
    qos::{Durability, History, QosProfile, Reliability},
    topic::NodeName,
};
use holdall_transport::{GraphEvent, ServiceDescription, Sink, SubscribeRequest, Transport, TransportError};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};
use support::*;

/// Two participants that see each other; nodes `/recorder` and `/talker`.
struct Pair {
    ours: Box<dyn Transport>,
    theirs: Box<dyn Transport>,
}

fn the_last_announced_sequence_is_known_without_any_message(Pair { mut ours, mut theirs }: Pair) {
    let topic = topic("announced");
    let mut publisher = publish(&mut *theirs, &topic, STRING, reliable(10));
    (0..7).for_each(|_| publisher.publish(&string("before anyone listens")).unwrap());
    let (keeper, subscription) = subscribe(&mut *ours, &topic, STRING, reliable(10));
    let mut announced = Vec::new();
    assert!(wait_until(|| {
        announced = subscription.announced_sequences();
        !announced.is_empty()
    }));
    let gid = discover(&mut *ours, &topic, 1)[0].gid;
    assert_eq!(announced, [(gid, 7)]);
    assert_eq!(keeper.len(), 0);
    publisher.publish(&string("heard")).unwrap();
    assert!(wait_until(
        || keeper.len() == 1 && subscription.announced_sequences() == [(gid, 8)]
    ));
    drop(publisher);
    assert!(wait_until(|| subscription.announced_sequences().is_empty()));
}

fn messages_of_all_sizes_arrive_exactly(Pair { mut ours, mut theirs }: Pair) {
    let topic = topic("sizes");
    let (keeper, _subscription) = subscribe(&mut *ours, &topic, IMAGE, reliable(1));
    let mut publisher = publish(&mut *theirs, &topic, IMAGE, reliable(100));
    assert!(wait_until(|| publisher.matched_subscriptions() == 1));
    // Around one fragment, one packet, and the size from which payloads are lent.
    let sizes = [
        8, 1340, 1344, 1348, 14_720, 65_532, 65_536, 65_540, 300_000, 6_220_856,
    ];
    let sent: Vec<_> = sizes
        .iter()
        .enumerate()
        .map(|(number, len)| patterned(number, *len))
        .collect();
    sent.iter()
        .for_each(|payload| publisher.publish(payload).unwrap());
    assert!(publisher.wait_for_acked(DEADLINE));
    assert!(
        wait_until(|| keeper.len() >= sent.len()),
        "{} of {}",
        keeper.len(),
        sent.len()
    );
    assert!(keeper.payloads() == sent);
    for kept in keeper.kept.lock().unwrap().iter() {
        assert_eq!(
            kept.loan.is_some(),
            kept.bytes.len() >= 65_536,
            "{}",
            kept.bytes.len()
        );
    }
    let publisher = discover(&mut *ours, &topic, 1).remove(0);
    assert_eq!(keeper.sequences(), [(publisher.gid, (1..=10).collect())].into());
    assert_eq!(publisher.type_hash, Some(format!("RIHS01_{}", "ab".repeat(32))));
    assert_eq!(
        (publisher.qos.history, publisher.qos.depth),
        (History::KeepLast, 100)
    );
}

fn latched_history_is_as_deep_as_offered(Pair { mut ours, mut theirs }: Pair) {
    let topic = topic("deep");
    let mut publisher = publish(&mut *theirs, &topic, STRING, latched(3));
    (0..5).for_each(|n| publisher.publish(&string(&format!("map{n:04}"))).unwrap());
    assert_eq!(
        discover(&mut *ours, &topic, 1)[0].qos.durability,
        Durability::TransientLocal
    );
    let (keeper, _subscription) = subscribe(&mut *ours, &topic, STRING, latched(1));
    assert!(wait_until(|| keeper.len() >= 3));
    assert_eq!(keeper.sequences().into_values().collect::<Vec<_>>(), [[3, 4, 5]]);
    let (volatile, _second) = subscribe(&mut *ours, &topic, STRING, reliable(1));
    publisher.publish(&string("map0005")).unwrap();
    assert!(wait_until(|| volatile.len() >= 1 && keeper.len() >= 4));
    assert_eq!(volatile.payloads(), [string("map0005")]);
}

fn incompatible_qos_does_not_match_and_best_effort_hears_both(Pair { mut ours, mut theirs }: Pair) {
    let topic = topic("mixed");
    let weak = QosProfile {
        reliability: Reliability::BestEffort,
        ..reliable(10)
    };
    let mut publishers = [
        publish(&mut *theirs, &topic, STRING, weak),
        publish(&mut *theirs, &topic, STRING, reliable(10)),
    ];
    let (_strong, strong) = subscribe(&mut *ours, &topic, STRING, reliable(10));
    let (keeper, soft) = subscribe(&mut *ours, &topic, STRING, weak);
    assert!(wait_until(
        || soft.matched_publishers() == 2 && strong.matched_publishers() == 1
    ));
    assert!(wait_until(|| publishers
        .iter()
        .map(|one| one.matched_subscriptions())
        .sum::<usize>()
        == 3));
    // Until the first heartbeat of a reliable publisher, best-effort subscriptions next to reliable ones receive nothing
    // from it.
    assert!(wait_until(|| {
        publishers
            .iter_mut()
            .for_each(|publisher| publisher.publish(&string("to all")).unwrap());
        keeper.sequences().len() == 2
    }));
}

fn own_endpoints_are_not_shown_and_those_of_others_come_and_go(Pair { mut ours, mut theirs }: Pair) {
    let topic = topic("graph");
    let _own_publisher = publish(&mut *ours, &topic, STRING, reliable(1));
    let (_keeper, _own_subscription) = subscribe(&mut *ours, &topic, STRING, reliable(1));
    let publisher = publish(&mut *theirs, &topic, STRING, reliable(1));
    let (_their_keeper, subscription) = subscribe(&mut *theirs, &topic, STRING, reliable(1));
    let (mut publishers, mut subscriptions) = (BTreeMap::new(), BTreeMap::new());
    let mut look = |ours: &mut dyn Transport| {
        let mut events = Vec::new();
        ours.poll_graph(&mut events).unwrap();
        for event in events {
            match event {
                GraphEvent::Publisher(info) if info.topic == topic => drop(publishers.insert(info.gid, info)),
                GraphEvent::Subscription(info) if info.topic == topic => {
                    drop(subscriptions.insert(info.gid, info))
                }
                GraphEvent::PublisherGone(gid)
                | GraphEvent::PublisherLeft { gid, .. }
                | GraphEvent::PublisherSilent { gid, .. } => {
                    drop(publishers.remove(&gid));
                }
                GraphEvent::SubscriptionGone(gid) => drop(subscriptions.remove(&gid)),
                _ => {}
            }
        }
        let named = publishers.values().chain(subscriptions.values()).all(|info| {
            info.node
                .as_ref()
                .is_some_and(|node| node.to_string() == "/talker")
                && info.type_name == STRING
        });
        (publishers.len(), subscriptions.len(), named)
    };
    assert!(wait_until(|| look(&mut *ours) == (1, 1, true)));
    drop(publisher);
    drop(subscription);
    assert!(wait_until(|| look(&mut *ours) == (0, 0, true)));
}

fn no_call_comes_after_a_subscription_is_dropped(Pair { mut ours, mut theirs }: Pair) {
    let topic = topic("flood");
    let weak = QosProfile {
        reliability: Reliability::BestEffort,
        ..reliable(1)
    };
    let mut publisher = publish(&mut *theirs, &topic, STRING, weak);
    let stop = AtomicBool::new(false);
    let request = SubscribeRequest {
        topic,
        type_name: STRING.to_owned(),
        qos: weak,
    };
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                publisher.publish(&string("flood")).unwrap();
            }
        });
        for _ in 0..20 {
            let sink = Arc::new(Guarded::default());
            let subscription = ours
                .subscribe(&request, Arc::clone(&sink) as Arc<dyn Sink>)
                .unwrap();
            assert!(wait_until(|| sink.calls.load(Ordering::SeqCst) > 10));
            drop(subscription);
            let calls = sink.calls.load(Ordering::SeqCst);
            sink.closed.store(true, Ordering::SeqCst);
            (0..1000).for_each(|_| std::thread::yield_now());
            assert_eq!(sink.calls.load(Ordering::SeqCst), calls);
        }
        stop.store(true, Ordering::Relaxed);
        flood.join().unwrap();
    });
}
/// Fails when it is called after it was closed.
#[derive(Default)]
struct Guarded {
    closed: AtomicBool,
    calls: AtomicUsize,
}

impl Sink for Guarded {
    fn offer(&self, _: MessageHeader, payload: Payload<'_>) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        std::hint::black_box(payload.len());
        assert!(
            !self.closed.load(Ordering::SeqCst),
            "called after the subscription was dropped"
        );
    }
}

fn bad_names_are_refused_with_a_reason(Pair { mut ours, .. }: Pair) {
    let request = SubscribeRequest {
        topic: "/bad name".to_owned(),
        type_name: STRING.to_owned(),
        qos: reliable(1),
    };
    let error = ours
        .subscribe(&request, Arc::new(Keeper::default()))
        .err()
        .expect("a name with a space");
    assert!(
        matches!(&error, TransportError::Topic { topic, .. } if topic == "/bad name"),
        "{error}"
    );
}

fn loans_outlive_subscription_and_transport(Pair { mut ours, mut theirs }: Pair) {
    let topic = topic("loans");
    let (keeper, subscription) = subscribe(&mut *ours, &topic, IMAGE, reliable(10));
    let mut publisher = publish(&mut *theirs, &topic, IMAGE, reliable(10));
    assert!(wait_until(|| publisher.matched_subscriptions() == 1));
    let sent: Vec<_> = (0..10).map(|number| patterned(number, 500_000)).collect();
    sent.iter()
        .for_each(|payload| publisher.publish(payload).unwrap());
    assert!(wait_until(|| keeper.len() == 10));
    drop((subscription, publisher, ours, theirs));
    let kept = std::mem::take(&mut *keeper.kept.lock().unwrap());
    // In another thread and in another order than they came.
    std::thread::spawn(move || {
        for (kept, sent) in kept.into_iter().zip(sent).rev() {
            let loan = kept.loan.expect("half a megabyte is lent");
            let mut bytes = Vec::new();
            loan.for_each_slice(&mut |slice| bytes.extend_from_slice(slice));
            assert!(bytes == sent && loan.pinned_bytes() >= loan.len());
        }
    })
    .join()
    .unwrap();
}

fn a_service_answers_each_client(Pair { mut ours, mut theirs }: Pair) {
    let service = ServiceDescription {
        name: topic("service"),
        type_name: "std_srvs/srv/SetBool".to_owned(),
        type_hash: None,
    };
    let woken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&woken);
    let wake = Arc::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let mut server = ours.serve(&service, wake).unwrap();
    let mut clients = [(); 2].map(|()| theirs.client(&service, Arc::new(|| {})).unwrap());
    assert!(wait_until(|| clients.iter_mut().all(|client| client.is_ready())));
    let body = |number: u8| [&[0, 1, 0, 0][..], &[number; 4]].concat();
    let sent: Vec<_> = clients
        .iter_mut()
        .zip([10, 20])
        .flat_map(|(client, first)| [first, first + 1].map(|number| client.send(&body(number)).unwrap()))
        .collect();
    let mut requests = Vec::new();
    assert!(wait_until(|| {
        server.poll(&mut requests);
        requests.len() == 4
    }));
    assert!(woken.load(Ordering::SeqCst) > 0);
    for request in requests.iter().rev() {
        server
            .reply(&request.id, &body(request.payload[4] + 100).into())
            .unwrap();
    }
    for (client, (first, numbers)) in clients.iter_mut().zip([10, 20].into_iter().zip(sent.chunks(2))) {
        let mut replies = Vec::new();
        assert!(wait_until(|| {
            server.poll(&mut Vec::new());
            client.poll(&mut replies);
            replies.len() == 2
        }));
        replies.sort_by_key(|reply| reply.number);
        let found: Vec<_> = replies
            .iter()
            .map(|reply| (reply.number, reply.payload.clone()))
            .collect();
        let expected = [
            (numbers[0], Ok(body(first + 100))),
            (numbers[1], Ok(body(first + 101))),
        ];
        assert_eq!(found, expected);
    }
    drop(server);
    let [client, _] = &mut clients;
    assert!(wait_until(|| !client.is_ready()));
    assert!(client.send(&body(1)).is_err());
}

fn services_refuse_bad_names_and_payloads(Pair { mut ours, .. }: Pair) {
    let mut service = ServiceDescription {
        name: "no slash".to_owned(),
        type_name: "std_srvs/srv/Empty".to_owned(),
        type_hash: None,
    };
    let refused = |error: TransportError| matches!(error, TransportError::Service { .. });
    assert!(ours.serve(&service, Arc::new(|| {})).is_err_and(refused));
    assert!(ours.client(&service, Arc::new(|| {})).is_err_and(refused));
    service.name = topic("strict");
    let mut client = ours.client(&service, Arc::new(|| {})).unwrap();
    assert!(client.send(&[0, 1]).is_err_and(refused));
}

/// Makes a test of each statement for one transport.
macro_rules! conformance {
    ($transport:ident, $pair:expr, [$($statement:ident),* $(,)?]) => {
        mod $transport {
            $(#[test]
            fn $statement() {
                super::$statement($pair);
            })*
        }
    };
    ($transport:ident, $pair:expr) => {
        conformance!($transport, $pair, [
            messages_of_all_sizes_arrive_exactly,
            latched_history_is_as_deep_as_offered,
            incompatible_qos_does_not_match_and_best_effort_hears_both,
            own_endpoints_are_not_shown_and_those_of_others_come_and_go,
            no_call_comes_after_a_subscription_is_dropped,
            the_last_announced_sequence_is_known_without_any_message,
            bad_names_are_refused_with_a_reason,
            loans_outlive_subscription_and_transport,
            a_service_answers_each_client,
            services_refuse_bad_names_and_payloads,
        ]);
    };
}

fn memory_pair() -> Pair {
    use holdall_io::clock::SystemClock;
    use holdall_transport::memory::{MemoryNetwork, MemoryTransport};
    let network = MemoryNetwork::new();
    let join = |name: &str| {
        let node = NodeName {
            namespace: "/".to_owned(),
            name: name.to_owned(),
        };
        Box::new(MemoryTransport::new(&network, node, Arc::new(SystemClock)))
    };
    Pair {
        ours: join("recorder"),
        theirs: join("talker"),
    }
}

#[cfg(feature = "dds")]
fn dds_pair() -> Pair {
    let domain = dds::domain();
    let join = |name: &str| Box::new(dds::transport(domain, name));
    Pair {
        ours: join("recorder"),
        theirs: join("talker"),
    }
}

conformance!(memory, super::memory_pair());
#[cfg(feature = "dds")]
conformance!(dds_backend, super::dds_pair());

/// One waits for the other on a port of this machine.
#[cfg(feature = "zenoh")]
fn zenoh_pair() -> Pair {
    let meeting = zenoh::Meeting::new();
    let theirs = Box::new(meeting.host("talker", "peer"));
    let ours = Box::new(meeting.guest("recorder", "peer"));
    Pair { ours, theirs }
}

// In zenoh every subscription matches every publisher, and publishers do not announce their sent messages.
#[cfg(feature = "zenoh")]
conformance!(
    zenoh_backend,
    super::zenoh_pair(),
    [
        messages_of_all_sizes_arrive_exactly,
        latched_history_is_as_deep_as_offered,
        own_endpoints_are_not_shown_and_those_of_others_come_and_go,
        no_call_comes_after_a_subscription_is_dropped,
        bad_names_are_refused_with_a_reason,
        loans_outlive_subscription_and_transport,
        a_service_answers_each_client,
        services_refuse_bad_names_and_payloads,
    ]
);
