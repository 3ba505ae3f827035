//! How fast one thread compresses the payloads of a load with the codec that our storage uses: the limit of compressed recording.

use crate::{
    error::{BenchError, BenchResult},
    workload::Plan,
};
use holdall_io::clock::Clock;
use holdall_storage::{
    StorageOptions,
    mcap::options::{Compression, CompressionLevel, McapOptions},
};
use serde::Serialize;
use std::io::Write;

/// What is compressed at once: about what a chunk holds.
const CHUNK_BYTES: usize = 2 << 20;

/// What one measurement compresses at most, so that the slowest level is done in seconds.
const TOTAL_BYTES: usize = 128 << 20;

/// Measuring stops after this much time in any case.
const SECONDS_MAX: f64 = 2.0;

/// The speed of one thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CodecSpeed {
    /// `zstd` or `lz4`.
    pub codec: String,
    /// Uncompressed bytes a second of one thread.
    pub bytes_per_s: f64,
    /// Uncompressed through compressed length.
    pub compression_ratio: f64,
}

/// Measures the codec that `options` ask for on the payloads of `plan`; `None` when they ask for none.
///
/// # Errors
/// Options that are not valid, a codec that fails.
pub fn measure_codec(
    plan: &Plan,
    options: &StorageOptions,
    clock: &dyn Clock,
) -> BenchResult<Option<CodecSpeed>> {
    let mcap = McapOptions::preset(&options.preset)?.with_config(options.config.as_deref().unwrap_or(""))?;
    if mcap.compression == Compression::None {
        return Ok(None);
    }
    let (mut raw_bytes, mut compressed_bytes, mut seconds) = (0_usize, 0_usize, 0.0);
    let mut chunk = Vec::with_capacity(CHUNK_BYTES);
    for message in plan.stream(0) {
        chunk.extend_from_slice(plan.payload(&message));
        if chunk.len() < CHUNK_BYTES {
            continue;
        }
        let before = clock.monotonic();
        let compressed = compress(&chunk, mcap.compression, mcap.compression_level);
        seconds += clock.monotonic().saturating_sub(before).as_secs_f64();
        compressed_bytes += compressed.map_err(|error| failed(mcap.compression, &error))?;
        raw_bytes += chunk.len();
        chunk.clear();
        if raw_bytes >= TOTAL_BYTES || seconds >= SECONDS_MAX {
            break;
        }
    }
    Ok((seconds > 0.0).then(|| CodecSpeed {
        codec: mcap.compression.as_str().to_owned(),
        bytes_per_s: raw_bytes as f64 / seconds,
        compression_ratio: raw_bytes as f64 / compressed_bytes.max(1) as f64,
    }))
}

fn failed(codec: Compression, error: &std::io::Error) -> BenchError {
    BenchError::Rival {
        library: codec.as_str(),
        path: "payloads".into(),
        reason: error.to_string(),
    }
}

/// Length of `raw` when compressed as our storage does it.
fn compress(raw: &[u8], codec: Compression, level: CompressionLevel) -> std::io::Result<usize> {
    match codec {
        Compression::None => Ok(raw.len()),
        Compression::Zstd => Ok(zstd::bulk::compress(raw, level.zstd())?.len()),
        Compression::Lz4 => {
            let mut encoder = lz4::EncoderBuilder::new()
                .level(level.lz4())
                .block_size(lz4::BlockSize::Max1MB)
                .build(Vec::with_capacity(raw.len()))?;
            encoder.write_all(raw)?;
            let (compressed, finished) = encoder.finish();
            finished.map(|()| compressed.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Content, Load, SizeMix};
    use holdall_io::clock::SystemClock;

    fn speed(content: Content, config: &str) -> Option<CodecSpeed> {
        let mix = SizeMix::single(100_000);
        let load = Load {
            mix,
            content,
            total_bytes: 5 << 20,
            producers: 1,
            topics: 1,
            rate_hz: None,
            seed: 1,
        };
        let options = StorageOptions {
            config: Some(config.to_owned()),
            ..StorageOptions::default()
        };
        measure_codec(&Plan::new(load).unwrap(), &options, &SystemClock).unwrap()
    }

    #[test]
    fn codecs_shrink_what_can_be_shrunk() {
        for config in ["compression: Zstd", "compression: Lz4"] {
            let text = speed(Content::Text, config).unwrap();
            let random = speed(Content::Entropy(8.0), config).unwrap();
            assert!(
                text.compression_ratio > 1.5 && random.compression_ratio < 1.01,
                "{text:?} {random:?}"
            );
            assert!(text.bytes_per_s > 0.0);
        }
        assert_eq!(speed(Content::Text, ""), None);
    }
}
