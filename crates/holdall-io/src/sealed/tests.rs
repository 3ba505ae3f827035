//! Sealed files: whole, cut at every boundary, changed, torn, moved about and edited.

use super::{
    FileKey, Seal, SealingDisk,
    format::{FRAME_HEAD_BYTES, Kind},
    is_sealed,
    log::{Entry, Map},
    seal_of,
};
use crate::{
    block::BlockPoolOptions,
    disk::DiskError,
    disk_conformance::{DiskUnderTest, check_all},
    fs::{EditedFile, File, read, write_atomically, write_over},
    memory::{MemoryDisk, MemoryFiles},
    os::{DiskMode, OsDisk},
    queue::DiskQueue,
    stream::BlockStream,
};
use proptest::prelude::*;
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::LazyLock,
};
use tempfile::TempDir;

const BLOCK_BYTES: usize = 256 << 10;

/// One for all tests: the process remembers a few.
fn seal() -> Seal {
    static SEAL: LazyLock<Seal> =
        LazyLock::new(|| Seal::generate::<io::Error>(|_| Ok(b"wrapped".to_vec())).unwrap());
    SEAL.clone()
}

fn content(bytes: usize) -> Vec<u8> {
    // No zeros, because missing bytes read as zeros.
    (0..bytes).map(|n| (n * n / 7 % 251) as u8 + 1).collect()
}

fn queue(folder: &Path, seal: &Seal) -> DiskQueue {
    let inner = OsDisk::open(folder, DiskMode::Buffered).unwrap();
    let blocks = BlockPoolOptions {
        block_bytes: BLOCK_BYTES,
        block_count: 4,
        huge_pages: false,
    };
    DiskQueue::new(Box::new(SealingDisk::new(Box::new(inner), seal.clone())), blocks).unwrap()
}

/// Writes `parts` with a flush of the tail after each, as a recorder does; not closed when `is_torn`.
fn write_file(path: &Path, seal: &Seal, parts: &[&[u8]], is_torn: bool) {
    let mut q = queue(path.parent().unwrap(), seal);
    let file = q.create_file(path, 0).unwrap();
    let mut stream = BlockStream::new(file);
    for part in parts {
        stream.append(&mut q, part).unwrap();
        stream.flush_tail(&mut q).unwrap();
    }
    if is_torn {
        q.drain();
        // As a killed process leaves it: the queue would close it.
        fs::copy(path, path.with_extension("torn")).unwrap();
    }
    stream.finish(&mut q).unwrap();
    q.wait_closed(file).unwrap();
    if is_torn {
        fs::rename(path.with_extension("torn"), path).unwrap();
    }
}

fn plain(path: &Path) -> Result<Vec<u8>, DiskError> {
    let file = File::open(path)?;
    file.read_bytes_at(0, usize::try_from(file.len_bytes()).unwrap())
}

struct Sealed(TempDir);

impl DiskUnderTest for Sealed {
    type Disk = SealingDisk;

    fn start(&self) -> (SealingDisk, PathBuf) {
        let folder = tempfile::tempdir_in(self.0.path()).unwrap().keep();
        let inner = OsDisk::open(&folder, DiskMode::Auto).unwrap();
        (SealingDisk::new(Box::new(inner), seal()), folder)
    }

    fn content(&self, _disk: &SealingDisk, path: &Path) -> Option<Vec<u8>> {
        path.exists().then(|| plain(path).unwrap())
    }
}

#[test]
fn a_sealing_disk_does_what_every_disk_does() {
    check_all(&Sealed(tempfile::tempdir().unwrap()));
}

#[test]
fn what_was_written_is_read_at_any_place_and_nothing_of_it_is_on_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.mcap");
    let bytes = content(1_234_567);
    write_file(
        &path,
        &seal(),
        &[&bytes[..10], &bytes[10..700_000], &bytes[700_000..]],
        false,
    );
    let stored = fs::read(&path).unwrap();
    assert!(is_sealed(&stored));
    for at in (0..bytes.len() - 32).step_by(9_973) {
        assert!(
            !stored.windows(32).any(|window| *window == bytes[at..at + 32]),
            "{at}"
        );
    }
    let file = File::open(&path).unwrap();
    assert_eq!(file.len_bytes(), bytes.len() as u64);
    for (at, count) in [
        (0, 1),
        (4095, 3),
        (65_535, 2),
        (262_000, 600_000),
        (1_234_566, 1),
        (10, 1_234_557),
    ] {
        let mut part = vec![0; count];
        file.read_exact_at(&mut part, at as u64).unwrap();
        assert!(part == bytes[at..at + count], "{count} bytes at {at}");
    }
    assert_eq!(file.read_at(&mut [0; 10], 1_234_560).unwrap(), 7);
    assert!(file.read_exact_at(&mut [0; 10], 1_234_560).is_err());
    assert!(plain(&path).unwrap() == bytes);
}

#[test]
fn a_file_that_is_cut_anywhere_opens_with_all_frames_before_the_cut() {
    let dir = tempfile::tempdir().unwrap();
    let (path, cut) = (dir.path().join("a"), dir.path().join("cut"));
    let bytes = content(300_000);
    let parts: Vec<&[u8]> = bytes.chunks(41_000).collect();
    write_file(&path, &seal(), &parts, false);
    let stored = fs::read(&path).unwrap();
    let boundaries = (0..=stored.len()).step_by(4096);
    let places = boundaries.flat_map(|at| [at.saturating_sub(1), at, at + 1]);
    let mut longest = 0;
    for at in places.filter(|at| *at <= stored.len()) {
        fs::write(&cut, &stored[..at]).unwrap();
        match plain(&cut) {
            // Nothing shows that it is sealed.
            Ok(found) if at < 16 => assert_eq!(found, stored[..at]),
            Err(error) => assert!(at < 4096, "cut at {at}: {error}"),
            Ok(found) => {
                let whole = found
                    .iter()
                    .zip(&bytes)
                    .take_while(|(found, was)| found == was)
                    .count();
                assert!(found[whole..].iter().all(|byte| *byte == 0), "cut at {at}");
                // A frame has its head; less than a page and a frame before the cut is lost.
                assert!(
                    whole + 41_000 + 65_536 + (at / 10_000) * 4096 >= at.min(bytes.len()),
                    "cut at {at}: {whole}"
                );
                assert!(whole >= longest || at == stored.len(), "cut at {at}");
                longest = whole;
                EditedFile::open(&cut).unwrap().sync().unwrap();
                assert!(plain(&cut).unwrap() == found, "repaired after a cut at {at}");
            }
        }
    }
    assert_eq!(longest, bytes.len());
}

#[test]
fn a_changed_byte_is_found_where_it_is_and_all_else_is_readable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let bytes = content(900_000);
    write_file(&path, &seal(), &[&bytes], false);
    let stored = fs::read(&path).unwrap();
    // The header, then a frame of its head and 63 KiB less than 256: the second page begins after 4096 + 4096 + 65 536 bytes.
    let at = 4096 + 4096 + 65_536 + 100;
    let mut changed = stored.clone();
    changed[at] ^= 1;
    fs::write(&path, &changed).unwrap();
    let file = File::open(&path).unwrap();
    let error = file.read_exact_at(&mut [0; 2], 65_636).unwrap_err();
    assert!(error.is_changed(), "{error}");
    assert_eq!(
        (error.offset, error.path.as_path()),
        (Some(65_636), path.as_path())
    );
    for (at, count) in [(0, 65_536), (131_072, 768_928)] {
        let mut part = vec![0; count];
        file.read_exact_at(&mut part, at as u64).unwrap();
        assert!(part == bytes[at..at + count]);
    }
    // In the head of the first frame: all of that frame, and no other.
    let mut changed = stored.clone();
    changed[4096 + 50] ^= 1;
    fs::write(&path, &changed).unwrap();
    let file = File::open(&path).unwrap();
    assert!(file.read_exact_at(&mut [0; 2], 0).unwrap_err().is_changed());
    let frame = BLOCK_BYTES - FRAME_HEAD_BYTES;
    let mut part = vec![0; bytes.len() - frame];
    file.read_exact_at(&mut part, frame as u64).unwrap();
    assert!(part == bytes[frame..]);
    // In the wrapped key: no key fits.
    let mut changed = stored;
    changed[70] ^= 1;
    fs::write(&path, &changed).unwrap();
    assert!(File::open(&path).unwrap_err().lacks_key());
}

#[test]
fn a_frame_that_is_moved_or_taken_from_another_file_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let (path, other) = (dir.path().join("a"), dir.path().join("b"));
    let (bytes, seal) = (content(BLOCK_BYTES * 3), seal());
    write_file(&path, &seal, &[&bytes], true);
    write_file(&other, &seal, &[&bytes], true);
    let (mut stored, taken) = (fs::read(&path).unwrap(), fs::read(&other).unwrap());
    let frame = |number: usize| 4096 + number * BLOCK_BYTES..4096 + (number + 1) * BLOCK_BYTES;
    let first = stored[frame(0)].to_vec();
    stored[frame(1)].copy_from_slice(&first);
    stored[frame(2)].copy_from_slice(&taken[frame(2)]);
    stored.truncate(frame(2).end);
    fs::write(&path, &stored).unwrap();
    let found = plain(&path).unwrap();
    assert!(
        found == bytes[..BLOCK_BYTES - FRAME_HEAD_BYTES],
        "{} bytes",
        found.len()
    );
}

#[test]
fn a_hole_of_a_torn_file_reads_as_zeros_and_a_repair_makes_it_that() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let bytes = content(700_000);
    write_file(&path, &seal(), &[&bytes], true);
    let mut stored = fs::read(&path).unwrap();
    // The second frame was in flight, and a page of the third is torn.
    stored[4096 + BLOCK_BYTES..4096 + 2 * BLOCK_BYTES].fill(0);
    let torn = 4096 + 2 * BLOCK_BYTES + 4096 + 65_536 + 512;
    stored[torn..torn + 512].fill(0);
    fs::write(&path, &stored).unwrap();
    let frame = BLOCK_BYTES - FRAME_HEAD_BYTES;
    let mut expected = bytes.clone();
    expected[frame..2 * frame].fill(0);
    expected[2 * frame + 65_536..(2 * frame + 131_072).min(700_000)].fill(0);
    let found = plain(&path).unwrap();
    // As any file that is not closed, it ends with the block's padding.
    assert!(found.len().div_ceil(4096) == bytes.len().div_ceil(4096) && found[..700_000] == expected);
    let edit = EditedFile::open(&path).unwrap();
    edit.write_all_at(b"repaired", 5).unwrap();
    edit.set_len(699_000).unwrap();
    // Readable at any time.
    assert_eq!(plain(&path).unwrap().len(), 699_000);
    edit.sync().unwrap();
    expected[5..13].copy_from_slice(b"repaired");
    let found = plain(&path).unwrap();
    assert!(found == expected[..699_000]);
    edit.write_all_at(&[9; 3_000_000], 698_000).unwrap();
    edit.sync().unwrap();
    drop(edit);
    let found = plain(&path).unwrap();
    assert!(
        found.len() == 3_698_000
            && found[..698_000] == expected[..698_000]
            && found[698_000..].iter().all(|b| *b == 9)
    );
}

#[test]
fn an_owner_with_another_key_is_refused_in_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let foreign = Seal {
        key: FileKey([7; 32]),
        wrapped: (*b"not known to any opener of this process").into(),
    };
    write_file(&path, &foreign, &[b"secret"], false);
    super::add_key_opener(|_| None);
    let error = File::open(&path).unwrap_err();
    assert!(error.lacks_key() && read(&path, 100).unwrap_err().lacks_key());
    let text = error.to_string();
    assert!(
        text.ends_with("/a: it is encrypted, and none of the given keys opens it"),
        "{text}"
    );
    assert!(EditedFile::open(&path).unwrap_err().lacks_key());
    assert!(write_atomically(&path, b"clear").unwrap_err().lacks_key());
}

#[test]
fn a_small_file_stays_sealed_when_it_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metadata.yaml");
    let seal = seal();
    fs::write(&path, seal.seal_bytes(b"").unwrap()).unwrap();
    assert_eq!(read(&path, 0).unwrap(), b"");
    write_atomically(&path, b"topics").unwrap();
    assert!(is_sealed(&fs::read(&path).unwrap()));
    assert_eq!(read(&path, 6).unwrap(), b"topics");
    assert!(read(&path, 5).is_err());
    assert_eq!(seal_of(&path).unwrap().unwrap().wrapped, seal.wrapped);
    write_over(&path, &seal.seal_bytes(b"written over").unwrap()).unwrap();
    assert_eq!(read(&path, 100).unwrap(), b"written over");
    write_atomically(&path, &seal.seal_bytes(b"once").unwrap()).unwrap();
    assert_eq!(read(&path, 100).unwrap(), b"once");
}

#[test]
fn a_failed_disk_leaves_what_was_written_before() {
    // A disk in memory cannot fail, but a file that is not there can.
    let files = MemoryFiles::default();
    let mut q = DiskQueue::new(
        Box::new(SealingDisk::new(Box::new(MemoryDisk::new()), seal())),
        BlockPoolOptions::default(),
    )
    .unwrap();
    let file = q.create_file(Path::new("a"), 0).unwrap();
    let again = q.create_file_ahead(Path::new("a"), 0);
    let mut stream = BlockStream::new(again);
    stream.append(&mut q, b"x").unwrap();
    assert!(stream.finish(&mut q).and_then(|_| q.wait_closed(again)).is_err());
    BlockStream::new(file).finish(&mut q).unwrap();
    q.wait_closed(file).unwrap();
    assert!(files.paths().is_empty());
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let kind = prop_oneof![4 => Just(Kind::Write), 1 => Just(Kind::Zeros), 1 => Just(Kind::Length), 1 => Just(Kind::Index)];
    let entry = (kind, 0..200u64, 0..60u64);
    prop::collection::vec(entry, 0..30).prop_map(|all| {
        let numbered = all.into_iter().enumerate();
        numbered
            .map(|(number, (kind, offset, len))| Entry {
                at: number as u64,
                kind,
                offset: if kind == Kind::Length { 0 } else { offset },
                len,
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_map_is_the_plain_file(entries in entries()) {
        // For each byte: its frame, and its index in that frame.
        let mut model: Vec<Option<(u64, u64)>> = Vec::new();
        let mut map = Map::default();
        for entry in &entries {
            let end = (entry.offset + entry.len) as usize;
            match entry.kind {
                Kind::Write | Kind::Zeros => {
                    model.resize(model.len().max(end), None);
                    for at in entry.offset..entry.offset + entry.len {
                        model[at as usize] = (entry.kind == Kind::Write).then_some((entry.at, at - entry.offset));
                    }
                }
                Kind::Length => model.resize(entry.len as usize, None),
                _ => {}
            }
            map.apply(entry);
        }
        prop_assert_eq!(map.len, model.len() as u64);
        for (at, expected) in model.iter().enumerate() {
            let found = map.find(at as u64).ok().map(|(first, extent)| (extent.at, extent.skip + at as u64 - first));
            prop_assert_eq!(found, *expected, "byte {}", at);
        }
        let index = super::log::encode_index(&entries).unwrap();
        prop_assert_eq!(super::log::decode_index(&index).unwrap(), entries);
    }

    #[test]
    fn a_file_of_any_bytes_is_read_or_refused(
        changes in prop::collection::vec((0..40_000usize, any::<u8>()), 0..40),
        length in 0..40_000usize,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let mut stored = seal().seal_bytes(&content(20_000)).unwrap();
        for (at, byte) in changes {
            let at = at % stored.len();
            stored[at] = byte;
        }
        stored.truncate(length);
        fs::write(&path, &stored).unwrap();
        if let Ok(bytes) = read_untrusted(&path) {
            // Bytes that are not those that were written are never shown.
            let was = content(20_000);
            prop_assert!(!is_sealed(&stored) || bytes.iter().zip(&was).all(|(found, was)| found == was || *found == 0));
        }
    }
}

/// Reads a file that an attacker may have changed.
fn read_untrusted(path: &Path) -> Result<Vec<u8>, DiskError> {
    let file = crate::fs::File::open(path)?;
    let mut bytes = vec![0; usize::try_from(file.len_bytes().min(1 << 24)).unwrap_or(0)];
    let count = file.read_at(&mut bytes, 0)?;
    bytes.truncate(count);
    Ok(bytes)
}
