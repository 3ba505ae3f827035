//! How readers, and verbs that change bags, handle a bag that is being recorded, and one that was damaged meanwhile.

use super::{
    faults::{prompt_world, record_one},
    *,
};
use holdall_bag::{
    live::{LockError, writer_of_bag},
    reader::{Bag, BagSet, MessageFilter},
};
use holdall_io::disk::{DiskError, Operation};
use holdall_model::loss::LossStage;
use holdall_storage::check::Severity;
use holdall_tools::tools::{
    Choice, Job, OutputOptions, ToolError, Written,
    check::check,
    reindex,
    repair::{RepairError, repair},
};

fn unseen(_done: u64, _total: u64) {}

/// A bag that is being recorded, with some messages durable in its file.
fn live(world: &mut World, storage: &str) -> (Recording, MemoryPublisher) {
    storage.clone_into(&mut world.options.files.storage_id);
    let (recording, publisher) = record_one(world);
    for number in 0..200 {
        publisher.send(&payload(number, 2000));
    }
    world.clock.advance(Duration::from_millis(1900));
    recording.wait_until("all is durable", |recording| {
        recording.recorder.status().durability.durable == 200
    });
    (recording, publisher)
}

#[test]
fn a_bag_that_is_being_recorded_is_not_changed_and_names_its_recorder() {
    for storage in ["mcap", "sqlite3", "leveldb"] {
        let mut world = prompt_world();
        let (recording, _publisher) = live(&mut world, storage);
        let bag = recording.output.clone();
        let file = recording.recorder.status().current_file;
        let me = format!("process {}", std::process::id());
        for path in [&bag, &file] {
            let writer = writer_of_bag(path).map(|writer| writer.to_string());
            assert_eq!(writer, Some(me.clone()), "{storage}: {}", path.display());
            let copy = bag.with_file_name("copy");
            for output in [None, Some(copy.as_path())] {
                let refused = repair(path, output, &mut unseen).unwrap_err();
                assert!(
                    matches!(refused, RepairError::Lock(LockError::BeingRecorded { .. })),
                    "{refused}"
                );
                assert!(refused.to_string().contains(&me), "{refused}");
            }
            assert!(!copy.exists());
        }
        let refused = reindex(&bag, &mut unseen).unwrap_err();
        assert!(
            matches!(refused, ToolError::Lock(LockError::BeingRecorded { .. })),
            "{refused}"
        );
        let report = recording.stop().report;
        assert_eq!((report.status.recorded, report.failure), (200, None), "{storage}");
        assert_eq!(
            (writer_of_bag(&bag), writer_of_bag(&file)),
            (None, None),
            "{storage}"
        );
        let found = check(&bag, &mut unseen).unwrap();
        assert!(
            found.is_sound(),
            "{storage}: {:?}",
            found.findings().collect::<Vec<_>>()
        );
    }
}

#[test]
fn what_a_bag_holds_that_is_being_recorded_is_read_and_is_no_damage() {
    for storage in ["mcap", "sqlite3", "leveldb"] {
        let mut world = prompt_world();
        let (recording, _publisher) = live(&mut world, storage);
        let me = format!("is being recorded by process {}", std::process::id());
        for path in [recording.output.clone(), recording.recorder.status().current_file] {
            let bag = Bag::open(&path).unwrap();
            assert_eq!(bag.notices().len(), 1, "{storage}: {:?}", bag.notices());
            assert!(bag.notices()[0].contains(&me), "{storage}: {:?}", bag.notices());
            assert_eq!(
                (bag.damage(), bag.metadata().message_count),
                (None, 200),
                "{storage}"
            );
            assert!(bag.writer().is_some());
            let copied = convert(bag.clone(), &recording.output);
            assert_eq!(copied.messages, 200, "{storage}");
            let messages = BagSet::from(vec![bag]).messages(&MessageFilter::default());
            assert_eq!(messages.filter(Result::is_ok).count(), 200, "{storage}");
            let found = check(&path, &mut unseen).unwrap();
            let findings: Vec<_> = found
                .findings()
                .map(|finding| (finding.severity, finding.to_string()))
                .collect();
            assert!(found.is_sound(), "{storage}: {findings:?}");
            assert!(
                findings
                    .iter()
                    .any(|(severity, text)| *severity == Severity::Notice && text.contains(&me)),
                "{storage}: {findings:?}"
            );
        }
        recording.stop();
    }
}

/// The bag as one of MCAP, as `convert` makes it.
fn convert(bag: Bag, beside: &Path) -> Written {
    let name = format!("converted_{}", bag.path().file_name().unwrap().display());
    let job = Job {
        inputs: vec![bag],
        choice: Choice::default(),
        output: OutputOptions {
            directory: beside.with_file_name(name),
            storage_id: Some("mcap".to_owned()),
            ..OutputOptions::default()
        },
    };
    holdall_tools::tools::run(job, &mut unseen).unwrap()
}

/// A bag that a repair without knowledge of locks left under its recorder: the end of a bag in the middle of the file.
fn with_an_end_in_its_middle(world: &mut World) -> PathBuf {
    let (recording, publisher) = live(world, "mcap");
    let early = super::faults::killed(world);
    repair(&early, None, &mut unseen).unwrap();
    for number in 200..2000 {
        publisher.send(&payload(number, 2000));
    }
    let whole = recording.stop().report.files[0].clone();
    let (ended, torn) = (
        fs::read(early.join("bag_0.mcap")).unwrap(),
        fs::read(&whole).unwrap(),
    );
    let same = ended.iter().zip(&torn).take_while(|(a, b)| a == b).count();
    let mut broken = torn;
    broken[same..ended.len()].copy_from_slice(&ended[same..]);
    fs::write(&whole, broken).unwrap();
    whole.parent().unwrap().to_owned()
}

#[test]
fn a_broken_file_is_never_called_whole() {
    let mut world = prompt_world();
    let bag = with_an_end_in_its_middle(&mut world);
    let problems = check(&bag, &mut unseen).unwrap().problems();
    assert!(problems > 0, "otherwise this test shows nothing");
    let copy = bag.with_file_name("copy");
    for _ in 0..2 {
        let report = repair(&bag, None, &mut unseen).unwrap();
        assert!(report.problem_count > 0, "{report:?}");
        assert_eq!(report.problems.len() as u64, report.problem_count);
    }
    let report = repair(&bag, Some(&copy), &mut unseen).unwrap();
    assert!(
        report.problem_count == 0 && !report.unsaved.is_empty(),
        "{report:?}"
    );
    assert!(!format!("{report:?}").contains(".partial"), "{report:?}");
    let messages = |path: &Path| {
        let set = BagSet::open(&[path]).unwrap();
        let found = set.messages(&MessageFilter::default()).filter_map(Result::ok);
        found.map(|message| message.payload.to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(messages(&copy).len() as u64, report.messages);
    assert_eq!(
        messages(&copy),
        messages(&bag),
        "all that can be read of it is in the copy"
    );
}

#[test]
fn metadata_names_no_message_that_cannot_be_read() {
    let mut world = prompt_world();
    let bag = with_an_end_in_its_middle(&mut world);
    let done = reindex(&bag, &mut unseen).unwrap();
    let found = check(&bag, &mut unseen).unwrap();
    let readable: u64 = found.files.iter().map(|file| file.message_count).sum();
    assert!(readable < 2000, "otherwise this test shows nothing");
    assert_eq!((done.messages, done.unreadable), (readable, 2000 - readable));
    assert!(
        done.notices
            .iter()
            .any(|notice| notice.contains("cannot be read")),
        "{:?}",
        done.notices
    );
    let bag = Bag::open(&bag).unwrap();
    let metadata = bag.metadata();
    let of_topics: u64 = metadata
        .topics_with_message_count
        .iter()
        .map(|topic| topic.message_count)
        .sum();
    assert_eq!((metadata.message_count, of_topics), (readable, readable));
    assert_eq!(
        found.bag.problems, 0,
        "the metadata says what a check finds: {:?}",
        found.bag
    );
}

/// Damage to the file that is being recorded.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Deleted,
    Replaced,
}

impl Harm {
    fn to(self, file: &Path) {
        let copy = file.with_extension("copy");
        if let Self::Replaced = self {
            fs::copy(file, &copy).unwrap();
        }
        if file.is_dir() {
            fs::remove_dir_all(file).unwrap();
        } else {
            fs::remove_file(file).unwrap();
        }
        if let Self::Replaced = self {
            fs::rename(&copy, file).unwrap();
        }
    }
}

#[test]
fn a_file_that_is_deleted_or_replaced_is_noticed_counted_and_followed_by_a_new_one() {
    for (storage, harm) in [
        ("mcap", Harm::Deleted),
        ("mcap", Harm::Replaced),
        ("sqlite3", Harm::Deleted),
    ] {
        let mut world = prompt_world();
        let (recording, publisher) = live(&mut world, storage);
        let file = recording.recorder.status().current_file;
        harm.to(&file);
        publisher.send(&payload(200, 2000));
        recording.wait_until("the new file is there", |recording| {
            world.clock.advance(Duration::from_millis(100));
            recording.recorder.status().current_file != file
        });
        for number in 201..250 {
            publisher.send(&payload(number, 2000));
        }
        let recorded = recording.stop();
        assert_eq!(recorded.report.failure, None, "{storage} {harm:?}");
        let found = holdall_bag::reader::BagAudit::of(&Bag::open(&recorded.output).unwrap()).unwrap();
        assert!(found.is_balanced(), "{storage} {harm:?}: {:?}", found.faults);
        assert!(
            (1..=50).contains(&found.recorded()),
            "{storage} {harm:?}: {}",
            found.recorded()
        );
        assert_eq!(found.recorded() + recorded.lost(), 250, "{storage} {harm:?}");
        assert_eq!(found.missing().get(&LossStage::Storage), Some(&recorded.lost()));
    }
}

#[test]
fn a_file_that_is_deleted_before_the_end_is_noticed_at_the_end() {
    for storage in ["mcap", "sqlite3", "leveldb"] {
        let mut world = prompt_world();
        world.options.safety.max_loss_window = None;
        storage.clone_into(&mut world.options.files.storage_id);
        let (recording, publisher) = record_one(&mut world);
        for number in 0..100 {
            publisher.send(&payload(number, 2000));
        }
        recording.wait_recorded(100);
        Harm::Deleted.to(&recording.recorder.status().current_file);
        let recorded = recording.stop();
        assert_eq!(recorded.lost(), 100, "{storage}");
        let bag = Bag::open(&recorded.output).unwrap();
        let found = holdall_bag::reader::BagAudit::of(&bag).unwrap();
        assert!(found.is_balanced(), "{storage}: {:?}", found.faults);
        assert_eq!(
            (found.recorded(), bag.metadata().message_count),
            (0, 0),
            "{storage}"
        );
    }
}

#[test]
fn a_storage_that_notices_first_that_its_file_was_deleted_continues_in_a_new_one() {
    for storage in ["mcap", "sqlite3", "leveldb"] {
        let mut world = prompt_world();
        world.options.safety.max_loss_window = None;
        storage.clone_into(&mut world.options.files.storage_id);
        let (recording, publisher) = record_one(&mut world);
        publisher.send(&payload(0, 2000));
        recording.wait_recorded(1);
        let file = recording.recorder.status().current_file;
        Harm::Deleted.to(&file);
        // More than a transaction or a table of the storages holds.
        for number in 1..6000 {
            publisher.send(&payload(number, 2000));
        }
        let recorded = recording.stop();
        assert_eq!(recorded.report.failure, None, "{storage}");
        let found = holdall_bag::reader::BagAudit::of(&Bag::open(&recorded.output).unwrap()).unwrap();
        assert!(found.is_balanced(), "{storage}: {:?}", found.faults);
        assert!(recorded.lost() > 0, "{storage}");
        assert_eq!(found.recorded() + recorded.lost(), 6000, "{storage}");
    }
}

#[test]
fn no_verb_writes_through_a_link_in_a_bag() {
    use std::os::unix::fs::symlink;
    let mut world = prompt_world();
    let (recording, _publisher) = live(&mut world, "mcap");
    let bag = super::faults::killed(&world);
    recording.stop();
    let dir = bag.parent().unwrap().to_owned();
    let (torn, inside) = (dir.join("torn.mcap"), bag.join("bag_0.mcap"));
    fs::rename(&inside, &torn).unwrap();
    symlink(&torn, &inside).unwrap();
    let before = fs::read(&torn).unwrap();
    let refused = repair(&bag, None, &mut unseen).unwrap_err().to_string();
    assert!(refused.contains("symbolic link"), "{refused}");
    assert!(fs::read(&torn).unwrap() == before);
    // The description is replaced if it is a link.
    let victim = dir.join("victim");
    fs::write(&victim, "precious").unwrap();
    fs::remove_file(bag.join("metadata.yaml")).unwrap();
    symlink(&victim, bag.join("metadata.yaml")).unwrap();
    reindex(&bag, &mut unseen).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert!(!bag.join("metadata.yaml").symlink_metadata().unwrap().is_symlink());
    // A link that the caller names is followed.
    let report = repair(&inside, None, &mut unseen).unwrap();
    assert!(report.has_changed() && report.problem_count == 0, "{report:?}");
}

#[test]
fn a_recording_that_was_killed_before_its_first_write_is_a_bag_without_messages() {
    for storage in ["mcap", "sqlite3", "leveldb"] {
        let mut world = World::new();
        world.options.safety.max_loss_window = None;
        storage.clone_into(&mut world.options.files.storage_id);
        let recording = world.record();
        let killed = world.options.output.with_file_name("killed");
        copy_all(&world.options.output, &killed);
        // The part of the file that a power cut may leave.
        if storage == "mcap" {
            fs::write(killed.join("bag_0.mcap"), vec![0; 100_000]).unwrap();
        }
        recording.stop();
        let bag = Bag::open(&killed).unwrap();
        assert_eq!(bag.metadata().message_count, 0, "{storage}");
        assert_eq!(bag.metadata().storage_identifier, storage);
        let messages = BagSet::from(vec![bag]).messages(&MessageFilter::default());
        assert_eq!(messages.count(), 0, "{storage}");
        let report = repair(&killed, None, &mut unseen).unwrap();
        assert_eq!(
            (report.messages, report.problem_count),
            (0, 0),
            "{storage}: {report:?}"
        );
        let bag = Bag::open(&killed).unwrap();
        assert_eq!(
            (bag.notices().len(), bag.metadata().message_count),
            (0, 0),
            "{storage}"
        );
    }
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, name) = {
            let entry = entry.unwrap();
            (entry.path(), entry.file_name())
        };
        if path.is_dir() {
            copy_all(&path, &to.join(name));
        } else {
            fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

#[test]
fn a_file_that_was_made_ahead_is_removed_by_a_repair() {
    let mut world = prompt_world();
    let (recording, _publisher) = live(&mut world, "mcap");
    let killed = super::faults::killed(&world);
    recording.stop();
    fs::write(killed.join("bag_1.mcap"), vec![0; 10_000]).unwrap();
    let report = repair(&killed, None, &mut unseen).unwrap();
    assert_eq!((report.messages, report.problem_count), (200, 0), "{report:?}");
    assert!(!killed.join("bag_1.mcap").exists());
}

#[test]
fn a_start_that_fails_leaves_no_folder() {
    for number in 0..2 {
        let mut world = World::new();
        world.disk = Some(Box::new(move |directory: &Path| {
            if number == 0 {
                let source = std::io::Error::from(std::io::ErrorKind::OutOfMemory);
                return Err(DiskError::new(directory, Operation::TakeBlock, source));
            }
            // The first file cannot be made.
            fs::create_dir(directory.join("bag_0.mcap")).unwrap();
            let blocks = BlockPoolOptions {
                block_bytes: 1 << 20,
                block_count: 6,
                huge_pages: false,
            };
            os_disk(DiskMode::Buffered, blocks)(directory)
        }));
        assert!(world.try_record().is_err());
        assert!(!world.options.output.exists());
    }
}
