//! Pictures of H.264 and H.265 as an MP4 in fragments, without decoding them: one fragment for each group from a key frame on, so that nothing before it
//! changes when it is written (ISO 14496-12, 14496-15).

use crate::elementary::{Codec, size_of, units};

/// Units of time in a second.
const TIMESCALE: u32 = 1_000_000;
const NANOS_PER_UNIT: i64 = 1_000_000_000 / TIMESCALE as i64;
/// A sample that others need, and one that needs others.
const KEY_FLAGS: u32 = 0x0200_0000;
const OTHER_FLAGS: u32 = 0x0101_0000;
/// Bytes of a group: more is not kept in memory.
const GROUP_BYTES_MAX: usize = 512 << 20;
/// Parameter sets: the number of those of a kind has five bits.
const SETS_MAX: usize = 31;

/// One picture that waits for its fragment.
struct Sample {
    nanos: i64,
    bytes: u32,
    is_key: bool,
}

/// The file while it is made: bytes come out of its methods, to be appended.
pub struct Mp4 {
    codec: Codec,
    /// The parameter sets of the first key frame.
    parameters: Vec<Vec<u8>>,
    has_head: bool,
    size: (u32, u32),
    first_nanos: i64,
    /// Where the next sample begins, in units of time.
    decoded_at: u64,
    fragments: u32,
    group: Vec<Sample>,
    data: Vec<u8>,
}

impl Mp4 {
    /// Begins a file with its first picture, which must be a key frame with its parameters.
    ///
    /// # Errors
    /// One clause: parameters without a size, or such as a file cannot hold.
    pub fn begin(codec: Codec, nanos: i64, data: &[u8]) -> Result<Self, String> {
        if !matches!(codec, Codec::H264 | Codec::H265) {
            let format = codec.format();
            return Err(format!(
                "video as {format} is not written as MP4; H.264 and H.265 are"
            ));
        }
        let parameters: Vec<Vec<u8>> = units(data)
            .filter(|unit| is_parameters(codec, unit))
            .map(<[u8]>::to_vec)
            .collect();
        let size = parameters.iter().find_map(|unit| size_of(codec, unit));
        let size = size.ok_or("its parameters do not say the size of its pictures")?;
        let is_large = |number: usize| number > usize::from(u16::MAX);
        if parameters.len() > SETS_MAX
            || parameters.iter().any(|unit| is_large(unit.len()))
            || is_large(size.0.max(size.1) as usize)
        {
            return Err("its parameters are not such as a file can hold".to_owned());
        }
        Ok(Self {
            codec,
            parameters,
            has_head: false,
            size,
            first_nanos: nanos,
            decoded_at: 0,
            fragments: 0,
            group: Vec::new(),
            data: Vec::new(),
        })
    }

    /// Adds a picture; returns what is complete.
    ///
    /// # Errors
    /// One clause: a picture of another size, or a group that is too large.
    pub fn add(&mut self, nanos: i64, data: &[u8], is_key: bool) -> Result<Vec<u8>, String> {
        let units: Vec<&[u8]> = units(data).collect();
        let mut sizes = units.iter().filter_map(|unit| size_of(self.codec, unit));
        if let Some(other) = sizes.find(|size| *size != self.size) {
            return Err(format!(
                "its pictures are {} x {} now, a file has one size",
                other.0, other.1
            ));
        }
        let bytes: usize = units.iter().map(|unit| unit.len() + 4).sum();
        let before = if is_key { 0 } else { self.data.len() };
        if before + bytes > GROUP_BYTES_MAX {
            return Err("too many pictures are between two key frames".to_owned());
        }
        let out = if is_key {
            self.fragment(Some(nanos))
        } else {
            Vec::new()
        };
        for unit in units {
            self.data.extend((unit.len() as u32).to_be_bytes());
            self.data.extend_from_slice(unit);
        }
        self.group.push(Sample {
            nanos,
            bytes: bytes as u32,
            is_key,
        });
        Ok(out)
    }

    /// The last group.
    pub fn finish(mut self) -> Vec<u8> {
        self.fragment(None)
    }

    /// The group as a fragment; `next` is the time of the picture after it.
    fn fragment(&mut self, next: Option<i64>) -> Vec<u8> {
        let mut out = Vec::new();
        if !std::mem::replace(&mut self.has_head, true) {
            self.put_head(&mut out);
        }
        if self.group.is_empty() {
            return out;
        }
        self.fragments += 1;
        let mut table = Vec::new();
        let mut at = self.decoded_at;
        for (place, sample) in self.group.iter().enumerate() {
            let after = self.group.get(place + 1).map(|after| after.nanos).or(next);
            // Times that go back, and the last picture, have the shortest duration.
            let until = after.map_or(0, |after| after.saturating_sub(self.first_nanos) / NANOS_PER_UNIT);
            let duration = u64::try_from(until).unwrap_or(0).saturating_sub(at).max(1);
            let duration = u32::try_from(duration).unwrap_or(u32::MAX);
            table.extend(duration.to_be_bytes());
            table.extend(sample.bytes.to_be_bytes());
            table.extend(if sample.is_key { KEY_FLAGS } else { OTHER_FLAGS }.to_be_bytes());
            at += u64::from(duration);
        }
        let moof = |data_offset: u32| {
            let mut trun = [0x0000_0701, self.group.len() as u32, data_offset]
                .map(u32::to_be_bytes)
                .concat();
            trun.extend(&table);
            let tfdt = [&0x0100_0000_u32.to_be_bytes()[..], &self.decoded_at.to_be_bytes()].concat();
            let traf = [
                boxed(b"tfhd", &[0x0002_0000, 1].map(u32::to_be_bytes).concat()),
                boxed(b"tfdt", &tfdt),
                boxed(b"trun", &trun),
            ];
            let mfhd = boxed(b"mfhd", &[0, self.fragments].map(u32::to_be_bytes).concat());
            boxed(b"moof", &[mfhd, boxed(b"traf", &traf.concat())].concat())
        };
        let length = moof(0).len() as u32;
        out.extend(moof(length + 8));
        out.extend(boxed(b"mdat", &self.data));
        self.decoded_at = at;
        self.group.clear();
        self.data.clear();
        out
    }

    fn put_head(&self, out: &mut Vec<u8>) {
        out.extend(boxed(b"ftyp", b"iso5\0\0\x02\0iso5iso6mp41"));
        let words = |words: &[u32]| {
            words
                .iter()
                .flat_map(|word| word.to_be_bytes())
                .collect::<Vec<u8>>()
        };
        let matrix = words(&[0x1_0000, 0, 0, 0, 0x1_0000, 0, 0, 0, 0x4000_0000]);
        let (width, height) = self.size;
        let mvhd = [
            words(&[0, 0, 0, TIMESCALE, 0, 0x1_0000, 0x0100_0000, 0, 0]),
            matrix.clone(),
            words(&[0, 0, 0, 0, 0, 0, 2]),
        ];
        let tkhd = [
            words(&[3, 0, 0, 1, 0, 0, 0, 0, 0, 0]),
            matrix,
            words(&[width << 16, height << 16]),
        ];
        let mdhd = words(&[0, 0, 0, TIMESCALE, 0, 0x55c4_0000]);
        let hdlr = [&words(&[0, 0])[..], b"vide", &[0; 12], b"video\0"].concat();
        let dref = [words(&[0, 1]), boxed(b"url ", &words(&[1]))].concat();
        let empty = [b"stts", b"stsc", b"stco"]
            .map(|name| boxed(name, &words(&[0, 0])))
            .concat();
        let stsd = [words(&[0, 1]), self.entry()].concat();
        let stbl = [boxed(b"stsd", &stsd), empty, boxed(b"stsz", &words(&[0, 0, 0]))].concat();
        let minf = [
            boxed(b"vmhd", &words(&[1, 0, 0])),
            boxed(b"dinf", &boxed(b"dref", &dref)),
            boxed(b"stbl", &stbl),
        ];
        let mdia = [
            boxed(b"mdhd", &mdhd),
            boxed(b"hdlr", &hdlr),
            boxed(b"minf", &minf.concat()),
        ];
        let trak = [boxed(b"tkhd", &tkhd.concat()), boxed(b"mdia", &mdia.concat())];
        let mvex = boxed(b"mvex", &boxed(b"trex", &words(&[0, 1, 1, 0, 0, 0])));
        let moov = [
            boxed(b"mvhd", &mvhd.concat()),
            boxed(b"trak", &trak.concat()),
            mvex,
        ];
        out.extend(boxed(b"moov", &moov.concat()));
    }

    /// The description of the pictures. Parameter sets may come again in the stream (`avc3`, `hev1`).
    fn entry(&self) -> Vec<u8> {
        let mut entry = vec![0; 6];
        entry.extend(1_u16.to_be_bytes());
        entry.extend([0; 16]);
        entry.extend(
            [self.size.0 as u16, self.size.1 as u16]
                .map(u16::to_be_bytes)
                .concat(),
        );
        entry.extend([0x0048_0000_u32, 0x0048_0000, 0].map(u32::to_be_bytes).concat());
        entry.extend(1_u16.to_be_bytes());
        entry.extend([0; 32]);
        entry.extend([0, 0x18, 0xff, 0xff]);
        match self.codec {
            Codec::H264 => {
                entry.extend(boxed(b"avcC", &self.avc()));
                boxed(b"avc3", &entry)
            }
            _ => {
                entry.extend(boxed(b"hvcC", &self.hevc()));
                boxed(b"hev1", &entry)
            }
        }
    }

    /// Those of a kind, each after its length.
    fn sets(&self, kind: u8) -> (u8, Vec<u8>) {
        let (mut count, mut out) = (0, Vec::new());
        for unit in self
            .parameters
            .iter()
            .filter(|unit| self.codec.kind(unit) == Some(kind))
        {
            count += 1;
            out.extend((unit.len() as u16).to_be_bytes());
            out.extend(unit);
        }
        (count, out)
    }

    fn avc(&self) -> Vec<u8> {
        let (count, sequence) = self.sets(7);
        let (pictures, picture) = self.sets(8);
        // Profile, compatibility and level, after its length and head.
        let profile = sequence.get(3..6).unwrap_or(&[66, 0, 30]);
        [
            &[1][..],
            profile,
            &[0xff, 0xe0 | count],
            &sequence,
            &[pictures],
            &picture,
        ]
        .concat()
    }

    fn hevc(&self) -> Vec<u8> {
        let sequence = self
            .parameters
            .iter()
            .find(|unit| self.codec.kind(unit) == Some(33));
        let plain: Vec<u8> = sequence
            .map(|unit| crate::elementary::unescaped(unit))
            .unwrap_or_default();
        // Profile, compatibility, constraints and level, after the head of the unit and a byte.
        let profile = plain.get(3..15).unwrap_or(&[1; 12]);
        let mut out = [
            &[1][..],
            profile,
            &[0xf0, 0, 0xfc, 0xfd, 0xf8, 0xf8, 0, 0, 0x0f, 3],
        ]
        .concat();
        for kind in [32, 33, 34] {
            let (count, sets) = self.sets(kind);
            out.extend([kind, 0, count]);
            out.extend(sets);
        }
        out
    }
}

fn is_parameters(codec: Codec, unit: &[u8]) -> bool {
    match codec {
        Codec::H264 => matches!(codec.kind(unit), Some(7 | 8)),
        _ => matches!(codec.kind(unit), Some(32..=34)),
    }
}

fn boxed(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32 + 8).to_be_bytes();
    [&length[..], name, content].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_have_their_lengths() {
        assert_eq!(
            boxed(b"free", &[1, 2]),
            [0, 0, 0, 10, b'f', b'r', b'e', b'e', 1, 2]
        );
    }

    /// A key frame of 16 x 16 pixels with its parameters: baseline, one macroblock.
    const KEY: &[u8] = b"\0\0\x01\x67\x42\0\x0a\xdd\xc4\0\0\x01\x68\x80\0\0\x01\x65\x88";

    #[test]
    fn a_video_that_a_file_cannot_hold_is_refused() {
        assert!(Mp4::begin(Codec::H264, 0, b"\0\0\x01\x65\x88").is_err());
        assert_eq!(Mp4::begin(Codec::H264, 0, KEY).unwrap().size, (16, 16));
        let many = KEY.repeat(200);
        assert!(Mp4::begin(Codec::H264, 0, &many).is_err());
    }

    #[test]
    fn a_picture_that_is_too_large_leaves_the_group_as_it_was() {
        let mut video = Mp4::begin(Codec::H264, 0, KEY).unwrap();
        let head = video.add(0, KEY, true).unwrap();
        assert_eq!(&head[4..8], b"ftyp");
        assert_eq!(video.data.len(), video.group[0].bytes as usize);
        video.data = vec![0; GROUP_BYTES_MAX];
        let reason = video.add(1, b"\0\0\x01\x41\x9a", false).unwrap_err();
        assert!(reason.contains("too many pictures"), "{reason}");
        assert_eq!((video.group.len(), video.data.len()), (1, GROUP_BYTES_MAX));
    }
}
