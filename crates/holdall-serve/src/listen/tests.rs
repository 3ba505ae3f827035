//! A listener on a transport in memory.

use super::*;
use holdall_io::clock::{Clock, SystemClock};
use holdall_model::selection::Selection;
use holdall_transport::{
    PublishRequest, Publisher,
    memory::{MemoryNetwork, MemoryTransport},
};

/// A listener to texts on `/chatter`, and the publisher.
fn listening(condition: Option<&str>) -> (Listener, impl Publisher) {
    let network = MemoryNetwork::new();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let request = PublishRequest {
        topic: "/chatter".to_owned(),
        type_name: "std_msgs/msg/String".to_owned(),
        ..PublishRequest::default()
    };
    let talker = network.publisher(&NodeName::in_root("talker"), &request, &clock);
    let node = NodeName::in_root("listener");
    let transport = MemoryTransport::new(&network, node.clone(), Arc::clone(&clock));
    let options = ListenOptions {
        filter: Selection::of_topics(["/chatter"]).compile(&node).unwrap(),
        ament_prefixes: Vec::new(),
        window: 100,
        keeps_messages: true,
        condition: condition.map(str::to_owned),
        clock,
    };
    (Listener::new(options, vec![Box::new(transport)]), talker)
}

#[test]
fn messages_that_do_not_fulfil_the_condition_count_nowhere() {
    let (mut listener, mut talker) = listening(Some("data == \"hi\""));
    listener.step(Duration::ZERO).unwrap();
    for letters in [b"hi", b"ho", b"hi"] {
        let message = [&b"\0\x01\0\0\x03\0\0\0"[..], letters, b"\0"].concat();
        talker.publish(&message).unwrap();
    }
    listener.step(Duration::from_secs(1)).unwrap();
    let topics = listener.topics();
    assert_eq!(
        (topics[0].messages, topics[0].untested, topics[0].lost),
        (2, 0, 0)
    );
    assert_eq!(topics[0].periods.count, 1);
    assert_eq!(listener.take_messages()[0].1.len(), 2);
    let (mut listener, _talker) = listening(Some("colour == \"red\""));
    let error = listener.step(Duration::ZERO).unwrap_err();
    assert!(matches!(error, ListenError::Condition(_)), "{error}");
}

#[test]
fn topics_are_found_counted_and_decoded() {
    let (mut listener, mut talker) = listening(None);
    listener.step(Duration::ZERO).unwrap();
    for _ in 0..3 {
        talker.publish(b"\0\x01\0\0\x03\0\0\0hi\0").unwrap();
    }
    listener.step(Duration::from_secs(1)).unwrap();
    let topics = listener.topics();
    assert_eq!(
        (topics.len(), topics[0].messages, topics[0].publishers),
        (1, 3, 1)
    );
    assert_eq!(topics[0].delays, None, "a text has no stamp");
    let messages = listener.take_messages();
    assert_eq!(messages[0].1.len(), 3);
    assert_eq!(
        listener.plan("/chatter").unwrap().type_name(),
        "std_msgs/msg/String"
    );
    assert!(listener.take_messages().is_empty());
}
