//! What was done to the messages of a topic that got a smaller form, or their first one again: the bag keeps it, so that it says what was
//! changed in it.

mod keys;
pub mod live;

pub use keys::KeyTimes;

use crate::{
    carried::video_unit,
    text::{Outside, one_line},
    time::Timestamp,
    units::counted,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// Key of `custom_data` in `metadata.yaml` that holds the list of all changes of form, in their order.
pub const RECODED_CUSTOM_KEY: &str = "holdall.recoded";

/// Name of the record with that list in files of a recording that runs.
pub const RECODED_RECORD: &str = "holdall:recoded";

/// Most bytes of a list: a longer one is damaged.
const LIST_BYTES_MAX: usize = 16 << 20;

/// How exact the new form is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exactness {
    /// The messages can be made again, each field bit for bit.
    #[default]
    Lossless,
    /// Something of them is lost for good.
    Lossy,
}

/// The form of the images before they were encoded: what their messages have and video does not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageForm {
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// As `sensor_msgs/msg/Image` has it.
    pub encoding: String,
    /// The same of its flag.
    pub is_bigendian: u8,
}

/// How similar sampled images were before and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Likeness {
    /// Number of images that were compared.
    pub samples: u64,
    /// The sum of their peak signal-to-noise ratios in dB; one of equal images counts as 100.
    pub psnr_sum: f64,
    /// The lowest.
    pub psnr_min: f64,
    /// The sum of their structural similarities of brightness.
    pub ssim_sum: f64,
    /// The lowest.
    pub ssim_min: f64,
}

impl Likeness {
    /// Adds an image.
    pub fn add(&mut self, psnr: f64, ssim: f64) {
        let is_first = self.samples == 0;
        self.psnr_min = if is_first { psnr } else { self.psnr_min.min(psnr) };
        self.ssim_min = if is_first { ssim } else { self.ssim_min.min(ssim) };
        self.samples += 1;
        self.psnr_sum += psnr;
        self.ssim_sum += ssim;
    }

    /// The lowest ones: one clause.
    pub fn worst_clause(&self) -> String {
        let (psnr, ssim) = (self.psnr_min, self.ssim_min);
        format!("PSNR at worst {psnr:.1} dB and SSIM at worst {ssim:.4}")
    }
}

/// What was changed at a time: an encoder did not follow, or follows again; another publisher or another size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Log time of the last message before it, in nanoseconds.
    pub time: i64,
    /// One clause.
    pub what: String,
}

/// A change of form of a topic's messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recoding {
    /// The topic.
    pub topic: String,
    /// The type before.
    pub from: String,
    /// The type after.
    pub into: String,
    /// `h264`, `h265`, `rvl`, `planes`, `cloudini`, `columns`; `none` where messages got their first form again.
    pub codec: String,
    /// The settings of the encoder.
    pub settings: String,
    /// The program that encoded, with its version.
    pub encoder: String,
    /// How exact it is.
    pub exactness: Exactness,
    /// What the images were; `None` for other messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageForm>,
    /// Other sizes that images had later, as width and height.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<[u32; 2]>,
    /// Of video: when its key frames were logged.
    #[serde(default, skip_serializing_if = "KeyTimes::is_empty")]
    pub keys: KeyTimes,
    /// Number of messages that have the new form.
    pub messages: u64,
    /// Their bytes before.
    pub bytes_before: u64,
    /// Their bytes after.
    pub bytes_after: u64,
    /// Number of messages that kept the form that they had.
    pub kept: u64,
    /// What bytes, reasons and likeness are of, where that is not what `messages` and `kept` count: a bag that has only some of the messages, or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<u64>,
    /// Why: one clause for each reason, with the number of messages.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reasons: BTreeMap<String, u64>,
    /// Number of messages that were not recorded, because their encoder did not follow and that is the policy.
    #[serde(default)]
    pub left_out: u64,
    /// What was changed by itself, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// How similar sampled images were; nothing for what is lossless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub likeness: Option<Likeness>,
    /// How similar all images were when the bag was compared with the one that it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<Likeness>,
    /// The largest error of a value that was allowed, in the unit of the values; nothing for what is lossless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_bound: Option<f64>,
    /// The largest that was found: every message was decoded again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_max: Option<f64>,
}

/// Reasons that are listed apart; others count as one.
const REASONS_MAX: usize = 20;

impl Recoding {
    /// Lists a message in its new form, if it is a key frame of video.
    pub fn note_key(&mut self, payload: &[u8], log_time: Timestamp) {
        if video_unit(&self.into, payload).is_some_and(|(unit, _)| unit.is_key) {
            self.keys.add(log_time);
        }
    }

    /// Counts a message that keeps its form.
    pub fn keep(&mut self, reason: &str) {
        self.kept += 1;
        let is_listed = self.reasons.len() < REASONS_MAX || self.reasons.contains_key(reason);
        let reason = if is_listed { reason } else { "other reasons" };
        *self.reasons.entry(reason.to_owned()).or_default() += 1;
    }

    /// Adds a step.
    pub fn step(&mut self, time: Timestamp, what: String) {
        let time = time.as_nanos();
        self.steps.push(Step { time, what });
    }

    /// How many times smaller the messages are; `None` without any.
    pub fn ratio(&self) -> Option<f64> {
        (self.bytes_after > 0).then(|| self.bytes_before as f64 / self.bytes_after as f64)
    }

    /// The list in `custom_data`; empty if it has none, or one that cannot be understood.
    pub fn list_in(custom_data: &BTreeMap<String, String>) -> Vec<Self> {
        let text = custom_data.get(RECODED_CUSTOM_KEY);
        let text = text.filter(|text| text.len() <= LIST_BYTES_MAX);
        text.and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }

    /// The entry of `custom_data` with this list.
    pub fn list_to_custom_data(list: &[Self]) -> Option<(String, String)> {
        let text = serde_json::to_string(list).ok()?;
        (!list.is_empty()).then(|| (RECODED_CUSTOM_KEY.to_owned(), text))
    }

    /// The entry of `custom_data` that a [`RECODED_RECORD`] has.
    pub fn list_of_record(record: &BTreeMap<String, String>) -> Option<(String, String)> {
        let (key, text) = record.get_key_value(RECODED_CUSTOM_KEY)?;
        Some((key.clone(), text.clone()))
    }

    /// Corrects a list that was written before the last messages: `count` gives how many of a topic have a type.
    pub fn recount(custom_data: &mut BTreeMap<String, String>, count: impl Fn(&str, &str) -> u64) {
        Self::recount_by(custom_data, |one| {
            [&one.into, &one.from].map(|kind| count(&one.topic, kind))
        });
    }

    /// Corrects the list of a bag of which only some messages were copied; `count` as for [`Self::recount`].
    pub fn reduce(custom_data: &mut BTreeMap<String, String>, count: impl Fn(&str, &str) -> u64) {
        Self::recount_by(custom_data, |one| {
            [(&one.into, one.messages), (&one.from, one.kept)]
                .map(|(kind, before)| count(&one.topic, kind).min(before))
        });
    }

    fn recount_by(custom_data: &mut BTreeMap<String, String>, count: impl Fn(&Self) -> [u64; 2]) {
        let mut list = Self::list_in(custom_data);
        for places in Self::present(&list).into_values() {
            // Which messages are whose is known of a single one.
            let [place] = places[..] else { continue };
            let one = &mut list[place];
            let [messages, kept] = count(one);
            if [messages, kept] != [one.messages, one.kept] {
                one.measured.get_or_insert(one.messages + one.kept);
                (one.messages, one.kept) = (messages, kept);
            }
        }
        custom_data.extend(Self::list_to_custom_data(&list));
    }

    /// By topic and type: the places of those whose messages have the new form still, and another type by it.
    fn present(list: &[Self]) -> BTreeMap<(String, String), Vec<usize>> {
        let mut present = BTreeMap::<_, Vec<usize>>::new();
        for (place, one) in list.iter().enumerate() {
            if one.codec == "none" {
                present.remove(&(one.topic.clone(), one.from.clone()));
            } else if one.from != one.into {
                let key = (one.topic.clone(), one.into.clone());
                present.entry(key).or_default().push(place);
            }
        }
        present
    }

    /// Where a list counts other messages than a bag has: one sentence each; `count` as for [`Self::recount`].
    pub fn differences(list: &[Self], count: impl Fn(&str, &str) -> u64) -> Vec<String> {
        let present = Self::present(list).into_iter();
        let differing = present.filter_map(|((topic, kind), places)| {
            let listed: u64 = places.iter().map(|place| list[*place].messages).sum();
            let found = count(&topic, &kind);
            // Of several entries each may have counted messages that another one has, too.
            let differs = match places.len() {
                1 => listed != found,
                _ => listed < found,
            };
            differs.then(|| {
                format!(
                    "{}: its account counts {} that became {}, and the bag has {found}",
                    Outside(&topic),
                    counted(listed, "message"),
                    one_line(&kind)
                )
            })
        });
        differing.collect()
    }
}

impl Recoding {
    /// What was done: one sentence.
    pub fn done_clause(&self) -> String {
        let mut text = String::new();
        // Writing to a text does not fail.
        let _ = self.write_done(&mut text);
        text
    }

    /// What was not done, and why: one sentence.
    pub fn kept_clause(&self) -> String {
        let reasons = self.reasons.iter();
        let reasons: Vec<String> = reasons
            .map(|(reason, count)| format!("{count}: {}", one_line(reason)))
            .collect();
        format!(
            "{}: {} kept as before ({})",
            Outside(&self.topic),
            counted(self.kept, "message"),
            reasons.join(", ")
        )
    }

    fn write_done(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        let exact = match self.exactness {
            Exactness::Lossless => "lossless",
            Exactness::Lossy => "lossy",
        };
        write!(
            f,
            "{}: {} of {}",
            Outside(&self.topic),
            counted(self.messages, "message"),
            one_line(&self.from)
        )?;
        match self.codec.as_str() {
            "none" => write!(f, " restored as {}", one_line(&self.into))?,
            codec => {
                write!(
                    f,
                    " became {} ({}, {exact}",
                    one_line(&self.into),
                    one_line(codec)
                )?;
                for part in [&self.settings, &self.encoder]
                    .into_iter()
                    .filter(|part| !part.is_empty())
                {
                    write!(f, ", {}", one_line(part))?;
                }
                write!(f, ")")?;
            }
        }
        write!(
            f,
            ", {} bytes before, {} after",
            self.bytes_before, self.bytes_after
        )?;
        if let Some(ratio) = self.ratio().filter(|_| self.codec != "none") {
            write!(f, ", {ratio:.1} times smaller")?;
        }
        if let Some(likeness) = self.likeness.filter(|likeness| likeness.samples > 0) {
            let count = likeness.samples as f64;
            write!(
                f,
                ", PSNR {:.1} dB (at worst {:.1}) and SSIM {:.4} (at worst {:.4}) of {}",
                likeness.psnr_sum / count,
                likeness.psnr_min,
                likeness.ssim_sum / count,
                likeness.ssim_min,
                counted(likeness.samples, "sampled image"),
            )?;
        }
        if let Some(verified) = self.verified {
            let count = counted(verified.samples, "image");
            write!(f, ", {count} verified with {}", verified.worst_clause())?;
        }
        if let (Some(bound), Some(found)) = (self.error_bound, self.error_max) {
            write!(f, ", error at most {bound}, found {found:.6}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Recoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_done(f)?;
        if self.kept > 0 {
            write!(f, "; {}", self.kept_clause())?;
        }
        if let Some(measured) = self.measured {
            let count = counted(measured, "message");
            write!(
                f,
                "; {}: bytes, reasons and likeness are of {count}",
                Outside(&self.topic)
            )?;
        }
        if self.left_out > 0 {
            let count = counted(self.left_out, "message");
            write!(f, "; {}: {count} left out", Outside(&self.topic))?;
        }
        if let Some(last) = self.steps.last() {
            write!(
                f,
                "; {}: {} by itself, the last one: {}",
                Outside(&self.topic),
                counted(self.steps.len() as u64, "change"),
                one_line(&last.what)
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_was_written_and_said_in_a_sentence() {
        let mut recoding = Recoding {
            topic: "/camera".to_owned(),
            from: "sensor_msgs/msg/Image".to_owned(),
            into: "foxglove_msgs/msg/CompressedVideo".to_owned(),
            codec: "h264".to_owned(),
            settings: "crf 23".to_owned(),
            exactness: Exactness::Lossy,
            messages: 9,
            bytes_before: 1000,
            bytes_after: 50,
            likeness: Some(Likeness::default()),
            ..Recoding::default()
        };
        recoding.likeness.as_mut().unwrap().add(40.0, 0.98);
        recoding.likeness.as_mut().unwrap().add(30.0, 0.96);
        let mut verified = Likeness::default();
        verified.add(29.04, 0.95);
        recoding.verified = Some(verified);
        recoding.keep("its width is odd");
        recoding.keep("its width is odd");
        let custom_data: BTreeMap<_, _> = Recoding::list_to_custom_data(std::slice::from_ref(&recoding))
            .into_iter()
            .collect();
        assert_eq!(Recoding::list_in(&custom_data), [recoding.clone()]);
        assert_eq!(
            recoding.to_string(),
            "/camera: 9 messages of sensor_msgs/msg/Image became foxglove_msgs/msg/CompressedVideo (h264, lossy, crf 23), 1000 bytes before, \
             50 after, 20.0 times smaller, PSNR 35.0 dB (at worst 30.0) and SSIM 0.9700 (at worst 0.9600) of 2 sampled images, \
             1 image verified with PSNR at worst 29.0 dB and SSIM at worst 0.9500; /camera: 2 messages kept as before (2: its width is odd)"
        );
        assert_eq!(Recoding::list_to_custom_data(&[]), None);
        let mut late = custom_data.clone();
        Recoding::recount(&mut late, |_, kind| if kind.ends_with("Video") { 30 } else { 5 });
        let counted = &Recoding::list_in(&late)[0];
        assert_eq!(
            (counted.messages, counted.kept, counted.bytes_before),
            (30, 5, 1000)
        );
        assert!(
            counted
                .to_string()
                .ends_with("; /camera: bytes, reasons and likeness are of 11 messages")
        );
        let damaged = BTreeMap::from([(RECODED_CUSTOM_KEY.to_owned(), "[".to_owned())]);
        assert_eq!(Recoding::list_in(&damaged), []);
    }

    #[test]
    fn a_part_of_a_bag_counts_what_it_has() {
        let list_of = |list: &[Recoding]| -> BTreeMap<_, _> {
            Recoding::list_to_custom_data(list).into_iter().collect()
        };
        let one = |messages, codec: &str| {
            let (from, into) = match codec {
                "none" => ("Video", "Image"),
                _ => ("Image", "Video"),
            };
            Recoding {
                topic: "/camera".to_owned(),
                from: from.to_owned(),
                into: into.to_owned(),
                codec: codec.to_owned(),
                messages,
                kept: 4,
                ..Recoding::default()
            }
        };
        let count = |_: &str, kind: &str| if kind == "Video" { 7 } else { 9 };
        let reduced = |list: &[Recoding]| {
            let mut custom_data = list_of(list);
            Recoding::reduce(&mut custom_data, count);
            let list = Recoding::list_in(&custom_data).into_iter();
            list.map(|one| (one.messages, one.kept, one.measured))
                .collect::<Vec<_>>()
        };
        assert_eq!(reduced(&[one(20, "h264")]), [(7, 4, Some(24))]);
        assert_eq!(reduced(&[one(7, "h264")]), [(7, 4, None)]);
        // What another bag has of such messages was not encoded.
        assert_eq!(reduced(&[one(5, "h264")]), [(5, 4, None)]);
        // Two have parts of them, and restored ones are history.
        let both = [one(4, "h264"), one(3, "h264")];
        assert_eq!(reduced(&both), [(4, 4, None), (3, 4, None)]);
        let restored = [one(20, "h264"), one(20, "none")];
        assert_eq!(reduced(&restored), [(20, 4, None), (20, 4, None)]);
        assert_eq!(Recoding::differences(&both, count), Vec::<String>::new());
        assert_eq!(Recoding::differences(&restored, count), Vec::<String>::new());
        assert_eq!(
            Recoding::differences(&[one(20, "h264")], count),
            ["/camera: its account counts 20 messages that became Video, and the bag has 7"]
        );
    }

    #[test]
    fn reasons_are_bounded() {
        let mut recoding = Recoding::default();
        (0..100).for_each(|number| recoding.keep(&format!("reason {number}")));
        assert_eq!((recoding.kept, recoding.reasons.len()), (100, REASONS_MAX + 1));
    }
}
