//! Decompresses a chunk's records, into no more memory than the chunk states and the limit allows.

use std::io::{self, Read};

/// Up to this length the whole output is reserved at once.
const RESERVE_BYTES_MAX: u64 = 64 << 20;

/// Decompresses `stored` to exactly `size` bytes; the reason when that fails.
pub(crate) fn decompress(compression: &str, stored: &[u8], size: u64) -> Result<Vec<u8>, String> {
    let records = match compression {
        "zstd" if size <= RESERVE_BYTES_MAX => {
            // The codec fails on a frame that decompresses to more than the capacity.
            zstd::bulk::decompress(stored, size as usize).map_err(|error| error.to_string())?
        }
        "zstd" => read_up_to(zstd::stream::read::Decoder::new(stored), size)?,
        "lz4" => read_up_to(lz4::Decoder::new(stored), size)?,
        other => return Err(format!("unknown codec {other:?}")),
    };
    if records.len() as u64 != size {
        return Err(format!("expected {size} bytes, found {}", records.len()));
    }
    Ok(records)
}

/// Asks for one byte more than `size`, to notice excess.
fn read_up_to(decoder: io::Result<impl Read>, size: u64) -> Result<Vec<u8>, String> {
    let mut records = Vec::new();
    // The reader reserves the rest as it arrives, which can fail too.
    let reserved = records.try_reserve_exact(size.min(RESERVE_BYTES_MAX) as usize + 1);
    reserved.map_err(|_| "there is not enough memory".to_owned())?;
    decoder
        .and_then(|decoder| decoder.take(size.saturating_add(1)).read_to_end(&mut records))
        .map_err(|error| error.to_string())?;
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::decompress;
    use std::io::Write;

    fn lz4(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = lz4::EncoderBuilder::new().build(Vec::new()).unwrap();
        encoder.write_all(bytes).unwrap();
        encoder.finish().0
    }

    #[test]
    fn decompresses_what_was_compressed() {
        let bytes = vec![7; 100_000];
        assert_eq!(
            decompress("zstd", &zstd::bulk::compress(&bytes, 1).unwrap(), 100_000).unwrap(),
            bytes
        );
        assert_eq!(decompress("lz4", &lz4(&bytes), 100_000).unwrap(), bytes);
    }

    #[test]
    fn more_or_fewer_bytes_than_stated_are_refused() {
        let bytes = vec![7; 100_000];
        for (codec, stored) in [
            ("zstd", zstd::bulk::compress(&bytes, 1).unwrap()),
            ("lz4", lz4(&bytes)),
        ] {
            for size in [0, 1, 99_999, 100_001, 65 << 20] {
                assert!(decompress(codec, &stored, size).is_err(), "{codec} {size}");
            }
        }
    }

    #[test]
    fn unknown_codecs_and_noise_are_refused() {
        assert!(decompress("gzip", &[1, 2, 3], 3).unwrap_err().contains("gzip"));
        assert!(decompress("zstd", &[1, 2, 3], 3).is_err());
        assert!(decompress("lz4", &[1, 2, 3], 3).is_err());
    }
}
