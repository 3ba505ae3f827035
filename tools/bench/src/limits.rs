//! Same-run limits: the current speed of disk, memory and checksums, measured between the candidates.

use crate::{codec::CodecSpeed, disk_limit::DiskLimit, error::BenchResult, statistics};
use holdall_io::{
    disk::DiskError,
    limits::{measure_buffered_write, measure_crc32, measure_direct_write, measure_memcpy},
};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Block sizes and numbers of writes in flight that the search tries.
const DIRECT_SHAPES: [(usize, usize); 4] = [(1 << 20, 16), (4 << 20, 8), (4 << 20, 12), (16 << 20, 4)];

/// Messages that are large enough to be written one by one, and how many of them at once.
const MESSAGE_BYTES: std::ops::RangeInclusive<usize> = 1 << 20..=64 << 20;
const MESSAGES_IN_FLIGHT: usize = 4;

/// Most bytes of a try. Each shape is tried twice, so that one moment of a noisy disk does not decide alone.
const SEARCH_BYTES_MAX: u64 = 1 << 30;

/// Block of the buffered loop.
const BUFFERED_BLOCK_BYTES: usize = 1 << 20;

/// Bytes of one copy or checksum measurement.
const MEMORY_BYTES: u64 = 1 << 30;

/// The shape of direct writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectShape {
    /// Bytes of each write.
    pub block_bytes: usize,
    /// Writes in flight.
    pub depth: usize,
}

/// Measures the limits of one folder repeatedly, always in the same way.
#[derive(Debug, Default)]
pub(crate) struct LimitMeter {
    /// Absent where no disk is written to; then the disk has no limits.
    dir: Option<PathBuf>,
    bytes: u64,
    /// Holds for what is measured here.
    disk_limit: Option<DiskLimit>,
    shape: Option<DirectShape>,
    refused: Option<String>,
    direct: Vec<f64>,
    buffered: Vec<f64>,
    memcpy: Vec<f64>,
    crc32: Vec<f64>,
    codec: Option<CodecSpeed>,
}

impl LimitMeter {
    /// Searches the best shape of direct writes in `dir`; each later measurement writes `bytes`.
    ///
    /// # Errors
    /// A full or failing disk. A file system that refuses direct writes is not an error.
    pub fn new(dir: &Path, bytes: u64) -> BenchResult<Self> {
        let disk_limit = DiskLimit::of_process();
        let bytes = disk_limit
            .as_ref()
            .map_or(bytes, |limit| limit.measured_bytes(bytes));
        let mut meter = Self {
            dir: Some(dir.to_owned()),
            bytes,
            disk_limit,
            ..Self::default()
        };
        let shape = match &meter.disk_limit {
            // Each of them reaches the limit, which makes a search long.
            Some(_) => {
                let (block_bytes, depth) = DIRECT_SHAPES[1];
                Ok(DirectShape { block_bytes, depth })
            }
            None => search(dir, bytes),
        };
        match shape {
            Ok(shape) => meter.shape = Some(shape),
            Err(error) if error.is_no_space() => return Err(error.into()),
            Err(error) => meter.refused = Some(error.to_string()),
        }
        Ok(meter)
    }

    /// Limits of memory alone, for runs that write to no disk.
    pub(crate) fn of_memory() -> Self {
        Self::default()
    }

    /// Measures the disk's direct limit once more; `None` if it refuses direct writes.
    ///
    /// # Errors
    /// A full or failing disk.
    pub fn direct(&mut self) -> BenchResult<Option<f64>> {
        let (Some(dir), Some(DirectShape { block_bytes, depth })) = (&self.dir, self.shape) else {
            return Ok(None);
        };
        let rate = measure_direct_write(dir, self.bytes, block_bytes, depth)?;
        if let Some(limit) = &self.disk_limit {
            limit.check(rate)?;
        }
        self.direct.push(rate);
        Ok(Some(rate))
    }

    /// Measures direct writes of one message each, as the reports state a disk's speed; `None` for messages that no program writes by themselves, and
    /// where direct writes are refused.
    ///
    /// # Errors
    /// A full or failing disk.
    pub fn of_messages(&self, message_bytes: u64) -> BenchResult<Option<f64>> {
        let block_bytes = usize::try_from(message_bytes).unwrap_or(usize::MAX);
        let (Some(dir), Some(_), true) = (&self.dir, self.shape, MESSAGE_BYTES.contains(&block_bytes)) else {
            return Ok(None);
        };
        Ok(Some(measure_direct_write(
            dir,
            self.bytes,
            block_bytes,
            MESSAGES_IN_FLIGHT,
        )?))
    }

    /// Measures a plain buffered loop with a sync at its end once more; `None` without a disk.
    ///
    /// # Errors
    /// A full or failing disk.
    pub fn buffered(&mut self) -> BenchResult<Option<f64>> {
        let Some(dir) = &self.dir else { return Ok(None) };
        let rate = measure_buffered_write(dir, self.bytes, BUFFERED_BLOCK_BYTES)?;
        self.buffered.push(rate);
        Ok(Some(rate))
    }

    /// Measures copying and checksums once more.
    pub fn memory(&mut self) {
        self.memcpy
            .push(measure_memcpy(MEMORY_BYTES, BUFFERED_BLOCK_BYTES));
        self.crc32.push(measure_crc32(MEMORY_BYTES));
    }

    /// Stores the speed of the codec that compresses the output.
    pub(crate) fn set_codec(&mut self, codec: Option<CodecSpeed>) {
        self.codec = codec;
    }

    /// Direct where the file system allows it, else buffered: the limit that candidates are compared with.
    ///
    /// # Errors
    /// A full or failing disk.
    pub fn disk(&mut self) -> BenchResult<Option<f64>> {
        match self.direct()? {
            Some(rate) => Ok(Some(rate)),
            None => self.buffered(),
        }
    }

    /// All measurements up to now.
    pub fn limits(&self) -> Limits {
        let median = |samples: &[f64]| statistics::median(samples);
        Limits {
            direct_write_bytes_per_s: median(&self.direct),
            buffered_write_bytes_per_s: median(&self.buffered),
            memcpy_bytes_per_s: median(&self.memcpy),
            crc32_bytes_per_s: median(&self.crc32),
            codec: self.codec.clone(),
            bytes_per_measurement: self.bytes,
            direct_shape: self.shape,
            direct_refused: self.refused.clone(),
            direct_samples: self.direct.clone(),
            buffered_samples: self.buffered.clone(),
        }
    }
}

fn search(dir: &Path, bytes: u64) -> Result<DirectShape, DiskError> {
    let bytes = bytes.min(SEARCH_BYTES_MAX);
    let mut best = (0.0, DIRECT_SHAPES[0]);
    for (block_bytes, depth) in DIRECT_SHAPES.into_iter().chain(DIRECT_SHAPES) {
        let rate = measure_direct_write(dir, bytes, block_bytes, depth)?;
        if rate > best.0 {
            best = (rate, (block_bytes, depth));
        }
    }
    let (block_bytes, depth) = best.1;
    Ok(DirectShape { block_bytes, depth })
}

/// Same-run limits: medians, and every measurement in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Direct sequential writing with the best shape, sync included; absent where direct writes are refused.
    pub direct_write_bytes_per_s: Option<f64>,
    /// A plain buffered loop, sync included.
    pub buffered_write_bytes_per_s: Option<f64>,
    /// Copying from memory that is in no cache.
    pub memcpy_bytes_per_s: Option<f64>,
    /// CRC-32 over bytes that are in the cache.
    pub crc32_bytes_per_s: Option<f64>,
    /// The codec that our storage uses, alone on the payloads of this run; absent without compression.
    pub codec: Option<CodecSpeed>,
    /// Bytes that each measurement of the disk writes.
    pub bytes_per_measurement: u64,
    /// The best shape that was found.
    pub direct_shape: Option<DirectShape>,
    /// Why direct writes are refused, if they are.
    pub direct_refused: Option<String>,
    /// Every direct measurement in order.
    pub direct_samples: Vec<f64>,
    /// Every buffered measurement in order.
    pub buffered_samples: Vec<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_measured_in_order_and_leave_no_files() {
        let dir = tempfile::tempdir().unwrap();
        let mut meter = LimitMeter::new(dir.path(), 1 << 20).unwrap();
        let direct = meter.direct().unwrap();
        let buffered = meter.buffered().unwrap().unwrap();
        let limits = meter.limits();
        assert_eq!(limits.direct_write_bytes_per_s, direct);
        assert_eq!(limits.direct_samples.len(), usize::from(direct.is_some()));
        assert_eq!(limits.buffered_samples, [buffered]);
        assert_eq!(limits.direct_refused.is_none(), direct.is_some());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
