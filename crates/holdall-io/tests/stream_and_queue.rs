//! Streams and the disk queue: any sequence of calls gives exactly the bytes appended, and failures stay.

use holdall_io::{
    block::BlockPoolOptions,
    disk::{Disk, FileId, Operation},
    memory::{MemoryDisk, MemoryFiles},
    os::{DiskMode, OsDisk},
    queue::DiskQueue,
    sim::{SimClock, SimDisk, SimDiskHandle, SimDiskOptions, SimRng},
    stream::BlockStream,
};
use proptest::prelude::*;
use std::path::Path;

const BLOCK_BYTES: usize = 8192;

fn queue(disk: impl Disk + 'static, block_count: usize) -> DiskQueue {
    let pool = BlockPoolOptions {
        block_bytes: BLOCK_BYTES,
        block_count,
        huge_pages: false,
    };
    DiskQueue::new(Box::new(disk), pool).unwrap()
}

fn memory(block_count: usize) -> (DiskQueue, MemoryFiles) {
    let disk = MemoryDisk::new();
    let files = disk.files();
    (queue(disk, block_count), files)
}

fn sim(options: SimDiskOptions, block_count: usize) -> (DiskQueue, SimDiskHandle) {
    let disk = SimDisk::new(options, SimClock::default());
    let handle = disk.handle();
    (queue(disk, block_count), handle)
}

fn create(q: &mut DiskQueue, name: &str) -> FileId {
    q.create_file(Path::new(name), 0).unwrap()
}

/// Bytes that differ from place to place.
fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = SimRng::new(seed);
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

/// One call on a stream.
#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    Spare(usize),
    Hold,
    Patch { at_part: u8, len: usize },
    Release,
    FlushTail,
    Sync,
    Poll,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..20_000).prop_map(Step::Append),
        2 => (1usize..3000).prop_map(Step::Append),
        2 => (1usize..9000).prop_map(Step::Spare),
        1 => Just(Step::Hold),
        2 => (any::<u8>(), 1usize..5000).prop_map(|(at_part, len)| Step::Patch { at_part, len }),
        1 => Just(Step::Release),
        1 => Just(Step::FlushTail),
        1 => Just(Step::Sync),
        1 => Just(Step::Poll),
    ]
}

/// Does `steps` on a stream and on a plain vector.
fn run(q: &mut DiskQueue, stream: &mut BlockStream, steps: &[Step], expected: &mut Vec<u8>) {
    for (number, step) in steps.iter().enumerate() {
        match *step {
            Step::Append(len) => {
                if stream.held_from().is_some() && stream.hold_capacity_left(q) < len as u64 {
                    stream.release(q).unwrap();
                }
                let data = bytes(len, number as u64);
                stream.append(q, &data).unwrap();
                expected.extend_from_slice(&data);
            }
            Step::Spare(len) => {
                if stream.held_from().is_some() && stream.hold_capacity_left(q) == 0 {
                    stream.release(q).unwrap();
                }
                let room = stream.spare(q).unwrap();
                assert!(!room.is_empty());
                let data = bytes(len.min(room.len()), number as u64);
                room[..data.len()].copy_from_slice(&data);
                stream.advance(data.len());
                expected.extend_from_slice(&data);
            }
            Step::Hold => stream.hold(),
            Step::Patch { at_part, len } => {
                let Some(from) = stream.held_from() else { continue };
                let held = stream.position() - from;
                let at = from + held * u64::from(at_part) / 256;
                let data = bytes(
                    len.min((stream.position() - at) as usize),
                    number as u64 + 1_000_000,
                );
                stream.patch(at, &data).unwrap();
                expected[at as usize..at as usize + data.len()].copy_from_slice(&data);
                let mut seen = Vec::new();
                stream
                    .read_held(from..stream.position(), |part| seen.extend_from_slice(part))
                    .unwrap();
                assert_eq!(seen, expected[from as usize..]);
            }
            Step::Release => stream.release(q).unwrap(),
            Step::FlushTail => {
                let submitted = stream.flush_tail(q).unwrap();
                assert!(stream.held_from().is_some() || submitted == stream.position());
            }
            Step::Sync => drop(q.sync(stream.file()).unwrap()),
            Step::Poll => q.poll(),
        }
        assert_eq!(stream.position(), expected.len() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_calls_gives_exactly_the_bytes(steps in prop::collection::vec(step(), 0..60)) {
        let (mut q, files) = memory(6);
        let mut stream = BlockStream::new(create(&mut q, "a"));
        let file = stream.file();
        let mut expected = Vec::new();
        run(&mut q, &mut stream, &steps, &mut expected);
        prop_assert_eq!(stream.finish(&mut q).unwrap(), expected.len() as u64);
        q.wait_closed(file).unwrap();
        prop_assert!(files.read(Path::new("a")).unwrap() == expected);
        prop_assert_eq!(q.pool().free_count(), 6);
    }

    #[test]
    fn a_disk_that_reorders_changes_nothing(steps in prop::collection::vec(step(), 0..60), seed in any::<u64>()) {
        let options = SimDiskOptions { seed, stalls_per_million: 100_000, ..SimDiskOptions::default() };
        let (mut q, disk) = sim(options, 6);
        let mut stream = BlockStream::new(create(&mut q, "a"));
        let file = stream.file();
        let mut expected = Vec::new();
        run(&mut q, &mut stream, &steps, &mut expected);
        stream.finish(&mut q).unwrap();
        q.wait_closed(file).unwrap();
        prop_assert!(disk.read(Path::new("a")).unwrap() == expected);
    }

    #[test]
    fn a_power_cut_loses_nothing_that_was_durable(
        steps in prop::collection::vec(step(), 1..60),
        seed in any::<u64>(),
        finish in any::<bool>(),
    ) {
        let (mut q, disk) = sim(SimDiskOptions { seed, ..SimDiskOptions::default() }, 6);
        let mut stream = BlockStream::new(create(&mut q, "a"));
        let file = stream.file();
        let mut expected = Vec::new();
        run(&mut q, &mut stream, &steps, &mut expected);
        if finish {
            stream.finish(&mut q).unwrap();
        }
        q.wait_one();
        let durable = q.progress(file).unwrap().durable_bytes as usize;
        let survived = disk.crash();
        prop_assert!(durable <= expected.len());
        if durable > 0 {
            let content = &survived[Path::new("a")];
            prop_assert!(content.len() >= durable);
            prop_assert!(content[..durable] == expected[..durable]);
        }
    }
}

#[test]
fn flushed_tail_is_durable_and_written_on() {
    let (mut q, disk) = sim(SimDiskOptions::default(), 6);
    let file = create(&mut q, "a");
    let mut stream = BlockStream::new(file);
    let data = bytes(20_000, 1);
    let mut position = 0;
    for part in data.chunks(777) {
        stream.append(&mut q, part).unwrap();
        position += part.len();
        assert_eq!(stream.flush_tail(&mut q).unwrap(), position as u64);
        let token = q.sync(file).unwrap();
        q.wait_durable(token).unwrap();
        assert_eq!(q.progress(file).unwrap().durable_bytes, position as u64);
    }
    let survived = disk.crash();
    assert_eq!(survived[Path::new("a")][..data.len()], data);
}

#[test]
fn overlapping_writes_are_never_in_flight_together() {
    let (mut q, _disk) = sim(SimDiskOptions::default(), 6);
    let file = create(&mut q, "a");
    let mut stream = BlockStream::new(file);
    for _ in 0..3 {
        stream.append(&mut q, &[1; 100]).unwrap();
        stream.flush_tail(&mut q).unwrap();
    }
    assert_eq!(
        q.in_flight(),
        1,
        "the second and third write of the same page wait for the first"
    );
    q.drain();
    assert_eq!(q.progress(file).unwrap().written_bytes, 300);
}

#[test]
fn failed_write_poisons_the_file_for_good() {
    let (mut q, disk) = sim(SimDiskOptions::default(), 6);
    let (bad, good) = (create(&mut q, "bad"), create(&mut q, "good"));
    disk.fail_nth(Operation::Write, 0, libc::EIO);
    let mut stream = BlockStream::new(bad);
    stream.append(&mut q, &vec![1; 2 * BLOCK_BYTES + 1]).unwrap();
    let token = q.sync(bad).unwrap();
    q.drain();
    let first = q.check(bad).unwrap_err();
    assert_eq!((first.operation, first.offset), (Operation::Write, Some(0)));
    let again = [
        stream.append(&mut q, &vec![1; BLOCK_BYTES]).unwrap_err(),
        q.sync(bad).unwrap_err(),
        q.is_durable(token).unwrap_err(),
        q.wait_durable(token).unwrap_err(),
        stream.finish(&mut q).unwrap_err(),
        q.wait_closed(bad).unwrap_err(),
        q.check(bad).unwrap_err(),
    ];
    for error in again {
        assert_eq!(error.to_string(), first.to_string());
    }
    let mut stream = BlockStream::new(good);
    stream.append(&mut q, &[2; 10]).unwrap();
    stream.finish(&mut q).unwrap();
    q.wait_closed(good).unwrap();
    assert_eq!(disk.read(Path::new("good")), Some(vec![2; 10]));
    assert_eq!(q.pool().free_count(), 6);
}

#[test]
fn what_a_failed_write_only_repeated_is_not_cut_off() {
    let (mut q, disk) = sim(SimDiskOptions::default(), 4);
    let file = create(&mut q, "a");
    let mut stream = BlockStream::new(file);
    let content = bytes(10_000, 3);
    stream.append(&mut q, &content[..9_000]).unwrap();
    stream.flush_tail(&mut q).unwrap();
    let token = q.sync(file).unwrap();
    q.wait_durable(token).unwrap();
    // The last 4096 bytes are written again, with more in them.
    disk.fail_nth(Operation::Write, 0, libc::EIO);
    stream.append(&mut q, &content[9_000..]).unwrap();
    assert!(stream.finish(&mut q).is_err() || q.wait_closed(file).is_err());
    q.drain();
    assert_eq!(disk.read(Path::new("a")).unwrap(), content[..9_000]);
    assert_eq!(
        disk.crash()[Path::new("a")],
        content[..9_000],
        "it was reported durable"
    );
}

#[test]
fn failed_sync_is_never_forgotten() {
    let (mut q, disk) = sim(SimDiskOptions::default(), 6);
    let file = create(&mut q, "a");
    disk.fail_nth(Operation::Sync, 0, libc::EIO);
    let mut stream = BlockStream::new(file);
    stream.append(&mut q, &vec![1; BLOCK_BYTES]).unwrap();
    stream.flush_tail(&mut q).unwrap();
    let token = q.sync(file).unwrap();
    let error = q.wait_durable(token).unwrap_err();
    assert_eq!(error.operation, Operation::Sync);
    assert_eq!(q.progress(file).unwrap().durable_bytes, 0);
    stream.finish(&mut q).unwrap_err();
    assert_eq!(q.wait_closed(file).unwrap_err().operation, Operation::Sync);
}

#[test]
fn full_disk_is_said_with_path_and_byte() {
    let (mut q, _disk) = sim(
        SimDiskOptions {
            capacity_bytes: 3 * BLOCK_BYTES as u64,
            ..SimDiskOptions::default()
        },
        6,
    );
    let file = q.create_file(Path::new("/data/bag/a.mcap"), 0).unwrap();
    let mut stream = BlockStream::new(file);
    let mut failed = None;
    for _ in 0..20 {
        if let Err(error) = stream.append(&mut q, &vec![1; BLOCK_BYTES]) {
            failed = Some(error);
            break;
        }
    }
    let error = failed.expect("the disk is full long before");
    assert!(error.is_no_space());
    let message = error.to_string();
    assert!(
        message.starts_with("no space left on /data/bag: could not write /data/bag/a.mcap at byte "),
        "{message}"
    );
}

#[test]
fn full_disk_leaves_a_file_that_is_whole_up_to_its_end() {
    for seed in 0..50 {
        let capacity_bytes = 5 * BLOCK_BYTES as u64 + 4096;
        let (mut q, disk) = sim(
            SimDiskOptions {
                seed,
                capacity_bytes,
                ..SimDiskOptions::default()
            },
            6,
        );
        let file = create(&mut q, "a");
        let mut stream = BlockStream::new(file);
        let data = bytes(20 * BLOCK_BYTES, seed);
        let appended = data.chunks(1000).try_for_each(|part| stream.append(&mut q, part));
        assert!(appended.unwrap_err().is_no_space());
        assert!(stream.finish(&mut q).unwrap_err().is_no_space());
        assert!(q.wait_closed(file).unwrap_err().is_no_space());
        let content = disk.read(Path::new("a")).unwrap();
        assert_eq!(content.len() as u64, q.progress(file).unwrap().written_bytes);
        assert!(
            content == data[..content.len()],
            "a hole in what is left (seed {seed})"
        );
    }
}

#[test]
fn blocks_are_awaited_only_when_there_are_none() {
    let (mut q, disk) = sim(SimDiskOptions::default(), 4);
    let file = create(&mut q, "a");
    for place in 0..4u64 {
        let block = q.take_block().unwrap();
        q.write(file, place * BLOCK_BYTES as u64, block, BLOCK_BYTES)
            .unwrap();
        assert_eq!(q.in_flight(), place as usize + 1, "nothing was awaited");
    }
    let due = disk.next_due().unwrap();
    let _block = q.take_block().unwrap();
    assert!(disk.next_due().unwrap() > due, "the first write was awaited");
}

#[test]
fn hold_beyond_the_pool_is_an_error_and_no_deadlock() {
    let (mut q, files) = memory(4);
    let file = create(&mut q, "a");
    let mut stream = BlockStream::new(file);
    stream.hold();
    let left = stream.hold_capacity_left(&q);
    assert_eq!(left, 2 * BLOCK_BYTES as u64);
    stream.append(&mut q, &vec![5; left as usize]).unwrap();
    assert_eq!(stream.hold_capacity_left(&q), 0);
    let error = stream.append(&mut q, &vec![5; 3 * BLOCK_BYTES]).unwrap_err();
    assert_eq!(error.operation, Operation::TakeBlock);
    let length = stream.finish(&mut q).unwrap();
    q.wait_closed(file).unwrap();
    assert_eq!(files.read(Path::new("a")).unwrap(), vec![5; length as usize]);
}

#[test]
fn bytes_already_given_away_cannot_be_patched() {
    let (mut q, _files) = memory(4);
    let mut stream = BlockStream::new(create(&mut q, "a"));
    stream.append(&mut q, &[1; 100]).unwrap();
    assert!(stream.patch(0, &[2]).is_err(), "no hold is on");
    stream.hold();
    stream.append(&mut q, &[1; 100]).unwrap();
    assert!(stream.patch(99, &[2, 2]).is_err(), "before the hold");
    assert!(stream.patch(199, &[2, 2]).is_err(), "not yet appended");
    stream.patch(100, &[2; 100]).unwrap();
}

#[test]
fn closed_file_takes_nothing_more() {
    let (mut q, _files) = memory(4);
    let file = create(&mut q, "a");
    q.close_file(file, 0).unwrap();
    let block = q.take_block().unwrap();
    assert!(q.write(file, 0, block, 10).is_err());
    assert!(q.sync(file).is_err());
    q.wait_closed(file).unwrap();
    assert_eq!(q.progress(file), None);
}

#[test]
fn file_made_ahead_says_when_it_could_not_be_made() {
    let (mut q, _disk) = sim(SimDiskOptions::default(), 4);
    let first = create(&mut q, "a");
    let ahead = q.create_file_ahead(Path::new("a"), 0);
    assert!(!q.is_created(ahead).unwrap());
    let mut stream = BlockStream::new(ahead);
    stream.append(&mut q, &[1; 10]).unwrap();
    q.drain();
    assert!(q.check(ahead).unwrap_err().is_already_exists());
    assert!(stream.finish(&mut q).unwrap_err().is_already_exists());
    assert!(q.wait_closed(ahead).unwrap_err().is_already_exists());
    q.close_file(first, 0).unwrap();
    q.wait_closed(first).unwrap();
}

#[test]
fn file_left_open_keeps_what_was_accepted_and_no_reserved_space() {
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("a");
    let disk = OsDisk::open(dir.path(), DiskMode::Auto).unwrap();
    let mut q = queue(disk, 4);
    let file = q.create_file(&path, 64 << 20).unwrap();
    let mut stream = BlockStream::new(file);
    stream.append(&mut q, &[3; 5000]).unwrap();
    stream.flush_tail(&mut q).unwrap();
    drop(q);
    assert_eq!(std::fs::read(&path).unwrap(), vec![3; 5000]);
}

#[test]
fn file_written_by_somebody_else_is_not_cut() {
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("a.db3");
    let mut q = queue(OsDisk::open(dir.path(), DiskMode::Auto).unwrap(), 4);
    q.create_file(&path, 0).unwrap();
    std::fs::write(&path, "a database's own bytes").unwrap();
    drop(q);
    assert_eq!(std::fs::read(&path).unwrap(), b"a database's own bytes");
}

#[test]
fn reserving_ahead_never_outlives_the_close() {
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk = OsDisk::open(dir.path(), DiskMode::Auto).unwrap();
    let pool = BlockPoolOptions {
        block_bytes: 1 << 20,
        block_count: 12,
        huge_pages: false,
    };
    let mut q = DiskQueue::new(Box::new(disk), pool).unwrap();
    let path = dir.path().join("a");
    let mut stream = BlockStream::new(q.create_file(&path, 0).unwrap());
    stream.append(&mut q, &vec![1; 7 << 20]).unwrap();
    stream.flush_tail(&mut q).unwrap();
    q.drain();
    // Keeps the thread that reserves busy, so that the close would overtake it.
    for number in 0..200 {
        q.create_file_ahead(&dir.path().join(number.to_string()), 16 << 20);
    }
    // The last block is the one that asks for more space.
    stream.append(&mut q, &vec![1; 1 << 20]).unwrap();
    stream.finish(&mut q).unwrap();
    drop(q);
    assert_eq!(std::fs::metadata(path).unwrap().len(), 8 << 20);
}

#[test]
fn reserved_space_counts_as_free() {
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut q = queue(OsDisk::open(dir.path(), DiskMode::Auto).unwrap(), 4);
    let before = q.available_bytes(dir.path()).unwrap();
    let reserved = 512 << 20;
    if before < 8 * reserved {
        return;
    }
    q.create_file(&dir.path().join("a"), reserved).unwrap();
    let after = q.available_bytes(dir.path()).unwrap();
    // Others write to this disk too, but rarely this much between two lines.
    assert!(
        after + reserved / 2 > before,
        "{before} before, {after} after reserving {reserved}"
    );
}

#[test]
fn same_seed_gives_the_same_crash() {
    let crash = |seed| {
        let (mut q, disk) = sim(
            SimDiskOptions {
                seed,
                ..SimDiskOptions::default()
            },
            6,
        );
        let mut stream = BlockStream::new(create(&mut q, "a"));
        stream.append(&mut q, &bytes(40_000, 3)).unwrap();
        let token = q.sync(stream.file()).unwrap();
        q.wait_durable(token).unwrap();
        stream.append(&mut q, &bytes(40_000, 4)).unwrap();
        disk.crash()
    };
    assert_eq!(crash(1), crash(1));
    assert!((2..20).any(|seed| crash(seed) != crash(1)));
}
