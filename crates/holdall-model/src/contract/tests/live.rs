//! A recording that is judged while it runs, as a recorder brings its messages: its verdict is that of the messages afterwards.

use super::*;
use crate::{
    loss::ledger::Ledger,
    topic::{DefinitionEncoding, MessageDefinition},
};
use std::time::Duration;

/// A recorder's side, the queue, and the judge, each stepped by hand.
pub(super) struct Live {
    pub feed: Feed,
    queue: NewsQueue,
    judge: LiveJudge,
    pub alarms: Vec<RuleAlarm>,
}

impl Live {
    pub fn new(planted: &Planted, text: &str) -> Self {
        let contract = Arc::new(Contract::parse(text).unwrap());
        let mut feed = Feed::new(Arc::clone(&contract));
        for info in &planted.infos {
            feed.topic(info.clone(), MessageDefinition::unknown(&info.type_name));
        }
        Self {
            feed,
            queue: NewsQueue::default(),
            judge: LiveJudge::new(contract),
            alarms: Vec::new(),
        }
    }

    pub fn message(&mut self, message: &Message) {
        let arrival = Arrival {
            log_time: time(message.time),
            publish_time: time(message.time),
        };
        let payload = PayloadRef::Bytes(&message.payload);
        self.feed.message(message.topic as u32, arrival, payload);
    }

    /// The recorder's time is `at`; true if the first of several messages has no room.
    pub fn pass(&mut self, at: i64) -> bool {
        let now = Duration::from_nanos((at - START) as u64);
        self.feed.is_due(now) && self.queue.offer(self.feed.take(Some(time(at)), now))
    }

    pub fn step(&mut self, at: i64) {
        self.queue
            .take()
            .into_iter()
            .for_each(|news| self.judge.take(news));
        let now = Duration::from_nanos((at - START) as u64);
        self.alarms.extend(self.judge.alarms(now));
    }

    pub fn end(&mut self) -> Verdict {
        let rest = self.feed.take(None, Duration::MAX);
        self.queue.offer(rest);
        self.step(START + LENGTH * SECOND);
        self.judge.end(&ending())
    }
}

fn afterwards(planted: &Planted) -> Verdict {
    let mut judge = Judge::new(Arc::new(Contract::parse(CONTRACT).unwrap()), time(START));
    let slots = planted
        .infos
        .iter()
        .map(|info| judge.topic(info, &plan_of(None, info)).unwrap());
    let slots: Vec<TopicSlot> = slots.collect();
    for message in &planted.messages {
        let slot = slots[message.topic];
        let payload = PayloadRef::Bytes(&message.payload);
        let sample = Sample::take(payload, judge.want(slot), usize::MAX);
        let at = time(message.time);
        judge.message(
            slot,
            Arrival {
                log_time: at,
                publish_time: at,
            },
            &sample,
        );
    }
    judge.end(&ending())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn a_recorder_in_any_pace_has_the_verdict_and_the_alarms_of_its_bag(seed in any::<u64>(), fault in 0_usize..11) {
        let planted = plant(seed, FAULTS[fault]);
        let mut random = Random(seed ^ 2);
        let mut order: Vec<(i64, &Message)> = planted
            .messages
            .iter()
            .map(|message| (message.time + random.below(400_000_000), message))
            .collect();
        order.sort_by_key(|(at, _)| *at);
        let mut live = Live::new(&planted, CONTRACT);
        live.pass(START);
        for (at, message) in order {
            live.message(message);
            if random.below(4) == 0 {
                live.pass(at);
            }
            // The judge is some messages late.
            if random.below(20) == 0 {
                live.step(at);
            }
        }
        let verdict = live.end();
        prop_assert_eq!(&verdict, &afterwards(&planted));
        live.step(START + LENGTH * SECOND);
        let begun = live.alarms.iter().filter(|alarm| alarm.edge == crate::alarm::AlarmEdge::Begin);
        let begun: BTreeSet<_> = begun.map(|alarm| (alarm.topic.clone(), alarm.time)).collect();
        let found: BTreeSet<_> = verdict.violations.iter().map(|found| (found.topic.clone(), found.since)).collect();
        prop_assert!(begun.is_subset(&found), "{:?} {:?}", begun, found);
        let broken = |rule: &&RuleVerdict| matches!(rule.outcome, Outcome::Failed | Outcome::Warned);
        let broken: BTreeSet<_> = verdict.rules.iter().filter(broken).map(|rule| rule.topic.clone()).collect();
        let alarmed: BTreeSet<_> = begun.into_iter().map(|(topic, _)| topic).collect();
        prop_assert_eq!(alarmed, broken, "each broken rule is an alarm");
    }
}

/// A message that begins with its header or has a text before it, in either byte order; the first is a large one.
fn stamped(is_first: bool, is_little: bool, nanos: i64) -> Vec<u8> {
    let number = |value: u32| match is_little {
        true => value.to_le_bytes(),
        false => value.to_be_bytes(),
    };
    let mut bytes = vec![0, u8::from(is_little), 0, 0];
    if !is_first {
        bytes.extend(number(2));
        bytes.extend(b"a\0\0\0");
    }
    bytes.extend(number((nanos / SECOND) as u32));
    bytes.extend(number((nanos % SECOND) as u32));
    bytes.extend(number(1));
    bytes.extend([0; 4]);
    if is_first {
        bytes.extend(number(70_000));
        bytes.extend([7; 70_000]);
    }
    bytes
}

#[test]
fn a_stamp_that_comes_first_is_all_that_is_kept_of_a_payload_for_rules_on_stamps() {
    let text = "version: 1\ntopics: {/topic: {latency: {max: 100ms}, stamps: monotonic}}";
    let contract = Arc::new(Contract::parse(text).unwrap());
    let line = "=".repeat(80);
    for (is_first, is_little) in [(true, true), (true, false), (false, true), (false, false)] {
        let fields = match is_first {
            true => "# A comment.\n\nstd_msgs/Header header\nuint8[] data\n",
            false => "string name\nstd_msgs/Header header\n",
        };
        let definition = MessageDefinition {
            type_name: "own_msgs/msg/Stamped".to_owned(),
            encoding: DefinitionEncoding::Ros2Msg,
            text: format!(
                "{fields}{line}\nMSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n{line}\n\
                 MSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
            ),
            ..MessageDefinition::default()
        };
        let info = TopicInfo {
            name: "/topic".to_owned(),
            type_name: definition.type_name.clone(),
            ..TopicInfo::default()
        };
        let (mut feed, mut live) = (
            Feed::new(Arc::clone(&contract)),
            LiveJudge::new(Arc::clone(&contract)),
        );
        let number = feed.topic(info.clone(), definition.clone());
        let mut judge = Judge::new(Arc::clone(&contract), time(START));
        let slot = judge.topic(&info, &plan_of(Some(&definition), &info)).unwrap();
        for step in 0..20 {
            let at = START + step * SECOND / 10;
            let latency = if step == 10 { 200_000_000 } else { 50_000_000 };
            let payload = stamped(is_first, is_little, at - latency);
            let payload = PayloadRef::Bytes(&payload);
            let arrival = Arrival {
                log_time: time(at),
                publish_time: time(at),
            };
            feed.message(number, arrival, payload);
            judge.message(
                slot,
                arrival,
                &Sample::take(payload, judge.want(slot), usize::MAX),
            );
        }
        let news = feed.take(None, Duration::MAX);
        let held = news.iter().map(|news| match news {
            News::Message(_, _, sample) => sample.held_bytes(),
            _ => 0,
        });
        assert_eq!(held.sum::<usize>() == 0, is_first);
        news.into_iter().for_each(|news| live.take(news));
        let verdict = live.end(&ending());
        assert_eq!(verdict, judge.end(&ending()));
        let found: Vec<&str> = verdict.violations.iter().map(|found| &*found.text).collect();
        let expected = [
            "received 200.0 ms, at most 100.0 ms after its header.stamp",
            "header.stamp goes back by 50.000 ms",
        ];
        assert_eq!(found, expected);
    }
}

#[test]
fn messages_without_room_are_counted_and_make_nothing_wrong() {
    let text = "version: 1\ntopics: {/points: {rate: {min: 13, window: 4s}, gap: 500ms, jump: 100ms}, \
        /camera: {rate: {min: 3, window: 4s}, frozen: 1000000}}\nbag: {tf: {connected: [map, base, lidar], timeout: 1s}}";
    let planted = plant(3, Fault::None);
    let large = |at: i64| Message {
        topic: 1,
        time: at,
        payload: vec![0; 60_000],
    };
    let (mut live, mut has_warned, mut offered) = (Live::new(&planted, text), 0, 0);
    live.pass(START);
    for message in &planted.messages {
        let second = (message.time - START) / SECOND;
        live.message(message);
        let is_behind = (15..20).contains(&second);
        if is_behind {
            for _ in 0..3 {
                live.message(&large(message.time));
                offered += 1;
            }
        }
        has_warned += u32::from(live.pass(message.time));
        if !is_behind {
            live.step(message.time);
        }
    }
    let verdict = live.end();
    assert_eq!(has_warned, 1);
    assert!((1..2 * offered).contains(&verdict.not_judged), "{verdict:?}");
    assert_eq!(verdict.outcome, Outcome::Unknown, "{verdict:?}");
    let unknown = verdict.rules.iter().find(|rule| rule.kind == "jump").unwrap();
    let reason = "messages came faster than they could be judged";
    assert_eq!(
        (unknown.outcome, unknown.reason.as_deref()),
        (Outcome::Unknown, Some(reason))
    );
}

#[test]
fn few_losses_are_few_only_where_all_are_known() {
    let planted = plant(5, Fault::None);
    let text = "version: 1\ntopics: {/points: {losses: 3}}\nbag: {losses: 3}";
    let outcomes = |losses: Ending| {
        let mut run = Run::new(&planted, text);
        planted.messages.iter().for_each(|message| run.message(message));
        let verdict = run.judge.end(&losses);
        assert_eq!(verdict.rules.len(), 2);
        verdict.rules.iter().map(|rule| rule.outcome).max().unwrap()
    };
    let lost = |known, unknown: Option<&str>| {
        let lost = Lost {
            known,
            unknown: unknown.map(str::to_owned),
        };
        outcomes(Ending {
            losses: Some([("/points".to_owned(), lost)].into()),
            ..ending()
        })
    };
    assert_eq!(lost(3, None), Outcome::Passed);
    assert_eq!(lost(4, None), Outcome::Failed);
    assert_eq!(lost(0, Some("nothing shows it")), Outcome::Unknown);
    assert_eq!(lost(4, Some("there may be more")), Outcome::Failed);
    // The account of a recorder that was killed: silence shows nothing.
    let mut ledger = Ledger::new();
    let topic = ledger.add_topic("/points");
    assert_eq!(outcomes(ending().with_account(&ledger)), Outcome::Passed);
    let cut_off = ledger.checkpoint(time(START + 9 * SECOND), false);
    let with_cut_off = ending().with_account(&cut_off);
    assert_eq!(with_cut_off.publishers, None);
    assert_eq!(outcomes(with_cut_off), Outcome::Unknown);
    ledger.set_loss_unknown(topic);
    assert_eq!(outcomes(ending().with_account(&ledger)), Outcome::Unknown);
}
