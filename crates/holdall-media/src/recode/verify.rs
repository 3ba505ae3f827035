//! Compares a bag with one whose images or clouds have another form: all messages, in pairs, each decoded.

use super::{
    Recoder, encoded,
    image::{Frame, is_opaque, is_same, rgb},
};
use crate::{
    cloud::{CLOUD, Cloud, cloudini::error_of},
    likeness::{Alike, Bound},
};
use bytes::Bytes;
use holdall_bag::reader::{BagMessage, BagSet, MessageFilter, Messages, ReadError};
use holdall_model::{
    recoding::{Exactness, Likeness, Recoding},
    text::Outside,
};
use holdall_tools::tools::{Recode, ToolError};
use std::{collections::BTreeMap, iter::Peekable};

/// Messages of one time: more are not ordered by topic.
const AT_ONCE_MAX: usize = 1 << 16;

/// Why a bag is not what another one became.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// One of them cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The messages of the new one cannot be decoded.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A message differs.
    #[error("{}, message of {log_time} ns: {reason}", Outside(topic))]
    Differs {
        /// Its topic.
        topic: String,
        /// Its reception time.
        log_time: i64,
        /// One clause.
        reason: String,
    },
}

/// What the comparison of two bags found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verified {
    /// Messages that were compared.
    pub messages: u64,
    /// By topic, of lossy video: how like its images all its pictures are.
    pub images: BTreeMap<String, Likeness>,
}

/// Messages of a bag by time, those of one time by topic.
struct ByTime(Peekable<Messages>);

impl ByTime {
    fn next(&mut self) -> Result<Vec<BagMessage>, ReadError> {
        let mut all: Vec<BagMessage> = Vec::new();
        while let Some(next) = self.0.peek() {
            let is_later = next
                .as_ref()
                .is_ok_and(|next| all.first().is_some_and(|first| first.log_time != next.log_time));
            if is_later || all.len() >= AT_ONCE_MAX {
                break;
            }
            match self.0.next() {
                Some(message) => all.push(message?),
                None => break,
            }
        }
        all.sort_by(|one, other| one.topic.name.cmp(&other.topic.name));
        Ok(all)
    }
}

/// Compares all messages of `before` with those of `after`, which are decoded: equal where nothing was lost, within their bound or as like each other as the
/// samples of the encoder where something was. `progress` gets the number of messages.
///
/// # Errors
/// The first message that differs; a bag that cannot be read.
pub fn verify(
    before: &BagSet,
    after: &BagSet,
    progress: &mut dyn FnMut(u64),
) -> Result<Verified, VerifyError> {
    let filter = MessageFilter {
        verified: true,
        ..MessageFilter::default()
    };
    let custom_data = after.bags().iter().map(|bag| &bag.metadata().custom_data);
    let forms: BTreeMap<String, Recoding> = custom_data
        .clone()
        .flat_map(encoded)
        .map(|recoding| (recoding.topic.clone(), recoding))
        .collect();
    let mut decoder = Recoder::decoding(custom_data).map(Recoder::without_files);
    if let Some(decoder) = &mut decoder {
        decoder.begin(after)?;
    }
    let mut verified = Verified::default();
    let [mut ones, mut others] = [before, after].map(|bags| ByTime(bags.messages(&filter).peekable()));
    loop {
        let (one, other) = (ones.next()?, others.next()?);
        if one.is_empty() && other.is_empty() {
            return Ok(verified);
        }
        for number in 0..one.len().max(other.len()) {
            let differs = |message: &BagMessage, reason: String| VerifyError::Differs {
                topic: message.topic.name.clone(),
                log_time: message.log_time.as_nanos(),
                reason,
            };
            let (a, b) = match (one.get(number), other.get(number)) {
                (Some(a), Some(b)) => (a, b),
                (Some(a), None) => return Err(differs(a, "it is not in the new bag".to_owned())),
                (None, Some(b)) => return Err(differs(b, "it is in the new bag only".to_owned())),
                (None, None) => continue,
            };
            let found = compare(a, b, decoder.as_mut(), &forms).map_err(|reason| differs(a, reason))?;
            if let Some(Alike { psnr, ssim, .. }) = found {
                let images = verified.images.entry(a.topic.name.clone()).or_default();
                images.add(psnr, ssim);
            }
            verified.messages += 1;
            progress(verified.messages);
        }
    }
}

/// How like its image a picture of lossy video is; `None` for other messages.
fn compare(
    before: &BagMessage,
    after: &BagMessage,
    decoder: Option<&mut Recoder>,
    forms: &BTreeMap<String, Recoding>,
) -> Result<Option<Alike>, String> {
    let key = |it: &BagMessage| {
        (
            it.log_time,
            it.publish_time,
            it.sequence,
            it.topic.publisher.clone(),
        )
    };
    if before.topic.name != after.topic.name || key(before) != key(after) {
        return Err("the new bag has another message in its place".to_owned());
    }
    if before.payload == after.payload && before.topic.type_name == after.topic.type_name {
        return Ok(None);
    }
    let decoded: Option<(String, Bytes)> =
        decoder.and_then(|decoder| Some((decoder.form(&after.topic)?.type_name, decoder.recode(after)?)));
    let Some(((type_name, decoded), form)) = decoded.zip(forms.get(&after.topic.name)) else {
        return Err("it differs, and cannot be decoded".to_owned());
    };
    if before.payload == decoded {
        return Ok(None);
    }
    if before.topic.type_name == CLOUD {
        compare_clouds(&before.payload, &decoded, form.error_bound.unwrap_or(0.0))?;
        return Ok(None);
    }
    if form.exactness == Exactness::Lossless {
        if is_same(&before.payload, &decoded) {
            return Ok(None);
        }
        return Err("decoded again it differs".to_owned());
    }
    let again = BagMessage {
        payload: decoded,
        topic: std::sync::Arc::new(holdall_model::topic::TopicInfo {
            type_name,
            ..before.topic.as_whole()
        }),
        ..after.clone()
    };
    let samples = form.likeness.filter(|samples| samples.samples > 0);
    let samples = samples.ok_or("no picture of its video was compared when it was encoded")?;
    let (one, other) = (Frame::read(before)?.pixels, Frame::read(&again)?.pixels);
    if !is_opaque(&one) {
        return Err("it has transparent pixels, and its video has none".to_owned());
    }
    Bound::of_samples(&samples)
        .compare(&rgb(&one), &rgb(&other))
        .map(Some)
}

fn compare_clouds(before: &[u8], after: &[u8], bound: f64) -> Result<(), String> {
    let read = |payload| Cloud::read(payload, false).map_err(|error| error.to_string());
    let (before, after) = (read(before)?, read(after)?);
    let same_head = Cloud {
        data: after.data,
        ..before.clone()
    };
    if same_head != after {
        return Err("decoded again its head differs".to_owned());
    }
    if before.bare()? == after.data {
        return Ok(());
    }
    match error_of(&before, after.data)? {
        error if error <= bound => Ok(()),
        error => Err(format!(
            "decoded again a coordinate differs by {error}, more than {bound}"
        )),
    }
}
