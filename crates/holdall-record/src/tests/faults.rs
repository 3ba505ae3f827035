//! Kept and counted messages when the disk or the process fails.

use super::{
    disks::{Hold, TestDisk},
    *,
};
use crate::cache::CachePolicy;
use holdall_io::{os::OsDisk, queue::DiskQueue};
use holdall_model::loss::LossStage;

const BLOCKS: BlockPoolOptions = BlockPoolOptions {
    block_bytes: 64 << 10,
    block_count: 4,
    huge_pages: false,
};

pub(super) fn test_disk(bytes_left: &Arc<AtomicU64>, hold: &Arc<Hold>) -> OpenDisk {
    let (bytes_left, hold) = (Arc::clone(bytes_left), Arc::clone(hold));
    Box::new(move |directory| {
        let disk = TestDisk::new(OsDisk::open(directory, DiskMode::Buffered)?, bytes_left, hold);
        DiskQueue::new(Box::new(disk), BLOCKS)
    })
}

/// A world whose disk writes at once.
pub(super) fn prompt_world() -> World {
    let mut world = World::new();
    world.disk = Some(test_disk(&Arc::new(AtomicU64::new(u64::MAX)), &Arc::default()));
    world
}

/// A recording of one topic, matched with its publisher.
pub(super) fn record_one(world: &mut World) -> (Recording, MemoryPublisher) {
    let publisher = world.publisher("/t", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    (recording, publisher)
}

/// As [`record_one`], with 100 messages in the first file and one in the second.
fn record_over_a_split(world: &mut World) -> (Recording, MemoryPublisher) {
    let (recording, publisher) = record_one(world);
    for number in 0..100 {
        publisher.send(&payload(number, 2000));
    }
    recording.wait_recorded(100);
    recording.control.split();
    recording.wait_until("the new file is there", |recording| {
        recording.recorder.status().current_file.ends_with("bag_1.mcap")
    });
    publisher.send(&payload(100, 2000));
    recording.wait_recorded(101);
    (recording, publisher)
}

/// The files that a kill leaves now.
pub(super) fn killed(world: &World) -> PathBuf {
    let killed = world.options.output.with_file_name("killed");
    fs::create_dir(&killed).unwrap();
    for entry in fs::read_dir(&world.options.output).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), killed.join(entry.file_name())).unwrap();
    }
    killed
}

#[test]
fn a_full_disk_ends_the_recording_and_leaves_a_readable_bag() {
    let mut world = World::new();
    world.disk = Some(test_disk(&Arc::new(AtomicU64::new(1 << 20)), &Arc::default()));
    let (recording, publisher) = record_one(&mut world);
    let mut sent = 0;
    let deadline = SystemClock.monotonic() + PATIENCE;
    while recording.control.stop_reason().is_none() {
        assert!(
            SystemClock.monotonic() < deadline,
            "the full disk was not noticed"
        );
        publisher.send(&payload(sent, 10_000));
        sent += 1;
    }
    let recorded = recording.stop();
    let report = &recorded.report;
    let failure = report.failure.clone().unwrap();
    assert!(
        failure.contains("no space left") && failure.contains("bag_0.mcap"),
        "{failure}"
    );
    // The file on the disk can be read up to the tear; all the rest is counted.
    let bytes = fs::read(&report.files[0]).unwrap();
    assert!(bytes.len() > 500_000, "{} bytes are kept", bytes.len());
    let ignore_end = mcap::read::Options::IgnoreEndMagic.into();
    let stream = mcap::MessageStream::new_with_options(&bytes, ignore_end).unwrap();
    let readable = stream.take_while(Result::is_ok).count() as u64;
    assert!(readable > 40, "{readable} messages can be read");
    let summary = mcap::Summary::read(&bytes).unwrap().unwrap();
    assert_eq!(summary.stats.unwrap().message_count, readable, "it has its index");
    assert_eq!(report.status.recorded, readable, "recorded is what can be read");
    assert_eq!(
        report.status.recorded_bytes,
        readable * 10_000,
        "and so is its size"
    );
    // One more may have been sent after the subscription had ended.
    assert_eq!(readable + recorded.lost(), report.status.topics[0].received);
    assert!(report.status.topics[0].received + 1 >= sent as u64);
    let metadata = recorded.metadata();
    assert_eq!(metadata.message_count, readable);
    assert_eq!(metadata.custom_data["holdall.lost"], recorded.lost().to_string());
}

#[test]
fn too_little_free_space_ends_the_recording_with_everything_that_was_received() {
    let mut world = World::new();
    world.options.safety.min_free_space_bytes = Some(u64::MAX);
    let publisher = world.publisher("/t", RELIABLE);
    let recording = world.record();
    assert!(recording.recorder.wait_finished(PATIENCE));
    let recorded = recording.stop();
    let failure = recorded.report.failure.clone().unwrap();
    assert!(
        failure.contains("must stay free") && failure.contains("bag"),
        "{failure}"
    );
    assert_eq!(recorded.lost(), 0);
    let readable = read_messages(&recorded.report.files[0]).len() as u64;
    assert_eq!(readable, recorded.report.status.recorded);
    drop(publisher);
}

#[test]
fn what_is_reported_durable_grows_while_messages_come_and_the_bound_is_in_the_bag() {
    let mut world = World::new();
    let (recording, publisher) = record_one(&mut world);
    publisher.send(&payload(0, 1000));
    recording.wait_recorded(1);
    world.clock.advance(Duration::from_millis(1900));
    recording.wait_until("the message is durable", |recording| {
        recording.recorder.status().durability.durable == 1
    });
    let status = recording.recorder.status();
    assert_eq!(status.topics[0].durable, 1);
    assert!(status.durability.achieved.unwrap() >= Duration::from_millis(1900));
    let recorded = recording.stop();
    assert!(recorded.metadata().custom_data["holdall.loss_window"].starts_with("max=2.000s achieved="));
}

#[test]
fn a_killed_recording_is_repaired_into_a_bag_that_knows_what_it_does_not_know() {
    let mut world = prompt_world();
    let (recording, _publisher) = record_over_a_split(&mut world);
    world.clock.advance(Duration::from_millis(1900));
    recording.wait_until("all is durable", |recording| {
        recording.recorder.status().durability.durable == 101
    });
    let killed = killed(&world);
    let copy = killed.with_file_name("copy");
    let copied = holdall_tools::tools::repair::repair(&killed, Some(&copy), &mut |_, _| ()).unwrap();
    assert!(copied.has_changed() && copied.bag == copy);
    for report in [
        holdall_tools::tools::repair::repair(&killed, None, &mut |_, _| ()).unwrap(),
        copied,
    ] {
        assert_eq!((report.messages, report.unsaved.len()), (101, 0), "{report:?}");
        let bag = holdall_bag::reader::Bag::open(&report.bag).unwrap();
        assert!(bag.notices().is_empty(), "{:?}", bag.notices());
        assert_eq!(bag.metadata().message_count, 101);
        assert!(bag.metadata().custom_data["holdall.repaired"].contains("unknown"));
        let ledger = bag.ledger().unwrap().unwrap();
        let known = (ledger.recorded(), ledger.topics[0].loss_unknown);
        assert_eq!(known, (101, false));
        assert!(ledger.checkpoint.is_some(), "what came later is not known");
        let again = holdall_tools::tools::repair::repair(&report.bag, None, &mut |_, _| ()).unwrap();
        assert!(!again.has_changed(), "once is enough");
    }
    recording.stop();
}

#[test]
fn what_a_stuck_disk_keeps_out_is_counted_for_each_policy() {
    for policy in [CachePolicy::DropNew, CachePolicy::DropOld, CachePolicy::Fair] {
        let hold = Arc::new(Hold::default());
        let mut world = World::new();
        world.options.cache = CacheOptions {
            bytes_max: 1 << 20,
            policy,
            ..CacheOptions::default()
        };
        world.disk = Some(test_disk(&Arc::new(AtomicU64::new(u64::MAX)), &hold));
        let (recording, publisher) = record_one(&mut world);
        hold.set(true);
        let payloads: Vec<_> = (0..1000).map(|number| payload(number, 10_000)).collect();
        payloads.iter().for_each(|payload| publisher.send(payload));
        let held = recording.recorder.status().cache_bytes;
        assert!(held <= 1 << 20, "{policy:?} holds {held}");
        hold.set(false);
        let recorded = recording.stop();
        let kept = recorded.payloads("/t");
        assert!(kept.len() < 1000, "otherwise this test shows nothing");
        assert_eq!(kept.len() as u64 + recorded.lost(), 1000, "{policy:?}");
        assert_eq!(
            recorded.report.status.topics[0].lost,
            BTreeMap::from([(LossStage::Cache, recorded.lost())])
        );
        assert!(kept.is_sorted_by_key(|payload| u64::from_le_bytes(payload[..8].try_into().unwrap())));
        let last_kept = kept.last() == payloads.last();
        assert_eq!(last_kept, policy == CachePolicy::DropOld, "{policy:?}");
    }
}

/// Memory that the test below says is available, in bytes.
static AVAILABLE: AtomicU64 = AtomicU64::new(0);

#[test]
fn a_stuck_disk_costs_nothing_while_memory_is_left_and_the_cache_shrinks_when_others_need_it() {
    let hold = Arc::new(Hold::default());
    let mut world = World::new();
    world.options.cache = CacheOptions {
        bytes_max: 1 << 20,
        grows_to: Some(32 << 20),
        ..CacheOptions::default()
    };
    world.available_memory = || Some(AVAILABLE.load(Ordering::SeqCst));
    AVAILABLE.store(64 << 20, Ordering::SeqCst);
    world.disk = Some(test_disk(&Arc::new(AtomicU64::new(u64::MAX)), &hold));
    let (recording, publisher) = record_one(&mut world);
    let limit = |recording: &Recording| recording.recorder.status().cache_bytes_max;
    recording.wait_until("the cache may hold a quarter", |recording| {
        limit(recording) >= 16 << 20
    });
    hold.set(true);
    let send = |numbers: std::ops::Range<usize>| {
        numbers.for_each(|number| publisher.send(&payload(number, 10_000)));
    };
    send(0..500);
    assert_eq!(
        recording.recorder.status().lost,
        0,
        "five times the first size waits"
    );
    // Others take almost all of it.
    AVAILABLE.store(0, Ordering::SeqCst);
    recording.wait_until("the cache is full", |recording| limit(recording) < 6 << 20);
    send(500..600);
    assert_eq!(recording.recorder.status().lost, 100);
    hold.set(false);
    recording.wait_until(
        "the cache has its first size, or half of what is left",
        |recording| {
            world.clock.advance(Duration::from_secs(1));
            limit(recording) <= 1 << 20 && recording.recorder.status().cache_bytes == 0
        },
    );
    let recorded = recording.stop();
    assert_eq!(recorded.payloads("/t").len(), 500);
    assert_eq!(recorded.lost(), 100);
}

#[test]
fn a_copy_taken_at_any_time_can_be_read_up_to_its_end() {
    let mut world = prompt_world();
    let (recording, publisher) = record_one(&mut world);
    let file = world.options.output.join("bag_0.mcap");
    let mut copies = Vec::new();
    for number in 0..2000 {
        publisher.send(&payload(number, 2000));
        if number % 100 == 0 {
            world.clock.advance(Duration::from_secs(2));
            copies.push(fs::read(&file).unwrap());
        }
    }
    let recorded = recording.stop();
    copies.push(fs::read(&file).unwrap());
    let mut longest = 0;
    for copy in &copies {
        let options = mcap::read::Options::IgnoreEndMagic.into();
        let Ok(stream) = mcap::MessageStream::new_with_options(copy, options) else {
            continue;
        };
        let read: Vec<_> = stream
            .map_while(Result::ok)
            .map(|message| message.data.to_vec())
            .collect();
        let expected: Vec<_> = (0..read.len()).map(|number| payload(number, 2000)).collect();
        assert_eq!(read, expected, "a prefix of what was sent");
        longest = longest.max(read.len());
    }
    assert_eq!(longest, 2000);
    assert_eq!(recorded.lost(), 0);
}

#[test]
fn a_recording_dropped_without_stop_ends_nothing_half() {
    let mut world = World::new();
    let (recording, publisher) = record_one(&mut world);
    publisher.send(&payload(0, 8));
    let control = recording.control.clone();
    drop(recording);
    control.stop("the handle is gone, the control is not");
    assert!(control.wait_finished(PATIENCE));
    assert_eq!(read_messages(&world.options.output.join("bag_0.mcap")).len(), 1);
}

#[test]
fn a_failed_transport_ends_the_recording_with_its_reason_and_keeps_the_bag() {
    let mut world = World::new();
    let (recording, publisher) = record_one(&mut world);
    publisher.send(&payload(0, 8));
    world.network.fail("the cable is out");
    assert!(recording.recorder.wait_finished(PATIENCE));
    let recorded = recording.stop();
    let failure = recorded.report.failure.clone().unwrap();
    assert!(failure.contains("the cable is out"), "{failure}");
    assert_eq!(recorded.payloads("/t"), [payload(0, 8)]);
}

#[test]
fn a_file_that_was_made_ahead_is_none_of_a_killed_recording() {
    let mut world = prompt_world();
    world.options.files.split.bytes_max = Some(200_000);
    let (recording, publisher) = record_one(&mut world);
    let ahead = world.options.output.join("bag_1.mcap");
    let mut sent = 0;
    while !ahead.exists() {
        publisher.send(&payload(sent, 2000));
        sent += 1;
        recording.wait_recorded(sent as u64);
    }
    assert!(recording.recorder.status().current_file.ends_with("bag_0.mcap"));
    let killed = killed(&world);
    assert!(killed.join("bag_1.mcap").exists());
    let names = |bag: &holdall_bag::reader::Bag| bag.metadata().relative_file_paths.clone();
    let torn = holdall_bag::reader::Bag::open(&killed).unwrap();
    assert_eq!(names(&torn), ["bag_0.mcap"], "{:?}", torn.notices());
    let repaired = holdall_tools::tools::repair::repair(&killed, None, &mut |_, _| ()).unwrap();
    let whole = holdall_bag::reader::Bag::open(&repaired.bag).unwrap();
    assert_eq!(names(&whole), ["bag_0.mcap"]);
    assert_eq!(whole.notices(), Vec::<String>::new());
    assert_eq!(whole.metadata().message_count, repaired.messages);
    recording.stop();
}

#[test]
fn a_killed_recording_is_read_with_what_its_files_hold() {
    let mut world = prompt_world();
    let (recording, _publisher) = record_over_a_split(&mut world);
    let killed = killed(&world);
    let bag = holdall_bag::reader::Bag::open(&killed).unwrap();
    assert!(
        bag.metadata().message_count >= 100,
        "{}",
        bag.metadata().message_count
    );
    assert!(bag.notices()[0].contains("not ended"), "{:?}", bag.notices());
    recording.stop();
    let ended = holdall_bag::reader::Bag::open(&world.options.output).unwrap();
    assert_eq!(ended.metadata().message_count, 101);
    assert!(ended.notices().is_empty(), "{:?}", ended.notices());
}
