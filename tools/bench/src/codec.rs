//! How fast one thread, and one thread per processor, compress a load's payloads with our storage's codec:
//! the limits of compressed recording.

use crate::{
    error::{BenchError, BenchResult},
    measure::side_by_side,
    workload::Plan,
};
use holdall_io::clock::Clock;
use holdall_storage::{
    StorageOptions,
    mcap::{
        RecordPacker,
        options::{Compression, McapOptions},
    },
};
use serde::{Deserialize, Serialize};
use std::{io, num::NonZero, path::Path, thread};

/// Bytes that are compressed at once: about one chunk.
const CHUNK_BYTES: usize = 2 << 20;

/// Most bytes that one measurement compresses, so that the slowest level takes only seconds.
const TOTAL_BYTES: usize = 128 << 20;

/// Longest time of a measurement.
const SECONDS_MAX: f64 = 1.5;

/// The speed of the codec by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CodecSpeed {
    /// `zstd` or `lz4`.
    pub codec: String,
    /// Uncompressed bytes a second of one thread while nothing else runs.
    pub bytes_per_s: f64,
    /// Uncompressed bytes a second of all threads, one per processor: processors share caches, memory and
    /// clock.
    pub all_bytes_per_s: f64,
    /// Number of those threads.
    pub threads: usize,
    /// Uncompressed length divided by compressed length.
    pub compression_ratio: f64,
}

/// Measures the codec in `options` on the payloads of `plan`; `None` when they name none.
///
/// # Errors
/// Options that are not valid, a codec that fails.
pub(crate) fn measure_codec(
    plan: &Plan,
    options: &StorageOptions,
    clock: &dyn Clock,
) -> BenchResult<Option<CodecSpeed>> {
    let mcap = McapOptions::preset(options.preset.as_deref())?;
    let mcap = mcap.with_config(options.config.as_deref().unwrap_or(""))?;
    if mcap.compression == Compression::None {
        return Ok(None);
    }
    let one = || run_codec(plan, &mcap, clock).map_err(|error| failed(mcap.compression, &error));
    let alone = one()?;
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let count = u32::try_from(threads).unwrap_or(u32::MAX);
    let together = side_by_side("codec", count, |_| one())?;
    let together = together.into_iter().collect::<BenchResult<Vec<_>>>()?;
    Ok((alone.seconds > 0.0).then(|| CodecSpeed {
        codec: mcap.compression.as_str().to_owned(),
        bytes_per_s: alone.bytes_per_s(),
        all_bytes_per_s: together.iter().map(CodecRun::bytes_per_s).sum(),
        threads,
        compression_ratio: alone.raw_bytes as f64 / alone.packed_bytes.max(1) as f64,
    }))
}

/// The work of one thread.
#[derive(Default)]
struct CodecRun {
    raw_bytes: usize,
    packed_bytes: usize,
    seconds: f64,
}

impl CodecRun {
    fn bytes_per_s(&self) -> f64 {
        self.raw_bytes as f64 / self.seconds.max(1e-9)
    }
}

/// Compresses chunk after chunk. Context and buffer are kept, as a recorder's thread keeps them: only the
/// codec is timed.
fn run_codec(plan: &Plan, options: &McapOptions, clock: &dyn Clock) -> io::Result<CodecRun> {
    let mut run = CodecRun::default();
    let (mut packer, mut packed) = (RecordPacker::new(options), Vec::new());
    let mut chunk = Vec::with_capacity(CHUNK_BYTES);
    let mut is_warm = false;
    for message in plan.stream(0) {
        chunk.extend_from_slice(plan.payload(&message));
        if chunk.len() < CHUNK_BYTES {
            continue;
        }
        let before = clock.monotonic();
        packer.pack(options.compression, &chunk, &mut packed)?;
        let elapsed = clock.monotonic().saturating_sub(before);
        if std::mem::replace(&mut is_warm, true) {
            run.seconds += elapsed.as_secs_f64();
            run.packed_bytes += packed.len();
            run.raw_bytes += chunk.len();
        }
        chunk.clear();
        if run.raw_bytes >= TOTAL_BYTES || run.seconds >= SECONDS_MAX {
            break;
        }
    }
    Ok(run)
}

fn failed(codec: Compression, error: &io::Error) -> BenchError {
    BenchError::rival(codec.as_str(), Path::new("payloads"))(error)
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
    fn codecs_shrink_compressible_content() {
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
