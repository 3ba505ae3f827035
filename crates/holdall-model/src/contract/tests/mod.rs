//! Contracts against a planter of faults, whose own log says what is wrong, when, and on which topic.

mod fleet;
mod live;
mod parts;
mod planted;
mod planter;
mod stream;

use super::*;
use crate::{dynamic::TypePlan, message::PayloadRef, time::Timestamp, topic::TopicInfo};
use planter::*;
use proptest::prelude::*;
use std::{collections::BTreeSet, sync::Arc};

const CONTRACT: &str = r#"
version: 1
name: planted
topics:
  /points:
    required: true
    type: geometry_msgs/msg/PointStamped
    qos: {reliability: reliable}
    rate: {min: 13, max: 26, window: 4s}
    gap: 500ms
    first: 2s
    drift: {ppm: 25, window: 12s}
    jump: 100ms
    frozen: 8
    non_finite: 0
    never: "point.z > 1e9"
    frame: base
  /camera:
    rate: {min: 3, window: 4s}
    image: {encoding: mono8, width: 24, height: 16, black: 95%}
bag:
  tf: {connected: [map, base, lidar], timeout: 1s}
  duration: {min: 10s}
  topics: 4
"#;

fn time(nanos: i64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

struct Run {
    judge: Judge,
    slots: Vec<TopicSlot>,
}

impl Run {
    fn new(planted: &Planted, text: &str) -> Self {
        let contract = Arc::new(Contract::parse(text).unwrap());
        let mut judge = Judge::new(contract, time(START));
        let plan = |info: &TopicInfo| plan_of(None, info);
        let slots = planted
            .infos
            .iter()
            .map(|info| judge.topic(info, &with_type(info, plan)).unwrap())
            .collect();
        Self { judge, slots }
    }

    fn message(&mut self, message: &Message) {
        let slot = self.slots[message.topic];
        let sample = Sample::take(
            PayloadRef::Bytes(&message.payload),
            self.judge.want(slot),
            usize::MAX,
        );
        let arrival = Arrival {
            log_time: time(message.time),
            publish_time: time(message.time),
        };
        self.judge.message(slot, arrival, &sample);
    }
}

/// The layout of the wrong type is that of the right one.
fn with_type(
    info: &TopicInfo,
    plan: impl Fn(&TopicInfo) -> Result<Arc<TypePlan>, String>,
) -> Result<Arc<TypePlan>, String> {
    let type_name = info.type_name.replace("Vector3Stamped", "PointStamped");
    plan(&TopicInfo {
        type_name,
        ..info.clone()
    })
}

fn ending() -> Ending {
    Ending {
        start: time(START),
        end: time(START + LENGTH * SECOND),
        ..Ending::default()
    }
}

/// The same messages in another order, none more than 0.4 s late, with calls between them as a recorder makes them.
fn interleaved(planted: &Planted, seed: u64) -> Verdict {
    let mut random = Random(seed);
    let mut order: Vec<(i64, &Message)> = planted
        .messages
        .iter()
        .map(|message| (message.time + random.below(400_000_000), message))
        .collect();
    order.sort_by_key(|(at, _)| *at);
    let mut run = Run::new(planted, CONTRACT);
    for (at, message) in order {
        run.message(message);
        if random.below(3) == 0 {
            run.judge.advance(time(at));
        }
        if random.below(9) == 0 {
            let _ = run.judge.take_news();
        }
    }
    run.judge.end(&ending())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn live_is_afterwards_for_any_interleaving(seed in any::<u64>(), fault in 0_usize..11) {
        let planted = plant(seed, FAULTS[fault]);
        let mut afterwards = Run::new(&planted, CONTRACT);
        planted.messages.iter().for_each(|message| afterwards.message(message));
        let afterwards = afterwards.judge.end(&ending());
        prop_assert_eq!(interleaved(&planted, seed ^ 1), afterwards);
    }

    #[test]
    fn no_text_panics(text in "(version: 1|topics:|bag:|\n| {1,4}|/a:|rate:|min:|[0-9.]{1,4}|nan|must:|\"|\\[|\\]|\\{|\\}|- |x > 1|\\PC){0,24}") {
        if let Ok(contract) = Contract::parse(&text) {
            contract.rules.iter().for_each(|rule| drop(sentence(rule)));
        }
    }

    #[test]
    fn no_payload_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), topic in 0_usize..4) {
        let planted = plant(1, Fault::None);
        let mut run = Run::new(&planted, CONTRACT);
        run.message(&Message { topic, time: START, payload: bytes });
        run.judge.end(&ending());
    }
}

#[test]
fn a_million_topics_and_long_names_take_bounded_memory() {
    let contract = Arc::new(Contract::parse("version: 1\ntopics: {/**: {gap: 1s, size: 5}}").unwrap());
    let mut judge = Judge::new(contract, time(START));
    let taken = (0..200_000).filter(|number| {
        let info = TopicInfo {
            name: format!("/t{number}"),
            ..TopicInfo::default()
        };
        judge.topic(&info, &Err("not known".to_owned())).is_some()
    });
    assert!(taken.count() <= 50_001 / 2 + 1);
    assert!(judge.end(&ending()).not_judged > 170_000);
    // The content of an image begins after the part of a large payload that is kept.
    let planted = plant(1, Fault::None);
    for bytes in 3980..4120 {
        let mut run = Run::new(&planted, CONTRACT);
        let out = Cdr::new()
            .header(START, &"x".repeat(bytes))
            .u32(16)
            .u32(24)
            .text("mono8")
            .put(&[0])
            .u32(24);
        let mut payload = out.u32(80_000).0;
        payload.resize(payload.len() + 80_000, 9);
        run.message(&Message {
            topic: 1,
            time: START,
            payload,
        });
        run.judge.end(&ending());
    }
}

#[test]
fn errors_name_line_field_and_what_is_expected() {
    for (text, wanted) in [
        ("topics: {}", "line 1: version: is missing; expected version: 1"),
        (
            "version: 1\ntopics: {}",
            "line 1: the contract has no rules; expected some below topics or bag",
        ),
        (
            "version: 1\nbag: {tf: {connected: [a, b], topics: tf}}",
            "line 2: bag.tf: topics: expected full topic names, for example /robot1/tf",
        ),
        (
            "version: 1\nbag: {episodes: {max: 2, success_min: 3}}",
            "line 2: bag.episodes: success_min is more than max",
        ),
        (
            "version: 2",
            "line 1: version: expected 1, the only version, found \"2\"",
        ),
        (
            "version: 1\nbags: {}",
            "line 2: bags: unknown key; did you mean bag?",
        ),
        (
            "version: 1\ntopics:\n  /scan:\n    rat: 5",
            "line 4: topics./scan.rat: unknown key; did you mean rate?",
        ),
        (
            "version: 1\ntopics:\n  /scan:\n    rate: {min: nan}",
            "line 4: topics./scan.rate.min: expected a rate, for example 10 or 0.5Hz, found \"nan\"",
        ),
        (
            "version: 1\ntopics:\n  /scan:\n    rate: {min: 5, max: 4}",
            "line 4: topics./scan.rate: min is more than max",
        ),
        (
            "version: 1\ntopics:\n  /scan:\n    rate: {window: 5s}",
            "line 4: topics./scan.rate: expected one of min, max, window",
        ),
        (
            "version: 1\ntopics:\n  /scan:\n    rate: {mn: 5}",
            "line 4: topics./scan.rate.mn: unknown key; did you mean min?",
        ),
        (
            "version: 1\ntopics:\n  /scan:\n    gap: -1s",
            "line 4: topics./scan.gap: expected a span, for example 500ms, found \"-1s\"",
        ),
        (
            "version: 1\ntopics:\n  /scan:\n    must: \"x >\"",
            "line 4: topics./scan.must: expression, character 4: expected a value, found the end",
        ),
        (
            "version: 1\ntopics:\n  /scan:\n    drift: {ppm: .inf}",
            "line 4: topics./scan.drift.ppm: expected a number, 0 or more, found \".inf\"",
        ),
        (
            "version: 1\ntopics:\n  scan: {required: true}",
            "line 3: topics.scan: expected a full topic name, for example /scan, or a pattern, for example /camera/*/image",
        ),
        (
            "version: 1\ntopics:\n  /scan:\n    gap: {max: 1s, severity: bad}",
            "line 4: topics./scan.gap.severity: expected fail or warn, found \"bad\"",
        ),
        (
            "version: 1\ntopics:\n  /scan:\n    qos: {reliability: relaible}",
            "line 4: topics./scan.qos: reliability: expected reliable or best_effort, found \"relaible\"",
        ),
        (
            "version: 1\nbag:\n  tf: map",
            "line 3: bag.tf: expected two frames or more",
        ),
        (
            "version: 1\ntopics:\n  /scan:\n    image: 5",
            "line 4: topics./scan.image: expected a map with encoding, width, height, black, saturated, found \"5\"",
        ),
        (
            "version: 1\ncommand: reboot",
            "line 2: command: unknown key; the keys are version, name, topics, bag",
        ),
    ] {
        assert_eq!(
            Contract::parse(text).expect_err(text).to_string(),
            wanted,
            "{text}"
        );
    }
    let many = format!(
        "version: 1\ntopics:\n  /a:\n    must: [{}]",
        "x > 1,".repeat(10_001)
    );
    assert!(
        Contract::parse(&many)
            .unwrap_err()
            .reason
            .contains("more than 10000 rules")
    );
    let large = format!("version: 1\nname: {}", "x".repeat(CONTRACT_BYTES_MAX));
    assert!(Contract::parse(&large).unwrap_err().reason.contains("bytes"));
    let deep = format!("version: 1\ntopics: {}", "[".repeat(10_000));
    let deep = Contract::parse(&deep).unwrap_err().reason;
    assert!(deep.contains("recursion") || deep.contains("nested"), "{deep}");
}

/// A contract with each kind of rule.
const EVERY: &str = "version: 1\nname: every\ntopics:\n  /a/*/b:\n    required: true\n    type: std_msgs/msg/String\n    hash: RIHS01_00\n    \
    qos: {reliability: reliable, durability: volatile, history: keep_last, depth: 5}\n    rate: {min: 1, max: 2Hz, window: 5s, tolerance: 1%}\n    \
    gap: 2s\n    first: {within: 3s, severity: warn, reason: it is slow}\n    latency: {min: 0, max: 100ms}\n    drift: 20\n    stamps: strict\n    \
    jump: 100ms\n    frozen: 3\n    non_finite: 1%\n    must: [x > 1, {expression: y > 1, tolerance: 3}]\n    never: z == 1\n    size: {min: 1, max: 1MiB}\n    \
    image: {encoding: [rgb8, bgr8], width: 640, height: 480, black: 0.9, saturated: 90%}\n    cloud: {points: 10, invalid: 50%}\n    frame: base\n    \
    publishers: {min: 1, max: 2, names: [/a, /b]}\n    losses: 0\nbag:\n  duration: {min: 1s, max: 2h}\n  topics: {min: 1, max: 9}\n  losses: 5\n  \
    episodes: {min: 1, max: 9, success_min: 1}\n  disk_left: 1GiB\n  tf: [[map, base], {connected: [a, b], topics: [/r/tf, /r/tf_static], timeout: 2s, within: 1s}]\n  skew: {topics: [/l, /r], max: 5ms}\n";

#[test]
fn every_kind_of_rule_is_parsed_explained_and_in_the_schema() {
    let contract = Contract::parse(EVERY).unwrap();
    let kinds: BTreeSet<&str> = contract.rules.iter().map(Rule::kind).collect();
    let known: BTreeSet<&str> = keys::KEYS.iter().map(|key| key.name).collect();
    assert_eq!(kinds, known);
    let schema = json_schema();
    for rule in &contract.rules {
        let text = sentence(rule);
        assert!(
            text.len() > rule.kind().len() + 2 && !text.contains("any "),
            "{text}"
        );
        let part = if rule.topic.is_some() {
            &schema["properties"]["topics"]["patternProperties"]["^/"]
        } else {
            &schema["properties"]["bag"]
        };
        assert!(part["properties"].get(rule.kind()).is_some(), "{}", rule.kind());
    }
    assert_eq!(
        sentence(&contract.rules[4]),
        "/a/*/b: from 1 to 2 messages a second over each 5 s; 1 % are tolerated"
    );
    assert_eq!(
        sentence(&contract.rules[6]),
        "/a/*/b: its first message comes within 3 s after the start (warn): it is slow"
    );
    let of_kind = |kind: &str| {
        contract
            .rules
            .iter()
            .filter(|rule| rule.kind() == kind)
            .map(sentence)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of_kind("tf"),
        [
            "/tf and /tf_static connect map, base; a transform of /tf holds 1 s",
            "/r/tf and /r/tf_static connect a, b; a transform of /r/tf holds 2 s"
        ]
    );
    assert_eq!(
        of_kind("episodes"),
        ["from 1 to 9 episodes that were not discarded, at least 1 episode with outcome success"]
    );
}

#[test]
fn the_schema_in_the_tree_is_the_parsers() {
    let stored = include_str!("../../../data/contract.schema.json");
    let made = format!("{:#}\n", json_schema());
    assert!(stored == made, "data/contract.schema.json has to be:\n{made}");
}

#[test]
fn what_cannot_be_decided_is_unknown() {
    let planted = plant(5, Fault::None);
    let text = "version: 1\ntopics:\n  /never: {rate: 5, required: false}\n  /points: {must: nofield > 1, losses: 0, publishers: 1, hash: RIHS01_0}\n  \
        /tf: {latency: 1s}\n  /none/*: {gap: 1s}\n  /nodef: {must: x > 1}\nbag: {losses: 0, disk_left: 1, skew: {topics: [/x, /y], max: 1s}}\n";
    let mut run = Run::new(&planted, text);
    let undefined = TopicInfo {
        name: "/nodef".into(),
        type_name: "a/msg/B".into(),
        ..TopicInfo::default()
    };
    let slot = run.judge.topic(&undefined, &plan_of(None, &undefined)).unwrap();
    planted.messages.iter().for_each(|message| run.message(message));
    let sample = Sample::take(PayloadRef::Bytes(&[0; 8]), run.judge.want(slot), usize::MAX);
    let at = time(START + 43 * SECOND);
    run.judge.message(
        slot,
        Arrival {
            log_time: at,
            publish_time: at,
        },
        &sample,
    );
    let verdict = run.judge.end(&ending());
    assert_eq!(verdict.outcome, Outcome::Unknown);
    let reason = |kind: &str, topic: Option<&str>| {
        let rule = verdict
            .rules
            .iter()
            .find(|rule| rule.kind == kind && rule.topic.as_deref() == topic)
            .unwrap();
        (rule.outcome, rule.reason.clone().unwrap_or_default())
    };
    let unknown = |reason: &str| (Outcome::Unknown, reason.to_owned());
    assert_eq!(reason("rate", Some("/never")), unknown("no message came"));
    assert_eq!(reason("required", Some("/never")).0, Outcome::Passed);
    assert!(reason("must", Some("/points")).1.contains("has no field nofield"));
    assert_eq!(
        reason("losses", Some("/points")),
        unknown("the bag has no account of losses")
    );
    assert_eq!(
        reason("publishers", Some("/points")),
        unknown("its publishers are not known")
    );
    assert_eq!(reason("hash", Some("/points")), unknown("its hash is not known"));
    assert_eq!(
        reason("latency", Some("/tf")),
        unknown("tf2_msgs/msg/TFMessage has no header.stamp")
    );
    assert_eq!(
        reason("gap", Some("/none/*")),
        unknown("no topic matches the pattern")
    );
    assert_eq!(
        reason("must", Some("/nodef")),
        unknown("no definition of a/msg/B is known")
    );
    assert_eq!(
        reason("disk_left", None),
        unknown("the free space at the end is not known")
    );
    assert_eq!(
        reason("skew", None),
        unknown("no stamps of /x and /y can be compared")
    );
}

#[test]
fn a_contract_that_was_learned_holds_for_what_it_was_learned_from() {
    let mut learner = Learner::default();
    for seed in 0..3 {
        let planted = plant(seed * 11, Fault::None);
        learner.begin_bag(time(START), time(START + LENGTH * SECOND));
        let topics: Vec<Learned> = planted
            .infos
            .iter()
            .map(|info| learner.topic(info, &plan_of(None, info)))
            .collect();
        for message in &planted.messages {
            let topic = topics[message.topic];
            let sample = Sample::take(PayloadRef::Bytes(&message.payload), learner.want(topic), 1 << 20);
            let arrival = Arrival {
                log_time: time(message.time),
                publish_time: time(message.time),
            };
            learner.message(topic, arrival, &sample);
        }
    }
    let text = learner.to_yaml();
    assert!(
        text.contains("rate: {min: ") && text.contains("# Learned from 3 bags."),
        "{text}"
    );
    let planted = plant(33, Fault::None);
    let judge = |fault| {
        let planted = plant(33, fault);
        let mut run = Run::new(&planted, &text);
        planted.messages.iter().for_each(|message| run.message(message));
        run.judge.end(&Ending {
            losses: Some(Default::default()),
            ..ending()
        })
    };
    assert_eq!(planted.infos.len(), 4);
    let good = judge(Fault::None);
    assert_eq!(good.outcome, Outcome::Passed, "{text}\n{good:?}");
    for (fault, kind) in [
        (Fault::Rate, "rate"),
        (Fault::Gap, "gap"),
        (Fault::Freeze, "frozen"),
        (Fault::Drift, "drift"),
        (Fault::Jump, "jump"),
        (Fault::Nan, "non_finite"),
        (Fault::Black, "image"),
        (Fault::Tree, "tf"),
        (Fault::Type, "type"),
        (Fault::Qos, "qos"),
    ] {
        assert!(
            judge(fault)
                .rules
                .iter()
                .any(|rule| rule.kind == kind && rule.outcome == Outcome::Failed),
            "{fault:?}\n{text}"
        );
    }
}
