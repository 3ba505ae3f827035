//! Pictures of H.264 and H.265 as an MP4, without decoding them: a part for each group from a key frame on, so that nothing before it changes when it is
//! written. The parts are fragments, or one table of all pictures follows them (ISO 14496-12, 14496-15).

use crate::elementary::{Codec, size_of, units};

/// Units of time in a second, in fragments.
const TIMESCALE: u32 = 1_000_000;
const NANOS_PER_SECOND: i128 = 1_000_000_000;
/// A sample that others need, and one that needs others.
const KEY_FLAGS: u32 = 0x0200_0000;
const OTHER_FLAGS: u32 = 0x0101_0000;
/// Bytes of a group: more is not kept in memory.
const GROUP_BYTES_MAX: usize = 512 << 20;
/// Length of the head of a box.
const BOX_HEAD_BYTES: u64 = 8;
/// Parameter sets: the number of those of a kind has five bits.
const SETS_MAX: usize = 31;

/// One picture that waits for its fragment.
struct Sample {
    nanos: i64,
    bytes: u32,
    is_key: bool,
}

/// The pictures of a file without fragments.
#[derive(Default)]
struct Table {
    /// Duration, bytes, and whether it is a key frame, of each picture.
    samples: Vec<(u32, u32, bool)>,
    /// Place in the file, and number of pictures, of each group.
    groups: Vec<(u64, u32)>,
    /// Bytes of the file so far.
    bytes: u64,
}

impl Table {
    fn boxes(&self) -> Vec<u8> {
        let listed = |name: &[u8; 4], rows: usize, numbers: Vec<u32>| {
            boxed(name, &words(&[&[0, rows as u32][..], &numbers].concat()))
        };
        let mut runs: Vec<[u32; 2]> = Vec::new();
        for (duration, ..) in &self.samples {
            match runs.last_mut() {
                Some([count, last]) if last == duration => *count += 1,
                _ => runs.push([1, *duration]),
            }
        }
        let numbered = (1_u32..).zip(&self.samples);
        let keys: Vec<u32> = numbered
            .filter(|(_, (.., is_key))| *is_key)
            .map(|(number, _)| number)
            .collect();
        let groups = (1_u32..).zip(&self.groups);
        let groups: Vec<[u32; 3]> = groups.map(|(number, (_, count))| [number, *count, 1]).collect();
        let places = self.groups.iter();
        let places = places.flat_map(|(place, _)| [(place >> 32) as u32, *place as u32]);
        let sizes = [0, self.samples.len() as u32].into_iter();
        let sizes: Vec<u32> = sizes
            .chain(self.samples.iter().map(|(_, bytes, _)| *bytes))
            .collect();
        let mut out = listed(b"stts", runs.len(), runs.concat());
        // Without it all pictures are key frames.
        if !self.samples.is_empty() {
            out.extend(listed(b"stss", keys.len(), keys));
        }
        out.extend(listed(b"stsc", groups.len(), groups.concat()));
        out.extend(boxed(b"stsz", &words(&[&[0][..], &sizes].concat())));
        out.extend(listed(b"co64", self.groups.len(), places.collect()));
        out
    }
}

/// The file while it is made: bytes come out of its methods, to be appended.
pub struct Mp4 {
    codec: Codec,
    timescale: u32,
    /// `None` for fragments.
    table: Option<Table>,
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
        let parameters = parameters(codec, data);
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
            timescale: TIMESCALE,
            table: None,
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

    /// One table of all pictures at the end instead of fragments: readers know their number and times at once. `timescale` is the units of time in a
    /// second.
    pub fn with_table(self, timescale: u32) -> Self {
        Self {
            timescale,
            table: Some(Table::default()),
            ..self
        }
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
            self.part(Some(nanos))
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

    /// The last group; its last picture is shown until `end`, if that is known.
    pub fn finish(mut self, end: Option<i64>) -> Vec<u8> {
        let mut out = self.part(end);
        if self.table.is_some() {
            self.put_movie(&mut out);
        }
        out
    }

    /// The group as a part of the file; `next` is the time of the picture after it.
    fn part(&mut self, next: Option<i64>) -> Vec<u8> {
        let mut out = Vec::new();
        if !std::mem::replace(&mut self.has_head, true) {
            out.extend(boxed(b"ftyp", b"iso5\0\0\x02\0iso5iso6mp41"));
            match &mut self.table {
                Some(table) => table.bytes = out.len() as u64,
                None => self.put_movie(&mut out),
            }
        }
        if self.group.is_empty() {
            return out;
        }
        let durations = self.durations(next);
        match &mut self.table {
            Some(table) => {
                let place = table.bytes + BOX_HEAD_BYTES;
                table.groups.push((place, durations.len() as u32));
                table.bytes = place + self.data.len() as u64;
                let samples = durations.iter().zip(&self.group);
                table
                    .samples
                    .extend(samples.map(|(duration, sample)| (*duration, sample.bytes, sample.is_key)));
            }
            None => self.put_fragment(&mut out, &durations),
        }
        out.extend(boxed(b"mdat", &self.data));
        self.decoded_at += durations.into_iter().map(u64::from).sum::<u64>();
        self.group.clear();
        self.data.clear();
        out
    }

    /// How long each picture of the group is shown, in units of time.
    fn durations(&self, next: Option<i64>) -> Vec<u32> {
        let mut at = self.decoded_at;
        let after = self.group.iter().skip(1).map(|after| Some(after.nanos));
        let duration = |after: Option<i64>| {
            let nanos = after.map_or(0, |after| after.saturating_sub(self.first_nanos));
            let until =
                (i128::from(nanos) * i128::from(self.timescale) + NANOS_PER_SECOND / 2) / NANOS_PER_SECOND;
            // Times that go back, and the last picture, have the shortest duration.
            let duration = u64::try_from(until).unwrap_or(0).saturating_sub(at).max(1);
            let duration = u32::try_from(duration).unwrap_or(u32::MAX);
            at += u64::from(duration);
            duration
        };
        after.chain([next]).map(duration).collect()
    }

    fn put_fragment(&mut self, out: &mut Vec<u8>, durations: &[u32]) {
        self.fragments += 1;
        let mut table = Vec::new();
        for (duration, sample) in durations.iter().zip(&self.group) {
            table.extend(duration.to_be_bytes());
            table.extend(sample.bytes.to_be_bytes());
            table.extend(if sample.is_key { KEY_FLAGS } else { OTHER_FLAGS }.to_be_bytes());
        }
        let moof = |data_offset: u32| {
            let mut trun = words(&[0x0000_0701, self.group.len() as u32, data_offset]);
            trun.extend(&table);
            let tfdt = [&0x0100_0000_u32.to_be_bytes()[..], &self.decoded_at.to_be_bytes()].concat();
            let traf = [
                boxed(b"tfhd", &words(&[0x0002_0000, 1])),
                boxed(b"tfdt", &tfdt),
                boxed(b"trun", &trun),
            ];
            let mfhd = boxed(b"mfhd", &words(&[0, self.fragments]));
            boxed(b"moof", &[mfhd, boxed(b"traf", &traf.concat())].concat())
        };
        let length = moof(0).len() as u32;
        out.extend(moof(length + BOX_HEAD_BYTES as u32));
    }

    fn put_movie(&self, out: &mut Vec<u8>) {
        let matrix = words(&[0x1_0000, 0, 0, 0, 0x1_0000, 0, 0, 0, 0x4000_0000]);
        let (width, height) = self.size;
        let (empty, scale) = (Table::default(), self.timescale);
        let table = self.table.as_ref();
        let duration = table.map_or(0, |_| u32::try_from(self.decoded_at).unwrap_or(u32::MAX));
        let mvhd = [
            words(&[0, 0, 0, scale, duration, 0x1_0000, 0x0100_0000, 0, 0]),
            matrix.clone(),
            words(&[0, 0, 0, 0, 0, 0, 2]),
        ];
        let tkhd = [
            words(&[3, 0, 0, 1, 0, duration, 0, 0, 0, 0]),
            matrix,
            words(&[width << 16, height << 16]),
        ];
        let mdhd = words(&[0, 0, 0, scale, duration, 0x55c4_0000]);
        let hdlr = [&words(&[0, 0])[..], b"vide", &[0; 12], b"video\0"].concat();
        let dref = [words(&[0, 1]), boxed(b"url ", &words(&[1]))].concat();
        let stsd = boxed(b"stsd", &[words(&[0, 1]), self.entry()].concat());
        let stbl = [stsd, table.unwrap_or(&empty).boxes()];
        let minf = [
            boxed(b"vmhd", &words(&[1, 0, 0])),
            boxed(b"dinf", &boxed(b"dref", &dref)),
            boxed(b"stbl", &stbl.concat()),
        ];
        let mdia = [
            boxed(b"mdhd", &mdhd),
            boxed(b"hdlr", &hdlr),
            boxed(b"minf", &minf.concat()),
        ];
        let trak = [boxed(b"tkhd", &tkhd.concat()), boxed(b"mdia", &mdia.concat())];
        let mut moov = vec![boxed(b"mvhd", &mvhd.concat()), boxed(b"trak", &trak.concat())];
        if table.is_none() {
            let trex = boxed(b"trex", &words(&[0, 1, 1, 0, 0, 0]));
            moov.push(boxed(b"mvex", &trex));
        }
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

/// The parameter sets of a message of H.264 or H.265.
pub fn parameters(codec: Codec, data: &[u8]) -> Vec<Vec<u8>> {
    let is_parameters = |unit: &&[u8]| match codec {
        Codec::H264 => matches!(codec.kind(unit), Some(7 | 8)),
        _ => matches!(codec.kind(unit), Some(32..=34)),
    };
    units(data).filter(is_parameters).map(<[u8]>::to_vec).collect()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
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
    fn a_table_has_the_place_of_each_group() {
        let mut video = Mp4::begin(Codec::H264, 0, KEY).unwrap().with_table(30_000);
        let mut file = Vec::new();
        for number in 0..3 {
            file.extend(video.add(number * 33_333_333, KEY, true).unwrap());
        }
        file.extend(video.finish(Some(100_000_000)));
        let rows = |name: &[u8; 4], head: usize| -> Vec<u32> {
            let at = file.windows(4).rposition(|bytes| bytes == name).unwrap();
            let length = u32::from_be_bytes(file[at - 4..at].try_into().unwrap()) as usize;
            let words = file[at + 4 + head..at - 4 + length].chunks_exact(4);
            words
                .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
                .collect()
        };
        assert_eq!(rows(b"stts", 8), [3, 1000]);
        assert_eq!(rows(b"stss", 8), [1, 2, 3]);
        for place in rows(b"co64", 8).chunks_exact(2) {
            assert_eq!(&file[place[1] as usize - 4..place[1] as usize], b"mdat");
        }
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
