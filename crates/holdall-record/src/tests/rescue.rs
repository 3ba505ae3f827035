//! A recorder that is killed: the messages it had received are found in memory, read with the bag, and written into it by a repair.

use super::{
    disks::Hold,
    faults::{record_one, test_disk},
    *,
};
use holdall_bag::{
    reader::{AccountKind, Bag, BagAudit, BagSet, MessageFilter},
    rescue::{FindError, Pointer, Rescue},
    writer::CompressionMode,
};
use holdall_io::survivor::{Survivor, directory_identity, own_user};
use holdall_model::loss::ledger::Ledger;
use holdall_tools::tools::repair::repair;
use std::{
    io::{ErrorKind, Read},
    os::unix::fs::{FileExt, PermissionsExt},
};

const POINTER: &str = ".holdall-rescue.json";

/// Settings of a case's recording.
type Change = fn(&mut RecordOptions);

/// Copies the state that a kill at this moment leaves of a recording: the bag, and the memory that it points to.
pub(super) fn killed(recording: &Recording, to: &Path) -> PathBuf {
    let bag = copied(&recording.output, to);
    become_original(&to.join("memory"), &recording.output, &bag);
    bag
}

/// Lets the memory of the bag in `from` be that of the one in `to`.
pub(crate) fn become_original(memory: &Path, from: &Path, to: &Path) {
    let id = {
        let mut header = [0; 40];
        fs::File::open(memory)
            .unwrap()
            .read_exact_at(&mut header, 0)
            .unwrap();
        header[24..]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let survivor = Survivor::open(memory, &id, own_user().unwrap()).unwrap();
    let file = fs::File::options().write(true).open(memory).unwrap();
    let [old, new] = [from, to].map(|directory| directory_identity(directory).unwrap());
    let mut found = 0;
    for slot in survivor.slots() {
        let bytes = survivor.read(slot).unwrap();
        let places = bytes.windows(old.len()).enumerate();
        for (at, _) in places.filter(|(_, window)| *window == old.as_bytes()) {
            file.write_all_at(new.as_bytes(), survivor.offset_of(slot) + at as u64)
                .unwrap();
            found += 1;
        }
    }
    assert_eq!(found, 1);
}

/// As [`killed`]; the bag is a copy of the one that was recorded.
pub(super) fn copied(from: &Path, to: &Path) -> PathBuf {
    let bag = to.join("bag");
    copy_tree(from, &bag);
    let text = fs::read_to_string(bag.join(POINTER)).unwrap();
    let mut pointer: Pointer = serde_json::from_str(&text).unwrap();
    let memory = to.join("memory");
    copy_sparse(&pointer.path, &memory);
    pointer.path = memory;
    fs::write(bag.join(POINTER), serde_json::to_string(&pointer).unwrap()).unwrap();
    bag
}

/// Copies a file without its holes: most of the memory is not in use. Not by a process: between its fork and its start it would hold the
/// locks of bags that other tests repair at that moment.
pub(crate) fn copy_sparse(from: &Path, to: &Path) {
    let (mut from, to) = (fs::File::open(from).unwrap(), fs::File::create(to).unwrap());
    to.set_permissions(from.metadata().unwrap().permissions())
        .unwrap();
    let (mut piece, zeros) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut at = 0;
    loop {
        let count = from.read(&mut piece).unwrap();
        if count == 0 {
            break;
        }
        if piece[..count] != zeros[..count] {
            to.write_all_at(&piece[..count], at).unwrap();
        }
        at += count as u64;
    }
    to.set_len(at).unwrap();
}

pub(super) fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let copy = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_tree(&path, &copy);
        } else {
            // Files renamed or removed in the middle of the copy did not exist at its end.
            match fs::copy(&path, &copy) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                copied => drop(copied.unwrap()),
            }
        }
    }
}

/// Payloads by topic, in the order of reading.
pub(super) fn read(bag: &Path) -> BTreeMap<String, Vec<Vec<u8>>> {
    let mut found: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    let set = BagSet::from(vec![Bag::open(bag).unwrap()]);
    for message in set.messages(&MessageFilter::default()) {
        let message = message.unwrap();
        let of_topic = found.entry(message.topic.name.clone()).or_default();
        of_topic.push(message.payload.to_vec());
    }
    found
}

/// The account is whole and shows no loss.
fn assert_exact(bag: &Path, about: &str) {
    let audit = BagAudit::of(&Bag::open(bag).unwrap()).unwrap();
    assert_eq!(audit.account, AccountKind::Final, "{about}");
    assert_eq!((audit.faults.clone(), audit.shortfall()), (vec![], 0), "{about}");
}

pub(super) fn world_with_memory() -> (World, tempfile::TempDir) {
    let mut world = World::new();
    let memory = tempfile::tempdir().unwrap();
    world.options.safety.rescue_directory = Some(memory.path().to_owned());
    // Nothing is handed over just because of its age.
    world.options.safety.max_loss_window = None;
    (world, memory)
}

/// Fills a file that is closed, so that the bag can be read without the memory.
fn send_through_a_first_file(recording: &Recording, publisher: &MemoryPublisher) {
    let first = recording.output.join("bag_0.mcap");
    let is_whole = |path: &Path| fs::read(path).is_ok_and(|bytes| mcap::Summary::read(&bytes).is_ok());
    for message in 0..10_000 {
        publisher.send(&payload(message, 1000));
        recording.wait_recorded(message as u64 + 1);
        if message > 100 && is_whole(&first) {
            return;
        }
    }
    panic!("the first file was never closed");
}

#[test]
fn nothing_received_is_missing_after_a_kill_whatever_the_storage() {
    let plain = |_: &mut RecordOptions| {};
    let cases: [(&str, Change); 7] = [
        ("mcap", plain),
        ("sqlite3", plain),
        ("leveldb", plain),
        ("mcap", |options| {
            options.files.compression.mode = CompressionMode::Message
        }),
        ("mcap", |options| {
            options.files.storage_preset = Some("zstd_fast".to_owned())
        }),
        ("mcap", |options| options.files.split.bytes_max = Some(40_000)),
        ("sqlite3", |options| options.files.merge_publishers = true),
    ];
    for (number, (storage, change)) in cases.into_iter().enumerate() {
        let about = format!("case {number}, {storage}");
        let (mut world, memory) = world_with_memory();
        world.options.files.storage_id = storage.to_owned();
        change(&mut world.options);
        let (a, b) = (world.publisher("/a", RELIABLE), world.publisher("/b", RELIABLE));
        let recording = world.record();
        recording.wait_matched(&a);
        recording.wait_matched(&b);
        world.network.receive_into(recording.recorder.region().unwrap());
        let mut sent: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
        for message in 0..500 {
            let (name, publisher) = if message % 3 == 0 { ("/b", &b) } else { ("/a", &a) };
            // A few that stay in the transport's memory.
            let len = if message % 50 == 7 { 70_000 } else { 100 };
            let bytes = payload(message, len + message);
            publisher.send(&bytes);
            sent.entry(name.to_owned()).or_default().push(bytes);
            // Several segments, some of them short.
            if message % 100 == 99 {
                recording.wait_recorded(message as u64 + 1);
            }
        }
        let place = tempfile::tempdir().unwrap();
        let bag = killed(&recording, place.path());
        recording.stop();
        assert_eq!(
            fs::read_dir(memory.path()).unwrap().count(),
            0,
            "{about}: a clean end removes the memory"
        );

        assert!(read(&bag) == sent, "{about}: read from memory");
        assert_exact(&bag, &about);
        let opened = Bag::open(&bag).unwrap();
        assert_eq!(opened.metadata().storage_identifier, storage, "{about}");
        let left_out = opened
            .notices()
            .iter()
            .find(|notice| notice.ends_with("left out"));
        assert_eq!(
            left_out, None,
            "{about}: tools refuse a bag with a file that is left out"
        );
        drop(opened);
        let report = repair(&bag, None, &mut |_, _| {}).unwrap();
        assert!(report.rescued.is_some(), "{about}");
        assert!(read(&bag) == sent, "{about}: repaired");
        assert_exact(&bag, &about);
        let left = [bag.join(POINTER), place.path().join("memory")].map(|path| path.exists());
        assert_eq!(left, [false, false], "{about}: all of it is in the bag");
        assert!(
            !repair(&bag, None, &mut |_, _| {}).unwrap().has_changed(),
            "{about}"
        );
    }
}

/// Memory still has messages of files that are closed: those of the newest segments.
#[test]
fn a_damaged_file_that_memory_can_replace_is_not_counted_as_lost() {
    let (mut world, _memory) = world_with_memory();
    world.options.files.split.bytes_max = Some(40_000);
    let a = world.publisher("/a", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&a);
    world.network.receive_into(recording.recorder.region().unwrap());
    for message in 0..200 {
        a.send(&payload(message, 1000));
        recording.wait_recorded(message as u64 + 1);
    }
    let places: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let bags: Vec<PathBuf> = places
        .iter()
        .map(|place| killed(&recording, place.path()))
        .collect();
    recording.stop();
    let mut replaced = 0;
    for (number, bag) in bags.iter().enumerate() {
        let file = bag.join(format!("bag_{number}.mcap"));
        let mut bytes = fs::read(&file).unwrap();
        bytes[..4096].fill(0xa5);
        fs::write(&file, bytes).unwrap();
        repair(bag, None, &mut |_, _| {}).unwrap();
        let found = read(bag)["/a"].len();
        let audit = BagAudit::of(&Bag::open(bag).unwrap()).unwrap();
        assert_eq!(
            found as u64 + audit.missing().values().sum::<u64>(),
            200,
            "file {number}, {found} found: {:?}",
            audit.faults
        );
        replaced += usize::from(found == 200);
    }
    assert!(replaced > 0, "memory had none of a closed file");
}

/// Large messages that are received while the disk takes nothing: with the messages of others between them, and more of them than one
/// segment has.
#[test]
fn large_messages_that_the_disk_does_not_take_survive_a_kill() {
    for compression in [CompressionMode::None, CompressionMode::Message] {
        let (mut world, _memory) = world_with_memory();
        world.options.files.compression.mode = compression;
        let (hold, bytes_left) = (Arc::new(Hold::default()), Arc::new(AtomicU64::new(u64::MAX)));
        world.disk = Some(test_disk(&bytes_left, &hold));
        let (recording, publisher) = record_one(&mut world);
        world.network.receive_into(recording.recorder.region().unwrap());
        hold.set(true);
        let len_of = |message: usize| [2_500_000, 100, 70_000][message % 3] + message;
        let sent: Vec<_> = (0..40)
            .map(|message| random_payload(message, len_of(message)))
            .collect();
        sent.iter().for_each(|bytes| publisher.send(bytes));
        let place = tempfile::tempdir().unwrap();
        let bag = killed(&recording, place.path());
        assert!(recording.recorder.status().recorded < 40, "the disk was stuck");
        hold.set(false);
        recording.stop();
        assert!(read(&bag)["/t"] == sent, "{compression:?}: read from memory");
        repair(&bag, None, &mut |_, _| {}).unwrap();
        assert!(read(&bag)["/t"] == sent, "{compression:?}: repaired");
        assert_exact(&bag, "large");
    }
}

#[test]
fn large_messages_for_which_there_is_no_memory_are_counted() {
    let (mut world, _memory) = world_with_memory();
    let hold = Arc::new(Hold::default());
    world.disk = Some(test_disk(&Arc::new(AtomicU64::new(u64::MAX)), &hold));
    let (recording, publisher) = record_one(&mut world);
    hold.set(true);
    publisher.send(&random_payload(0, 100_000));
    world.network.receive_into(recording.recorder.region().unwrap());
    publisher.send(&random_payload(1, 100_000));
    let place = tempfile::tempdir().unwrap();
    let bag = killed(&recording, place.path());
    hold.set(false);
    recording.stop();
    assert_eq!(read(&bag)["/t"], [random_payload(1, 100_000)]);
    repair(&bag, None, &mut |_, _| {}).unwrap();
    let audit = BagAudit::of(&Bag::open(&bag).unwrap()).unwrap();
    assert_eq!(audit.account, AccountKind::Final);
    let topic = &audit.topics[0];
    assert_eq!(
        (topic.recorded, topic.missing.values().sum::<u64>()),
        (1, 1),
        "{topic:?}"
    );
}

/// The database has no sequence numbers, but the messages in memory do.
#[test]
fn a_killed_database_adds_up_before_its_repair() {
    let (mut world, _memory) = world_with_memory();
    world.options.files.storage_id = "sqlite3".to_owned();
    world.options.safety.max_loss_window = Some(DEFAULT_LOSS_WINDOW);
    let hold = Arc::new(Hold::default());
    world.disk = Some(test_disk(&Arc::new(AtomicU64::new(u64::MAX)), &hold));
    let (recording, publisher) = record_one(&mut world);
    (0..50).for_each(|number| publisher.send(&payload(number, 100)));
    recording.wait_recorded(50);
    world.clock.advance(Duration::from_secs(3));
    recording.wait_until("all is durable", |recording| {
        recording.recorder.status().durability.durable == 50
    });
    hold.set(true);
    (50..60).for_each(|number| publisher.send(&payload(number, 100)));
    recording.wait_until("all messages have arrived", |recording| {
        recording.recorder.status().topics[0].received == 60
    });
    let place = tempfile::tempdir().unwrap();
    let bag = killed(&recording, place.path());
    hold.set(false);
    recording.stop();
    assert_eq!(
        Bag::rebuild(&bag).unwrap().metadata().message_count,
        50,
        "the others are in memory"
    );
    assert_eq!(read(&bag)["/t"].len(), 60);
    assert_exact(&bag, "killed");
}

/// A payload that cannot be compressed and has no two equal parts.
fn random_payload(number: usize, len: usize) -> Vec<u8> {
    let mut state = number as u64 + 1;
    let words = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33).to_le_bytes()
    });
    words.flatten().take(len).collect()
}

#[test]
fn a_repair_into_a_copy_leaves_the_memory_to_the_bag() {
    let (mut world, _memory) = world_with_memory();
    let publisher = world.publisher("/a", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    publisher.send(&payload(1, 100));
    recording.wait_recorded(1);
    let place = tempfile::tempdir().unwrap();
    let bag = killed(&recording, place.path());
    recording.stop();
    let copy = place.path().join("copy");
    repair(&bag, Some(&copy), &mut |_, _| {}).unwrap();
    assert_eq!(read(&copy)["/a"], [payload(1, 100)]);
    assert!(!copy.join(POINTER).exists());
    assert_eq!(repair(&bag, None, &mut |_, _| {}).unwrap().rescued, Some(1));
    assert_eq!(read(&bag)["/a"], [payload(1, 100)]);
}

#[test]
fn a_copy_of_a_killed_bag_gets_the_messages_and_leaves_the_memory_to_the_original() {
    let (mut world, _memory) = world_with_memory();
    let publisher = world.publisher("/a", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    publisher.send(&payload(1, 100));
    recording.wait_recorded(1);
    let place = tempfile::tempdir().unwrap();
    let bag = killed(&recording, place.path());
    recording.stop();
    let (copy, renamed) = (place.path().join("copy"), place.path().join("renamed"));
    copy_tree(&bag, &copy);
    assert_eq!(read(&copy)["/a"], [payload(1, 100)], "read with the memory");
    // The copy even has the name of the original now, which was renamed.
    fs::rename(&bag, &renamed).unwrap();
    fs::rename(&copy, &bag).unwrap();
    assert_eq!(repair(&bag, None, &mut |_, _| {}).unwrap().rescued, Some(1));
    assert_eq!(read(&bag)["/a"], [payload(1, 100)]);
    assert!(place.path().join("memory").exists(), "the original needs it");
    assert_eq!(repair(&renamed, None, &mut |_, _| {}).unwrap().rescued, Some(1));
    assert_eq!(read(&renamed)["/a"], [payload(1, 100)]);
    assert!(!place.path().join("memory").exists());
}

#[test]
fn a_bag_that_points_to_the_memory_of_another_one_gets_nothing_of_it() {
    let (mut world, _memory) = world_with_memory();
    let publisher = world.publisher("/a", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    publisher.send(&payload(1, 100));
    recording.wait_recorded(1);
    let place = tempfile::tempdir().unwrap();
    let bag = killed(&recording, place.path());
    let output = recording.output.clone();
    recording.stop();
    let (other, before) = (place.path().join("other"), contents(&output));
    copy_tree(&output, &other);
    for from in [bag.join(POINTER), place.path().join("link")] {
        if !from.exists() {
            std::os::unix::fs::symlink(bag.join(POINTER), other.join(POINTER)).unwrap();
        } else {
            fs::copy(&from, other.join(POINTER)).unwrap();
        }
        let refused = Rescue::find(&other).unwrap_err().to_string();
        let why = ["the memory of another bag", "it is a link"];
        assert!(why.iter().any(|why| refused.contains(why)), "{refused}");
        let report = repair(&other, None, &mut |_, _| {}).unwrap();
        assert_eq!((report.rescued, report.files.len()), (None, 1));
        fs::remove_file(other.join(POINTER)).unwrap();
        assert_eq!(contents(&other), before);
    }
    assert_eq!(repair(&bag, None, &mut |_, _| {}).unwrap().rescued, Some(1));
    assert_eq!(read(&bag)["/a"], [payload(1, 100)]);
}

#[test]
fn memory_that_is_not_free_yet_is_waited_for_and_without_it_nothing_is_repaired() {
    let (mut world, memory) = world_with_memory();
    let (recording, publisher) = record_one(&mut world);
    publisher.send(&payload(1, 100));
    recording.wait_recorded(1);
    let place = tempfile::tempdir().unwrap();
    let bag = killed(&recording, place.path());
    recording.stop();
    // As the kernel holds the lock of a process until nothing refers to its memory.
    let file = fs::File::open(place.path().join("memory")).unwrap();
    file.lock().unwrap();
    let before = contents(&bag);
    let refused = Rescue::find_within(&bag, Duration::ZERO).unwrap_err();
    assert!(matches!(refused, FindError::Alive { .. }), "{refused}");
    let refused = repair(&bag, None, &mut |_, _| {}).unwrap_err().to_string();
    assert!(refused.contains("when that process has ended"), "{refused}");
    assert_eq!(contents(&bag), before);
    let new = place.path().join("new");
    assert!(repair(&bag, Some(&new), &mut |_, _| {}).is_err() && !new.exists());
    let copy = place.path().join("copy");
    copy_tree(&bag, &copy);
    assert!(Rescue::find(&copy).unwrap().is_none(), "a copy is not waited for");
    let (begin, begun) = std::sync::mpsc::sync_channel(1);
    let repaired = std::thread::spawn({
        let bag = bag.clone();
        move || {
            begin.send(()).unwrap();
            repair(&bag, None, &mut |_, _| {}).unwrap().rescued
        }
    });
    begun.recv().unwrap();
    file.unlock().unwrap();
    assert_eq!(repaired.join().unwrap(), Some(1));
    assert_eq!(read(&bag)["/t"], [payload(1, 100)]);
    drop(memory);
}

/// The bytes of each file.
fn contents(bag: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = fs::read_dir(bag).unwrap().map(|entry| entry.unwrap());
    files
        .map(|entry| (entry.file_name().into(), fs::read(entry.path()).unwrap()))
        .collect()
}

#[test]
fn a_bag_that_is_being_recorded_and_memory_of_others_are_left_alone() {
    let (mut world, memory) = world_with_memory();
    world.options.files.split.bytes_max = Some(40_000);
    let publisher = world.publisher("/a", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    send_through_a_first_file(&recording, &publisher);
    let alive = Rescue::find_within(&recording.output, Duration::ZERO).unwrap_err();
    assert!(matches!(alive, FindError::Alive { .. }), "{alive}");
    let place = tempfile::tempdir().unwrap();
    let bag = killed(&recording, place.path());
    fs::set_permissions(place.path().join("memory"), fs::Permissions::from_mode(0o666)).unwrap();
    let refused = Rescue::find(&bag).unwrap_err().to_string();
    assert!(refused.contains("others may have written it"), "{refused}");
    assert!(
        Bag::open(&bag)
            .unwrap()
            .notices()
            .iter()
            .any(|notice| notice.contains("memory"))
    );
    fs::write(bag.join(POINTER), "{").unwrap();
    assert!(Rescue::find(&bag).is_err());
    assert_eq!(fs::read_dir(memory.path()).unwrap().count(), 1);
    recording.stop();
}

#[test]
fn without_memory_the_account_of_a_repaired_bag_says_that_it_does_not_know() {
    let (mut world, _memory) = world_with_memory();
    world.options.safety.rescue_directory = None;
    world.options.files.split.bytes_max = Some(40_000);
    let publisher = world.publisher("/a", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    send_through_a_first_file(&recording, &publisher);
    let place = tempfile::tempdir().unwrap();
    let bag = place.path().join("bag");
    copy_tree(&recording.output, &bag);
    recording.stop();
    repair(&bag, None, &mut |_, _| {}).unwrap();
    let audit = BagAudit::of(&Bag::open(&bag).unwrap()).unwrap();
    assert!(
        matches!(audit.account, AccountKind::Checkpoint(_)),
        "{:?}",
        audit.account
    );
    let unknown = audit.topics.iter().filter_map(|topic| topic.account.as_ref());
    assert_eq!(unknown.filter(|account| account.loss_unknown).count(), 0);
}

#[test]
fn memory_whose_bag_is_gone_is_reported_with_the_command_that_removes_it() {
    let (mut world, _memory) = world_with_memory();
    let publisher = world.publisher("/a", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    publisher.send(&payload(0, 100));
    recording.wait_recorded(1);
    let left = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(recording.output.join(POINTER)).unwrap();
    let mut pointer: Pointer = serde_json::from_str(&text).unwrap();
    let file = left.path().join(pointer.path.file_name().unwrap());
    fs::copy(&pointer.path, &file).unwrap();
    pointer.path.clone_from(&file);
    let output = recording.output.clone();
    let recorded = recording.stop();
    fs::write(output.join(POINTER), serde_json::to_string(&pointer).unwrap()).unwrap();
    let leftovers = || holdall_bag::rescue::leftovers(left.path());
    let awaited = leftovers().unwrap();
    assert!(
        awaited.contains(&format!("`holdall repair {}`", output.display())),
        "{awaited}"
    );
    let moved = left.path().join("moved");
    fs::rename(&output, &moved).unwrap();
    let gone = leftovers().unwrap();
    assert!(gone.ends_with(&format!("rm {}", file.display())), "{gone}");
    assert!(gone.contains(&output.display().to_string()), "{gone}");
    assert!(
        gone.len() < 160 + output.as_os_str().len() + file.as_os_str().len(),
        "{gone}"
    );
    assert!(file.exists(), "nothing is removed: the bag may have been moved");
    drop(recorded);
}

/// A recorder in snapshot mode that is killed leaves the messages that a snapshot at that moment would have stored.
#[test]
fn the_ring_of_snapshot_mode_is_rescued_as_if_a_snapshot_had_been_taken() {
    for bytes_max in [64 << 20, 2 << 20] {
        let (mut world, _memory) = world_with_memory();
        world.options.cache.snapshot = true;
        world.options.cache.bytes_max = bytes_max;
        let publisher = world.publisher("/a", RELIABLE);
        let recording = world.record();
        recording.wait_matched(&publisher);
        for message in 0..50 {
            publisher.send(&payload(message, 10_000));
        }
        assert!(recording.control.snapshot());
        recording.wait_recorded(50);
        for message in 50..1000 {
            publisher.send(&payload(message, 10_000));
        }
        recording.wait_until("all messages have arrived", |recording| {
            recording.recorder.status().topics[0].received >= 1000
        });
        let place = tempfile::tempdir().unwrap();
        let bag = killed(&recording, place.path());
        recording.stop();
        let before = read(&bag).remove("/a").unwrap();
        repair(&bag, None, &mut |_, _| {}).unwrap();
        let found = read(&bag).remove("/a").unwrap();
        assert_eq!(found, before, "a repair writes what readers show");
        let numbers: Vec<usize> = found.iter().map(|bytes| numbered(bytes)).collect();
        // The snapshot, and the newest without a gap.
        let ring = &numbers[50..];
        assert_eq!(numbers[..50], (0..50).collect::<Vec<_>>());
        assert!(
            !ring.is_empty() && ring.windows(2).all(|pair| pair[1] == pair[0] + 1),
            "{ring:?}"
        );
        assert_eq!(ring.last(), Some(&999));
        assert_eq!(ring.len() == 950, bytes_max == 64 << 20, "{}", ring.len());
        assert_exact(&bag, "snapshot mode");
        let audit = BagAudit::of(&Bag::open(&bag).unwrap()).unwrap();
        assert_eq!(audit.recorded() + audit.sums().left_out, 1000);
    }
}

/// The account of a rescued bag knows each number: a bag that was changed afterwards does not add up, even when the counts do.
#[test]
fn a_rescued_bag_that_was_changed_afterwards_does_not_add_up() {
    for lost in [0, 4] {
        let (mut world, _memory) = world_with_memory();
        let publisher = world.publisher("/t", SENSOR);
        let other = world.publisher("/t", RELIABLE);
        let recording = world.record();
        recording.wait_matched(&publisher);
        recording.wait_matched(&other);
        for message in 0..50 {
            if message == 30 {
                publisher.lose(lost);
            }
            publisher.send(&payload(message, 100));
            other.send(&payload(message, 50));
        }
        recording.wait_until("all messages have arrived", |recording| {
            recording.recorder.status().topics[0].received >= 100
        });
        let place = tempfile::tempdir().unwrap();
        let bag = killed(&recording, place.path());
        recording.stop();
        repair(&bag, None, &mut |_, _| {}).unwrap();
        let audit = || BagAudit::of(&Bag::open(&bag).unwrap()).unwrap();
        assert_eq!((audit().faults, audit().recorded()), (vec![], 100));
        assert_eq!(audit().shortfall(), lost);
        let files = Bag::open(&bag).unwrap().files().to_vec();
        let tampered = files.iter().filter(|file| {
            let before = fs::read(&file.path).unwrap();
            let has_ten = file.open().unwrap().summary().message_count >= 10;
            if has_ten {
                super::audits::rewrite(&file.path, Some(99));
                let text = audit().faults.join("\n");
                assert!(text.contains("/t: the sequence numbers"), "{lost}: {text}");
                super::audits::rewrite(&file.path, None);
                assert!(!audit().is_balanced());
                fs::write(&file.path, &before).unwrap();
                super::audits::rewrite_with(&file.path, None, lower_counts);
                let described = bag.join("metadata.yaml");
                let metadata = fs::read_to_string(&described).unwrap();
                fs::write(
                    &described,
                    metadata.replace("message_count: 100", "message_count: 99"),
                )
                .unwrap();
                let text = audit().faults.join("\n");
                assert!(
                    text.starts_with("/t: publisher") && text.contains("has the sequence numbers 1 to"),
                    "{lost}: {text}"
                );
                fs::write(&described, metadata).unwrap();
                fs::write(&file.path, before).unwrap();
                assert!(audit().is_balanced());
            }
            has_ten
        });
        assert!(tampered.count() > 0);
    }
}

/// Makes all counts of the account of /t's first publisher one less, as if a message had never been sent.
fn lower_counts(record: &mut mcap::records::Metadata) {
    if let Some(text) = record.metadata.get_mut("ledger") {
        let mut ledger = Ledger::from_json(text).unwrap();
        let topic = ledger.topics.iter_mut().find(|topic| topic.name == "/t").unwrap();
        topic.recorded -= 1;
        let publisher = &mut topic.publishers[0];
        publisher.recorded -= 1;
        publisher.sent = publisher.sent.map(|count| count - 1);
        publisher.received = publisher.received.map(|count| count - 1);
        *text = ledger.to_json();
    }
}

fn numbered(payload: &[u8]) -> usize {
    u64::from_le_bytes(payload[..8].try_into().unwrap()) as usize
}
