//! The content of payloads: bytes of a chosen entropy, or data like that of cameras, laser scanners and logs.

use std::{fmt, str::FromStr, sync::Arc};

/// The kind of bytes that payloads are cut from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Content {
    /// Independent bytes of this Shannon entropy, 0 (all equal) to 8 (random) bits per byte.
    Entropy(f64),
    /// Rendered RGB camera frames, 1920 pixels wide: gradients, edges, sensor noise.
    Image,
    /// Points of a rotating laser scanner as `sensor_msgs/msg/PointCloud2` packs them (22 bytes a point).
    PointCloud,
    /// Lines of a log.
    Text,
}

/// The texts that name one.
pub(crate) const CONTENTS: &str = "random, image, pointcloud, text, or an entropy from 0 to 8 bit per byte";

impl FromStr for Content {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "random" => Ok(Self::Entropy(8.0)),
            "image" => Ok(Self::Image),
            "pointcloud" => Ok(Self::PointCloud),
            "text" => Ok(Self::Text),
            number => match number.parse::<f64>() {
                Ok(bits) if (0.0..=8.0).contains(&bits) => Ok(Self::Entropy(bits)),
                _ => Err(format!("expected {CONTENTS}, found {text:?}")),
            },
        }
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entropy(bits) if *bits >= 8.0 => f.write_str("random"),
            Self::Entropy(bits) => write!(f, "{bits}"),
            Self::Image => f.write_str("image"),
            Self::PointCloud => f.write_str("pointcloud"),
            Self::Text => f.write_str("text"),
        }
    }
}

/// Bytes that payloads are cut from; cheap to clone, clones share the bytes.
#[derive(Clone)]
pub(crate) struct Corpus {
    bytes: Arc<[u8]>,
}

impl Corpus {
    /// A corpus of exactly `len` bytes; the same content, length and seed give the same bytes.
    pub fn new(content: Content, len: usize, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = Vec::with_capacity(len);
        match content {
            Content::Entropy(bits) => fill_entropy(&mut bytes, len, bits, &mut random),
            Content::Image => fill_frames(&mut bytes, len, &mut random),
            Content::PointCloud => fill_points(&mut bytes, len, &mut random),
            Content::Text => fill_text(&mut bytes, len, &mut random),
        }
        bytes.truncate(len);
        Self { bytes: bytes.into() }
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Entropy in bits of a byte that is one value with probability `share` and each of the 255 others equally
/// often.
fn entropy_of_share(share: f64) -> f64 {
    let rest = 1.0 - share;
    let part = |p: f64, weight: f64| if p > 0.0 { -weight * p.log2() } else { 0.0 };
    part(share, share) + part(rest / 255.0, rest)
}

/// The share of the favoured value for an entropy of `bits`; the entropy falls steadily from share 1/256 (8
/// bits) to 1 (0 bits).
fn share_of_entropy(bits: f64) -> f64 {
    let (mut low, mut high) = (1.0 / 256.0, 1.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if entropy_of_share(middle) > bits {
            low = middle
        } else {
            high = middle
        }
    }
    f64::midpoint(low, high)
}

fn fill_entropy(bytes: &mut Vec<u8>, len: usize, bits: f64, random: &mut fastrand::Rng) {
    if bits >= 8.0 {
        while bytes.len() < len {
            bytes.extend_from_slice(&random.u64(..).to_le_bytes());
        }
        return;
    }
    // As a threshold on 32 random bits: cheaper than floating point for each byte. At most 2^32, so the
    // conversion is exact.
    let threshold = (share_of_entropy(bits) * f64::from(u32::MAX)) as u32;
    while bytes.len() < len {
        let favoured = bits <= 0.0 || random.u32(..) < threshold;
        bytes.push(if favoured { 0 } else { random.u8(1..) });
    }
}

/// Noise of about ± 3 counts, bell-shaped enough: a sum of three uniform values.
fn sensor_noise(random: &mut fastrand::Rng) -> i32 {
    let bits = random.u32(..);
    [0, 8, 16]
        .iter()
        .map(|shift| (bits >> shift & 3) as i32)
        .sum::<i32>()
        - 4
}

fn fill_frames(bytes: &mut Vec<u8>, len: usize, random: &mut fastrand::Rng) {
    const WIDTH: i32 = 1920;
    const HEIGHT: i32 = 1080;
    let mut frame = 0;
    while bytes.len() < len {
        let (box_x, box_y) = ((frame * 37) % (WIDTH - 400), (frame * 23) % (HEIGHT - 300));
        for y in 0..HEIGHT {
            for x in 0..WIDTH {
                let in_box = (box_x..box_x + 400).contains(&x) && (box_y..box_y + 300).contains(&y);
                let stripe = if in_box && (x / 16 + y / 16) % 2 == 0 {
                    70
                } else {
                    0
                };
                let colours = [
                    x * 200 / WIDTH + stripe,
                    y * 200 / HEIGHT + stripe,
                    (x + y) / 20 + 30 - stripe / 2,
                ];
                // One noise value for the pixel and a little more for each colour, as de-mosaicing makes it.
                let grain = sensor_noise(random);
                bytes.extend(colours.map(|colour| (colour + grain).clamp(0, 255) as u8));
            }
            if bytes.len() >= len {
                return;
            }
        }
        frame += 1;
    }
}

fn fill_points(bytes: &mut Vec<u8>, len: usize, random: &mut fastrand::Rng) {
    const RINGS: u16 = 32;
    const STEPS: u32 = 1800;
    let mut turn = 0_u32;
    while bytes.len() < len {
        for step in 0..STEPS {
            let azimuth = step as f32 / STEPS as f32 * std::f32::consts::TAU;
            // A room with a wavy wall, seen from a slowly moving sensor.
            let wall = 12.0 + 3.0 * (azimuth * 5.0).sin() + turn as f32 * 0.01;
            for ring in 0..RINGS {
                let elevation = (f32::from(ring) - 16.0) * 0.02;
                let range = wall / elevation.cos() + (random.f32() - 0.5) * 0.04;
                let level = range * elevation.cos();
                for value in [
                    level * azimuth.cos(),
                    level * azimuth.sin(),
                    range * elevation.sin(),
                ] {
                    bytes.extend_from_slice(&value.to_le_bytes());
                }
                bytes.extend_from_slice(&f32::from(random.u8(20..60)).to_le_bytes());
                bytes.extend_from_slice(&ring.to_le_bytes());
                bytes.extend_from_slice(&(step as f32 * 55.296e-6).to_le_bytes());
            }
            if bytes.len() >= len {
                return;
            }
        }
        turn += 1;
    }
}

fn fill_text(bytes: &mut Vec<u8>, len: usize, random: &mut fastrand::Rng) {
    const LEVELS: [&str; 4] = ["DEBUG", "INFO", "WARN", "ERROR"];
    const NODES: [&str; 6] = [
        "/planner_server",
        "/controller_server",
        "/amcl",
        "/lidar_driver",
        "/camera_front",
        "/bt_navigator",
    ];
    const PHRASES: [&str; 8] = [
        "received a goal at",
        "passing new path to controller, length",
        "transform timeout, latest available at",
        "costmap updated, cells changed:",
        "dropping message, queue size",
        "control loop missed its rate, took",
        "particle filter resampled, weight",
        "frame skipped, exposure",
    ];
    let mut stamp = 1_700_000_000_000_u64;
    while bytes.len() < len {
        stamp += random.u64(1..400);
        let line = format!(
            "[{}.{:03}] [{}] [{}]: {} {:.3}\n",
            stamp / 1000,
            stamp % 1000,
            LEVELS[random.usize(..LEVELS.len())],
            NODES[random.usize(..NODES.len())],
            PHRASES[random.usize(..PHRASES.len())],
            random.f64() * 100.0
        );
        bytes.extend_from_slice(line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shannon_bits(bytes: &[u8]) -> f64 {
        let mut counts = [0_usize; 256];
        bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        let total = bytes.len() as f64;
        counts
            .iter()
            .filter(|count| **count > 0)
            .map(|count| -(*count as f64 / total) * (*count as f64 / total).log2())
            .sum()
    }

    #[test]
    fn bytes_have_the_requested_entropy() {
        for bits in [0.0, 0.5, 1.0, 2.0, 4.0, 6.5, 7.9, 8.0] {
            let corpus = Corpus::new(Content::Entropy(bits), 1 << 20, 1);
            let found = shannon_bits(corpus.bytes());
            assert!((found - bits).abs() < 0.02, "requested {bits}, found {found}");
        }
    }

    #[test]
    fn every_content_has_its_length_and_is_the_same_for_the_same_seed() {
        for content in [
            Content::Entropy(3.0),
            Content::Image,
            Content::PointCloud,
            Content::Text,
        ] {
            let corpus = Corpus::new(content, 100_003, 5);
            assert_eq!(corpus.bytes().len(), 100_003, "{content}");
            assert_eq!(
                corpus.bytes(),
                Corpus::new(content, 100_003, 5).bytes(),
                "{content}"
            );
            assert_ne!(
                corpus.bytes(),
                Corpus::new(content, 100_003, 6).bytes(),
                "{content}"
            );
        }
    }

    #[test]
    fn realistic_contents_are_neither_random_nor_constant() {
        for content in [Content::Image, Content::PointCloud, Content::Text] {
            let bits = shannon_bits(Corpus::new(content, 1 << 20, 5).bytes());
            assert!((3.0..7.9).contains(&bits), "{content}: {bits} bit per byte");
        }
    }

    #[test]
    fn contents_parse_what_they_display() {
        for text in ["random", "image", "pointcloud", "text", "2.5"] {
            assert_eq!(text.parse::<Content>().unwrap().to_string(), text);
        }
        assert!("9".parse::<Content>().is_err());
        assert!(
            "noise"
                .parse::<Content>()
                .unwrap_err()
                .to_string()
                .contains("noise")
        );
    }
}
