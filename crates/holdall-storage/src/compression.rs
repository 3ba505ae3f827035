//! rosbag2's own compression, applied around a storage: to whole files, or to each payload.

use crate::{
    error::{StorageError, StorageResult},
    reader::{
        FileCondition, FilePart, IndexedPart, Messages, ReadMessage, ReadQuery, StorageReader,
        StorageSummary, TimeCells,
    },
    writer::ChannelIndex,
};
use bytes::Bytes;
use holdall_io::scratch::ScratchDirectory;
use std::{
    io::{self, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// The compression formats that rosbag2 has plugins for.
pub const FORMATS: [&str; 1] = ["zstd"];

/// The suffix that rosbag2 appends to the names of packed files.
pub const FILE_SUFFIX: &str = ".zstd";

/// First bytes of a zstd frame.
pub const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// zstd level for whole files, as in rosbag2.
const FILE_LEVEL: i32 = 3;
/// zstd level for single payloads, as in rosbag2.
const PAYLOAD_LEVEL: i32 = 1;

/// Largest payload that is unpacked, in bytes.
pub const PAYLOAD_BYTES_MAX: u64 = 1 << 30;

/// A zstd block decompresses to at most this much and has at least four bytes: bounds what a frame of a given
/// length can contain.
const BLOCK_BYTES_MAX: u64 = 128 << 10;

/// Disk space that unpacking leaves free, in bytes.
const SPARE_BYTES: u64 = 256 << 20;

/// The unit that rosbag2 compresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CompressionMode {
    /// Nothing.
    #[default]
    None,
    /// Each storage file, after it is closed.
    File,
    /// Each payload, before it is stored.
    Message,
}

impl CompressionMode {
    /// The mode's name in `metadata.yaml`: in capitals, empty for none.
    pub const fn as_metadata(self) -> &'static str {
        match self {
            Self::None => "",
            Self::File => "FILE",
            Self::Message => "MESSAGE",
        }
    }

    /// Parses the mode in a metadata file or on a command line, in any case. `None` for an unknown mode.
    pub fn parse(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "" | "none" => Some(Self::None),
            "file" => Some(Self::File),
            "message" => Some(Self::Message),
            _ => None,
        }
    }
}

/// Packs payloads as rosbag2 does: one zstd frame each, with its content size.
pub struct PayloadPacker(zstd::bulk::Compressor<'static>);

impl PayloadPacker {
    /// Creates a packer, which can be reused.
    ///
    /// # Errors
    /// The codec gets no memory.
    pub fn new() -> io::Result<Self> {
        zstd::bulk::Compressor::new(PAYLOAD_LEVEL).map(Self)
    }

    /// Packs one payload.
    ///
    /// # Errors
    /// The codec gets no memory.
    pub fn pack(&mut self, payload: &[u8]) -> io::Result<Vec<u8>> {
        self.0.compress(payload)
    }
}

/// Unpacks one payload. The size in the frame's header is trusted only as far as the frame's length allows.
///
/// # Errors
/// One clause about the fault in the frame.
pub fn unpack_payload(packed: &[u8], bytes_max: u64) -> Result<Vec<u8>, String> {
    if !packed.starts_with(&ZSTD_MAGIC) {
        let begin = &packed[..packed.len().min(4)];
        return Err(format!(
            "expected a zstd frame, found {} bytes that begin with {begin:02x?}",
            packed.len()
        ));
    }
    let possible = (packed.len() as u64 / 4 + 1).saturating_mul(BLOCK_BYTES_MAX);
    let said = zstd::zstd_safe::get_frame_content_size(packed).map_err(|_| "its frame header is damaged")?;
    if let Some(said) = said
        && said > bytes_max.min(possible)
    {
        return Err(format!(
            "its header states {said} bytes, expected at most {}",
            bytes_max.min(possible)
        ));
    }
    let mut decoder = zstd::stream::read::Decoder::with_buffer(packed).map_err(|error| error.to_string())?;
    let mut payload = Vec::new();
    payload
        .try_reserve_exact(said.unwrap_or(0) as usize)
        .map_err(|_| "there is not enough memory for it".to_owned())?;
    let mut bounded = decoder.by_ref().take(bytes_max + 1);
    bounded
        .read_to_end(&mut payload)
        .map_err(|error| error.to_string())?;
    if payload.len() as u64 > bytes_max {
        return Err(format!("it unpacks to more than {bytes_max} bytes"));
    }
    Ok(payload)
}

/// True for the name of a file of rosbag2's file compression.
pub fn is_packed_name(path: &Path) -> bool {
    path.as_os_str()
        .as_encoded_bytes()
        .ends_with(FILE_SUFFIX.as_bytes())
}

/// The name of a packed file.
pub fn packed_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(FILE_SUFFIX);
    PathBuf::from(name)
}

/// The name without the suffix of packed files.
pub fn unpacked_name(path: &Path) -> PathBuf {
    if is_packed_name(path) {
        path.with_extension("")
    } else {
        path.to_owned()
    }
}

/// Packs a whole file into a new one, which appears under its name once it is complete and durable.
///
/// # Errors
/// `to` exists, or the disk fails.
pub fn pack_file(from: &Path, to: &Path) -> StorageResult<()> {
    Ok(holdall_io::fs::convert_file(from, to, true, |from, to| {
        let mut reader = BufReader::with_capacity(1 << 20, from);
        let mut encoder = zstd::stream::write::Encoder::new(to, FILE_LEVEL)?;
        io::copy(&mut reader, &mut encoder)?;
        encoder.finish().map(drop)
    })?)
}

/// Unpacks the file at `from` to `to`, which must not exist. If the file was cut off or damaged, unpacks the part before the damage
/// and returns a description of that part.
///
/// # Errors
/// A file that cannot be read or unpacked at all; a copy that cannot be written.
pub(crate) fn unpack_file(from: &Path, to: &Path) -> StorageResult<Option<UnpackedFront>> {
    let directory = to.parent().unwrap_or(Path::new("."));
    let available = holdall_io::fs::available_bytes(directory)?.saturating_sub(SPARE_BYTES);
    let packed = holdall_io::fs::about(from)?
        .len_bytes
        .saturating_mul(USUAL_RATIO_MAX);
    let allowed = UNPACKED_BYTES_MAX.load(Ordering::Relaxed).saturating_add(packed);
    unpack_within(from, to, available.min(allowed))
}

/// Lets this process unpack no file to more than these bytes and eight times its own, as a small one may claim to have any number: for servers, which
/// unpack what others name.
pub fn limit_unpacking(bytes: u64) {
    UNPACKED_BYTES_MAX.store(bytes, Ordering::Relaxed);
}

/// See [`limit_unpacking`].
static UNPACKED_BYTES_MAX: AtomicU64 = AtomicU64::new(u64::MAX);

/// Data of sensors is not packed by more than this.
const USUAL_RATIO_MAX: u64 = 8;

/// The part of a packed file before its damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnpackedFront {
    /// Its length, unpacked.
    pub bytes: u64,
    /// Offset in the packed file up to which it was read; the damage is not after it.
    pub offset: u64,
    /// The fault there, one clause.
    pub reason: String,
}

/// Counts the bytes read.
struct Counted<'a, R> {
    inner: R,
    bytes: &'a std::cell::Cell<u64>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.bytes.set(self.bytes.get() + count as u64);
        Ok(count)
    }
}

/// Unpacks a file that may have this many bytes.
fn unpack_within(from: &Path, to: &Path, bytes_max: u64) -> StorageResult<Option<UnpackedFront>> {
    let mut front = None;
    let unpacked = holdall_io::fs::convert_file(from, to, false, |from, to| {
        let read = std::cell::Cell::new(0);
        let mut decoder = zstd::stream::read::Decoder::new(Counted {
            inner: from,
            bytes: &read,
        })?;
        let mut writer = BufWriter::with_capacity(1 << 20, to);
        let (mut piece, mut bytes) = (vec![0; 1 << 20], 0);
        loop {
            match decoder.read(&mut piece) {
                Ok(0) => break,
                Ok(count) if bytes + count as u64 > bytes_max => {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                Ok(count) => {
                    writer.write_all(&piece[..count])?;
                    bytes += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // An error of the codec has no system error number.
                Err(error) if error.raw_os_error().is_none() && bytes > 0 => {
                    front = Some(UnpackedFront {
                        bytes,
                        offset: read.get(),
                        reason: error.to_string(),
                    });
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        writer.flush()
    });
    unpacked.map_err(|error| {
        if !error.is_no_space() {
            return error.into();
        }
        // The copy's disk is full, not the disk of the packed file, which is only read.
        let directory = to.parent().unwrap_or(Path::new("."));
        StorageError::Io {
            action: "unpack",
            path: from.to_owned(),
            source: io::Error::other(format!(
                "it unpacks to more than the {bytes_max} bytes that may be used for it in {}; set TMPDIR to \
                 a directory with more room, or use holdall decompress",
                directory.display()
            )),
        }
    })?;
    Ok(front)
}

/// Names the directory for temporary files, if one was chosen.
type ScratchChoice = Box<dyn Fn() -> Option<PathBuf> + Send + Sync>;

static SCRATCH: OnceLock<ScratchChoice> = OnceLock::new();

/// Lets a program choose the directory that packed files are unpacked to, once; it is asked each time.
pub fn choose_scratch(choice: impl Fn() -> Option<PathBuf> + Send + Sync + 'static) {
    // The first choice stays.
    drop(SCRATCH.set(Box::new(choice)));
}

/// The directory that packed files are unpacked to: that of [`choose_scratch`], else the one for large temporary files.
pub fn scratch() -> PathBuf {
    let chosen = SCRATCH.get().and_then(|choice| choice());
    let large = || Some(PathBuf::from("/var/tmp")).filter(|large| large.is_dir());
    chosen.or_else(large).unwrap_or_else(|| PathBuf::from("/tmp"))
}

/// A temporary directory for copies of storage files.
pub(crate) fn scratch_directory() -> StorageResult<ScratchDirectory> {
    Ok(ScratchDirectory::create(&scratch())?)
}

/// A packed storage file, unpacked to read it. The unpacked copy is removed when the reader and its iterators
/// are dropped; the packed file and its directory are not changed.
pub struct UnpackedReader {
    inner: Box<dyn StorageReader>,
    path: PathBuf,
    front: Option<UnpackedFront>,
    outline: StorageSummary,
    summary: OnceLock<StorageSummary>,
    directory: Arc<ScratchDirectory>,
}

impl UnpackedReader {
    /// Unpacks the file at `path` and opens the copy with `open`.
    ///
    /// # Errors
    /// As [`unpack_file`], and `open`'s own errors.
    pub fn open<E: From<StorageError>>(
        path: &Path,
        open: impl FnOnce(&Path) -> Result<Box<dyn StorageReader>, E>,
    ) -> Result<Self, E> {
        let directory = scratch_directory()?;
        let name = unpacked_name(path);
        let copy = directory
            .path()
            .join(name.file_name().unwrap_or("storage".as_ref()));
        let front = unpack_file(path, &copy)?;
        let inner = open(&copy)?;
        let file_bytes = holdall_io::fs::file_len(path).map_err(StorageError::from)?;
        let outline = unpacked_summary(path, (file_bytes, front.as_ref()), inner.outline());
        Ok(Self {
            inner,
            path: path.to_owned(),
            front,
            outline,
            summary: OnceLock::new(),
            directory: Arc::new(directory),
        })
    }
}

/// The summary of an unpacked copy, as that of the packed file.
fn unpacked_summary(
    path: &Path,
    (file_bytes, front): (u64, Option<&UnpackedFront>),
    copy: &StorageSummary,
) -> StorageSummary {
    let condition = match front {
        None => copy.condition.clone(),
        Some(front) => FileCondition::Damaged {
            offset: front.offset,
            reason: format!(
                "it is packed, and only its first {} bytes can be unpacked: {}",
                front.bytes, front.reason
            ),
        },
    };
    StorageSummary {
        condition,
        path: path.to_owned(),
        file_bytes,
        compression: Some("zstd, whole file".to_owned()),
        ..copy.clone()
    }
}

impl StorageReader for UnpackedReader {
    fn summary(&self) -> &StorageSummary {
        let about = (self.outline.file_bytes, self.front.as_ref());
        self.summary
            .get_or_init(|| unpacked_summary(&self.path, about, self.inner.summary()))
    }

    fn outline(&self) -> &StorageSummary {
        &self.outline
    }

    fn messages(&self, query: &ReadQuery) -> StorageResult<Messages> {
        let (directory, path) = (Arc::clone(&self.directory), self.path.clone());
        let messages = self.inner.messages(query).map_err(|error| error.in_file(&path))?;
        Ok(Box::new(messages.map(move |message| {
            // Kept during the iteration, which may open the file again.
            let _ = &directory;
            message.map_err(|error| error.in_file(&path))
        })))
    }

    fn parts(&self, channels: Option<&[ChannelIndex]>) -> StorageResult<Vec<FilePart>> {
        self.inner.parts(channels)
    }

    fn part_at(&self, offset: u64) -> Option<IndexedPart> {
        self.inner.part_at(offset)
    }

    fn count_over_time(&self, cells: &mut TimeCells) -> StorageResult<bool> {
        self.inner.count_over_time(cells)
    }
}

/// Unpacks the payloads of a storage file whose payloads are packed one by one.
pub struct PayloadUnpackingReader {
    inner: Arc<dyn StorageReader>,
    outline: StorageSummary,
    summary: OnceLock<StorageSummary>,
}

impl PayloadUnpackingReader {
    /// Wraps a reader that returns payloads as stored.
    pub fn new(inner: Arc<dyn StorageReader>) -> Self {
        let outline = by_message(inner.outline());
        Self {
            inner,
            outline,
            summary: OnceLock::new(),
        }
    }
}

fn by_message(summary: &StorageSummary) -> StorageSummary {
    StorageSummary {
        compression: Some("zstd, by message".to_owned()),
        ..summary.clone()
    }
}

impl StorageReader for PayloadUnpackingReader {
    fn summary(&self) -> &StorageSummary {
        self.summary.get_or_init(|| by_message(self.inner.summary()))
    }

    fn outline(&self) -> &StorageSummary {
        &self.outline
    }

    fn messages(&self, query: &ReadQuery) -> StorageResult<Messages> {
        let path = self.outline.path.clone();
        let topics: Vec<String> = self
            .outline
            .channels
            .iter()
            .map(|channel| channel.info.topic.name.clone())
            .collect();
        let unpack = move |message: ReadMessage| match unpack_payload(&message.payload, PAYLOAD_BYTES_MAX) {
            Ok(payload) => Ok(ReadMessage {
                payload: Bytes::from(payload),
                ..message
            }),
            Err(reason) => Err(StorageError::Payload {
                path: path.clone(),
                topic: topics
                    .get(message.channel.0 as usize)
                    .cloned()
                    .unwrap_or_default(),
                log_time: message.log_time.as_nanos(),
                reason,
            }),
        };
        let messages = self.inner.messages(query)?;
        Ok(Box::new(messages.map(move |message| message.and_then(&unpack))))
    }

    fn parts(&self, channels: Option<&[ChannelIndex]>) -> StorageResult<Vec<FilePart>> {
        self.inner.parts(channels)
    }

    fn part_at(&self, offset: u64) -> Option<IndexedPart> {
        self.inner.part_at(offset)
    }

    fn count_over_time(&self, cells: &mut TimeCells) -> StorageResult<bool> {
        self.inner.count_over_time(cells)
    }
}

/// Whether the first payload of a file is packed where CDR is expected: CDR begins with a zero, a zstd frame
/// never does. For files that do not record their compression.
///
/// # Errors
/// The file cannot be read.
pub fn has_packed_payloads(reader: &dyn StorageReader) -> StorageResult<bool> {
    let is_cdr = |message: &ReadMessage| {
        let channel = reader.outline().channels.get(message.channel.0 as usize);
        channel.is_some_and(|channel| channel.info.topic.serialization_format == "cdr")
    };
    let query = ReadQuery {
        order: crate::reader::ReadOrder::File,
        ..ReadQuery::default()
    };
    let first = reader.messages(&query)?.next().transpose()?;
    Ok(first.is_some_and(|first| is_cdr(&first) && first.payload.starts_with(&ZSTD_MAGIC)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_parsed_in_any_case() {
        for mode in [
            CompressionMode::None,
            CompressionMode::File,
            CompressionMode::Message,
        ] {
            assert_eq!(CompressionMode::parse(mode.as_metadata()), Some(mode));
        }
        assert_eq!(CompressionMode::parse("message"), Some(CompressionMode::Message));
        assert_eq!(CompressionMode::parse("chunk"), None);
    }

    #[test]
    fn a_payload_is_unpacked_from_its_frame_which_has_its_length() {
        let mut packer = PayloadPacker::new().unwrap();
        for payload in [
            vec![],
            vec![7; 3],
            vec![9; 500_000],
            (0..=255).collect::<Vec<u8>>(),
        ] {
            let packed = packer.pack(&payload).unwrap();
            assert_eq!(
                zstd::zstd_safe::get_frame_content_size(&packed).ok(),
                Some(Some(payload.len() as u64)),
                "rosbag2 goes by it"
            );
            assert_eq!(unpack_payload(&packed, 500_000).unwrap(), payload);
        }
    }

    /// The copy's disk is full, so the sentence names its folder, not that of the packed file.
    #[test]
    fn a_file_without_room_for_its_copy_names_the_folder_of_the_copy() {
        let (bag, room) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (plain, packed) = (bag.path().join("b.mcap"), bag.path().join("b.mcap.zstd"));
        std::fs::write(&plain, vec![0; 1 << 20]).unwrap();
        pack_file(&plain, &packed).unwrap();
        let copy = room.path().join("b.mcap");
        let text = unpack_within(&packed, &copy, 1000).unwrap_err().to_string();
        let begin = format!(
            "cannot unpack {}: it unpacks to more than the 1000 bytes",
            packed.display()
        );
        assert!(text.starts_with(&begin), "{text}");
        assert!(
            text.contains(&format!("in {}; set TMPDIR", room.path().display())),
            "{text}"
        );
        assert!(!copy.exists());
        assert_eq!(unpack_within(&packed, &copy, 1 << 20).unwrap(), None);
        assert_eq!(std::fs::metadata(&copy).unwrap().len(), 1 << 20);
    }

    #[test]
    fn frames_with_a_wrong_or_too_large_size_are_refused() {
        let packed = zstd::bulk::compress(&vec![0; 10 << 20], 1).unwrap();
        let error = unpack_payload(&packed, 1 << 20).unwrap_err();
        assert!(error.contains("10485760") && error.contains("1048576"), "{error}");
        // Without a size in the header.
        let packed = zstd::stream::encode_all(&vec![0; 10 << 20][..], 1).unwrap();
        let error = unpack_payload(&packed, 1 << 20).unwrap_err();
        assert!(error.contains("more than 1048576"), "{error}");
        // A header that states 4 GiB before a few bytes.
        let mut lie = ZSTD_MAGIC.to_vec();
        lie.extend([0xa0, 0xff, 0xff, 0xff, 0xff, 1, 0, 0]);
        assert!(
            unpack_payload(&lie, u64::MAX >> 1)
                .unwrap_err()
                .contains("expected at most")
        );
        for bytes in [
            &b""[..],
            b"(",
            &ZSTD_MAGIC,
            &packed[..packed.len() - 1],
            &[0, 1, 0, 0, 5],
        ] {
            assert!(unpack_payload(bytes, 100 << 20).is_err(), "{bytes:02x?}");
        }
    }

    #[test]
    fn a_file_is_packed_and_unpacked_and_of_a_torn_one_its_front() {
        let dir = tempfile::tempdir().unwrap();
        let (plain, packed) = (dir.path().join("b_0.mcap"), dir.path().join("b_0.mcap.zstd"));
        assert_eq!(
            (packed_name(&plain), unpacked_name(&packed)),
            (packed.clone(), plain.clone())
        );
        let content: Vec<u8> = (0..300_000u32)
            .flat_map(|n| n.wrapping_mul(n).to_le_bytes())
            .collect();
        std::fs::write(&plain, &content).unwrap();
        pack_file(&plain, &packed).unwrap();
        let back = dir.path().join("back");
        assert_eq!(unpack_file(&packed, &back).unwrap(), None);
        assert_eq!(std::fs::read(&back).unwrap(), content);
        let whole = std::fs::read(&packed).unwrap();
        for (name, part) in [("half", whole.len() / 2), ("nearly", whole.len() - 2)] {
            std::fs::write(&packed, &whole[..part]).unwrap();
            let torn = dir.path().join(name);
            let front = unpack_file(&packed, &torn).unwrap().unwrap();
            assert_eq!(front.offset, part as u64);
            let found = std::fs::read(&torn).unwrap();
            assert_eq!(found.len() as u64, front.bytes);
            assert!(found.len() > 1 << 17 && content.starts_with(&found), "{name}");
        }
        std::fs::write(&packed, &whole[..6]).unwrap();
        let none = dir.path().join("none");
        let error = unpack_file(&packed, &none).unwrap_err().to_string();
        assert!(error.contains("b_0.mcap.zstd"), "{error}");
        assert!(!none.exists());
    }
}
