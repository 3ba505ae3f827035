//! Decompresses chunks of ROS 1 bags, into no more memory than the limit allows.

use bytes::Bytes;
use std::io::Read;

/// A chunk may unpack to this many bytes, or to [`RATIO_MAX`] times its own length: `rosbag record` closes
/// chunks at 768 KiB, and 785 bytes of bz2 can unpack to a gibibyte of zeros.
const PLAUSIBLE_BYTES: u64 = 64 << 20;
const RATIO_MAX: u64 = 1024;

/// Up to this length the whole output is reserved at once.
const RESERVE_BYTES_MAX: u64 = 64 << 20;

/// How much of a chunk is present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// All of it: exactly this many bytes when decompressed.
    Exactly(u64),
    /// Its beginning: at most this many bytes when decompressed.
    UpTo(u64),
}

/// Decompresses a chunk's records; the reason when that fails.
pub(crate) fn decompress(compression: &str, stored: Bytes, expect: Expect) -> Result<Bytes, String> {
    let plausible = (stored.len() as u64)
        .saturating_mul(RATIO_MAX)
        .max(PLAUSIBLE_BYTES);
    let expect = match expect {
        Expect::Exactly(size) if size > plausible => {
            return Err(format!(
                "{} bytes that claim to unpack to {size}, expected at most {plausible}",
                stored.len()
            ));
        }
        Expect::UpTo(size) => Expect::UpTo(size.min(plausible)),
        Expect::Exactly(_) => expect,
    };
    let records = match compression {
        "none" => stored,
        // ROS writes whole LZ4 frames.
        "lz4" => {
            let decoder = lz4::Decoder::new(&stored[..]).map_err(|error| error.to_string())?;
            read(decoder, expect)?
        }
        "bz2" => read(bzip2::read::MultiBzDecoder::new(&stored[..]), expect)?,
        other => return Err(format!("unknown codec {other:?}")),
    };
    match expect {
        Expect::Exactly(size) if size != records.len() as u64 => {
            Err(format!("expected {size} bytes, found {}", records.len()))
        }
        _ => Ok(records),
    }
}

/// Asks for one byte more than the size, to notice excess. For a cut chunk, the bytes before the cut are
/// returned.
fn read(decoder: impl Read, expect: Expect) -> Result<Bytes, String> {
    let (size, is_cut) = match expect {
        Expect::Exactly(size) => (size.saturating_add(1), false),
        Expect::UpTo(size) => (size, true),
    };
    let mut records = Vec::new();
    let reserved = records.try_reserve_exact(size.min(RESERVE_BYTES_MAX) as usize);
    reserved.map_err(|_| "there is not enough memory".to_owned())?;
    match decoder.take(size).read_to_end(&mut records) {
        Err(error) if !is_cut => Err(error.to_string()),
        _ => Ok(records.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn compressed(codec: &str, bytes: &[u8]) -> Bytes {
        match codec {
            "lz4" => {
                let mut encoder = lz4::EncoderBuilder::new().build(Vec::new()).unwrap();
                encoder.write_all(bytes).unwrap();
                encoder.finish().0.into()
            }
            "bz2" => {
                let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap().into()
            }
            _ => bytes.to_vec().into(),
        }
    }

    #[test]
    fn decompresses_what_was_compressed_and_refuses_other_lengths() {
        let bytes: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        for codec in ["none", "lz4", "bz2"] {
            let stored = compressed(codec, &bytes);
            let whole = decompress(codec, stored.clone(), Expect::Exactly(400_000)).unwrap();
            assert_eq!(whole, bytes, "{codec}");
            for size in [0, 399_999, 400_001] {
                assert!(
                    decompress(codec, stored.clone(), Expect::Exactly(size)).is_err(),
                    "{codec} {size}"
                );
            }
        }
    }

    #[test]
    fn the_beginning_of_a_cut_chunk_is_decompressed() {
        // Noise, so that there are several blocks.
        let mut state = 1_u32;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(10 << 20)
        .collect();
        for codec in ["none", "lz4"] {
            let stored = compressed(codec, &bytes);
            let cut = stored.slice(..stored.len() - 100);
            let begin = decompress(codec, cut, Expect::UpTo(1 << 30)).unwrap();
            assert!(
                begin.len() > 1 << 20 && bytes.starts_with(&begin),
                "{codec} {}",
                begin.len()
            );
        }
    }

    #[test]
    fn few_bytes_that_say_they_are_very_many_are_refused() {
        let bomb = compressed("bz2", &vec![0; 70 << 20]);
        let said = Expect::Exactly(70 << 20);
        let error = decompress("bz2", bomb.clone(), said).unwrap_err();
        assert!(error.contains("expected at most"), "{error}");
        let begin = decompress("bz2", bomb, Expect::UpTo(1 << 30)).unwrap();
        assert_eq!(begin.len() as u64, PLAUSIBLE_BYTES);
    }

    #[test]
    fn noise_and_unknown_codecs_are_refused() {
        let noise = Bytes::from_static(&[1, 2, 3]);
        for codec in ["lz4", "bz2"] {
            assert!(decompress(codec, noise.clone(), Expect::Exactly(3)).is_err());
        }
        let error = decompress("gzip", noise, Expect::Exactly(3)).unwrap_err();
        assert!(error.contains("gzip"), "{error}");
    }
}
