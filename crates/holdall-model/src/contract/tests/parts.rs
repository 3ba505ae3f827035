//! What is judged of a part of a recording, and rules that need more than messages: expired messages, later offers, episodes, trees of several robots, images in files.

use super::*;
use crate::{
    carried::{COMPRESSED_IMAGE, IMAGE},
    episode::{Episode, EpisodeEnd},
    qos::{QosProfile, Reliability},
};
use std::collections::BTreeMap;

fn outcome(verdict: &Verdict, kind: &str, topic: Option<&str>) -> (Outcome, String) {
    let is_it = |rule: &&RuleVerdict| rule.kind == kind && rule.topic.as_deref() == topic;
    let rule = verdict.rules.iter().find(is_it).unwrap();
    (rule.outcome, rule.reason.clone().unwrap_or_default())
}

const BEST_EFFORT: QosProfile = QosProfile {
    reliability: Reliability::BestEffort,
    ..QosProfile::ROS_DEFAULT
};

/// The first half of the messages has expired, and all of `/tf_static`.
fn turned(text: &str, is_known: bool) -> Verdict {
    let planted = plant(7, Fault::None);
    let half = START + LENGTH * SECOND / 2;
    let expired: BTreeMap<String, Option<Timestamp>> = match is_known {
        true => [("/points", Some(half)), ("/tf", Some(half)), ("/tf_static", None)]
            .map(|(name, from)| (name.to_owned(), from.map(time)))
            .into(),
        false => BTreeMap::new(),
    };
    let mut run = Run::new(&planted, text);
    run.judge = Judge::new(Arc::clone(run.judge.contract()), time(START)).after_expiry(expired.clone());
    for (slot, info) in run.slots.iter_mut().zip(&planted.infos) {
        *slot = run.judge.topic(info, &plan_of(None, info)).unwrap();
    }
    let is_left = |message: &&Message| message.time >= half && message.topic != 3;
    planted
        .messages
        .iter()
        .filter(is_left)
        .for_each(|message| run.message(message));
    run.judge.end(&Ending {
        expired,
        is_start_unknown: is_known,
        ..ending()
    })
}

#[test]
fn of_a_ring_that_has_turned_what_is_left_is_judged() {
    let text = "version: 1\ntopics: {/points: {first: 2s, required: true, rate: {min: 13, window: 4s}, gap: 500ms}, /tf_static: {required: true, size: 9}}\n\
        bag: {topics: 4, duration: 1s, tf: [{connected: [map, base]}, {connected: [map, lidar]}]}";
    let verdict = turned(text, true);
    assert!(verdict.violations.is_empty(), "{verdict:?}");
    assert_eq!(verdict.expired.len(), 3);
    let unknown = |reason: &str| (Outcome::Unknown, reason.to_owned());
    let passed = (Outcome::Passed, String::new());
    for kind in ["required", "rate", "gap"] {
        assert_eq!(outcome(&verdict, kind, Some("/points")), passed, "{kind}");
    }
    assert_eq!(
        outcome(&verdict, "first", Some("/points")),
        unknown("its first messages have expired")
    );
    assert_eq!(outcome(&verdict, "required", Some("/tf_static")), passed);
    assert_eq!(
        outcome(&verdict, "size", Some("/tf_static")),
        unknown("its messages have expired")
    );
    assert_eq!(outcome(&verdict, "topics", None), passed);
    assert_eq!(
        outcome(&verdict, "duration", None),
        unknown("the beginning of the recording has expired")
    );
    let trees: Vec<_> = verdict.rules.iter().filter(|rule| rule.kind == "tf").collect();
    assert_eq!(
        (trees[0].outcome, trees[1].outcome),
        (Outcome::Passed, Outcome::Unknown),
        "{trees:?}"
    );
    assert_eq!(trees[1].reason.as_deref(), Some("static transforms have expired"));
    // Without that knowledge the same messages break these rules.
    let broken: BTreeSet<_> = turned(text, false)
        .violations
        .iter()
        .map(|found| found.rule)
        .collect();
    assert!(broken.len() >= 4, "{broken:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn a_publisher_that_comes_later_is_judged_when_it_comes_as_in_its_bag(seed in any::<u64>(), second in 0_i64..LENGTH, is_wrong in any::<bool>()) {
        let text = "version: 1\ntopics: {/points: {qos: {reliability: reliable, depth: 5}, gap: 1s}}";
        let planted = plant(seed, Fault::None);
        let offer = if is_wrong { BEST_EFFORT } else { QosProfile { depth: 7, ..QosProfile::ROS_DEFAULT } };
        let mut live = live::Live::new(&planted, text);
        live.pass(START);
        let (mut has_come, mut alarms) = (false, 0);
        for message in &planted.messages {
            if !has_come && message.time >= START + second * SECOND {
                has_come = true;
                live.step(message.time);
                alarms = live.alarms.len();
                live.feed.offer(0, offer);
                live.feed.offer(0, offer);
            }
            live.message(message);
            live.pass(message.time);
            live.step(message.time);
        }
        prop_assert_eq!(alarms, 0);
        let verdict = live.end();
        let mut bag = plant(seed, Fault::None);
        bag.infos[0].offered_qos_profiles.push(offer);
        let mut run = Run::new(&bag, text);
        bag.messages.iter().for_each(|message| run.message(message));
        prop_assert_eq!(&verdict, &run.judge.end(&ending()));
        let wanted = if is_wrong { Outcome::Failed } else { Outcome::Passed };
        prop_assert_eq!(outcome(&verdict, "qos", Some("/points")).0, wanted);
        prop_assert_eq!(live.alarms.len(), usize::from(is_wrong), "{:?}", live.alarms);
    }
}

#[test]
fn episodes_are_counted_without_those_that_were_discarded() {
    let episode = |end, outcome: &str| Episode {
        number: 1,
        start: time(START),
        until: None,
        end,
        fields: [("outcome".to_owned(), outcome.to_owned())].into(),
    };
    let episodes = vec![
        episode(EpisodeEnd::Stopped, "success"),
        episode(EpisodeEnd::Stopped, "failure"),
        episode(EpisodeEnd::Discarded, "success"),
    ];
    let judge = |bounds: &str| {
        let contract = Contract::parse(&format!("version: 1\nbag: {{episodes: {bounds}}}")).unwrap();
        let mut judge = Judge::new(Arc::new(contract), time(START));
        let verdict = judge.end(&Ending {
            episodes: episodes.clone(),
            ..ending()
        });
        verdict.violations.first().map(|found| found.text.clone())
    };
    assert_eq!(judge("2"), None);
    assert_eq!(judge("{min: 2, max: 2, success_min: 1}"), None);
    assert_eq!(judge("3").as_deref(), Some("2 episodes, at least 3"));
    assert_eq!(judge("{max: 1}").as_deref(), Some("2 episodes, at most 1"));
    assert_eq!(
        judge("{success_min: 2}").as_deref(),
        Some("1 episode with outcome success, at least 2")
    );
}

#[test]
fn each_robot_has_its_tree() {
    let rule = |robot: &str| format!("{{connected: [map, base], topics: [/{robot}/tf, /{robot}/tf_static]}}");
    let text = format!("version: 1\nbag: {{tf: [{}, {}]}}", rule("one"), rule("two"));
    let mut judge = Judge::new(Arc::new(Contract::parse(&text).unwrap()), time(START));
    let info = |name: &str| TopicInfo {
        name: name.to_owned(),
        type_name: "tf2_msgs/msg/TFMessage".to_owned(),
        ..TopicInfo::default()
    };
    let infos = ["/one/tf", "/one/tf_static", "/two/tf", "/two/tf_static"].map(info);
    let slots = infos
        .each_ref()
        .map(|info| judge.topic(info, &plan_of(None, info)).unwrap());
    assert_eq!(judge.want(slots[0]), Want::Whole);
    let mut send = |topic: usize, at: i64, edges: &[(&str, &str)]| {
        let payload = transforms(at, edges);
        let sample = Sample::take(PayloadRef::Bytes(&payload), Want::Whole, usize::MAX);
        let arrival = Arrival {
            log_time: time(at),
            publish_time: time(at),
        };
        judge.message(slots[topic], arrival, &sample);
    };
    send(1, START, &[("map", "base")]);
    // The second robot's transform is not static, and none follows.
    send(3, START, &[("odom", "base")]);
    send(2, START, &[("map", "odom")]);
    for second in 1..20 {
        send(0, START + second * SECOND, &[("base", "arm")]);
    }
    let verdict = judge.end(&ending());
    let outcomes: Vec<_> = verdict.rules.iter().map(|rule| rule.outcome).collect();
    assert_eq!(outcomes, [Outcome::Passed, Outcome::Failed], "{verdict:?}");
}

/// What is wrong with one image by a rule, or why that is not decided.
fn of_image(type_name: &str, rule: &str, payload: &[u8]) -> Option<String> {
    let contract = Contract::parse(&format!("version: 1\ntopics: {{/image: {{image: {rule}}}}}")).unwrap();
    let mut judge = Judge::new(Arc::new(contract), time(START));
    let info = TopicInfo {
        name: "/image".to_owned(),
        type_name: type_name.to_owned(),
        ..TopicInfo::default()
    };
    let slot = judge.topic(&info, &plan_of(None, &info)).unwrap();
    let sample = Sample::take(PayloadRef::Bytes(payload), judge.want(slot), usize::MAX);
    let arrival = Arrival {
        log_time: time(START),
        publish_time: time(START),
    };
    judge.message(slot, arrival, &sample);
    let verdict = judge.end(&ending());
    let wrong = verdict.violations.first().map(|found| found.text.clone());
    wrong.or_else(|| verdict.rules[0].reason.clone())
}

#[test]
fn images_in_files_are_judged_by_their_heads_and_depth_is_not_black() {
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x02\x80\0\0\x01\xe0\x08\x02\0\0\0".to_vec();
    png.resize(100_000, 7);
    for format in ["png", "rgb8; png compressed bgr8"] {
        let head = Cdr::new().header(START, "cam").text(format).u32(png.len() as u32);
        let payload = [head.0, png.clone()].concat();
        let of = |rule: &str| of_image(COMPRESSED_IMAGE, rule, &payload);
        assert_eq!(
            of("{encoding: [jpeg, png], width: 640, height: 480}"),
            None,
            "{format}"
        );
        assert_eq!(of("{height: 481}").as_deref(), Some("height 480, expected 481"));
        assert_eq!(
            of("{encoding: jpeg}").as_deref(),
            Some("encoding png, expected jpeg")
        );
        let pixels = "the pixels of encoding png are not judged";
        assert_eq!(of("{black: 90%}").as_deref(), Some(pixels));
    }
    let depth = |encoding: &str| {
        let out = Cdr::new()
            .header(START, "cam")
            .u32(1)
            .u32(2)
            .text(encoding)
            .put(&[0])
            .u32(4);
        [out.u32(4).0, vec![0x10, 2, 0x20, 3]].concat()
    };
    // 528 and 800 mm.
    let of = |encoding: &str| of_image(IMAGE, "{black: 90%}", &depth(encoding));
    assert_eq!(
        of("16UC1").as_deref(),
        Some("the pixels of encoding 16UC1 are not judged")
    );
    assert_eq!(of("mono16").as_deref(), Some("100 % of the pixels are black"));
}
