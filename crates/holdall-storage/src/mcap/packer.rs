//! Compresses a chunk's records, with reused codec contexts and without checksums that the chunk already has.

use super::options::{Compression, CompressionLevel, McapOptions};
use std::io::{self, Write};

/// One thread's codec.
pub struct RecordPacker {
    level: CompressionLevel,
    /// The chunk has no checksum of its records, so the codec's frame must have one.
    has_frame_sums: bool,
    /// Reused, because creating one costs more than compressing a small chunk.
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

impl RecordPacker {
    /// Creates codecs with the effort of these options.
    pub fn new(options: &McapOptions) -> Self {
        Self {
            level: options.compression_level,
            has_frame_sums: !options.chunk_crc,
            zstd: None,
        }
    }

    /// Compresses `raw` into `packed`, replacing its content; returns false and leaves `packed` empty without
    /// compression.
    ///
    /// # Errors
    /// A codec failure: out of memory.
    pub fn pack(&mut self, compression: Compression, raw: &[u8], packed: &mut Vec<u8>) -> io::Result<bool> {
        packed.clear();
        match compression {
            Compression::None => return Ok(false),
            Compression::Lz4 => {
                *packed = self.pack_lz4(raw, std::mem::take(packed))?;
            }
            Compression::Zstd => {
                let zstd = match &mut self.zstd {
                    Some(zstd) => zstd,
                    none => none.insert(zstd::bulk::Compressor::new(self.level.zstd())?),
                };
                packed.reserve(zstd::zstd_safe::compress_bound(raw.len()));
                zstd.compress_to_buffer(raw, packed)?;
            }
        }
        Ok(true)
    }

    /// A frame of blocks of 1 MiB. The chunk's CRC covers the same bytes as the frame's own checksums, which
    /// would cost two more passes.
    fn pack_lz4(&self, raw: &[u8], packed: Vec<u8>) -> io::Result<Vec<u8>> {
        let (content, block) = if self.has_frame_sums {
            (
                lz4::ContentChecksum::ChecksumEnabled,
                lz4::liblz4::BlockChecksum::BlockChecksumEnabled,
            )
        } else {
            (
                lz4::ContentChecksum::NoChecksum,
                lz4::liblz4::BlockChecksum::NoBlockChecksum,
            )
        };
        let mut encoder = lz4::EncoderBuilder::new()
            .level(self.level.lz4())
            .block_size(lz4::BlockSize::Max1MB)
            .checksum(content)
            .block_checksum(block)
            // The input is whole blocks: the encoder need not buffer.
            .auto_flush(true)
            .content_size(raw.len() as u64)
            .build(packed)?;
        encoder.write_all(raw)?;
        let (packed, finished) = encoder.finish();
        finished.map(|()| packed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn unpack_lz4(packed: &[u8]) -> io::Result<Vec<u8>> {
        let mut raw = Vec::new();
        let mut decoder = lz4::Decoder::new(packed)?;
        decoder.read_to_end(&mut raw)?;
        Ok(raw)
    }

    #[test]
    fn lz4_frames_hold_every_length_with_and_without_their_own_sums() {
        let raw: Vec<u8> = (0..3_500_000_u32).map(|n| (n / 7 % 251) as u8).collect();
        for chunk_crc in [false, true] {
            let mut packer = RecordPacker::new(&McapOptions {
                chunk_crc,
                ..McapOptions::default()
            });
            let mut packed = vec![7; 10];
            for len in [0, 1, 65_536, 1 << 20, (1 << 20) + 1, raw.len()] {
                assert!(packer.pack(Compression::Lz4, &raw[..len], &mut packed).unwrap());
                assert_eq!(unpack_lz4(&packed).unwrap(), raw[..len], "{len} {chunk_crc}");
            }
            // FLG byte of the frame: bit 4 block checksums, bit 3 content size, bit 2 content checksum.
            let flags = packed[4] & 0b1_1100;
            assert_eq!(flags, if chunk_crc { 0b0_1000 } else { 0b1_1100 });
        }
    }

    #[test]
    fn without_a_codec_nothing_is_packed() {
        let mut packed = vec![1];
        let mut packer = RecordPacker::new(&McapOptions::default());
        assert!(!packer.pack(Compression::None, &[0; 5000], &mut packed).unwrap());
        assert!(packed.is_empty());
    }
}
