//! Every file parser, fed with mutated real files: returns an error or the rest, never panics.
//!
//! Short in CI; `HOLDALL_FUZZ_ROUNDS=100000 cargo test --release -p holdall-storage --test mutated` runs
//! longer.

use holdall_model::{metadata::BagMetadata, qos::parse_qos_overrides};
use holdall_storage::{
    compression::unpack_payload,
    leveldb::{
        LeveldbOptions, LeveldbReader,
        format::{
            batch_entries,
            manifest::Version,
            table::{BlockEntries, open_block, read_all},
        },
    },
    mcap::{McapOptions, McapReader, McapReaderOptions},
    reader::{ReadQuery, StorageReader},
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Rounds of each test, unless the environment sets more.
const ROUNDS: u64 = 60;
/// Messages that are read from each file.
const MESSAGES_MAX: usize = 5000;

fn rounds() -> u64 {
    std::env::var("HOLDALL_FUZZ_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(ROUNDS)
}

/// A random generator with a seed (xorshift64*).
struct Numbers(u64);

impl Numbers {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound.max(1)
    }

    /// Changes a few bytes.
    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let place = self.below(bytes.len());
            match self.below(7) {
                0 => bytes.truncate(place),
                1 => bytes.insert(place.min(bytes.len()), self.below(256) as u8),
                2 => {
                    let end = (place + self.below(40)).min(bytes.len());
                    let piece = bytes[place.min(end)..end].to_vec();
                    bytes.extend(piece);
                }
                // A wrong length.
                3 => bytes
                    .iter_mut()
                    .skip(place)
                    .take(1 + self.below(8))
                    .for_each(|byte| *byte = 0xff),
                4 => bytes
                    .iter_mut()
                    .skip(place)
                    .take(1 + self.below(8))
                    .for_each(|byte| *byte = 0),
                _ => {
                    if let Some(byte) = bytes.get_mut(place) {
                        *byte ^= 1 << self.below(8);
                    }
                }
            }
        }
    }
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn read_all_messages(reader: &dyn StorageReader) {
    let _ = reader.summary();
    if let Ok(messages) = reader.messages(&ReadQuery::default()) {
        messages.take(MESSAGES_MAX).for_each(drop);
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn mutated_leveldb_storages() {
    let dir = tempfile::tempdir().unwrap();
    copy(&data("leveldb/plugin_0"), dir.path());
    let mut files = Vec::new();
    for database in fs::read_dir(dir.path()).unwrap() {
        for file in fs::read_dir(database.unwrap().path()).unwrap() {
            files.push(file.unwrap().path());
        }
    }
    files.sort();
    for seed in 0..rounds() {
        let mut numbers = Numbers::new(seed);
        let file = &files[numbers.below(files.len())];
        let whole = fs::read(file).unwrap();
        let mut changed = whole.clone();
        numbers.mutate(&mut changed);
        fs::write(file, changed).unwrap();
        if let Ok(reader) = LeveldbReader::open(dir.path()) {
            read_all_messages(&reader);
        }
        fs::write(file, whole).unwrap();
    }
}

/// Past the checksums, which catch nearly all mutations of whole files.
#[test]
fn mutated_pieces_of_leveldb() {
    let table = fs::read(data("leveldb/plugin_0/_camera_info_ldb_message/000007.ldb")).unwrap();
    let manifest = fs::read(data("leveldb/plugin_0/_camera_info_ldb_message/MANIFEST-000006")).unwrap();
    let log = fs::read(data("leveldb/plugin_0/_tf_ldb_message/000003.log")).unwrap();
    for seed in 0..rounds() * 50 {
        let mut numbers = Numbers::new(seed);
        let mut block = table[..4000].to_vec();
        numbers.mutate(&mut block);
        let _ = open_block(block.clone(), 0);
        let mut entries = BlockEntries::new(block.into());
        while entries.next_entry().is_some() {}
        let mut whole = table.clone();
        numbers.mutate(&mut whole);
        let _ = read_all(&whole);
        let mut edit = manifest[7..].to_vec();
        numbers.mutate(&mut edit);
        let _ = Version::default().apply(&edit);
        let mut batch = log[7..200].to_vec();
        numbers.mutate(&mut batch);
        batch_entries(&batch).for_each(drop);
    }
}

#[test]
fn mutated_mcap_files() {
    let whole = fs::read(data("mcap_zstd_small/mcap_zstd_small_0.mcap")).unwrap();
    let options = McapReaderOptions {
        loaded_bytes_max: 1 << 20,
        chunk_bytes_max: 4 << 20,
        ..McapReaderOptions::default()
    };
    for seed in 0..rounds() {
        let mut bytes = whole.clone();
        Numbers::new(seed).mutate(&mut bytes);
        if let Ok(reader) = McapReader::from_bytes(Path::new("mutated.mcap"), bytes.into(), options) {
            read_all_messages(&reader);
        }
    }
}

#[cfg(feature = "sqlite3")]
#[test]
fn mutated_sqlite_files() {
    let whole = fs::read(data("sqlite3_default/sqlite3_default_0.db3")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for seed in 0..rounds() {
        let mut bytes = whole.clone();
        Numbers::new(seed).mutate(&mut bytes);
        let path = dir.path().join(format!("{seed}.db3"));
        fs::write(&path, bytes).unwrap();
        if let Ok(reader) = holdall_storage::sqlite3::SqliteReader::open(&path) {
            read_all_messages(&reader);
        }
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn mutated_texts_and_payloads() {
    let metadata = fs::read(data(
        "../../../holdall/tests/data/rosbag2/mcap_default/metadata.yaml",
    ))
    .unwrap();
    let overrides =
        b"/a:\n  history: keep_last\n  depth: 5\n  deadline: {sec: 1, nsec: 2}\n  liveliness: automatic\n";
    let configs: [&[u8]; 3] = [
        b"noChunking: true\nchunkSize: 100\ncompression: Zstd\n",
        b"write:\n  pragmas: [\"journal_mode = WAL\"]\nread: {pragmas: []}\n",
        b"open_options:\n  write_buffer_size: 100\n  block_size: 3\n",
    ];
    let payload = holdall_storage::compression::PayloadPacker::new()
        .unwrap()
        .pack(&metadata)
        .unwrap();
    for seed in 0..rounds() * 10 {
        let mut numbers = Numbers::new(seed);
        let mut text = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            numbers.mutate(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let _ = BagMetadata::from_yaml(&text(&metadata));
        let _ = parse_qos_overrides(&text(overrides));
        let _ = McapOptions::default().with_config(&text(configs[0]));
        #[cfg(feature = "sqlite3")]
        let _ = holdall_storage::sqlite3::SqliteOptions::default().with_config(&text(configs[1]));
        let _ = LeveldbOptions::default().with_config(&text(configs[2]));
        let mut packed = payload.clone();
        Numbers::new(seed).mutate(&mut packed);
        let _ = unpack_payload(&packed, 1 << 20);
    }
}
