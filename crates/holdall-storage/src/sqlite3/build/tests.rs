//! Built databases on a simulated disk: killed, without power or full at every kind of write, any SQLite finds the last commit in them.

use super::*;
use crate::sqlite3::{beside::Beside, format::CREATE_TABLES, locks::WriterLocks, pages::Pages};
use holdall_io::{
    block::{Block, BlockPoolOptions},
    disk::{Completion, Disk, DiskError, FileId, Operation, Wait},
    os::{DiskMode, OsDisk},
    queue::DiskQueue,
    sim::{SimClock, SimDisk, SimDiskHandle, SimDiskOptions, SimRng},
};
use rusqlite::Connection;
use std::{
    fs,
    os::unix::fs::FileExt,
    sync::{Arc, Mutex},
};

const DATABASE: &str = "/bag.db3";
const JOURNAL: &str = "/bag.db3-journal";
const POOL: BlockPoolOptions = BlockPoolOptions {
    block_bytes: 64 << 10,
    block_count: 6,
    huge_pages: false,
};

/// How a recording ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Kill,
    PowerCut,
    Full,
    Error,
}

/// What the disk, the surroundings and the test know of each other.
struct World {
    disk: SimDiskHandle,
    end: End,
    /// Operations of the disk until it ends.
    left: u64,
    survivors: Option<BTreeMap<PathBuf, Vec<u8>>>,
    is_excluded: bool,
    has_journal: bool,
    committed_bytes: u64,
}

impl World {
    /// One operation: at the last the world ends.
    fn tick(&mut self) {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 && self.survivors.is_none() {
            self.survivors = match self.end {
                End::Kill => Some(self.disk.kill()),
                End::PowerCut => Some(self.disk.crash()),
                End::Full | End::Error => None,
            };
        }
    }
}

type Shared = Arc<Mutex<World>>;

/// A disk whose operations are counted, and judged.
struct Watched(SimDisk, Shared, Option<FileId>);

impl Disk for Watched {
    fn create(&mut self, path: &Path, reserve_bytes: u64) -> Result<FileId, DiskError> {
        self.1.lock().unwrap().tick();
        let file = self.0.create(path, reserve_bytes);
        if path == Path::new(DATABASE) {
            self.2 = file.as_ref().ok().copied();
        }
        file
    }

    fn submit_create(&mut self, path: &Path, reserve_bytes: u64) -> FileId {
        self.0.submit_create(path, reserve_bytes)
    }

    fn submit_write(&mut self, file: FileId, offset: u64, block: Block, len: usize) {
        let mut world = self.1.lock().unwrap();
        world.tick();
        if Some(file) == self.2 && offset < world.committed_bytes && world.survivors.is_none() {
            assert!(
                world.is_excluded && world.has_journal,
                "a committed page changes unseen"
            );
        }
        drop(world);
        self.0.submit_write(file, offset, block, len);
    }

    fn submit_sync(&mut self, file: FileId, token: u64) {
        self.1.lock().unwrap().tick();
        self.0.submit_sync(file, token);
    }

    fn submit_close(&mut self, file: FileId, length: u64) {
        self.0.submit_close(file, length);
    }

    fn reap(&mut self, wait: Wait, completions: &mut Vec<Completion>) {
        if wait == Wait::One {
            self.1.lock().unwrap().tick();
        }
        self.0.reap(wait, completions);
    }

    fn in_flight(&self) -> usize {
        self.0.in_flight()
    }

    fn available_bytes(&self, dir: &Path) -> Result<u64, DiskError> {
        self.0.available_bytes(dir)
    }

    fn makes_files(&self) -> bool {
        false
    }
}

/// A journal on the simulated disk.
struct Simulated {
    world: Shared,
    file: Option<FileId>,
    bytes: Vec<u8>,
}

impl Simulated {
    fn put(&self, q: &mut DiskQueue, blocks_max: usize) -> StorageResult<()> {
        let file = self.file.unwrap();
        for (number, part) in self.bytes.chunks(POOL.block_bytes).take(blocks_max).enumerate() {
            let mut block = q.take_block()?;
            block.as_mut_slice()[..part.len()].copy_from_slice(part);
            q.write(file, (number * POOL.block_bytes) as u64, block, part.len())?;
        }
        Ok(q.wait_written(file)?)
    }
}

impl Surroundings for Simulated {
    fn create_journal(&mut self, out: &mut Output<'_>, bytes: &[u8]) -> StorageResult<()> {
        self.file = Some(out.q.create_file(Path::new(JOURNAL), 0)?);
        self.bytes = bytes.to_vec();
        self.put(out.q, usize::MAX)
    }

    fn write_journal(&mut self, out: &mut Output<'_>, at: u64, bytes: [u8; 4]) -> StorageResult<()> {
        let at = usize::try_from(at).unwrap();
        self.bytes[at..at + 4].copy_from_slice(&bytes);
        self.put(out.q, 1)?;
        self.world.lock().unwrap().has_journal = true;
        Ok(())
    }

    fn sync_journal(&mut self, out: &mut Output<'_>) -> StorageResult<()> {
        let token = out.q.sync(self.file.unwrap())?;
        Ok(out.q.wait_durable(token)?)
    }

    fn remove_journal(&mut self, out: &mut Output<'_>) -> StorageResult<()> {
        let file = self.file.take().unwrap();
        out.q.close_file(file, self.bytes.len() as u64)?;
        out.q.wait_closed(file)?;
        let mut world = self.world.lock().unwrap();
        world.tick();
        world.disk.remove(Path::new(JOURNAL));
        world.has_journal = false;
        world.tick();
        Ok(())
    }

    fn sync_directory(&mut self) -> StorageResult<()> {
        let mut world = self.world.lock().unwrap();
        world.disk.sync_directory();
        world.tick();
        Ok(())
    }

    fn exclude_readers(&mut self) {
        self.world.lock().unwrap().is_excluded = true;
    }

    fn admit_readers(&mut self) {
        self.world.lock().unwrap().is_excluded = false;
    }
}

/// A database with the tables only, as bytes, and their roots.
fn beginning(page_bytes: usize) -> (Vec<u8>, Vec<(String, u32)>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new.db3");
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch(&format!(
            "PRAGMA synchronous = OFF; PRAGMA page_size = {page_bytes}"
        ))
        .unwrap();
    for statement in CREATE_TABLES {
        connection.execute(statement, []).unwrap();
    }
    let mut roots = connection
        .prepare("SELECT name, rootpage FROM sqlite_master")
        .unwrap();
    let roots = roots.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let roots = roots.collect::<Result<_, _>>().unwrap();
    (fs::read(&path).unwrap(), roots)
}

fn payload(number: i64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|byte| (byte as i64 / 5 + number) as u8).collect()
}

/// The messages of a recording: time and payload.
type Messages = Vec<(i64, Vec<u8>)>;

/// Records until the world ends; returns what was written, how much of it was committed, and how much the last try to commit would have had.
fn record(world: &Shared, disk: SimDisk, seed: u64, survives_power_cut: bool) -> (Messages, usize, usize) {
    let mut rng = SimRng::new(seed);
    let page_bytes = [4096, 4096, 8192][rng.below(3) as usize];
    let (start, roots) = beginning(page_bytes);
    let mut q = DiskQueue::new(Box::new(Watched(disk, Arc::clone(world), None)), POOL).unwrap();
    let file = q.create_file(Path::new(DATABASE), 0).unwrap();
    let mut pages = Pages::new(file);
    for (number, page) in start.chunks(page_bytes).enumerate() {
        pages.put(&mut q, (number * page_bytes) as u64, page).unwrap();
    }
    pages.try_sync(&mut q).unwrap();
    let handle = {
        let mut world = world.lock().unwrap();
        world.committed_bytes = start.len() as u64;
        world.left = 1 + rng.below(400);
        match world.end {
            End::Full => world
                .disk
                .set_capacity_bytes(start.len() as u64 + (rng.below(3000) << 10)),
            End::Error => world.disk.fail_nth(Operation::Write, rng.below(100), libc_eio()),
            End::Kill | End::PowerCut => {}
        }
        world.disk.clone()
    };
    let read = |offset: u64, to: &mut [u8]| {
        let content = handle.read(Path::new(DATABASE)).unwrap_or_default();
        let from = usize::try_from(offset).unwrap();
        to.copy_from_slice(&content[from..from + to.len()]);
        Ok(())
    };
    let mut out = Output {
        pages: &mut pages,
        q: &mut q,
        file: &read,
    };
    let surroundings = Box::new(Simulated {
        world: Arc::clone(world),
        file: None,
        bytes: Vec::new(),
    });
    let opened = Builder::open(
        &mut out,
        Path::new(DATABASE),
        &roots,
        surroundings,
        survives_power_cut,
    );
    let mut builder = opened.unwrap().unwrap();
    let (mut messages, mut committed, mut tried) = (Messages::new(), 0, 0);
    for number in 0..4000_i64 {
        let bytes = match rng.below(20) {
            0 => rng.below(100_000),
            1..4 => rng.below(9000),
            _ => rng.below(200),
        };
        let late = if rng.below(10) == 0 { rng.below(400_000) } else { 0 };
        let time = 1_000_000 + number * 1000 - late as i64;
        let bytes = payload(number, bytes as usize);
        let appended = builder.message(&mut out, 1 + number % 200, time, PayloadRef::Bytes(&bytes));
        messages.push((time, bytes));
        if appended.is_err() {
            break;
        }
        if rng.below(60) == 0 {
            tried = messages.len();
            if builder.commit(&mut out).is_err() {
                break;
            }
            let mut world = world.lock().unwrap();
            if world.survivors.is_some() {
                break;
            }
            committed = messages.len();
            world.committed_bytes = builder.committed_bytes();
        }
    }
    assert!(builder.check(0).is_err() || world.lock().unwrap().survivors.is_some() || committed > 0);
    (messages, committed, tried)
}

fn libc_eio() -> i32 {
    5
}

/// Opens what is left with SQLite, and compares it.
fn judge(
    survivors: &BTreeMap<PathBuf, Vec<u8>>,
    messages: &Messages,
    committed: usize,
    tried: usize,
) -> usize {
    let dir = tempfile::tempdir().unwrap();
    for (path, content) in survivors {
        fs::write(dir.path().join(path.strip_prefix("/").unwrap()), content).unwrap();
    }
    let connection = Connection::open(dir.path().join("bag.db3")).unwrap();
    connection.execute_batch("PRAGMA synchronous = OFF").unwrap();
    let checked: String = connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(checked, "ok");
    let mut rows = connection
        .prepare("SELECT id, timestamp, data, topic_id FROM messages ORDER BY id")
        .unwrap();
    let mut rows = rows.query([]).unwrap();
    let mut found = 0;
    while let Some(row) = rows.next().unwrap() {
        let (time, bytes) = &messages[found];
        assert_eq!(row.get::<_, i64>(1).unwrap(), *time);
        assert!(row.get::<_, Vec<u8>>(2).unwrap() == *bytes);
        assert_eq!(row.get::<_, i64>(3).unwrap(), 1 + found as i64 % 200);
        found += 1;
        assert_eq!(row.get::<_, i64>(0).unwrap(), found as i64);
    }
    assert!(
        found == committed || found == tried,
        "{found} messages, {committed} were committed, {tried} perhaps"
    );
    // Another program can write it.
    connection
        .execute(
            "INSERT INTO messages (topic_id, timestamp, data) VALUES (1, 2, x'00')",
            [],
        )
        .unwrap();
    assert!(!dir.path().join("bag.db3-journal").exists());
    found
}

fn run(seed: u64, end: End, survives_power_cut: bool) -> (usize, bool) {
    let options = SimDiskOptions {
        seed,
        sector_bytes: if seed.is_multiple_of(2) { 512 } else { 4096 },
        ..SimDiskOptions::default()
    };
    let disk = SimDisk::new(options, SimClock::default());
    let world = Arc::new(Mutex::new(World {
        disk: disk.handle(),
        end,
        left: u64::MAX,
        survivors: None,
        is_excluded: false,
        has_journal: false,
        committed_bytes: 0,
    }));
    let (messages, committed, tried) = record(&world, disk, seed, survives_power_cut);
    let mut world = world.lock().unwrap();
    let survivors = match world.survivors.take() {
        Some(survivors) => survivors,
        None => world.disk.kill(),
    };
    let has_journal = survivors.contains_key(Path::new(JOURNAL));
    (judge(&survivors, &messages, committed, tried), has_journal)
}

#[test]
fn sqlite_finds_the_last_commit_after_every_kind_of_end() {
    let (mut rolled_back, mut longest) = (0, 0);
    for seed in 0..40 {
        for (end, survives_power_cut) in [
            (End::Kill, false),
            (End::Kill, true),
            (End::PowerCut, true),
            (End::Full, false),
            (End::Error, true),
        ] {
            let (found, has_journal) = run(seed, end, survives_power_cut);
            rolled_back += usize::from(has_journal);
            longest = longest.max(found);
        }
    }
    assert!(
        rolled_back > 20 && longest > 1000,
        "{rolled_back} journals, {longest} messages"
    );
}

#[test]
fn the_page_at_which_locks_are_taken_stays_unused() {
    // The pages up to it are a hole in the file.
    let before = (1 << 30) / 4096 - 6;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large.db3");
    let (mut start, roots) = beginning(4096);
    put_number(&mut start, PAGES_AT, before);
    let disk = OsDisk::open(dir.path(), DiskMode::Auto).unwrap();
    let mut q = DiskQueue::new(Box::new(disk), POOL).unwrap();
    let file = q.create_file(&path, 0).unwrap();
    let mut pages = Pages::new(file);
    for (number, page) in start.chunks(4096).enumerate() {
        pages.put(&mut q, number as u64 * 4096, page).unwrap();
    }
    let reader = fs::File::open(&path).unwrap();
    let mut out = Output {
        pages: &mut pages,
        q: &mut q,
        file: &|offset, to| {
            let read = reader.read_exact_at(to, offset);
            read.map_err(|source| DiskError::new(&path, Operation::Read, source))
        },
    };
    let beside = Beside::new(&path, Arc::new(WriterLocks::reserve(&path).unwrap()));
    let opened = Builder::open(&mut out, &path, &roots, Box::new(beside), false);
    let mut builder = opened.unwrap().unwrap();
    for number in 0..60_i64 {
        // The chain of the first passes the page.
        let bytes = payload(number, if number == 0 { 60_000 } else { 900 });
        builder
            .message(&mut out, 1, number, PayloadRef::Bytes(&bytes))
            .unwrap();
        if number % 7 == 0 {
            builder.commit(&mut out).unwrap();
        }
    }
    builder.commit(&mut out).unwrap();
    let length = pages.length();
    q.close_file(file, length).unwrap();
    q.wait_closed(file).unwrap();
    let connection = Connection::open(&path).unwrap();
    let mut rows = connection
        .prepare("SELECT data FROM messages ORDER BY timestamp")
        .unwrap();
    let found: Vec<Vec<u8>> = rows
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(found.len(), 60);
    for (number, bytes) in found.iter().enumerate() {
        assert!(*bytes == payload(number as i64, bytes.len()));
    }
    let mut check = connection.prepare("PRAGMA integrity_check(1000000)").unwrap();
    let mut lines = check.query([]).unwrap();
    let mut unused = 0;
    while let Some(line) = lines.next().unwrap() {
        for line in line.get::<_, String>(0).unwrap().lines() {
            if line.starts_with("***") {
                continue;
            }
            let page = line
                .split_once("Page ")
                .and_then(|(_, rest)| rest.strip_suffix(": never used"));
            let page: Option<u32> = page.and_then(|page| page.parse().ok());
            assert!(page.is_some_and(|page| page <= before), "{line}");
            unused += 1;
        }
    }
    assert_eq!(unused + start.len() / 4096, before as usize);
}
