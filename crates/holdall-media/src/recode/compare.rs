//! Compares what two bags show: their images and clouds, decoded where they are video or compressed.

use super::{
    image::{is_opaque, rgb},
    playing::Plain,
};
use crate::{
    carried::{COMPRESSED_IMAGE, IMAGE},
    cloud::{CLOUD, Cloud, Kind},
    likeness::{alike, pixels},
    pixels::Pixels,
};
use holdall_bag::reader::{BagMessage, BagSet, MessageFilter, Messages, ReadError};
use holdall_model::{time::Timestamp, topic::TopicInfo};
use serde::Serialize;
use std::{collections::BTreeSet, iter::Peekable, sync::Arc};

/// How far decoded messages may be apart.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tolerance {
    /// The largest error of a value, in its unit; 0 by default. It does not count for images that the others are for.
    pub error: Option<f64>,
    /// The lowest peak signal-to-noise ratio of an image of 8 bits, in dB.
    pub psnr: Option<f64>,
    /// The lowest structural similarity of an image of 8 bits.
    pub ssim: Option<f64>,
}

impl Tolerance {
    /// From texts: a number for the largest error, `psnr=30`, `ssim=0.97`.
    ///
    /// # Errors
    /// One clause.
    pub fn read(texts: &[String]) -> Result<Self, String> {
        let mut tolerance = Self::default();
        for text in texts {
            let (place, number) = match text.split_once('=') {
                None => (&mut tolerance.error, text.as_str()),
                Some(("psnr", number)) => (&mut tolerance.psnr, number),
                Some(("ssim", number)) => (&mut tolerance.ssim, number),
                Some(_) => return Err(format!("{text:?} is not a number, psnr=NUMBER or ssim=NUMBER")),
            };
            let number = number
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite() && *number >= 0.0);
            *place = Some(number.ok_or_else(|| format!("{text:?} has no number of 0 or more"))?);
        }
        Ok(tolerance)
    }
}

/// How the messages of a topic differ.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DecodedTopic {
    /// The topic.
    pub topic: String,
    /// Messages of the same time that were compared.
    pub pairs: u64,
    /// Messages of a time that the second bag does not have.
    pub only_in_first: u64,
    /// Messages of a time that the first bag does not have.
    pub only_in_second: u64,
    /// Pairs that are farther apart than allowed.
    pub beyond: u64,
    /// When the first of them was logged, in nanoseconds since 1970.
    pub first_beyond: Option<i64>,
    /// Pairs that cannot be compared.
    pub not_compared: u64,
    /// Why the first of them cannot be.
    pub reason: Option<String>,
    /// The largest error of a value.
    pub error_max: f64,
    /// The lowest and the mean peak signal-to-noise ratio, in dB.
    pub psnr: Option<[f64; 2]>,
    /// The lowest and the mean structural similarity.
    pub ssim: Option<[f64; 2]>,
    /// Pairs that have both.
    #[serde(skip)]
    images: u64,
}

impl DecodedTopic {
    /// Whether nothing is farther apart than allowed.
    pub const fn is_same(&self) -> bool {
        self.only_in_first + self.only_in_second + self.beyond + self.not_compared == 0
    }

    fn note(&mut self, time: Timestamp, apart: Result<Apart, String>, tolerance: &Tolerance) {
        self.pairs += 1;
        let apart = match apart {
            Ok(apart) => apart,
            Err(reason) => {
                self.not_compared += 1;
                self.reason.get_or_insert(reason);
                return;
            }
        };
        self.error_max = self.error_max.max(apart.error);
        // The sum is kept until the end, which makes the mean of it.
        let add = |kept: &mut Option<[f64; 2]>, value: f64| {
            let [min, sum] = kept.unwrap_or([f64::INFINITY, 0.0]);
            *kept = Some([min.min(value), sum + value]);
        };
        if let Some([psnr, ssim]) = apart.likeness {
            self.images += 1;
            add(&mut self.psnr, psnr);
            add(&mut self.ssim, ssim);
        }
        if !apart.is_within(tolerance) {
            self.beyond += 1;
            self.first_beyond.get_or_insert(time.as_nanos());
        }
    }

    fn finish(mut self) -> Self {
        for [_, sum] in [&mut self.psnr, &mut self.ssim].into_iter().flatten() {
            *sum /= self.images.max(1) as f64;
        }
        self
    }
}

/// How far two messages are apart.
struct Apart {
    error: f64,
    /// Of images of 8 bits: PSNR and SSIM.
    likeness: Option<[f64; 2]>,
}

impl Apart {
    fn is_within(&self, tolerance: &Tolerance) -> bool {
        let is_by_likeness = tolerance.psnr.is_some() || tolerance.ssim.is_some();
        match self.likeness.filter(|_| is_by_likeness) {
            Some([psnr, ssim]) => {
                tolerance.psnr.is_none_or(|min| psnr >= min) && tolerance.ssim.is_none_or(|min| ssim >= min)
            }
            None => self.error <= tolerance.error.unwrap_or(0.0),
        }
    }
}

/// One topic in one of the bags.
struct Side {
    messages: Peekable<Messages>,
    plain: Plain,
}

/// A message that was decoded: its time, and itself or why there is none.
type Shown = (Timestamp, Result<BagMessage, String>);

impl Side {
    fn of(bags: &BagSet, topic: &str, plain: &Plain) -> Self {
        let filter = MessageFilter {
            topics: Some(Arc::new([topic.to_owned()].into())),
            ..MessageFilter::default()
        };
        Self {
            messages: bags.messages(&filter).peekable(),
            plain: plain.anew(),
        }
    }

    /// When the next message was logged.
    fn time(&mut self) -> Result<Option<Timestamp>, ReadError> {
        match self.messages.next_if(Result::is_err) {
            Some(Err(error)) => Err(error),
            _ => Ok(self
                .messages
                .peek()
                .and_then(|next| Some(next.as_ref().ok()?.log_time))),
        }
    }

    fn next(&mut self) -> Option<Shown> {
        let message = self.messages.next()?.ok()?;
        Some((message.log_time, self.plain.decode(message)))
    }
}

/// Compares the images and clouds of two bags by their times, topic by topic; other topics are left out.
///
/// # Errors
/// One sentence: a file that cannot be read, video without a decoder.
pub fn compare(first: &BagSet, second: &BagSet, tolerance: &Tolerance) -> Result<Vec<DecodedTopic>, String> {
    let plain = [
        Plain::find(first, &first.topics())?,
        Plain::find(second, &second.topics())?,
    ];
    let mut topics = BTreeSet::new();
    for (bags, plain) in [first, second].into_iter().zip(&plain) {
        let shown = |topic: &TopicInfo| [IMAGE, COMPRESSED_IMAGE, CLOUD].contains(&plain.type_name(topic));
        topics.extend(bags.topics().into_iter().filter(shown).map(|topic| topic.name));
    }
    let compared = topics.into_iter().map(|topic| {
        let sides = [
            Side::of(first, &topic, &plain[0]),
            Side::of(second, &topic, &plain[1]),
        ];
        of_topic(topic, sides, tolerance).map_err(|error| error.to_string())
    });
    compared.collect()
}

fn of_topic(topic: String, sides: [Side; 2], tolerance: &Tolerance) -> Result<DecodedTopic, ReadError> {
    let [mut first, mut second] = sides;
    let mut found = DecodedTopic {
        topic,
        ..DecodedTopic::default()
    };
    loop {
        match (first.time()?, second.time()?) {
            (Some(one), Some(other)) if one == other => {
                if let Some((one, other)) = first.next().zip(second.next()) {
                    found.note(one.0, apart(&one, &other), tolerance);
                }
            }
            (Some(one), other) if other.is_none_or(|other| one < other) => {
                first.next();
                found.only_in_first += 1;
            }
            (_, Some(_)) => {
                second.next();
                found.only_in_second += 1;
            }
            _ => return Ok(found.finish()),
        }
    }
}

fn apart(one: &Shown, other: &Shown) -> Result<Apart, String> {
    let [one, other] = [one, other].map(|(_, shown)| shown.as_ref().map_err(Clone::clone));
    let (one, other) = (one?, other?);
    let is_equal = (&one.topic.type_name, &one.payload) == (&other.topic.type_name, &other.payload);
    let is_cloud = |message: &BagMessage| message.topic.type_name == CLOUD;
    let found = match is_cloud(one) && is_cloud(other) {
        true => of_clouds(&one.payload, &other.payload),
        false => of_images(one, other),
    };
    // Equal bytes show the same, also those that are of no image.
    found.or_else(|reason| match is_equal {
        true => Ok(Apart {
            error: 0.0,
            likeness: None,
        }),
        false => Err(reason),
    })
}

fn of_images(one: &BagMessage, other: &BagMessage) -> Result<Apart, String> {
    let shown = |message: &BagMessage| pixels(&message.topic.type_name, &message.payload);
    let (mut one, mut other) = (shown(one)?, shown(other)?);
    let size = |pixels: &Pixels| (pixels.width, pixels.height);
    if size(&one) != size(&other) || one.is_deep != other.is_deep {
        let said = |pixels: &Pixels| {
            let bits = if pixels.is_deep { 16 } else { 8 };
            format!("{} x {} pixels of {bits} bits", pixels.width, pixels.height)
        };
        return Err(format!("{} became {}", said(&one), said(&other)));
    }
    // Where nothing is transparent, alpha would only make the pixels more alike.
    let is_colour = |pixels: &Pixels| pixels.channels == 4 && is_opaque(pixels);
    if !one.is_deep && (one.channels != other.channels || (is_colour(&one) && is_colour(&other))) {
        (one, other) = (rgb(&one), rgb(&other));
    }
    if one.bytes.len() != other.bytes.len() {
        return Err("the images have other channels".to_owned());
    }
    if one.is_deep {
        let values = |pixels: &Pixels| -> Vec<u16> {
            let (pairs, _) = pixels.bytes.as_chunks::<2>();
            pairs.iter().map(|bytes| u16::from_be_bytes(*bytes)).collect()
        };
        let pairs = values(&one).into_iter().zip(values(&other));
        let error = pairs.map(|(a, b)| a.abs_diff(b)).max().unwrap_or(0);
        return Ok(Apart {
            error: f64::from(error),
            likeness: None,
        });
    }
    let pairs = one.bytes.iter().zip(&other.bytes);
    let error = pairs.map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0);
    let found = alike(&one, &other);
    Ok(Apart {
        error: f64::from(error),
        likeness: Some([found.psnr, found.ssim]),
    })
}

fn of_clouds(one: &[u8], other: &[u8]) -> Result<Apart, String> {
    let read = |payload| Cloud::read(payload, false).map_err(|error| error.to_string());
    let (one, other) = (read(one)?, read(other)?);
    let named = |cloud: &Cloud<'_>| -> Vec<(String, u8, u32)> {
        let fields = cloud.fields.iter();
        fields
            .map(|field| (field.name.to_owned(), field.datatype, field.count))
            .collect()
    };
    let points = (one.whole()?, other.whole()?);
    if named(&one) != named(&other) || points.0 != points.1 || one.is_bigendian != other.is_bigendian {
        return Err(format!(
            "the clouds have other fields or points ({} and {})",
            points.0, points.1
        ));
    }
    let (columns, others) = (one.columns()?, other.columns()?);
    let pairs = one.data.chunks_exact(one.point_step as usize);
    let pairs = pairs.zip(other.data.chunks_exact(other.point_step as usize));
    let mut error = 0.0_f64;
    for (a, b) in pairs {
        for (column, other) in columns.iter().zip(&others) {
            let bytes = column.kind.bytes();
            let at = |point: &[u8], offset: usize| {
                value(column.kind, &point[offset..offset + bytes], one.is_bigendian != 0)
            };
            let (a, b) = (at(a, column.offset), at(b, other.offset));
            if a.is_nan() != b.is_nan() {
                return Err("a value of a point is a number in one of the clouds only".to_owned());
            }
            // Equal infinities have no difference.
            if a != b && !a.is_nan() {
                error = error.max((a - b).abs());
            }
        }
    }
    Ok(Apart {
        error,
        likeness: None,
    })
}

/// A value of a point. Fields of clouds have no whole numbers that a float of 64 bits does not hold.
fn value(kind: Kind, bytes: &[u8], is_big: bool) -> f64 {
    let mut little = [0; 8];
    little[..bytes.len()].copy_from_slice(bytes);
    if is_big {
        little[..bytes.len()].reverse();
    }
    let whole = u64::from_le_bytes(little);
    match kind {
        Kind::Float(4) => f64::from(f32::from_bits(whole as u32)),
        Kind::Float(_) => f64::from_bits(whole),
        Kind::Whole(bytes, true) => {
            let unused = 64 - 8 * bytes as u32;
            ((whole << unused).cast_signed() >> unused) as f64
        }
        Kind::Whole(_, false) => whole as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_points_are_read_by_their_types() {
        assert!((value(Kind::Float(4), &1.5_f32.to_le_bytes(), false) - 1.5).abs() < 1e-12);
        assert!((value(Kind::Float(8), &1.5_f64.to_be_bytes(), true) - 1.5).abs() < 1e-12);
        assert!((value(Kind::Whole(2, true), &(-3_i16).to_le_bytes(), false) + 3.0).abs() < 1e-12);
        assert!(
            (value(Kind::Whole(4, false), &u32::MAX.to_be_bytes(), true) - 4_294_967_295.0).abs() < 1e-12
        );
    }

    #[test]
    fn tolerances_are_read() {
        let read = |texts: &[&str]| {
            Tolerance::read(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
        };
        let all = read(&["0.5", "psnr=30", "ssim=0.97"]).unwrap();
        assert_eq!(
            (all.error, all.psnr, all.ssim),
            (Some(0.5), Some(30.0), Some(0.97))
        );
        for text in ["x", "-1", "ssim", "ssim=", "psnr=inf", "mse=3"] {
            assert!(read(&[text]).unwrap_err().contains(text), "{text}");
        }
    }

    #[test]
    fn likeness_counts_where_it_is_asked_for() {
        let image = Apart {
            error: 9.0,
            likeness: Some([35.0, 0.98]),
        };
        let within = |tolerance: Tolerance| image.is_within(&tolerance);
        let none = Tolerance::default();
        assert!(
            !within(none)
                && within(Tolerance {
                    error: Some(9.0),
                    ..none
                })
        );
        assert!(
            within(Tolerance {
                ssim: Some(0.97),
                ..none
            }) && !within(Tolerance {
                psnr: Some(36.0),
                ..none
            })
        );
        let cloud = Apart {
            error: 0.001,
            likeness: None,
        };
        let both = Tolerance {
            error: Some(0.002),
            ssim: Some(0.9),
            ..none
        };
        assert!(cloud.is_within(&both) && !cloud.is_within(&none));
    }
}
