//! Services over DDS with real ROS 2 nodes (rclpy on Fast DDS).
#![cfg(feature = "dds")]

mod dds;
mod support;

use dds::*;
use holdall_model::cdr::{CdrReader, CdrWriter};
use holdall_transport::{ServiceDescription, ServiceReply, ServiceRequest, Transport};
use serde_json::json;
use std::sync::Arc;
use support::*;

const TYPE: &str = "test_msgs/srv/BasicTypes";

fn service(name: &str) -> ServiceDescription {
    ServiceDescription {
        name: topic(name),
        type_name: TYPE.to_owned(),
        type_hash: None,
    }
}

/// A request or reply of the type: 13 numbers that are zero but for the signed 64-bit one, and a text.
fn basic_types(number: u64, text: &str) -> Vec<u8> {
    let mut cdr = CdrWriter::new();
    // bool, byte, char, float32, float64, int8, uint8, int16, uint16, int32, uint32
    cdr.bytes(&[0; 3]);
    cdr.align(4);
    cdr.bytes(&[0; 4]);
    cdr.align(8);
    cdr.bytes(&[0; 24]);
    cdr.align(8);
    cdr.u64(number);
    cdr.u64(0);
    cdr.text(text);
    cdr.finish()
}

fn number_and_text(payload: &[u8]) -> (u64, String) {
    let mut cdr = CdrReader::new(payload).unwrap();
    cdr.bytes(32).unwrap();
    let number = cdr.u64().unwrap();
    cdr.u64().unwrap();
    (number, cdr.text().unwrap().to_owned())
}

#[test]
fn every_call_of_a_real_node_is_answered() {
    let python = python();
    // Beyond one fragment, too.
    for text in ["hello", &"long ".repeat(9_000)] {
        let (domain, service) = (domain(), service("answered"));
        let mut ours = transport(domain, "server");
        let mut server = ours.serve(&service, Arc::new(|| {})).unwrap();
        let plan = json!({"call": service.name, "count": 30, "text": text});
        let mut node = Node::start(&python, "service_node.py", domain, &plan);
        let mut answered = 0;
        assert!(wait_until(|| {
            let mut requests: Vec<ServiceRequest> = Vec::new();
            server.poll(&mut requests);
            for request in &requests {
                let (number, text) = number_and_text(&request.payload);
                let reply = basic_types(number, &text.repeat(2));
                server.reply(&request.id, &reply.into()).unwrap();
                answered += 1;
            }
            answered == 30 && !server.has_waiting_replies()
        }));
        let done = node.wait_for("done");
        assert_eq!(done["right"], 30, "{}", done["milliseconds"]);
    }
}

#[test]
fn a_real_node_answers_every_call() {
    let python = python();
    let (domain, service) = (domain(), service("asked"));
    let mut ours = transport(domain, "client");
    let mut client = ours.client(&service, Arc::new(|| {})).unwrap();
    // Another client of the same service: its replies come to us as well.
    let mut other = ours.client(&service, Arc::new(|| {})).unwrap();
    assert!(!client.is_ready());
    assert!(client.send(&basic_types(0, "too early")).is_err());
    let mut node = Node::start(
        &python,
        "service_node.py",
        domain,
        &json!({"serve": service.name}),
    );
    node.wait_for("ready");
    assert!(wait_until(|| client.is_ready() && other.is_ready()));
    for round in 0..10 {
        let numbers = [
            client.send(&basic_types(round, "a")).unwrap(),
            client.send(&basic_types(round, "b")).unwrap(),
        ];
        other.send(&basic_types(round, "c")).unwrap();
        let (mut ours, mut theirs): (Vec<ServiceReply>, Vec<ServiceReply>) = Default::default();
        assert!(wait_until(|| {
            client.poll(&mut ours);
            other.poll(&mut theirs);
            ours.len() == 2 && theirs.len() == 1
        }));
        let read = |reply: &ServiceReply| number_and_text(reply.payload.as_ref().unwrap());
        let found: Vec<_> = ours.iter().map(|reply| (reply.number, read(reply))).collect();
        let expected = [
            (numbers[0], (round, "aa".to_owned())),
            (numbers[1], (round, "bb".to_owned())),
        ];
        assert_eq!(found, expected);
        assert_eq!(read(&theirs[0]), (round, "cc".to_owned()));
    }
}
