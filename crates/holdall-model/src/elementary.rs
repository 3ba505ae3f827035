//! Pictures in a stream of H.264 or H.265 (Annex B), VP9 or AV1, as far as is needed to match them with messages.

use crate::packets::{full_name_av1, lead, next_picture, read_av1, read_vp9};
use std::ops::Range;

/// The codec of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// H.264, AVC.
    H264,
    /// H.265, HEVC.
    H265,
    /// VP9.
    Vp9,
    /// AV1.
    Av1,
}

/// Bytes of a unit that are parsed: heads of slices, parameters of sequences.
const HEAD_BYTES_MAX: usize = 256;

impl Codec {
    /// The codec of a format text: `h264`, `hevc`, `libx264;yuv420p`, `hevc_nvenc`, `av1`.
    pub fn named(format: &str) -> Option<Self> {
        let first = format.trim().split([';', ' ', ',']).next().unwrap_or_default();
        let first = first.to_ascii_lowercase().replace('.', "");
        match () {
            () if first.contains("264") => Some(Self::H264),
            () if first.contains("265") || first.contains("hevc") => Some(Self::H265),
            () if first.contains("vp9") => Some(Self::Vp9),
            () if first.contains("av1") => Some(Self::Av1),
            () => None,
        }
    }

    /// Its name in messages.
    pub const fn format(self) -> &'static str {
        match self {
            Self::H264 => "h264",
            Self::H265 => "h265",
            Self::Vp9 => "vp9",
            Self::Av1 => "av1",
        }
    }

    /// Its name in ffmpeg.
    pub const fn name(self) -> &'static str {
        match self {
            Self::H265 => "hevc",
            other => other.format(),
        }
    }

    /// The name of its streams in ffmpeg.
    pub const fn stream(self) -> &'static str {
        match self {
            Self::H264 | Self::H265 => self.name(),
            Self::Vp9 | Self::Av1 => "ivf",
        }
    }

    /// The number of a unit's kind.
    pub fn kind(self, unit: &[u8]) -> Option<u8> {
        let head = unit.first()?;
        Some(match self {
            Self::H264 => head & 31,
            Self::H265 => (head >> 1) & 63,
            Self::Vp9 | Self::Av1 => return None,
        })
    }

    /// Its name with profile and level, as browsers have it (RFC 6381, ISO 14496-15), from the parameters of a sequence.
    pub fn full_name(self, parameters: &[u8]) -> String {
        let mut bits = Bits::of(parameters);
        match self {
            Self::Vp9 => "vp09.00.40.08".to_owned(),
            Self::Av1 => full_name_av1(parameters),
            Self::H264 => {
                bits.skip(8);
                format!("avc1.{:06x}", bits.take(24).unwrap_or(0x0042_001e))
            }
            Self::H265 => {
                // The head of the unit, the video's number, layers.
                bits.skip(16 + 8);
                let space = bits.take(2).unwrap_or(0) as usize;
                let tier = if bits.take(1) == Some(1) { 'H' } else { 'L' };
                let profile = bits.take(5).unwrap_or(1);
                let compatible = bits.take(32).unwrap_or(0).reverse_bits();
                let mut constraints: Vec<u32> = (0..6).filter_map(|_| bits.take(8)).collect();
                while constraints.last() == Some(&0) {
                    constraints.pop();
                }
                let level = bits.take(8).unwrap_or(93);
                let constraints: String = constraints.iter().map(|byte| format!(".{byte:X}")).collect();
                let space = ["", "A", "B", "C"][space];
                format!("hev1.{space}{profile}.{compatible:X}.{tier}{level}{constraints}")
            }
        }
    }
}

/// Contents of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// Number of pictures.
    pub pictures: usize,
    /// Decoding can begin with it, if its parameters are known.
    pub is_key: bool,
    /// Its pictures may be shown in another order.
    pub is_reordered: bool,
    /// The parameters of the sequence, if the message has them.
    pub parameters: Option<Vec<u8>>,
    /// Where the first picture begins.
    pub head_bytes: usize,
}

impl Unit {
    /// Reads the data of a message.
    ///
    /// # Errors
    /// One clause if the data does not begin with a start code, or a picture.
    pub fn read(codec: Codec, data: &[u8]) -> Result<Self, String> {
        match codec {
            Codec::Vp9 => return read_vp9(data),
            Codec::Av1 => return read_av1(data),
            Codec::H264 | Codec::H265 => {}
        }
        let mut unit = Self::default();
        if next_code(data).is_none_or(|code| data[..code].iter().any(|byte| *byte != 0)) {
            let begin: String = data.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            return Err(format!(
                "video as {} begins with {begin:?}, expected a start code of Annex B (000001 or 00000001)",
                codec.stream()
            ));
        }
        for (bytes, end) in spans(data) {
            match codec {
                Codec::H265 => unit.add_h265(bytes),
                _ => unit.add_h264(bytes),
            }
            if unit.pictures == 0 {
                unit.head_bytes = end;
            }
        }
        Ok(unit)
    }

    fn add_h264(&mut self, bytes: &[u8]) {
        let Some(head) = bytes.first() else { return };
        match head & 31 {
            kind @ (1 | 2 | 5) => {
                let mut bits = Bits::of(&bytes[1..]);
                let (Some(first), Some(slice)) = (bits.number(), bits.number()) else {
                    return;
                };
                self.pictures += usize::from(first == 0);
                self.is_key |= kind == 5;
                // B
                self.is_reordered |= slice % 5 == 1;
            }
            7 => self.parameters = Some(bytes.to_vec()),
            _ => {}
        }
    }

    fn add_h265(&mut self, bytes: &[u8]) {
        let [head, layer, rest @ ..] = bytes else { return };
        // Other layers are enhancements of the first.
        if head & 1 != 0 || layer >> 3 != 0 {
            return;
        }
        match (head >> 1) & 63 {
            kind @ 0..=31 => {
                self.pictures += usize::from(rest.first().is_some_and(|byte| byte & 0x80 != 0));
                self.is_key |= (16..=21).contains(&kind);
            }
            33 => {
                self.is_reordered |= reorders_h265(rest).unwrap_or(false);
                self.parameters = Some(bytes.to_vec());
            }
            _ => {}
        }
    }
}

/// The units of a message's data without start codes, each with the place of the next start code, or of the end.
fn spans(data: &[u8]) -> impl Iterator<Item = (&[u8], usize)> {
    let mut next = next_code(data);
    std::iter::from_fn(move || {
        let begin = next? + 3;
        next = next_code(&data[begin..]).map(|code| begin + code);
        let end = next.unwrap_or(data.len());
        // Zeros after a unit belong to the next start code.
        let last = data[begin..end].iter().rposition(|byte| *byte != 0);
        Some((&data[begin..begin + last.map_or(0, |last| last + 1)], end))
    })
}

/// The units of a message's data, without start codes.
pub fn units(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    spans(data).map(|(unit, _)| unit)
}

/// A stream for a decoder.
pub fn framed(codec: Codec, units: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut stream = Vec::new();
    for (number, unit) in units.iter().enumerate() {
        let unit = unit.as_ref();
        stream.extend(lead(codec, number == 0, unit.len()));
        stream.extend_from_slice(unit);
    }
    stream
}

/// Takes a stream that an encoder makes apart into pictures.
pub struct Pictures {
    codec: Codec,
    /// The beginning of a picture that is not complete.
    rest: Vec<u8>,
    has_begun: bool,
    picture_bytes_max: usize,
}

impl Pictures {
    /// Nothing has come.
    pub const fn new(codec: Codec, picture_bytes_max: usize) -> Self {
        Self {
            codec,
            rest: Vec::new(),
            has_begun: false,
            picture_bytes_max,
        }
    }

    /// Adds a part; returns the pictures that are complete. One with a start code is when the next one begins, or at the end.
    ///
    /// # Errors
    /// One clause: something else, or a picture that is too large.
    pub fn add(&mut self, part: &[u8], is_end: bool) -> Result<Vec<Vec<u8>>, String> {
        self.rest.extend_from_slice(part);
        let (mut pictures, mut end) = (Vec::new(), 0);
        match self.codec {
            Codec::H264 | Codec::H265 => {
                let mut found = access_units(self.codec, &self.rest);
                if found.first().is_some_and(|first| first.start != 0) {
                    return Err("what ffmpeg made does not begin with a picture".to_owned());
                }
                if !is_end {
                    found.pop();
                }
                end = found.last().map_or(0, |last| last.end);
                pictures.extend(found.into_iter().map(|place| self.rest[place].to_vec()));
            }
            Codec::Vp9 | Codec::Av1 => {
                while let Some(place) = next_picture(&self.rest[end..], self.has_begun)? {
                    pictures.push(self.rest[end + place.start..end + place.end].to_vec());
                    end += place.end;
                    self.has_begun = true;
                }
            }
        }
        self.rest.drain(..end);
        if self.rest.len() > self.picture_bytes_max {
            return Err(format!(
                "a picture that ffmpeg made has more than {} bytes",
                self.picture_bytes_max
            ));
        }
        Ok(pictures)
    }
}

/// Where the pictures of a stream are: each begins with a delimiter.
fn access_units(codec: Codec, stream: &[u8]) -> Vec<Range<usize>> {
    let delimiter = match codec {
        Codec::H265 => 35,
        _ => 9,
    };
    let mut begins = Vec::new();
    let mut code = next_code(stream).unwrap_or(0);
    for (unit, end) in spans(stream) {
        if codec.kind(unit) == Some(delimiter) {
            // A start code may have four bytes.
            let is_long = code > 0 && stream[code - 1] == 0;
            begins.push(code - usize::from(is_long));
        }
        code = end;
    }
    let ends = begins.iter().skip(1).copied().chain([stream.len()]);
    begins
        .iter()
        .copied()
        .zip(ends)
        .map(|(begin, end)| begin..end)
        .collect()
}

/// Width and height of the pictures, from the parameters of a sequence; `None` for other units.
pub fn size_of(codec: Codec, unit: &[u8]) -> Option<(u32, u32)> {
    match (codec, codec.kind(unit)?) {
        (Codec::H264, 7) => size_h264(&unit[1..]),
        (Codec::H265, 33) => {
            let (mut bits, _, chroma, size) = sequence_h265(unit.get(2..)?)?;
            let units = match chroma {
                1 => (2, 2),
                2 => (2, 1),
                _ => (1, 1),
            };
            cropped(&mut bits, size, units)
        }
        _ => None,
    }
}

/// A size without what is cut off at its sides, which is stated in units of some pixels.
fn cropped(bits: &mut Bits, size: (u32, u32), (across, down): (u32, u32)) -> Option<(u32, u32)> {
    if bits.take(1)? == 0 {
        return Some(size);
    }
    let (left, right) = (bits.number()?, bits.number()?);
    let (top, bottom) = (bits.number()?, bits.number()?);
    let less = |whole: u32, parts: [u32; 2], unit: u32| {
        let cut = parts[0].checked_add(parts[1])?.checked_mul(unit)?;
        whole.checked_sub(cut).filter(|left| *left > 0)
    };
    Some((
        less(size.0, [left, right], across)?,
        less(size.1, [top, bottom], down)?,
    ))
}

/// What the parameters of an H.264 sequence say about its pictures.
#[derive(Clone, Copy, Debug)]
struct SequenceH264 {
    chroma: u32,
    /// Each colour plane is coded separately.
    has_planes: bool,
    /// Length of `frame_num`.
    frame_num_bits: usize,
    /// The sender may skip values of `frame_num`.
    allows_gaps: bool,
    /// Width and height in blocks of 16 pixels; of pictures that may be fields, that of a field.
    blocks: (u32, u32),
    may_have_fields: bool,
}

/// The parameters of an H.264 sequence up to the size of its pictures, and what comes after.
fn sequence_h264(parameters: &[u8]) -> Option<(Bits, SequenceH264)> {
    /// Profiles that say how colours are stored.
    const WITH_CHROMA: [u32; 13] = [100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135];
    let mut bits = Bits::of(parameters);
    let profile = bits.take(8)?;
    bits.skip(16);
    bits.number()?;
    let (mut chroma, mut has_planes) = (1, false);
    if WITH_CHROMA.contains(&profile) {
        chroma = bits.number()?;
        has_planes = chroma == 3 && bits.take(1)? == 1;
        bits.number()?;
        bits.number()?;
        bits.skip(1);
        if bits.take(1)? == 1 {
            skip_scaling(&mut bits, if chroma == 3 { 12 } else { 8 })?;
        }
    }
    let frame_num_bits = 4 + bits.number()?.min(12) as usize;
    match bits.number()? {
        0 => {
            bits.number()?;
        }
        1 => {
            bits.skip(1);
            bits.number()?;
            bits.number()?;
            for _ in 0..bits.number()?.min(255) {
                bits.number()?;
            }
        }
        _ => {}
    }
    bits.number()?;
    let allows_gaps = bits.take(1)? == 1;
    let blocks = (bits.number()?.checked_add(1)?, bits.number()?.checked_add(1)?);
    let sequence = SequenceH264 {
        chroma,
        has_planes,
        frame_num_bits,
        allows_gaps,
        blocks,
        may_have_fields: bits.take(1)? == 0,
    };
    Some((bits, sequence))
}

fn size_h264(parameters: &[u8]) -> Option<(u32, u32)> {
    let (mut bits, sequence) = sequence_h264(parameters)?;
    let fields = 1 + u32::from(sequence.may_have_fields);
    if sequence.may_have_fields {
        bits.skip(1);
    }
    bits.skip(1);
    let (width, height) = sequence.blocks;
    let size = (width.checked_mul(16)?, height.checked_mul(16 * fields)?);
    let units = match sequence.chroma {
        1 => (2, 2 * fields),
        2 => (2, fields),
        _ => (1, fields),
    };
    cropped(&mut bits, size, units)
}

/// Why a picture is not decoded: a decoder would hide the loss and show a wrong picture.
pub const MISSING: &str = "this picture depends on one that is missing";

/// How many pictures of a stream come before the first gap. Gaps are found in H.264 only, by `frame_num`; the other codecs have no such number that
/// can be read without decoding. A number that comes twice shows two streams: none of them is known to be that of the key frame, which stays alone.
pub fn before_missing(codec: Codec, units: &[impl AsRef<[u8]>]) -> usize {
    let (mut chain, mut key) = (Chain::default(), 0);
    for (number, unit) in units.iter().enumerate() {
        match chain.link(codec, unit.as_ref()) {
            Link::Key => key = number,
            Link::Next => {}
            Link::Gap => return number,
            Link::Twice => return key + 1,
        }
    }
    units.len()
}

/// How a picture follows the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Link {
    /// It is the next one, as far as that is known.
    Next,
    /// It needs none before it.
    Key,
    /// Others are missing between the two.
    Gap,
    /// It has the number of the one before it.
    Twice,
}

/// Follows `frame_num` from picture to picture of a stream.
#[derive(Default)]
pub struct Chain {
    sequence: Option<SequenceH264>,
    /// `frame_num` of the last reference picture.
    last: Option<u32>,
    /// No picture depends on the last one.
    is_beside: bool,
}

impl Chain {
    /// Whether reference pictures are missing between the last message and this one; see [`before_missing`] for what is found.
    pub fn has_gap_before(&mut self, codec: Codec, data: &[u8]) -> bool {
        matches!(self.link(codec, data), Link::Gap | Link::Twice)
    }

    fn link(&mut self, codec: Codec, data: &[u8]) -> Link {
        if codec != Codec::H264 {
            return Link::Next;
        }
        let links = units(data).filter_map(|unit| self.step(unit));
        links.max().unwrap_or(Link::Next)
    }

    /// `None` for units that do not begin a picture, and where nothing is known.
    fn step(&mut self, unit: &[u8]) -> Option<Link> {
        let head = *unit.first()?;
        let kind = head & 31;
        if kind == 7 {
            self.sequence = sequence_h264(&unit[1..]).map(|(_, sequence)| sequence);
        }
        if !matches!(kind, 1 | 2 | 5) {
            return None;
        }
        let sequence = self.sequence?;
        let mut bits = Bits::of(&unit[1..]);
        if bits.number()? != 0 {
            // A later slice of the same picture.
            return None;
        }
        bits.number()?;
        bits.number()?;
        bits.skip(2 * usize::from(sequence.has_planes));
        let frame_num = bits.take(sequence.frame_num_bits)?;
        let (is_key, is_reference) = (kind == 5, head & 0x60 != 0);
        let (before, is_beside) = (self.last, self.is_beside);
        // Both fields of a frame have the same number.
        let may_repeat = sequence.may_have_fields || is_beside;
        self.is_beside = !is_reference;
        if is_key || is_reference {
            self.last = Some(frame_num);
        }
        if is_key {
            return Some(Link::Key);
        }
        let before = before.filter(|_| !sequence.allows_gaps)?;
        let next = (before + 1) % (1 << sequence.frame_num_bits);
        Some(match frame_num {
            _ if frame_num == next => Link::Next,
            _ if frame_num != before => Link::Gap,
            _ if may_repeat => Link::Next,
            _ => Link::Twice,
        })
    }
}

/// Skips the lists of H.264 by which coefficients are scaled.
fn skip_scaling(bits: &mut Bits, lists: usize) -> Option<()> {
    for list in 0..lists {
        if bits.take(1)? == 0 {
            continue;
        }
        let (mut last, mut next) = (8_i64, 8_i64);
        for _ in 0..if list < 6 { 16 } else { 64 } {
            if next != 0 {
                let number = i64::from(bits.number()?);
                let difference = if number & 1 == 1 {
                    (number + 1) / 2
                } else {
                    -number / 2
                };
                next = (last + difference).rem_euclid(256);
            }
            last = if next == 0 { last } else { next };
        }
    }
    Some(())
}

/// The parameters of an H.265 sequence up to the size of its pictures: what comes after, the number of layers, how colours are stored, the size.
fn sequence_h265(parameters: &[u8]) -> Option<(Bits, u32, u32, (u32, u32))> {
    let mut bits = Bits::of(parameters);
    bits.skip(4);
    let layers = bits.take(3)?;
    // Whether layers nest, then profile and level.
    bits.skip(1 + 96);
    let present: Vec<(u32, u32)> = (0..layers)
        .map(|_| Some((bits.take(1)?, bits.take(1)?)))
        .collect::<Option<_>>()?;
    if layers > 0 {
        bits.skip(2 * (8 - layers as usize));
    }
    for (has_profile, has_level) in present {
        bits.skip(88 * has_profile as usize + 8 * has_level as usize);
    }
    bits.number()?;
    let chroma = bits.number()?;
    if chroma == 3 {
        bits.skip(1);
    }
    let size = (bits.number()?, bits.number()?);
    Some((bits, layers, chroma, size))
}

/// Whether pictures of an H.265 sequence may be shown in another order than they are sent in.
fn reorders_h265(parameters: &[u8]) -> Option<bool> {
    let (mut bits, layers, _, _) = sequence_h265(parameters)?;
    if bits.take(1)? == 1 {
        for _ in 0..4 {
            bits.number()?;
        }
    }
    // Depths of brightness and colour, length of the picture's number.
    for _ in 0..3 {
        bits.number()?;
    }
    let first = if bits.take(1)? == 1 { 0 } else { layers };
    let mut reorders = false;
    for _ in first..=layers {
        bits.number()?;
        reorders = bits.number()? > 0;
        bits.number()?;
    }
    Some(reorders)
}

/// The place of the next start code.
fn next_code(bytes: &[u8]) -> Option<usize> {
    let mut at = 2;
    while at < bytes.len() {
        match bytes[at] {
            0 => at += 1,
            1 if bytes[at - 1] == 0 && bytes[at - 2] == 0 => return Some(at - 2),
            _ => at += 3,
        }
    }
    None
}

/// The first bytes of a unit without those that prevent start codes.
pub fn unescaped(unit: &[u8]) -> Vec<u8> {
    Bits::of(unit).bytes
}

/// The bits of a unit without the bytes that prevent start codes.
pub(crate) struct Bits {
    bytes: Vec<u8>,
    at: usize,
}

impl Bits {
    /// Of data that prevents nothing.
    pub fn plain(data: &[u8]) -> Self {
        let bytes = data[..data.len().min(HEAD_BYTES_MAX)].to_vec();
        Self { bytes, at: 0 }
    }

    fn of(coded: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(HEAD_BYTES_MAX);
        let mut zeros = 0;
        for byte in coded.iter().take(HEAD_BYTES_MAX) {
            if zeros >= 2 && *byte == 3 {
                zeros = 0;
                continue;
            }
            zeros = if *byte == 0 { zeros + 1 } else { 0 };
            bytes.push(*byte);
        }
        Self { bytes, at: 0 }
    }

    pub fn skip(&mut self, bits: usize) {
        self.at += bits;
    }

    pub fn take(&mut self, bits: usize) -> Option<u32> {
        let mut value = 0;
        for _ in 0..bits {
            let byte = self.bytes.get(self.at / 8)?;
            value = (value << 1) | u32::from((byte >> (7 - self.at % 8)) & 1);
            self.at += 1;
        }
        Some(value)
    }

    /// A number of Exp-Golomb.
    fn number(&mut self) -> Option<u32> {
        let mut zeros = 0;
        while self.take(1)? == 0 {
            zeros += 1;
            if zeros > 31 {
                return None;
            }
        }
        Some((1 << zeros) - 1 + self.take(zeros)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_are_found_in_the_words_of_all_senders() {
        for (format, codec) in [
            ("h264", Some(Codec::H264)),
            ("H.264", Some(Codec::H264)),
            ("libx264;yuv420p;bgr8", Some(Codec::H264)),
            ("hevc_nvenc", Some(Codec::H265)),
            ("h265", Some(Codec::H265)),
            ("rgb8; jpeg compressed bgr8", None),
            ("vp9", Some(Codec::Vp9)),
            ("av1", Some(Codec::Av1)),
            ("", None),
        ] {
            assert_eq!(Codec::named(format), codec, "{format}");
        }
    }

    #[test]
    fn pictures_are_counted_by_their_first_slices() {
        // Parameters, a key frame of two slices, then a picture of P and one of B.
        let key = [
            0, 0, 0, 1, 0x67, 1, 2, 0, 0, 1, 0x65, 0x88, 0x80, 0, 0, 1, 0x65, 0x42, 0x20,
        ];
        let unit = Unit::read(Codec::H264, &key).unwrap();
        assert_eq!((unit.pictures, unit.is_key, unit.is_reordered), (1, true, false));
        assert_eq!(unit.parameters.as_deref(), Some(&[0x67, 1, 2][..]));
        let two = [0, 0, 1, 0x41, 0x9a, 0x80, 0, 0, 1, 0x01, 0x9a, 0x80];
        let unit = Unit::read(Codec::H264, &two).unwrap();
        assert_eq!((unit.pictures, unit.is_key, unit.is_reordered), (2, false, false));
        let b = [0, 0, 1, 0x01, 0b1010_0000];
        assert!(Unit::read(Codec::H264, &b).unwrap().is_reordered);
        for cut in 0..key.len() {
            let _ = Unit::read(Codec::H264, &key[..cut]);
            let _ = Unit::read(Codec::H265, &key[..cut]);
        }
        for bad in [&b""[..], b"\x00\x00\x00\x05\x65", b"abc\x00\x00\x01\x65"] {
            assert!(Unit::read(Codec::H264, bad).unwrap_err().contains("start code"));
        }
        assert_eq!(reorders_h265(&[0; 300]), None);
    }

    #[test]
    fn a_lost_picture_shows_in_the_frame_num_of_the_next() {
        // A `frame_num` of four bits; `gaps`: the sender may skip values.
        let message = |kind: u8, number: u8| vec![0, 0, 1, kind, 0b1110_0000 | number << 1, 0x80];
        let sequence = |gaps: u8, frames: u8| {
            let parameters = [
                0,
                0,
                1,
                0x67,
                66,
                0,
                30,
                0b1101_1010,
                gaps << 7 | 0x40,
                0x80 | frames,
            ];
            [&parameters[..], &message(0x65, 0)].concat()
        };
        let key = |gaps: u8| sequence(gaps, 0);
        let (reference, other) = (0x41, 0x01);
        let of_sequence = |key: Vec<u8>, pictures: &[(u8, u8)]| {
            let pictures = pictures.iter().map(|(kind, number)| message(*kind, *number));
            let stream: Vec<Vec<u8>> = [key].into_iter().chain(pictures).collect();
            before_missing(Codec::H264, &stream)
        };
        let whole = |gaps: u8, pictures: &[(u8, u8)]| of_sequence(key(gaps), pictures);
        let all: Vec<(u8, u8)> = (1..40).map(|number| (reference, number % 16)).collect();
        assert_eq!(whole(0, &all), 40);
        for lost in 0..all.len() - 1 {
            let rest = [&all[..lost], &all[lost + 1..]].concat();
            assert_eq!(whole(0, &rest), lost + 1);
            assert_eq!(whole(1, &rest), 39);
        }
        // No picture depends on the second and third; the fifth is the other field of the fourth.
        let fields = [
            (other, 1),
            (other, 1),
            (reference, 1),
            (reference, 1),
            (reference, 2),
        ];
        assert_eq!(whole(0, &fields), 6);
        // Without fields a number that comes twice is another stream's: what comes after the key frame may be, too.
        let frames = |pictures: &[(u8, u8)]| of_sequence(sequence(0, 1), pictures);
        assert_eq!(frames(&all), 40);
        assert_eq!(frames(&fields), 1);
        assert_eq!(frames(&fields[..3]), 4);
        let two: Vec<(u8, u8)> = (1..5).flat_map(|number| [(reference, number); 2]).collect();
        assert_eq!(frames(&two), 1);
        let two = [&[(reference, 1), (reference, 2), (0x65, 0)], &two[..]].concat();
        assert_eq!(frames(&two), 4);
        assert_eq!(
            whole(0, &[(reference, 1), (0x65, 0), (reference, 1), (other, 3)]),
            4
        );
        for cut in 0..key(0).len() {
            assert_eq!(before_missing(Codec::H264, &[&key(0)[..cut]]), 1);
        }
        let lossy = [key(0), message(reference, 3)];
        assert_eq!(before_missing(Codec::H264, &lossy), 1);
        assert_eq!(before_missing(Codec::H265, &lossy), 2);
    }
}
