//! Robots of many kinds, simulated: streams with jitter, stalls, losses and clocks of their own, contracts with bounds that fit them, and faults.
//!
//! The bounds leave a margin to what the stream does without a fault, and a fault passes them by a margin; what is between is neither.

use super::{
    planter::{Fault, Message, Random, SECOND, START, transforms},
    stream::{Content, Source, Stream},
};
use crate::{
    qos::{Durability, QosProfile, Reliability},
    topic::TopicInfo,
};

pub const MILLI: i64 = 1_000_000;
/// The kinds of faults that are planted in streams; `Tree` is planted in the transforms.
const OF_POINTS: [Fault; 8] = [
    Fault::Rate,
    Fault::Gap,
    Fault::Freeze,
    Fault::Drift,
    Fault::Jump,
    Fault::Nan,
    Fault::Type,
    Fault::Qos,
];
const OF_IMAGES: [Fault; 6] = [
    Fault::Rate,
    Fault::Gap,
    Fault::Freeze,
    Fault::Black,
    Fault::Type,
    Fault::Qos,
];
const WRONG_TYPE: &str = "geometry_msgs/msg/Vector3Stamped";

/// What is wrong with a topic, from when to when.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub fault: Fault,
    pub at: i64,
    pub until: i64,
    /// It differs by the kind.
    pub size: f64,
    pub way: i64,
}

impl Plan {
    const NONE: Self = Self {
        fault: Fault::None,
        at: i64::MAX,
        until: i64::MAX,
        size: 0.0,
        way: 0,
    };

    /// A fault that the contract's bound does not allow; `end` is made later where it takes longer.
    fn of(fault: Fault, stream: &Stream, random: &mut Random, end: &mut i64) -> Self {
        let way = random.below(2);
        let least = match fault {
            Fault::Rate => stream.rate.2 + SECOND + stream.stall,
            Fault::Gap => stream.gap * 103 / 100 + 2 * MILLI,
            Fault::Freeze => stream.period * (stream.frozen as i64 * 2 + 4) + 2 * stream.stall,
            Fault::Drift => stream.drift.1 * 5 / 4 + 2 * SECOND,
            _ => stream.period * 6 + 2 * stream.stall + SECOND,
        };
        // A second type comes after the first one.
        let is_from_begin = random.is(0.1) && !matches!(fault, Fault::Gap | Fault::Jump | Fault::Type);
        let at = match is_from_begin {
            true => START,
            false => START + random.span(2000, 15_000) * MILLI,
        };
        *end = (*end).max(at + least + 2 * SECOND);
        let until = match fault {
            Fault::Drift | Fault::Type | Fault::Qos => i64::MAX,
            _ if random.is(0.2) => i64::MAX,
            _ => at + least * random.span(100, 200) / 100,
        };
        let sign = if way == 0 { 1.0 } else { -1.0 };
        let size = match fault {
            Fault::Rate => stream.rate_factor(way == 0, random),
            Fault::Drift => 50.0 * sign,
            Fault::Jump => {
                let healthy = stream.stall + 40 * MILLI;
                (stream.jump + healthy) as f64 * random.real(1.0, 3.0) * sign
            }
            Fault::Nan => (stream.share * f64::from(stream.content.floats())).floor() + 1.0,
            Fault::Black => match stream.content {
                Content::Camera { width, height } => {
                    random.real(stream.share + 0.015, 1.0) * f64::from(width * height)
                }
                _ => 0.0,
            },
            _ => 0.0,
        };
        Self {
            fault,
            at,
            until,
            size,
            way,
        }
    }

    pub fn is_in(&self, time: i64) -> bool {
        (self.at..self.until).contains(&time)
    }
}

/// A rule that has to be broken, on which topic, from when on and seen after which span at the latest.
#[derive(Clone, Debug)]
pub struct Expected {
    pub kind: &'static str,
    pub topic: Option<String>,
    pub begin: i64,
    pub window: i64,
}

/// A recording, its contract, and what the generator knows of it.
#[derive(Default)]
pub struct Simulated {
    pub contract: String,
    pub infos: Vec<TopicInfo>,
    pub messages: Vec<Message>,
    pub expected: Vec<Expected>,
    /// Rules that a fault may break beside its own.
    pub allowed: Vec<(&'static str, String)>,
    pub end: i64,
}

impl Simulated {
    fn topic(&mut self, name: &str, type_name: &str, durability: Durability) -> usize {
        self.infos.push(TopicInfo {
            name: name.to_owned(),
            type_name: type_name.to_owned(),
            serialization_format: "cdr".to_owned(),
            offered_qos_profiles: vec![QosProfile {
                reliability: Reliability::Reliable,
                durability,
                ..QosProfile::ROS_DEFAULT
            }],
            ..TopicInfo::default()
        });
        self.infos.len() - 1
    }

    fn allow(&mut self, stream: &Stream, plan: &Plan) {
        let lost = (plan.until.min(self.end) - plan.at) as f64;
        let kinds: &[&'static str] = match plan.fault {
            // Some of the few messages are lost in a row.
            Fault::Rate
                if stream.period as f64 * plan.size * 4.5 + stream.stall as f64 > stream.gap as f64 =>
            {
                &["gap"]
            }
            Fault::Gap => {
                let (min, _, window) = stream.rate;
                let left = (window as f64 - lost) * stream.hertz() / 1e9;
                let is_low = left - stream.slack(window) < min * window as f64 / 1e9;
                if is_low { &["rate"] } else { &[] }
            }
            // The stamps stand still, too.
            Fault::Freeze if plan.way == 1 => &["jump", "drift"],
            // The topic's second type has windows of its own, and no images.
            Fault::Type => &["rate", "gap", "drift", "image"],
            _ => &[],
        };
        self.allowed
            .extend(kinds.iter().map(|kind| (*kind, stream.name.clone())));
    }

    /// The messages of a stream with what is planned for it.
    fn stream(&mut self, stream: &Stream, plan: &Plan, random: &mut Random) {
        let topic = self.topic(&stream.name, stream.content.type_name(), stream.durability);
        let mut other = topic;
        match plan.fault {
            Fault::Qos => self.break_qos(topic, plan, random),
            Fault::Type if plan.way == 0 => self.infos[topic].type_name = WRONG_TYPE.to_owned(),
            Fault::Type => other = self.topic(&stream.name, WRONG_TYPE, stream.durability),
            _ => {}
        }
        self.allow(stream, plan);
        let mut source = Source::new(stream, random);
        // When the fault is in a message first, and when its rule's window is full.
        let (mut begin, mut seen, mut faulty) = (None, None, 0);
        while let Some(mut sent) = source.next(plan, self.end, random) {
            let is_faulty = match plan.fault {
                Fault::Gap => plan.is_in(sent.time),
                Fault::Type | Fault::Qos if plan.way == 0 => true,
                _ => plan.is_in(sent.emitted),
            };
            if is_faulty && plan.fault == Fault::Gap {
                begin.get_or_insert(plan.at);
                continue;
            }
            let mut of = topic;
            if is_faulty {
                faulty += 1;
                begin.get_or_insert(sent.time);
                match plan.fault {
                    Fault::Drift => sent.stamp += ((sent.emitted - plan.at) as f64 * plan.size / 1e6) as i64,
                    Fault::Jump => sent.stamp += plan.size as i64,
                    // All messages, or one.
                    Fault::Nan if plan.way == 1 && faulty > 1 => {}
                    Fault::Nan | Fault::Black => sent.bad = plan.size as u32,
                    Fault::Type => of = other,
                    _ => {}
                }
                if faulty == stream.frozen {
                    seen = Some(sent.time);
                }
            }
            let payload = match plan.fault == Fault::Type && is_faulty {
                true => Content::Points.payload(sent.stamp, sent.content, 0),
                false => stream.content.payload(sent.stamp, sent.content, sent.bad),
            };
            self.messages.push(Message {
                topic: of,
                time: sent.time,
                payload,
            });
        }
        self.expect(stream, plan, begin, seen);
    }

    fn break_qos(&mut self, topic: usize, plan: &Plan, random: &mut Random) {
        let mut wrong = self.infos[topic].offered_qos_profiles[0];
        match random.below(3) {
            0 => wrong.reliability = Reliability::BestEffort,
            1 => wrong.depth = 1,
            _ => {
                wrong.durability = match wrong.durability {
                    Durability::Volatile => Durability::TransientLocal,
                    _ => Durability::Volatile,
                }
            }
        }
        let offered = &mut self.infos[topic].offered_qos_profiles;
        // The only publisher, or one beside those that are right.
        match plan.way {
            0 => *offered = vec![wrong],
            _ => offered.push(wrong),
        }
    }

    fn expect(&mut self, stream: &Stream, plan: &Plan, begin: Option<i64>, seen: Option<i64>) {
        let Some(kind) = plan.fault.broken() else {
            return;
        };
        let first = self
            .messages
            .iter()
            .filter(|message| self.infos[message.topic].name == stream.name);
        let first = first.map(|message| message.time).min();
        // The type of the first message, and the publishers that are known with it.
        let begin = match plan.fault {
            Fault::Qos => first,
            Fault::Rate => first.max(Some(plan.at)),
            _ => begin,
        };
        let begin = begin.unwrap_or_else(|| panic!("{stream:?} {plan:?} has no fault"));
        let window = match plan.fault {
            Fault::Rate => stream.rate.2,
            Fault::Gap => stream.gap,
            Fault::Freeze => seen.map_or(0, |seen| seen - begin),
            Fault::Drift => stream.drift.1,
            _ => 0,
        };
        self.expected.push(Expected {
            kind,
            topic: Some(stream.name.clone()),
            begin,
            window,
        });
    }
}

/// Frames from the map to the sensors, by one way or another broken.
fn tree(simulated: &mut Simulated, plan: &Plan, random: &mut Random) -> String {
    let moving = random.span(2, 5) as usize;
    let frames: Vec<String> = (0..=moving).map(|number| format!("frame{number}")).collect();
    let edges: Vec<(&str, &str)> = frames
        .windows(2)
        .map(|pair| (pair[0].as_str(), pair[1].as_str()))
        .collect();
    let period = random.span(20, 200) * MILLI;
    let timeout = period * 5 + random.span(200, 1500) * MILLI;
    let within = random.span(2000, 6000) * MILLI;
    let broken = random.below(moving as i64) as usize;
    let way = if plan.fault == Fault::Tree {
        random.below(4)
    } else {
        4
    };
    let dynamic = simulated.topic("/tf", "tf2_msgs/msg/TFMessage", Durability::Volatile);
    let fixed = simulated.topic("/tf_static", "tf2_msgs/msg/TFMessage", Durability::TransientLocal);
    let (mut time, mut last, mut begin) = (START, START, None);
    // The fault comes after the tree is judged.
    let (at, until) = (
        plan.at.saturating_add(within),
        plan.until.saturating_add(within + timeout),
    );
    if way < 3 {
        simulated.end = simulated.end.max(at + timeout + 2 * SECOND);
    }
    while time < simulated.end {
        time += period + random.below(period / 2) - period / 4;
        if time > simulated.end {
            break;
        }
        let mut now = edges.clone();
        let is_broken = (at..until).contains(&time);
        match way {
            0 if is_broken => {
                now.remove(broken);
            }
            1 if is_broken => now.clear(),
            2 if is_broken => now[broken].0 = "elsewhere",
            _ => last = time,
        }
        if is_broken && way < 3 {
            begin.get_or_insert(if way == 2 { time } else { last });
        }
        if !now.is_empty() {
            simulated.messages.push(Message {
                topic: dynamic,
                time,
                payload: transforms(time, &now),
            });
        }
    }
    // Static transforms come once, or the one that is needed never does.
    let child = if way == 3 { "another" } else { "lidar" };
    simulated.messages.push(Message {
        topic: fixed,
        time: START + random.below(1500) * MILLI,
        payload: transforms(START, &[(&frames[moving], child)]),
    });
    if way < 4 {
        simulated.expected.push(Expected {
            kind: "tf",
            topic: None,
            begin: if way == 3 { START } else { begin.unwrap_or(at) },
            window: match way {
                2 => 0,
                3 => within,
                _ => timeout,
            },
        });
    }
    format!(
        "  tf: {{connected: [{}, {}, lidar], timeout: {}ms, within: {}ms}}\n",
        frames[0],
        frames[moving / 2],
        timeout / MILLI,
        within / MILLI
    )
}

/// One recording in ten is without a fault, and one in five has a second one, on another topic.
pub fn simulate(seed: u64) -> Simulated {
    let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let mut simulated = Simulated {
        end: START + random.span(25, 40) * SECOND,
        ..Simulated::default()
    };
    let robot = random.below(100);
    let mut streams: Vec<Stream> = Vec::new();
    for number in 0..random.span(2, 4) {
        let content = random.one(&[Content::Points, Content::Imu, Content::Scan]);
        streams.push(Stream::new(
            &mut random,
            format!("/robot{robot}/sensor{number}"),
            content,
        ));
    }
    for number in 0..random.span(1, 2) {
        let (width, height) = random.one(&[(24, 16), (24, 16), (64, 48), (64, 48), (320, 240)]);
        let content = Content::Camera { width, height };
        streams.push(Stream::new(
            &mut random,
            format!("/robot{robot}/camera{number}"),
            content,
        ));
    }
    for stream in &streams {
        simulated.end = simulated.end.max(START + stream.drift.1 + 2 * SECOND);
    }
    let mut plans = vec![Plan::NONE; streams.len() + 1];
    let faults = [
        Fault::None,
        Fault::Rate,
        Fault::Gap,
        Fault::Freeze,
        Fault::Drift,
        Fault::Jump,
    ];
    let faults = [
        &faults[..],
        &[Fault::Nan, Fault::Black, Fault::Tree, Fault::Type, Fault::Qos],
    ]
    .concat();
    let first = faults[(seed % faults.len() as u64) as usize];
    let second = if random.is(0.2) && first != Fault::None {
        random.one(&faults)
    } else {
        Fault::None
    };
    for fault in [first, second] {
        let (mut free, of) = (Vec::new(), streams.len());
        for (number, stream) in streams
            .iter()
            .enumerate()
            .filter(|(number, _)| plans[*number].fault == Fault::None)
        {
            let is_camera = matches!(stream.content, Content::Camera { .. });
            let may = if is_camera {
                OF_IMAGES.contains(&fault)
            } else {
                OF_POINTS.contains(&fault)
            };
            free.extend(may.then_some(number));
        }
        match fault {
            Fault::None => {}
            Fault::Tree => {
                let at = START + random.span(1000, 10_000) * MILLI;
                let until = if random.is(0.3) {
                    i64::MAX
                } else {
                    at + random.span(1000, 9000) * MILLI
                };
                plans[of] = Plan {
                    fault,
                    at,
                    until,
                    ..Plan::NONE
                };
            }
            _ if free.is_empty() => {}
            _ => {
                let place = random.one(&free);
                plans[place] = Plan::of(fault, &streams[place], &mut random, &mut simulated.end);
            }
        }
    }
    let mut rules = String::new();
    let of_tree = tree(&mut simulated, &plans[streams.len()], &mut random);
    for (stream, plan) in streams.iter().zip(&plans) {
        rules += &stream.rules();
        simulated.stream(stream, plan, &mut random);
    }
    simulated.contract = format!("version: 1\nname: robot {robot}\ntopics:\n{rules}bag:\n{of_tree}");
    simulated.messages.sort_by_key(|message| message.time);
    simulated
}
