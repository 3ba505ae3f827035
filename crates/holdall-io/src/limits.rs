//! How fast this machine is: the limits that every figure of the write path is compared with.

use crate::{
    block::{BLOCK_ALIGNMENT, BlockPool, BlockPoolOptions},
    clock::{Clock, SystemClock},
    disk::{DiskError, Operation},
};
use io_uring::{IoUring, opcode, types};
use rustix::fs::{FallocateFlags, fallocate};
use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

/// A scratch file that is removed when it goes out of scope.
struct Scratch {
    path: PathBuf,
    file: File,
}

impl Scratch {
    fn create(dir: &Path, direct: bool) -> io::Result<Self> {
        let path = dir.join(format!(".holdall-limit-{}", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        if direct {
            options.custom_flags(libc::O_DIRECT);
        }
        let file = options.open(&path)?;
        Ok(Self { path, file })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // `create` made it. A drop cannot return an error.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Bytes per second of bare sequential direct writing (io_uring, space reserved first, registered buffers, data and metadata
/// synced at the end) of `bytes` in blocks of `block_bytes`, `depth` of them in flight, to a scratch file in `dir`.
///
/// Deliberately not built on [`crate::os::OsDisk`]: a limit must not share the mistakes of the code measured against it.
///
/// # Errors
/// When the file system or the kernel cannot do it, or the disk is full.
pub fn measure_direct_write(
    dir: &Path,
    bytes: u64,
    block_bytes: usize,
    depth: usize,
) -> Result<f64, DiskError> {
    direct_write(dir, bytes, block_bytes, depth)
        .map_err(|source| DiskError::new(dir, Operation::Write, source))
}

fn direct_write(dir: &Path, bytes: u64, block_bytes: usize, depth: usize) -> io::Result<f64> {
    let block_bytes = block_bytes.max(1).next_multiple_of(BLOCK_ALIGNMENT);
    let pool = filled_pool(block_bytes, depth.max(2))?;
    let blocks: Vec<_> = std::iter::from_fn(|| pool.take()).take(depth.max(1)).collect();
    let mut ring = IoUring::new(
        u32::try_from(blocks.len())
            .unwrap_or(u32::MAX)
            .next_power_of_two(),
    )?;
    let buffers: Vec<_> = blocks
        .iter()
        .map(|block| libc::iovec {
            iov_base: block.as_slice().as_ptr().cast_mut().cast(),
            iov_len: block_bytes,
        })
        .collect();
    // SAFETY: the blocks outlive every write below, because all completions are awaited before they go.
    let registered = unsafe { ring.submitter().register_buffers(&buffers) }.is_ok();
    let scratch = Scratch::create(dir, true)?;
    let fd = types::Fd(scratch.file.as_raw_fd());

    let start = SystemClock.monotonic();
    // If this fails, writing is slower but works.
    let _ = fallocate(&scratch.file, FallocateFlags::empty(), 0, bytes);
    let mut free: Vec<usize> = (0..blocks.len()).collect();
    let (mut offset, mut failure) = (0u64, None);
    while (offset < bytes && failure.is_none()) || free.len() < blocks.len() {
        while offset < bytes
            && failure.is_none()
            && let Some(index) = free.pop()
        {
            let (start, len) = (
                blocks[index].as_slice().as_ptr(),
                u32::try_from(block_bytes).unwrap_or(u32::MAX),
            );
            let entry = match u16::try_from(index) {
                Ok(number) if registered => opcode::WriteFixed::new(fd, start, len, number)
                    .offset(offset)
                    .build(),
                _ => opcode::Write::new(fd, start, len).offset(offset).build(),
            };
            // SAFETY: block and file live until the completion has been seen (see the loop's condition).
            if unsafe { ring.submission().push(&entry.user_data(index as u64)) }.is_err() {
                free.push(index);
                break;
            }
            offset += block_bytes as u64;
        }
        if let Err(error) = ring.submit_and_wait(1)
            && error.kind() != io::ErrorKind::Interrupted
        {
            // Writes in flight cannot be awaited any more, so their memory must never be released.
            std::mem::forget(blocks);
            return Err(error);
        }
        for entry in ring.completion() {
            free.push(usize::try_from(entry.user_data()).unwrap_or(0));
            match usize::try_from(entry.result()) {
                Ok(count) if count == block_bytes => {}
                Ok(_) => failure = Some(io::Error::from_raw_os_error(libc::ENOSPC)),
                Err(_) => failure = Some(io::Error::from_raw_os_error(-entry.result())),
            }
        }
    }
    failure.map_or(Ok(()), Err)?;
    scratch.file.sync_all()?;
    Ok(offset as f64 / (SystemClock.monotonic() - start).as_secs_f64())
}

/// Bytes per second of a plain buffered loop with a sync at the end, to a scratch file in `dir`. Write-back is started every 8 MiB
/// (and never waited for), without which a busy machine is several times slower.
///
/// # Errors
/// When the file cannot be written.
pub fn measure_buffered_write(dir: &Path, bytes: u64, block_bytes: usize) -> Result<f64, DiskError> {
    let write = || -> io::Result<f64> {
        let pool = filled_pool(block_bytes.max(1), 2)?;
        let Some(block) = pool.take() else {
            return Err(io::Error::from(io::ErrorKind::OutOfMemory));
        };
        let scratch = Scratch::create(dir, false)?;
        let start = SystemClock.monotonic();
        let mut offset = 0;
        while offset < bytes {
            scratch.file.write_all_at(block.as_slice(), offset)?;
            offset += block.capacity() as u64;
            if offset.is_multiple_of(8 << 20) {
                // SAFETY: plain system call without pointers. If it is not supported, the kernel decides
                // when to write back.
                unsafe { libc::sync_file_range(scratch.file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
            }
        }
        scratch.file.sync_all()?;
        Ok(offset as f64 / (SystemClock.monotonic() - start).as_secs_f64())
    };
    write().map_err(|source| DiskError::new(dir, Operation::Write, source))
}

/// A pool whose blocks hold bytes that do not compress.
fn filled_pool(block_bytes: usize, count: usize) -> io::Result<BlockPool> {
    let pool = BlockPool::new(BlockPoolOptions {
        block_bytes,
        block_count: count,
        huge_pages: true,
    })?;
    let mut blocks: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    let mut seed = 0x2545_f491_4f6c_dd1d;
    for block in &mut blocks {
        fill_with_noise(block.as_mut_slice(), &mut seed);
    }
    drop(blocks);
    Ok(pool)
}

/// Fills `bytes` with noise (xorshift), so that no disk or codec gains from repetition.
pub fn fill_with_noise(bytes: &mut [u8], seed: &mut u64) {
    for chunk in bytes.chunks_mut(8) {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        chunk.copy_from_slice(&seed.to_le_bytes()[..chunk.len()]);
    }
}

/// Bytes per second of copying `block_bytes` at a time from memory that is in no cache, `bytes` in all.
pub fn measure_memcpy(bytes: u64, block_bytes: usize) -> f64 {
    let block_bytes = block_bytes.max(1);
    let sources = (256usize << 20).div_ceil(block_bytes).max(2);
    let mut from = vec![0u8; sources * block_bytes];
    fill_with_noise(&mut from, &mut 0x9e37_79b9_7f4a_7c15);
    let mut to = vec![1u8; 12 * block_bytes];
    let start = SystemClock.monotonic();
    let mut copied = 0u64;
    for (source, target) in (0..sources).cycle().zip((0..12).cycle()) {
        if copied >= bytes {
            break;
        }
        to[target * block_bytes..][..block_bytes]
            .copy_from_slice(&from[source * block_bytes..][..block_bytes]);
        std::hint::black_box(&mut to);
        copied += block_bytes as u64;
    }
    copied as f64 / (SystemClock.monotonic() - start).as_secs_f64()
}

/// Bytes per second of CRC-32 over `bytes`, in steps of 64 KiB that are in the cache.
pub fn measure_crc32(bytes: u64) -> f64 {
    let mut data = vec![0u8; 64 << 10];
    fill_with_noise(&mut data, &mut 0x9e37_79b9_7f4a_7c15);
    let start = SystemClock.monotonic();
    let mut hasher = crc32fast::Hasher::new();
    let mut hashed = 0;
    while hashed < bytes {
        hasher.update(std::hint::black_box(&data));
        hashed += data.len() as u64;
    }
    std::hint::black_box(hasher.finalize());
    hashed as f64 / (SystemClock.monotonic() - start).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert!(measure_buffered_write(dir.path(), 1 << 20, 64 << 10).unwrap() > 0.0);
        // Not every file system supports direct writes; even then the test's file must be removed.
        let _ = measure_direct_write(dir.path(), 1 << 20, 64 << 10, 4);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn memory_and_crc_have_a_speed() {
        assert!(measure_memcpy(1 << 20, 64 << 10) > 0.0);
        assert!(measure_crc32(1 << 20) > 0.0);
    }
}
