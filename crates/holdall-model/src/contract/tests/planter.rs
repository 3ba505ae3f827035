//! Plants faults in recordings, and logs where.

use crate::{
    qos::{QosProfile, Reliability},
    topic::TopicInfo,
};

pub const SECOND: i64 = 1_000_000_000;
pub const START: i64 = 1_700_000_000 * SECOND;
/// Length of a planted recording, and the earliest begin of a fault, in seconds.
pub const LENGTH: i64 = 44;
pub const CALM: i64 = 8;

/// A seeded generator of numbers.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: i64) -> i64 {
        (self.next() % bound.max(1).unsigned_abs()) as i64
    }

    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[derive(Default)]
pub struct Cdr(pub Vec<u8>);

impl Cdr {
    pub fn new() -> Self {
        Self(vec![0, 1, 0, 0])
    }

    pub fn put(mut self, bytes: &[u8]) -> Self {
        while !(self.0.len() - 4).is_multiple_of(bytes.len()) {
            self.0.push(0);
        }
        self.0.extend(bytes);
        self
    }

    pub fn u32(self, value: u32) -> Self {
        self.put(&value.to_le_bytes())
    }

    pub fn f64(self, value: f64) -> Self {
        self.put(&value.to_le_bytes())
    }

    pub fn text(self, text: &str) -> Self {
        let mut out = self.u32(text.len() as u32 + 1);
        out.0.extend(text.bytes().chain([0]));
        out
    }

    pub fn header(self, stamp: i64, frame: &str) -> Self {
        self.u32((stamp / SECOND) as u32)
            .u32((stamp % SECOND) as u32)
            .text(frame)
    }
}

pub fn point(stamp: i64, x: f64) -> Vec<u8> {
    Cdr::new().header(stamp, "base").f64(x).f64(-x).f64(0.5).0
}

pub fn image(stamp: i64, pixels: &[u8]) -> Vec<u8> {
    let out = Cdr::new()
        .header(stamp, "cam")
        .u32(16)
        .u32(24)
        .text("mono8")
        .put(&[0])
        .u32(24);
    let mut out = out.u32(pixels.len() as u32);
    out.0.extend(pixels);
    out.0
}

pub fn transforms(stamp: i64, edges: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Cdr::new().u32(edges.len() as u32);
    for (parent, child) in edges {
        out = out.header(stamp, parent).text(child);
        for value in [0.0, 1.0, 2.0, 0.0, 0.0, 0.0, 1.0] {
            out = out.f64(value);
        }
    }
    out.0
}

/// What the planter does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    None,
    Rate,
    Gap,
    Freeze,
    Drift,
    Jump,
    Nan,
    Black,
    Tree,
    Type,
    Qos,
}

pub const FAULTS: [Fault; 11] = [
    Fault::None,
    Fault::Rate,
    Fault::Gap,
    Fault::Freeze,
    Fault::Drift,
    Fault::Jump,
    Fault::Nan,
    Fault::Black,
    Fault::Tree,
    Fault::Type,
    Fault::Qos,
];

impl Fault {
    /// The kind of rule that it breaks.
    pub fn broken(self) -> Option<&'static str> {
        Some(match self {
            Self::None => return None,
            Self::Rate => "rate",
            Self::Gap => "gap",
            Self::Freeze => "frozen",
            Self::Drift => "drift",
            Self::Jump => "jump",
            Self::Nan => "non_finite",
            Self::Black => "image",
            Self::Tree => "tf",
            Self::Type => "type",
            Self::Qos => "qos",
        })
    }
}

pub struct Message {
    pub topic: usize,
    pub time: i64,
    pub payload: Vec<u8>,
}

/// A recording with a fault.
pub struct Planted {
    pub infos: Vec<TopicInfo>,
    pub messages: Vec<Message>,
}

pub fn plant(seed: u64, fault: Fault) -> Planted {
    let mut random = Random(seed);
    let at = START + CALM * SECOND + random.below(8 * SECOND);
    let length = match fault {
        Fault::Rate => 9 * SECOND + random.below(9 * SECOND),
        Fault::Gap => 700_000_000 + random.below(600_000_000),
        Fault::Freeze => SECOND + random.below(4 * SECOND),
        Fault::Tree => 2 * SECOND + random.below(5 * SECOND),
        Fault::Black => 400_000_000 + random.below(2 * SECOND),
        _ => LENGTH * SECOND,
    };
    let is_in = |time: i64| (at..at + length).contains(&time);
    let mut messages = Vec::new();
    let ppm = if random.below(2) == 0 { 50.0 } else { -50.0 };
    let step = (150_000_000 + random.below(500_000_000)) * if random.below(2) == 0 { 1 } else { -1 };
    let (mut frozen, mut has_nan) = (None, false);
    let mut time = START + random.below(200_000_000);
    let mut number = 0;
    while time < START + LENGTH * SECOND {
        // The topic's period of 50 ms with a jitter, and a latency with a long tail; some messages are lost.
        time += 50_000_000 + random.below(20_000_000) - 10_000_000;
        number += 1;
        let is_faulty = is_in(time);
        let is_left_out = match fault {
            Fault::Rate if is_faulty => number % 2 == 0,
            Fault::Gap => is_faulty,
            _ => random.below(200) == 0,
        };
        if is_left_out {
            continue;
        }
        let tail = if random.below(50) == 0 {
            random.below(30_000_000)
        } else {
            0
        };
        let latency = 2_000_000 + (-(1.0 - random.unit()).ln() * 300_000.0) as i64 + tail;
        let mut stamp = time - latency;
        let mut value = random.unit();
        if is_faulty {
            match fault {
                Fault::Drift => stamp += ((time - at) as f64 * ppm / 1e6) as i64,
                Fault::Jump => stamp += step,
                Fault::Freeze => value = *frozen.get_or_insert(value),
                Fault::Nan if !has_nan => {
                    has_nan = true;
                    value = if random.below(2) == 0 {
                        f64::NAN
                    } else {
                        f64::INFINITY
                    };
                }
                _ => {}
            }
        }
        messages.push(Message {
            topic: 0,
            time,
            payload: point(stamp, value),
        });
    }
    let mut time = START + random.below(200_000_000);
    while time < START + LENGTH * SECOND {
        time += 200_000_000 + random.below(20_000_000) - 10_000_000;
        let is_black = fault == Fault::Black && is_in(time);
        let pixels: Vec<u8> = (0..24 * 16).map(|_| if is_black { random.below(4) } else { 20 + random.below(200) } as u8).collect();
        messages.push(Message {
            topic: 1,
            time,
            payload: image(time - 3_000_000, &pixels),
        });
    }
    let mut time = START + random.below(100_000_000);
    while time < START + LENGTH * SECOND {
        time += 100_000_000 + random.below(20_000_000) - 10_000_000;
        let mut edges = vec![("map", "odom"), ("odom", "base")];
        if fault == Fault::Tree && is_in(time) {
            edges.pop();
        }
        messages.push(Message {
            topic: 2,
            time,
            payload: transforms(time, &edges),
        });
    }
    messages.push(Message {
        topic: 3,
        time: START + 50_000_000,
        payload: transforms(START, &[("base", "lidar")]),
    });
    messages.sort_by_key(|message| message.time);
    let info = |name: &str, type_name: &str| TopicInfo {
        name: name.to_owned(),
        type_name: type_name.to_owned(),
        serialization_format: "cdr".to_owned(),
        offered_qos_profiles: vec![QosProfile {
            reliability: Reliability::Reliable,
            ..QosProfile::ROS_DEFAULT
        }],
        ..TopicInfo::default()
    };
    let mut infos = vec![
        info("/points", "geometry_msgs/msg/PointStamped"),
        info("/camera", "sensor_msgs/msg/Image"),
        info("/tf", "tf2_msgs/msg/TFMessage"),
        info("/tf_static", "tf2_msgs/msg/TFMessage"),
    ];
    match fault {
        Fault::Type => infos[0].type_name = "geometry_msgs/msg/Vector3Stamped".to_owned(),
        Fault::Qos => infos[0].offered_qos_profiles[0].reliability = Reliability::BestEffort,
        _ => {}
    }
    Planted { infos, messages }
}
