//! Pictures of VP9 and AV1, as far as is needed to match them with messages, and IVF, which states where each of them ends.

use crate::elementary::{Bits, Codec, Unit};

/// The head of an IVF stream, and that of each picture in it.
const HEAD_BYTES: usize = 32;
const PICTURE_HEAD_BYTES: usize = 12;

/// What precedes a picture in a stream for a decoder: nothing where pictures begin with start codes.
pub(crate) fn lead(codec: Codec, is_first: bool, picture_bytes: usize) -> Vec<u8> {
    let name: &[u8; 4] = match codec {
        Codec::H264 | Codec::H265 => return Vec::new(),
        Codec::Vp9 => b"VP90",
        Codec::Av1 => b"AV01",
    };
    let mut lead = Vec::new();
    if is_first {
        lead.extend(b"DKIF\0\0");
        lead.extend((HEAD_BYTES as u16).to_le_bytes());
        lead.extend(name);
        // The size is in the pictures; 25 a second; how many they are is not known.
        lead.extend([0; 4]);
        lead.extend(25_u32.to_le_bytes());
        lead.extend(1_u32.to_le_bytes());
        lead.extend([0; 8]);
    }
    lead.extend(u32::try_from(picture_bytes).unwrap_or(u32::MAX).to_le_bytes());
    lead.extend([0; 8]);
    lead
}

/// The place of the first picture of a part of an IVF stream; `None` while it is not complete.
///
/// # Errors
/// One clause if it is something else.
pub(crate) fn next_picture(part: &[u8], has_head: bool) -> Result<Option<std::ops::Range<usize>>, String> {
    let begin = if has_head { 0 } else { HEAD_BYTES };
    if !has_head && !part.starts_with(&b"DKIF"[..part.len().min(4)]) {
        return Err("what ffmpeg made does not begin with a picture".to_owned());
    }
    let Some(length) = part.get(begin..begin + 4).and_then(|bytes| bytes.first_chunk()) else {
        return Ok(None);
    };
    let from = begin + PICTURE_HEAD_BYTES;
    let until = from + u32::from_le_bytes(*length) as usize;
    Ok((until <= part.len()).then_some(from..until))
}

/// Reads a picture of VP9.
///
/// # Errors
/// One clause for something else.
pub(crate) fn read_vp9(data: &[u8]) -> Result<Unit, String> {
    let mut bits = Bits::plain(data);
    let head = |bits: &mut Bits| {
        let marker = bits.take(2)?;
        let profile = bits.take(1)? | (bits.take(1)? << 1);
        if profile == 3 {
            bits.skip(1);
        }
        let (shows_old, is_delta) = (bits.take(1)? == 1, bits.take(1)? == 1);
        (marker == 2).then_some((shows_old, is_delta))
    };
    let Some((shows_old, is_delta)) = head(&mut bits) else {
        return Err("it does not begin with a picture of VP9".to_owned());
    };
    let is_key = !shows_old && !is_delta;
    Ok(Unit {
        pictures: several_vp9(data).unwrap_or(1),
        is_key,
        parameters: is_key.then(Vec::new),
        ..Unit::default()
    })
}

/// How many pictures of VP9 are in one, if there is a list of them at its end.
fn several_vp9(data: &[u8]) -> Option<usize> {
    let mark = *data.last()?;
    let (count, length_bytes) = (usize::from(mark & 7) + 1, usize::from((mark >> 3) & 3) + 1);
    let first = data.len().checked_sub(2 + count * length_bytes)?;
    (mark >> 5 == 0b110 && data[first] == mark).then_some(count)
}

/// The next unit of AV1 with its kind, without its head; `None` for one that is cut off or does not state its length.
fn next_av1<'a>(rest: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let head = *rest.first()?;
    let is_extended = head & 4 != 0;
    let mut after = rest.get(1 + usize::from(is_extended)..)?;
    let mut length = 0_usize;
    for place in 0..8 {
        let (byte, next) = after.split_first()?;
        after = next;
        length |= usize::from(byte & 127) << (7 * place);
        if byte & 128 == 0 {
            break;
        }
    }
    let (unit, next) = after.split_at_checked(length)?;
    *rest = next;
    (head & 2 != 0 && head & 128 == 0).then_some(((head >> 3) & 15, unit))
}

/// Reads a picture of AV1 in the low-overhead format.
///
/// # Errors
/// One clause for something else.
pub(crate) fn read_av1(data: &[u8]) -> Result<Unit, String> {
    const SEQUENCE: u8 = 1;
    const FRAME_HEAD: u8 = 3;
    const FRAME: u8 = 6;
    let (mut unit, mut rest) = (Unit::default(), data);
    while !rest.is_empty() {
        let next = next_av1(&mut rest);
        let (kind, bytes) = next.ok_or("it is not a picture of AV1 with the lengths of its units")?;
        let first = bytes.first().copied().unwrap_or(0);
        match kind {
            SEQUENCE => unit.parameters = Some(bytes.to_vec()),
            FRAME_HEAD | FRAME => {
                let (shows_old, kind, is_shown) = (first & 128 != 0, (first >> 5) & 3, first & 16 != 0);
                unit.pictures += 1;
                // One that is not shown is there for a later one.
                unit.is_reordered |= !shows_old && !is_shown;
                unit.is_key |= !shows_old && kind == 0;
            }
            _ => {}
        }
    }
    match data {
        [] => Err("it is empty, and no picture of AV1".to_owned()),
        _ => Ok(unit),
    }
}

/// The name of AV1 with profile, level and depth, as browsers have it, from the parameters of a sequence.
pub(crate) fn full_name_av1(parameters: &[u8]) -> String {
    let mut bits = Bits::plain(parameters);
    let mut read = || {
        let profile = bits.take(3)?;
        bits.skip(1);
        let is_still = bits.take(1)? == 1;
        if is_still {
            return Some((profile, bits.take(5)?, false));
        }
        // Times, which our encoders do not state, are followed by more.
        if bits.take(1)? == 1 {
            return None;
        }
        bits.skip(1 + 5 + 12);
        let level = bits.take(5)?;
        Some((profile, level, level > 7 && bits.take(1)? == 1))
    };
    let (profile, level, is_high) = read().unwrap_or((0, 8, false));
    format!("av01.{profile}.{level:02}{}.08", if is_high { 'H' } else { 'M' })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_of_vp9_are_key_frames_or_need_others() {
        let read = |data: &[u8]| read_vp9(data).map(|unit| (unit.pictures, unit.is_key));
        assert_eq!(read(&[0x82, 0x49, 0x83, 0x42, 0]), Ok((1, true)));
        assert_eq!(read(&[0x86, 0, 0]), Ok((1, false)));
        assert_eq!(read(&[0x86, 0xc1, 0, 0, 0xc1]), Ok((2, false)), "two in one");
        assert!(read(&[0x02]).is_err() && read(&[]).is_err());
    }

    #[test]
    fn pictures_of_av1_have_units_with_lengths() {
        // A delimiter, parameters, a key frame that is shown.
        let key = [0x12, 0, 0x0a, 2, 0, 0, 0x32, 3, 0x10, 1, 2];
        let unit = read_av1(&key).unwrap();
        assert_eq!((unit.pictures, unit.is_key, unit.is_reordered), (1, true, false));
        assert_eq!(unit.parameters.as_deref(), Some(&[0, 0][..]));
        let hidden = read_av1(&[0x32, 1, 0x20]).unwrap();
        assert_eq!((hidden.is_key, hidden.is_reordered), (false, true));
        for damaged in [&key[..9], &[0x30, 1], &[], &[0x32], &[0xb2, 1, 0x10]] {
            assert!(read_av1(damaged).is_err(), "{damaged:?}");
        }
    }

    #[test]
    fn ivf_is_read_as_it_is_written() {
        let mut stream = lead(Codec::Av1, true, 3);
        stream.extend([1, 2, 3]);
        let head = stream.len();
        stream.extend(lead(Codec::Av1, false, 1));
        stream.push(4);
        assert_eq!(next_picture(&stream, false), Ok(Some(head - 3..head)));
        assert_eq!(next_picture(&stream[head..], true), Ok(Some(12..13)));
        assert_eq!(next_picture(&stream[head..head + 12], true), Ok(None));
        assert_eq!(next_picture(b"DK", false), Ok(None));
        assert!(next_picture(b"no", false).is_err());
    }
}
