//! Storage files that are gone, emptied, cut or overwritten: every account has the number of lost messages, before and after a repair, for good.

use super::{
    rescue::{killed, read},
    *,
};
use holdall_bag::reader::{Bag, BagAudit};
use holdall_model::loss::LossStage;
use holdall_tools::tools::{self, Choice, Job, OutputOptions, check::check, reindex, repair::repair};
use std::collections::BTreeSet;

/// Messages to send, by topic.
type Sent = BTreeMap<&'static str, u64>;

/// Damage to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    Gone,
    Emptied,
    Head,
    Cut,
}

impl Harm {
    fn to(self, file: &Path) {
        let bytes = || fs::read(file).unwrap();
        match self {
            Self::Gone if file.is_dir() => fs::remove_dir_all(file).unwrap(),
            Self::Gone => fs::remove_file(file).unwrap(),
            Self::Emptied => fs::write(file, b"").unwrap(),
            // In the first fifth, where messages are even if the file has no more than two: summary and account take the rest.
            Self::Cut => fs::write(file, &bytes()[..bytes().len() / 5]).unwrap(),
            Self::Head => {
                let mut bytes = bytes();
                let end = bytes.len().min(4096);
                bytes[..end].fill(0xa5);
                fs::write(file, bytes).unwrap();
            }
        }
    }
}

fn files_of(bag: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(bag).unwrap().map(|entry| entry.unwrap().path());
    let number = |path: &PathBuf| -> Option<u64> {
        let name = path.file_name()?.to_str()?.strip_prefix("bag_")?;
        name.split('.').next()?.parse().ok()
    };
    let mut files: Vec<PathBuf> = names.filter(|path| number(path).is_some()).collect();
    files.sort_by_key(number);
    files
}

/// A recording of `count` messages over several files, in which all but the last few are durable and no longer in memory.
fn recording(world: &mut World, storage: &str, count: u64) -> (Recording, Sent) {
    world.options.files.storage_id = storage.to_owned();
    world.options.files.split.bytes_max = Some(60_000);
    let publishers = [world.publisher("/a", RELIABLE), world.publisher("/b", SENSOR)];
    let recording = world.record();
    publishers
        .iter()
        .for_each(|publisher| recording.wait_matched(publisher));
    let mut sent = Sent::from([("/a", 0), ("/b", 0)]);
    for number in 0..count {
        let (topic, publisher) = if number % 3 == 0 {
            ("/b", &publishers[1])
        } else {
            ("/a", &publishers[0])
        };
        publisher.send(&payload(number as usize, 1000));
        *sent.get_mut(topic).unwrap() += 1;
        recording.wait_recorded(number + 1);
        if number + 10 == count {
            world.clock.advance(Duration::from_secs(3));
            recording.wait_until("all is durable", |recording| {
                recording.recorder.status().durability.durable > number
            });
        }
    }
    (recording, sent)
}

/// The account of a bag covers all sent messages, and has those missing from the bag as lost.
fn assert_exact(bag: &Path, sent: &Sent, about: &str) -> u64 {
    let found = read(bag);
    let opened = Bag::open(bag).unwrap();
    let audit = BagAudit::of(&opened).unwrap();
    assert_eq!(audit.faults, [""; 0], "{about}");
    for (topic, sent) in sent {
        let there: BTreeSet<&Vec<u8>> = found.get(*topic).into_iter().flatten().collect();
        let counted = audit.topics.iter().find(|audit| audit.name == *topic);
        let lost = counted.map_or(0, |audit| audit.sums().lost);
        assert_eq!(there.len() as u64 + lost, *sent, "{about}: {topic}, {counted:?}");
    }
    let lost = sent.values().sum::<u64>() - found.values().map(|all| all.len() as u64).sum::<u64>();
    let account = opened.account().unwrap().unwrap();
    assert_eq!(account.lost, lost, "{about}");
    let listed: u64 = opened
        .any_ledger()
        .unwrap()
        .unwrap()
        .missing_files
        .iter()
        .map(|file| file.messages)
        .sum();
    assert_eq!(listed, lost, "{about}: missing files");
    if lost > 0 {
        assert_eq!(audit.missing().get(&LossStage::Storage), Some(&lost), "{about}");
    }
    lost
}

/// Losses stay in the account, whatever is made of the bag.
fn assert_for_good(bag: &Path, sent: &Sent, lost: u64, about: &str) {
    let again = repair(bag, None, &mut |_, _| {}).unwrap();
    assert!(!again.has_changed(), "{about}: {again:?}");
    reindex(bag, &mut |_, _| {}).unwrap();
    assert_eq!(assert_exact(bag, sent, &format!("{about}, reindexed")), lost);
    let place = tempfile::tempdir().unwrap();
    let made = place.path().join("made");
    let job = Job {
        inputs: vec![Bag::open(bag).unwrap()],
        choice: Choice::default(),
        output: OutputOptions {
            directory: made.clone(),
            ..OutputOptions::default()
        },
    };
    tools::run(job, &mut |_, _| {}).unwrap();
    assert_eq!(assert_exact(&made, sent, &format!("{about}, converted")), lost);
}

#[test]
fn a_file_of_a_killed_recording_that_is_gone_is_in_its_account_for_good() {
    for storage in ["mcap", "sqlite3", "leveldb"] {
        let (mut world, _memory) = super::rescue::world_with_memory();
        world.options.safety.max_loss_window = Some(DEFAULT_LOSS_WINDOW);
        let (recording, sent) = recording(&mut world, storage, 240);
        let place = tempfile::tempdir().unwrap();
        let whole = killed(&recording, place.path());
        recording.stop();
        assert_eq!(assert_exact(&whole, &sent, storage), 0);
        assert!(files_of(&whole).len() > 3, "{:?}", files_of(&whole));
        for (which, harm) in [
            (0, Harm::Gone),
            (1, Harm::Gone),
            (0, Harm::Head),
            (1, Harm::Head),
            (1, Harm::Emptied),
        ] {
            if storage == "leveldb" && harm != Harm::Gone {
                continue;
            }
            let about = format!("{storage}, file {which} {harm:?}");
            let place = tempfile::tempdir().unwrap();
            let bag = super::rescue::copied(&whole, place.path());
            harm.to(&files_of(&bag)[which]);
            let lost = assert_exact(&bag, &sent, &format!("{about}, not repaired"));
            // The rows of a database are found without its first page; a copy saves them (`repair -o`).
            let is_found = storage == "sqlite3" && harm == Harm::Head;
            assert!(if is_found { lost == 0 } else { lost > 10 }, "{about}: {lost}");
            if is_found {
                continue;
            }
            repair(&bag, None, &mut |_, _| {}).unwrap();
            assert_eq!(assert_exact(&bag, &sent, &about), lost);
            if harm == Harm::Gone {
                assert!(check(&bag, &mut |_, _| {}).unwrap().is_sound(), "{about}");
                assert_for_good(&bag, &sent, lost, &about);
            }
        }
    }
}

/// The highest number in the folder is then below that of a file that is gone.
#[test]
fn messages_from_memory_do_not_take_the_name_of_a_file_that_is_gone() {
    for storage in ["mcap", "sqlite3", "leveldb"] {
        let (mut world, _memory) = super::rescue::world_with_memory();
        world.options.safety.max_loss_window = Some(DEFAULT_LOSS_WINDOW);
        let (recording, sent) = recording(&mut world, storage, 240);
        let place = tempfile::tempdir().unwrap();
        let bag = killed(&recording, place.path());
        recording.stop();
        files_of(&bag)
            .iter()
            .rev()
            .take(2)
            .for_each(|file| Harm::Gone.to(file));
        let lost = assert_exact(&bag, &sent, &format!("{storage}, not repaired"));
        assert!(lost > 10, "{storage}: {lost}");
        let report = repair(&bag, None, &mut |_, _| {}).unwrap();
        assert!(report.rescued > Some(0), "{storage}: {report:?}");
        assert_eq!(assert_exact(&bag, &sent, storage), lost);
        assert_for_good(&bag, &sent, lost, storage);
    }
}

#[test]
fn a_whole_bag_that_lost_a_file_or_was_cut_is_repaired_and_says_what_is_missing() {
    for storage in ["mcap", "sqlite3"] {
        let mut world = World::new();
        let (recording, sent) = recording(&mut world, storage, 240);
        let whole = recording.stop().output;
        let last = files_of(&whole).len() - 1;
        for (which, harm) in [
            (0, Harm::Gone),
            (last, Harm::Gone),
            (1, Harm::Emptied),
            (0, Harm::Cut),
            (last, Harm::Cut),
        ] {
            // A database that was cut is different: the rest of it is not repaired in place.
            if storage == "sqlite3" && harm == Harm::Cut {
                continue;
            }
            let about = format!("{storage}, file {which} of {last} {harm:?}");
            let place = tempfile::tempdir().unwrap();
            let bag = place.path().join("bag");
            super::rescue::copy_tree(&whole, &bag);
            harm.to(&files_of(&bag)[which]);
            let report = repair(&bag, None, &mut |_, _| {}).unwrap();
            assert_eq!(
                (report.problem_count, report.metadata_written),
                (0, true),
                "{about}: {report:?}"
            );
            let lost = assert_exact(&bag, &sent, &about);
            assert!(
                lost > 0 && report.messages + lost == 240,
                "{about}: {lost}, {report:?}"
            );
            assert_for_good(&bag, &sent, lost, &about);
        }
    }
}

#[test]
fn an_empty_file_that_metadata_names_does_not_make_a_bag_unreadable() {
    let mut world = World::new();
    let (recording, sent) = recording(&mut world, "mcap", 240);
    let bag = recording.stop().output;
    // As a disk that was full at a split left it.
    let metadata = bag.join("metadata.yaml");
    let text = fs::read_to_string(&metadata).unwrap();
    let names = "relative_file_paths:\n";
    let more = format!("{names}    - bag_99.mcap\n");
    fs::write(&metadata, text.replacen(names, &more, 1)).unwrap();
    fs::write(bag.join("bag_99.mcap"), b"").unwrap();
    assert!(Bag::open(&bag).and_then(|bag| BagAudit::of(&bag)).is_err());
    let report = repair(&bag, None, &mut |_, _| {}).unwrap();
    assert_eq!((report.problem_count, report.messages), (0, 240), "{report:?}");
    assert_eq!(assert_exact(&bag, &sent, "empty"), 0);
    assert!(!bag.join("bag_99.mcap").exists());
}

/// By the account in the last file alone, which has more than the files.
#[test]
fn metadata_that_is_gone_with_a_file_takes_nothing_from_the_account() {
    let mut world = World::new();
    let (recording, sent) = recording(&mut world, "mcap", 240);
    let bag = recording.stop().output;
    Harm::Gone.to(&files_of(&bag)[1]);
    fs::remove_file(bag.join("metadata.yaml")).unwrap();
    reindex(&bag, &mut |_, _| {}).unwrap();
    let lost = assert_exact(&bag, &sent, "reindexed");
    assert!(lost > 10, "{lost}");
    assert_for_good(&bag, &sent, lost, "without metadata");
}

#[test]
fn a_bag_of_another_recorder_gets_an_account_of_what_is_missing() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../holdall/tests/data/rosbag2");
    for name in ["mcap_split3", "sqlite3_split3"] {
        let place = tempfile::tempdir().unwrap();
        let bag = place.path().join(name);
        super::rescue::copy_tree(&data.join(name), &bag);
        let before = Bag::open(&bag).unwrap();
        let (all, gone) = (before.metadata().message_count, before.files()[1].clone());
        let gone_messages = gone.open().unwrap().summary().message_count;
        assert!(gone_messages > 0);
        drop(before);
        Harm::Gone.to(&gone.path);
        let report = repair(&bag, None, &mut |_, _| {}).unwrap();
        assert_eq!(
            (report.problem_count, report.messages),
            (0, all - gone_messages),
            "{report:?}"
        );
        let audit = BagAudit::of(&Bag::open(&bag).unwrap()).unwrap();
        assert_eq!(
            (audit.faults.clone(), audit.shortfall()),
            (vec![], gone_messages),
            "{name}"
        );
    }
}
