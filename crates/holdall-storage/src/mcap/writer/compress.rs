//! Chunk compression: on worker threads with bounded work in flight and order kept, or at once.

use crate::mcap::{
    RecordPacker,
    options::{Compression, McapOptions},
};
use holdall_io::mutex::lock;
use holdall_io::wait::Wait;
use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
};

/// Chunks smaller than this are stored uncompressed, as the MCAP C++ library does.
const COMPRESS_BYTES_MIN: usize = 1024;
/// Chunks in flight for each thread: one at work, one waiting.
const CHUNKS_PER_THREAD: usize = 2;

/// A chunk's records in flight; `T` is a value that the caller gets back with them.
pub(super) struct Compressed<T> {
    /// The value given with the records.
    pub tag: T,
    /// The uncompressed records; the buffer can be used again.
    pub raw: Vec<u8>,
    /// CRC-32 of `raw`, zero when not wanted.
    pub raw_crc: u32,
    /// The codec's output; can be used again.
    buffer: Vec<u8>,
    /// Compression of the records in `buffer`; none when they are better stored uncompressed.
    compression: Compression,
}

impl<T> Compressed<T> {
    /// The stored form of the records, with its compression.
    pub fn stored(&self) -> (Compression, &[u8]) {
        match self.compression {
            Compression::None => (Compression::None, &self.raw),
            packed => (packed, &self.buffer),
        }
    }
}

struct Job<T> {
    number: u64,
    compression: Compression,
    tag: T,
    raw: Vec<u8>,
    buffer: Vec<u8>,
}

struct Done<T> {
    number: u64,
    result: io::Result<Compressed<T>>,
}

/// One thread's codec and how it decides.
struct Codec {
    packer: RecordPacker,
    force: bool,
    crc: bool,
}

impl Codec {
    fn new(options: &McapOptions) -> Self {
        Self {
            packer: RecordPacker::new(options),
            force: options.force_compression,
            crc: options.chunk_crc,
        }
    }

    fn run<T>(&mut self, job: Job<T>) -> io::Result<Compressed<T>> {
        let Job {
            compression,
            tag,
            raw,
            mut buffer,
            ..
        } = job;
        let raw_crc = if self.crc { crc32fast::hash(&raw) } else { 0 };
        let is_tried = raw.len() >= COMPRESS_BYTES_MIN || self.force;
        let was_packed = is_tried && self.packer.pack(compression, &raw, &mut buffer)?;
        let is_packed = was_packed && (self.force || is_worth(raw.len(), buffer.len()));
        Ok(Compressed {
            tag,
            raw,
            raw_crc,
            buffer,
            compression: if is_packed { compression } else { Compression::None },
        })
    }
}

/// Two in a hundred must be saved, as in the MCAP C++ library: less does not pay for decompressing.
fn is_worth(raw_bytes: usize, packed_bytes: usize) -> bool {
    (packed_bytes as u64) * 100 <= (raw_bytes as u64) * 98
}

struct Workers<T> {
    jobs: Option<SyncSender<Job<T>>>,
    done: Receiver<Done<T>>,
    threads: Vec<JoinHandle<()>>,
}

/// Accepts chunks and returns them compressed, in the same order.
pub(super) struct Compressor<T> {
    inline: Codec,
    workers: Option<Workers<T>>,
    next_in: u64,
    next_out: u64,
    /// Results, each with its requested compression; the first has number `next_out`.
    ready: VecDeque<(Compression, Option<io::Result<Compressed<T>>>)>,
    in_flight_max: u64,
    bytes_in_flight: u64,
    /// Output buffers of the codecs: used again, because fresh memory for each chunk costs a page fault for every 4 KiB.
    buffers: Vec<Vec<u8>>,
}

impl<T: Send + 'static> Compressor<T> {
    /// Starts `options.compression_threads` threads; none for zero, or when there is nothing to compress.
    pub fn new(options: &McapOptions) -> io::Result<Self> {
        let threads = if options.compresses() {
            options.compression_threads
        } else {
            0
        };
        let in_flight_max = (threads * CHUNKS_PER_THREAD).max(1);
        Ok(Self {
            inline: Codec::new(options),
            workers: (threads > 0)
                .then(|| start(options, threads, in_flight_max))
                .transpose()?,
            next_in: 0,
            next_out: 0,
            ready: VecDeque::new(),
            in_flight_max: in_flight_max as u64,
            bytes_in_flight: 0,
            buffers: Vec::new(),
        })
    }

    /// Takes back the parts of a stored chunk; returns the records' buffer.
    pub fn recycle(&mut self, compressed: Compressed<T>) -> Vec<u8> {
        if (self.buffers.len() as u64) < self.in_flight_max {
            self.buffers.push(compressed.buffer);
        }
        compressed.raw
    }

    /// Chunks that were submitted and not returned.
    pub fn in_flight(&self) -> u64 {
        self.next_in - self.next_out
    }

    /// Uncompressed length of the chunks in flight.
    pub(crate) fn bytes_in_flight(&self) -> u64 {
        self.bytes_in_flight
    }

    /// Chunks that can be in flight.
    pub fn in_flight_max(&self) -> usize {
        self.in_flight_max as usize
    }

    /// Whether one must be taken back before another can be submitted.
    pub fn is_full(&self) -> bool {
        self.in_flight() >= self.in_flight_max
    }

    /// Submits a chunk. Must not be called while [`Self::is_full`]; so it never waits.
    pub fn submit(&mut self, compression: Compression, tag: T, raw: Vec<u8>) {
        let number = self.next_in;
        self.next_in += 1;
        self.bytes_in_flight += raw.len() as u64;
        self.ready.push_back((compression, None));
        let buffer = self.buffers.pop().unwrap_or_default();
        let job = Job {
            number,
            compression,
            tag,
            raw,
            buffer,
        };
        let sender = self.workers.as_ref().and_then(|workers| workers.jobs.as_ref());
        // The channel has room for as many jobs as may be in flight.
        let left = match sender {
            Some(sender) => sender.send(job).err().map(|gone| gone.0),
            None => Some(job),
        };
        if let Some(job) = left {
            let result = self.inline.run(job);
            self.accept(Done { number, result });
        }
    }

    /// The next chunk in order, with how it was to be compressed, if it is ready, or once it is. `None` when none is in flight.
    pub fn take_ready(&mut self, wait: Wait) -> Option<(Compression, io::Result<Compressed<T>>)> {
        if self.in_flight() == 0 {
            return None;
        }
        while let Some(done) = self
            .workers
            .as_ref()
            .and_then(|workers| workers.done.try_recv().ok())
        {
            self.accept(done);
        }
        while wait == Wait::UntilReady && matches!(self.ready.front(), Some((_, None))) {
            match self.workers.as_ref().map(|workers| workers.done.recv()) {
                Some(Ok(done)) => self.accept(done),
                _ => {
                    self.ready[0].1 = Some(Err(io::Error::other("a compression thread ended early")));
                }
            }
        }
        if !matches!(self.ready.front(), Some((_, Some(_)))) {
            return None;
        }
        self.next_out += 1;
        let (compression, result) = self.ready.pop_front()?;
        let result = result?;
        if let Ok(done) = &result {
            self.bytes_in_flight -= done.raw.len() as u64;
        }
        Some((compression, result))
    }

    fn accept(&mut self, done: Done<T>) {
        let place = usize::try_from(done.number - self.next_out).unwrap_or(usize::MAX);
        if let Some(slot) = self.ready.get_mut(place) {
            slot.1 = Some(done.result);
        }
    }
}

impl<T> Drop for Workers<T> {
    fn drop(&mut self) {
        self.jobs = None;
        // Room in `done` for everything in flight: no thread can be stuck sending.
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a compression thread panicked");
            }
        }
    }
}

fn start<T: Send + 'static>(
    options: &McapOptions,
    threads: usize,
    in_flight_max: usize,
) -> io::Result<Workers<T>> {
    let (jobs, work) = sync_channel::<Job<T>>(in_flight_max);
    let (finished, done) = sync_channel::<Done<T>>(in_flight_max);
    let work = Arc::new(Mutex::new(work));
    let threads = (0..threads)
        .map(|number| {
            let (work, finished) = (Arc::clone(&work), finished.clone());
            let codec = Codec::new(options);
            std::thread::Builder::new()
                .name(format!("compress-{number}"))
                .spawn(move || run_worker(codec, &work, &finished))
        })
        .collect::<io::Result<Vec<_>>>()?;
    Ok(Workers {
        jobs: Some(jobs),
        done,
        threads,
    })
}

fn run_worker<T>(mut codec: Codec, work: &Mutex<Receiver<Job<T>>>, finished: &SyncSender<Done<T>>) {
    loop {
        let job = lock(work).recv();
        let Ok(job) = job else { return };
        let number = job.number;
        let result = codec.run(job);
        if finished.send(Done { number, result }).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(compression: Compression, threads: usize) -> McapOptions {
        McapOptions {
            compression,
            compression_threads: threads,
            ..McapOptions::default()
        }
    }

    fn run_all(options: &McapOptions, chunks: &[Vec<u8>]) -> Vec<Compressed<usize>> {
        let mut compressor = Compressor::new(options).unwrap();
        let mut out = Vec::new();
        for (number, chunk) in chunks.iter().enumerate() {
            while compressor.is_full() {
                out.push(compressor.take_ready(Wait::UntilReady).unwrap().1.unwrap());
            }
            compressor.submit(options.compression, number, chunk.clone());
            while let Some(done) = compressor.take_ready(Wait::No) {
                out.push(done.1.unwrap());
            }
        }
        while let Some(done) = compressor.take_ready(Wait::UntilReady) {
            out.push(done.1.unwrap());
        }
        out
    }

    #[test]
    fn order_is_kept_with_any_number_of_threads() {
        let chunks: Vec<Vec<u8>> = (0..40u8)
            .map(|n| vec![n; 2000 + usize::from(n % 7) * 30_000])
            .collect();
        for compression in [Compression::Zstd, Compression::Lz4] {
            for threads in [0, 1, 3] {
                let out = run_all(&options(compression, threads), &chunks);
                assert_eq!(
                    out.iter().map(|done| done.tag).collect::<Vec<_>>(),
                    (0..40).collect::<Vec<_>>()
                );
                assert!(
                    out.iter()
                        .zip(&chunks)
                        .all(|(done, chunk)| done.raw == *chunk && done.stored().0 == compression)
                );
                assert!(out.iter().all(|done| done.raw_crc == crc32fast::hash(&done.raw)));
            }
        }
    }

    #[test]
    fn what_does_not_shrink_is_stored_as_it_is() {
        let mut state = 1u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .take(100_000)
        .collect();
        let small = vec![0; COMPRESS_BYTES_MIN - 1];
        let out = run_all(&options(Compression::Zstd, 0), &[noise.clone(), small.clone()]);
        assert!(
            out.iter()
                .all(|done| done.stored() == (Compression::None, &done.raw[..]))
        );
        let forced = McapOptions {
            force_compression: true,
            ..options(Compression::Zstd, 0)
        };
        assert!(
            run_all(&forced, &[noise, small])
                .iter()
                .all(|done| done.stored().0 == Compression::Zstd)
        );
    }
}
