//! The services of nodes over a memory network, with recorders and players that note the requests they get.

use super::{
    Answer, Handler, NodeServices, Parameter, Parameters,
    recorder::{RecorderCommands, RecorderHandler, SERVICES},
};
use holdall_io::clock::{Clock, SystemClock};
use holdall_model::{
    dynamic::{TypePlan, text::TextOptions},
    interface::bundle::Bundle,
    time::Timestamp,
    topic::NodeName,
};
use holdall_record::SubscribeAnswer;
use holdall_transport::{
    ServiceClient, ServiceDescription, Transport,
    memory::{MemoryNetwork, MemoryTransport},
};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// A recorder that does not exist.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    is_stopped: bool,
    is_paused: bool,
    done: Vec<String>,
}

impl Fake {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().done.push(what.into());
    }

    fn done(&self) -> Vec<String> {
        self.0.lock().unwrap().done.clone()
    }
}

impl RecorderCommands for Fake {
    fn is_recording(&self) -> bool {
        !self.0.lock().unwrap().is_stopped
    }
    fn is_paused(&self) -> bool {
        self.0.lock().unwrap().is_paused
    }
    fn pause(&self) {
        self.0.lock().unwrap().is_paused = true;
    }
    fn resume(&self) {
        self.0.lock().unwrap().is_paused = false;
        self.note("resume");
    }
    fn split(&self) -> Result<(), String> {
        self.note("split");
        Ok(())
    }
    fn snapshot(&self) -> bool {
        false
    }
    fn record(&self, uri: &str) -> Answer {
        self.note(format!("record {uri}"));
        self.0.lock().unwrap().is_stopped = false;
        Answer::code(0, "")
    }
    fn stop(&self) -> Answer {
        self.0.lock().unwrap().is_stopped = true;
        Answer::code(0, "")
    }
    fn start_discovery(&self) -> Result<(), String> {
        Err("it runs already".to_owned())
    }
    fn stop_discovery(&self) -> Result<(), String> {
        Ok(())
    }
    fn is_discovery_running(&self) -> bool {
        true
    }
    fn uri(&self) -> String {
        "lab".to_owned()
    }
    fn subscribed_topics(&self) -> Vec<String> {
        vec!["/tf".to_owned()]
    }
    fn subscribe_to_topics(&self, topics: &[String], types: &[String]) -> Result<SubscribeAnswer, String> {
        self.note(format!("{topics:?} {types:?}"));
        Ok(SubscribeAnswer {
            subscribed: vec!["/tf".to_owned()],
            unavailable: Vec::new(),
        })
    }
    fn statistics(&self) -> Value {
        json!({"recording": true, "messages_recorded": 7, "json": "{}"})
    }
    fn change_episode(&self, change: &str, fields: &[String]) -> Result<(), String> {
        self.note(format!("episode {change} {fields:?}"));
        match change {
            "start" => Ok(()),
            _ => Err("no episode runs".to_owned()),
        }
    }
    fn add_marker(&self, name: &str) -> Result<(), String> {
        self.note(format!("marker {name}"));
        if name.is_empty() {
            Err("a marker needs a name".to_owned())
        } else {
            Ok(())
        }
    }
}

fn node(name: &str) -> NodeName {
    NodeName {
        namespace: "/".to_owned(),
        name: name.to_owned(),
    }
}

fn plan(type_name: &str) -> TypePlan {
    TypePlan::compile(&Bundle::embedded().define(type_name).unwrap()).unwrap()
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

/// Calls services of `/rec` as another node does.
struct Caller(MemoryTransport);

impl Caller {
    fn client(&mut self, service: &str) -> (&'static str, Box<dyn ServiceClient>) {
        let all = || SERVICES.iter().chain(&super::parameters::SERVICES);
        let (_, type_name) = all().find(|(name, _)| *name == service).unwrap();
        let description = ServiceDescription {
            name: format!("/rec/{service}"),
            type_name: (*type_name).to_owned(),
            type_hash: None,
        };
        (type_name, self.0.client(&description, Arc::new(|| {})).unwrap())
    }

    fn call(&mut self, service: &str, request: &Value) -> Value {
        let (type_name, _) = self.client(service);
        let request = plan(&format!("{type_name}_Request")).encode_json(&request.to_string());
        self.call_with(service, &request.unwrap())
    }

    fn payload(&mut self, service: &str, request: &[u8]) -> Vec<u8> {
        let (_, mut client) = self.client(service);
        client.send(request).unwrap();
        let deadline = SystemClock.monotonic() + Duration::from_secs(60);
        let mut replies = Vec::new();
        while replies.is_empty() {
            assert!(SystemClock.monotonic() < deadline, "{service} is not answered");
            client.poll(&mut replies);
            std::thread::yield_now();
        }
        replies.remove(0).payload.unwrap()
    }

    fn call_with(&mut self, service: &str, request: &[u8]) -> Value {
        let (type_name, _) = self.client(service);
        let mut text = Vec::new();
        let payload = self.payload(service, request);
        plan(&format!("{type_name}_Response"))
            .write_json(&payload, &TextOptions::default(), &mut text)
            .unwrap();
        serde_json::from_slice(&text).unwrap()
    }
}

/// A node `/rec` that serves, and a caller.
fn serving(fake: &Fake) -> (super::Node, Caller) {
    let network = MemoryNetwork::new();
    let mut transports: Vec<Box<dyn Transport>> =
        vec![Box::new(MemoryTransport::new(&network, node("rec"), clock()))];
    let services = NodeServices::offer(&node("rec"), &SERVICES, None, &mut transports);
    let parameters = Parameters::from([("use_sim_time".to_owned(), Parameter::Bool(false))]);
    let node_of = services.start(Box::new(RecorderHandler::new(fake.clone())), parameters, clock());
    let caller = Caller(MemoryTransport::new(&network, node("caller"), clock()));
    (node_of.unwrap(), caller)
}

#[test]
fn every_service_of_a_recorder_answers() {
    let fake = Fake::default();
    let (_node, mut caller) = serving(&fake);
    let none = json!({});
    let done = json!({"return_code": 0, "error_string": ""});
    assert_eq!(caller.call("is_paused", &none), json!({"paused": false}));
    assert_eq!(caller.call("pause", &none), none);
    assert_eq!(caller.call("is_paused", &none), json!({"paused": true}));
    assert_eq!(caller.call("resume", &none), done);
    assert_eq!(caller.call("split_bagfile", &none), done);
    assert_eq!(caller.call("snapshot", &none), json!({"success": false}));
    assert_eq!(
        caller.call("is_discovery_running", &none),
        json!({"running": true})
    );
    assert_eq!(caller.call("stop_discovery", &none), done);
    assert_eq!(
        caller.call("start_discovery", &none),
        json!({"return_code": 1, "error_string": "it runs already"})
    );
    assert_eq!(caller.call("is_recording", &none), json!({"recording": true}));
    assert_eq!(caller.call("get_uri", &none), json!({"uri": "lab"}));
    assert_eq!(
        caller.call("get_subscribed_topics", &none),
        json!({"topics": ["/tf"]})
    );
    assert_eq!(caller.call("get_statistics", &none)["messages_recorded"], 7);
    assert_eq!(
        caller.call("add_marker", &json!({"name": "curb"})),
        json!({"success": true, "message": ""})
    );
    let episode = json!({"change": "start", "fields": ["task=pick"]});
    assert_eq!(
        caller.call("change_episode", &episode),
        json!({"success": true, "message": ""})
    );
    assert_eq!(caller.call("change_episode", &none)["success"], false);
    let topics = json!({"topics": ["/tf", "/a"], "topic_types": ["", "p/msg/A"]});
    assert_eq!(
        caller.call("subscribe_to_topics", &topics)["subscribed_topics"],
        json!(["/tf"])
    );
    assert_eq!(caller.call("stop", &none), done);
    assert_eq!(caller.call("is_recording", &none), json!({"recording": false}));
    assert_eq!(caller.call("record", &json!({"uri": "next"})), done);
    let expected = [
        "resume",
        "split",
        "marker curb",
        "episode start [\"task=pick\"]",
        "episode  []",
        "[\"/tf\", \"/a\"] [\"\", \"p/msg/A\"]",
        "record next",
    ];
    assert_eq!(fake.done(), expected);
    assert_eq!(
        caller.call("get_parameters", &json!({"names": ["use_sim_time"]}))["values"][0]["type"],
        1
    );
}

#[test]
fn what_cannot_be_done_is_refused_in_the_reply() {
    let fake = Fake::default();
    let (_node, mut caller) = serving(&fake);
    let code = |reply: &Value| reply["return_code"].as_i64().unwrap();
    let far = json!({"sec": i32::MAX, "nanosec": 0});
    let resume = |mode: i64, topic: &str| json!({"resume_time": far, "resume_mode": mode, "tracking_topic_name": topic});
    assert_eq!(code(&caller.call("resume", &resume(1, ""))), 1);
    assert_eq!(code(&caller.call("resume", &resume(-5, ""))), 1);
    assert_eq!(code(&caller.call("resume", &resume(2, "/none"))), 2);
    assert_eq!(code(&caller.call("resume", &resume(2, "/tf"))), 0);
    let split = json!({"split_time": far, "split_mode": 9});
    assert_eq!(code(&caller.call("split_bagfile", &split)), 2);
    assert_eq!(code(&caller.call("record", &json!({"uri": "x"}))), 1);
    assert_eq!(caller.call("add_marker", &json!({}))["success"], false);
    let foreign = caller.call_with("subscribe_to_topics", &[0, 1, 0, 0, 255, 255, 255, 255]);
    assert_eq!(code(&foreign), 1);
    assert!(
        foreign["error_string"]
            .as_str()
            .unwrap()
            .contains("cannot be read"),
        "{foreign}"
    );
    caller.call("stop", &json!({}));
    assert_eq!(code(&caller.call("resume", &json!({}))), 3);
    assert_eq!(code(&caller.call("split_bagfile", &json!({}))), 1);
    let past = json!({"uri": "x", "start_time": {"sec": -1, "nanosec": 0}});
    assert_eq!(code(&caller.call("record", &past)), 1);
    // Old forms without any field mean now.
    caller.call("record", &json!({}));
    assert_eq!(caller.payload("resume", &[0, 1, 0, 0]), [0, 1, 0, 0, 0]);
    assert_eq!(fake.done(), ["marker ", "record ", "resume"]);
}

#[test]
fn what_has_a_time_is_done_at_that_time() {
    let fake = Fake::default();
    let mut handler = RecorderHandler::new(fake.clone());
    let at = |seconds: i64| Timestamp::from_nanos(seconds * 1_000_000_000);
    let time = |seconds: i64| json!({"sec": seconds, "nanosec": 0});
    handler.answer("resume", &json!({"resume_time": time(20)}), at(10));
    handler.answer(
        "split_bagfile",
        &json!({"split_time": time(15), "split_mode": 2}),
        at(10),
    );
    assert_eq!(handler.step(at(14)), Some(at(15)));
    assert_eq!(handler.step(at(15)), Some(at(20)));
    assert_eq!(fake.done(), ["split"]);
    // A pause in between forgets the resume.
    handler.answer("pause", &json!({}), at(16));
    assert_eq!(handler.step(at(30)), None);
    handler.answer("stop", &json!({}), at(30));
    handler.answer("record", &json!({"uri": "b", "start_time": time(40)}), at(31));
    assert_eq!(handler.step(at(32)), Some(at(40)));
    assert_eq!(handler.step(at(41)), None);
    assert_eq!(fake.done(), ["split", "record b"]);
}
