//! Tests of the audit: the real contents of a bag against the account in it, whole, split, cut off, failed and tampered with.

use super::*;
use crate::cache::CachePolicy;
use holdall_bag::{
    reader::{AccountKind, Bag, BagAudit, Condition},
    writer::SplitOptions,
};
use holdall_model::loss::LossStage;
use holdall_tools::tools::{self, Choice, Job, Moment, OutputOptions};

fn audit(bag: &Path) -> BagAudit {
    BagAudit::of(&Bag::open(bag).unwrap()).unwrap()
}

/// Two publishers on `/t`, one with gaps in its numbers, and one on `/other`.
fn recorded(world: &mut World) -> Recorded {
    let (first, second) = (world.publisher("/t", SENSOR), world.publisher("/t", SENSOR));
    let other = world.publisher("/other", RELIABLE);
    let recording = world.record();
    for publisher in [&first, &second, &other] {
        recording.wait_matched(publisher);
    }
    for number in 0..50 {
        first.send(&payload(number, 100));
        if number == 20 {
            second.lose(4);
        }
        second.send(&payload(number, 100));
        other.send(&payload(number, 3000));
    }
    recording.wait_recorded(150);
    recording.stop()
}

#[test]
fn a_recording_with_known_losses_adds_up_in_every_storage() {
    for storage in ["mcap", "sqlite3"] {
        let mut world = World::new();
        world.options.files.storage_id = storage.to_owned();
        let recorded = recorded(&mut world);
        let audit = audit(&recorded.output);
        assert_eq!(audit.faults, Vec::<String>::new(), "{storage}");
        assert_eq!(audit.account, AccountKind::Final);
        assert!(audit.is_balanced());
        assert_eq!(audit.recorded(), 150);
        assert_eq!(audit.missing(), BTreeMap::from([(LossStage::Transport, 4)]));
    }
}

#[test]
fn a_split_bag_adds_up_and_each_file_has_the_account_so_far() {
    let mut world = World::new();
    world.options.files.split = SplitOptions {
        bytes_max: Some(50_000),
        ..SplitOptions::default()
    };
    let recorded = recorded(&mut world);
    assert!(recorded.report.files.len() > 2);
    let whole = audit(&recorded.output);
    assert_eq!((whole.faults.clone(), whole.recorded()), (Vec::new(), 150));
    let first = Bag::open(&recorded.report.files[0]).unwrap();
    assert!(first.ledger().unwrap().is_none());
    assert!(first.any_ledger().unwrap().unwrap().checkpoint.is_some());
}

#[test]
fn what_expired_in_a_ring_of_files_is_neither_there_nor_lost() {
    let mut world = World::new();
    world.options.files.split = SplitOptions {
        bytes_max: Some(50_000),
        files_max: Some(2),
        ..SplitOptions::default()
    };
    let recorded = recorded(&mut world);
    let audit = audit(&recorded.output);
    assert_eq!(audit.faults, Vec::<String>::new());
    let expired: u64 = audit.topics.iter().map(|topic| topic.expired).sum();
    assert!(expired > 0);
    assert_eq!(audit.recorded() + expired, 150);
}

#[test]
fn a_bag_that_lost_a_message_afterwards_does_not_add_up() {
    let mut world = World::new();
    let recorded = recorded(&mut world);
    let file = &recorded.report.files[0];
    // The same file, one message less, and once more with another number in place of it.
    for replaced in [None, Some(99)] {
        rewrite(file, replaced);
        let audit = audit(&recorded.output);
        assert!(!audit.is_balanced(), "{replaced:?}");
        let text = audit.faults.join("\n");
        assert!(text.contains("/t: "), "{replaced:?}: {text}");
    }
}

/// Rewrites a file; the tenth message on `/t` is left out, or gets another sequence number.
pub(super) fn rewrite(file: &Path, replaced: Option<u32>) {
    rewrite_with(file, replaced, |_| {});
}

/// As [`rewrite`], and changes the metadata records.
pub(super) fn rewrite_with(file: &Path, replaced: Option<u32>, edit: impl Fn(&mut mcap::records::Metadata)) {
    let bytes = fs::read(file).unwrap();
    let summary = mcap::Summary::read(&bytes).unwrap().unwrap();
    let copy = file.with_extension("copy");
    let mut writer = mcap::Writer::new(std::io::BufWriter::new(fs::File::create(&copy).unwrap())).unwrap();
    let mut number = 0;
    for message in mcap::MessageStream::new(&bytes).unwrap() {
        let mut message = message.unwrap();
        if message.channel.topic == "/t" {
            number += 1;
            if number == 10 {
                match replaced {
                    Some(sequence) => message.sequence = sequence,
                    None => continue,
                }
            }
        }
        writer.write(&message).unwrap();
    }
    for index in &summary.metadata_indexes {
        let mut record = mcap::read::metadata(&bytes, index).unwrap();
        edit(&mut record);
        writer.write_metadata(&record).unwrap();
    }
    writer.finish().unwrap();
    drop(writer);
    fs::rename(&copy, file).unwrap();
}

#[test]
fn a_recording_that_was_cut_off_states_its_losses_up_to_a_checkpoint() {
    let mut world = World::new();
    let publisher = world.publisher("/t", SENSOR);
    let recording = world.record();
    recording.wait_matched(&publisher);
    publisher.send(&payload(0, 100));
    publisher.lose(7);
    publisher.send(&payload(1, 100));
    recording.wait_recorded(2);
    // The next checkpoint, and syncs until one of them began after it.
    world.clock.advance(Duration::from_secs(6));
    let cut = world.options.output.with_file_name("cut");
    recording.wait_until("a checkpoint with the loss is in the file", |recording| {
        publisher.send(&payload(2, 100));
        world.clock.advance(Duration::from_secs(1));
        copy_dir(&recording.output, &cut);
        let audit = Bag::open(&cut).and_then(|bag| BagAudit::of(&bag));
        audit.is_ok_and(|audit| audit.missing().get(&LossStage::Transport) == Some(&7))
    });
    let audit = audit(&cut);
    assert!(matches!(audit.account, AccountKind::Checkpoint(_)), "{audit:?}");
    assert!(audit.is_balanced(), "{:?}", audit.faults);
    // A repair keeps the known losses.
    holdall_tools::tools::repair::repair(&cut, None, &mut |_, _| ()).unwrap();
    let bag = Bag::open(&cut).unwrap();
    let account = bag.account().unwrap().unwrap();
    // It is still not an account of the whole recording, and claims nothing false about the publishers.
    assert_eq!((account.lost, account.topics_unknown), (7, 0));
    assert!(account.checkpoint.is_some());
    assert!(BagAudit::of(&bag).unwrap().is_balanced());
    assert_eq!(recording.stop().lost(), 7);
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        // A name that is being replaced may be gone by now.
        drop(fs::copy(entry.path(), to.join(entry.file_name())));
    }
}

#[test]
fn a_recording_that_filled_the_disk_adds_up_by_the_sums_in_its_metadata() {
    let mut world = World::new();
    world.options.cache.policy = CachePolicy::DropNew;
    world.disk = Some(super::faults::test_disk(
        &Arc::new(AtomicU64::new(1 << 20)),
        &Arc::default(),
    ));
    let publisher = world.publisher("/t", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    let mut number = 0;
    recording.wait_until("the disk is full", |recording| {
        publisher.send(&payload(number, 10_000));
        recording.control.stop_reason().is_some()
    });
    number += 1;
    let recorded = recording.stop();
    assert!(recorded.report.failure.is_some() && number > 0);
    let audit = audit(&recorded.output);
    assert_eq!(audit.account, AccountKind::Final);
    assert_eq!(audit.recorded(), recorded.report.status.recorded);
    assert_eq!(audit.shortfall(), recorded.lost());
    assert!(audit.missing()[&LossStage::Storage] > 0);
}

/// A bag of one message on `/t` without an account.
fn foreign_bag(dir: &Path) -> PathBuf {
    let file = dir.join("foreign_0.mcap");
    let mut writer = mcap::Writer::new(std::io::BufWriter::new(fs::File::create(&file).unwrap())).unwrap();
    let schema = writer.add_schema(STRING, "ros2msg", b"string data").unwrap();
    let channel = writer.add_channel(schema, "/t", "cdr", &BTreeMap::new()).unwrap();
    let header = mcap::records::MessageHeader {
        channel_id: channel,
        sequence: 0,
        log_time: 1,
        publish_time: 1,
    };
    writer.write_to_known_channel(&header, &payload(1, 16)).unwrap();
    writer.finish().unwrap();
    file
}

#[test]
fn a_bag_of_another_recorder_has_no_account() {
    let dir = tempfile::tempdir().unwrap();
    foreign_bag(dir.path());
    let audit = audit(dir.path());
    assert_eq!((audit.account, audit.recorded()), (AccountKind::Missing, 1));
    assert!(!audit.is_balanced());
}

#[test]
fn a_repair_invents_no_account_for_a_bag_of_another_recorder() {
    let dir = tempfile::tempdir().unwrap();
    let file = foreign_bag(dir.path());
    let cut = |by: u64| {
        let torn = fs::OpenOptions::new().write(true).open(&file).unwrap();
        torn.set_len(torn.metadata().unwrap().len() - by).unwrap();
    };
    cut(20);
    tools::repair::repair(dir.path(), None, &mut |_, _| ()).unwrap();
    let state = Bag::open(dir.path()).unwrap().state().unwrap();
    assert_eq!(
        (audit(dir.path()).account, state.sums().is_none()),
        (AccountKind::Missing, true)
    );
    assert_eq!(
        state.lost_line(|_| unreachable!()),
        "not known: the recording was cut off"
    );

    // Messages listed in its metadata are known to be gone, and no others.
    let length = fs::metadata(&file).unwrap().len();
    cut(length - 100);
    tools::repair::repair(dir.path(), None, &mut |_, _| ()).unwrap();
    let state = Bag::open(dir.path()).unwrap().state().unwrap();
    assert_eq!(state.condition, Condition::FilesMissing);
    assert_eq!((state.sums().unwrap().lost, state.knows_all()), (1, false));
    assert_eq!(state.lost_line(|_| unreachable!()), "1");
}

#[test]
fn a_bag_of_which_a_part_cannot_be_read_is_damaged_by_audit_and_check() {
    for storage in ["mcap", "sqlite3"] {
        let mut world = World::new();
        world.options.files.storage_id = storage.to_owned();
        let bag = recorded(&mut world).output;
        let file = Bag::open(&bag).unwrap().files()[0].path.clone();
        let mut bytes = fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle..middle + 16 * 1024].fill(0xff);
        fs::write(&file, bytes).unwrap();
        let audit = audit(&bag);
        let checked = tools::check::check(&bag, &mut |_, _| ()).unwrap();
        let states = [&audit.state, checked.state.as_ref().unwrap()];
        let said = states.map(|state| (state.condition, state.knows_all()));
        assert_eq!(said, [(Condition::Damaged, false); 2], "{storage}");
        assert!(!audit.is_balanced() && !checked.is_sound(), "{storage}");
    }
}

/// The audit of a tool's output from `inputs`.
fn audit_of_made(inputs: &[&Path], change: impl FnOnce(&mut Job)) -> BagAudit {
    let dir = tempfile::tempdir().unwrap();
    let mut job = Job {
        inputs: inputs.iter().map(|path| Bag::open(path).unwrap()).collect(),
        choice: Choice::default(),
        output: OutputOptions {
            directory: dir.path().join("made"),
            ..OutputOptions::default()
        },
    };
    change(&mut job);
    let made = tools::run(job, &mut |_, _| ()).unwrap();
    audit(&made.directory)
}

#[test]
fn what_a_tool_makes_of_a_whole_recording_adds_up_with_the_same_losses() {
    let mut world = World::new();
    let recorded = recorded(&mut world);
    let lost = BTreeMap::from([(LossStage::Transport, 4)]);
    let split: fn(&mut Job) = |job| job.output.split.count_max = Some(40);
    let sqlite: fn(&mut Job) = |job| job.output.storage_id = Some("sqlite3".to_owned());
    let leveldb: fn(&mut Job) = |job| job.output.storage_id = Some("leveldb".to_owned());
    for (what, change) in [
        ("copy", (|_| ()) as fn(&mut Job)),
        ("split", split),
        ("sqlite3", sqlite),
        ("leveldb", leveldb),
    ] {
        let audit = audit_of_made(&[&recorded.output], change);
        assert_eq!(audit.faults, Vec::<String>::new(), "{what}");
        assert!(audit.is_balanced(), "{what}");
        assert_eq!((audit.recorded(), audit.missing()), (150, lost.clone()), "{what}");
    }
}

#[test]
fn what_a_tool_leaves_out_on_request_is_counted_as_policy_and_is_no_loss() {
    let mut world = World::new();
    let recorded = recorded(&mut world);
    // By messages, not by time, because the sender may have been stopped anywhere.
    let mut times: Vec<_> = recorded.messages().iter().map(|read| read.log_time).collect();
    times.sort_unstable();
    let middle = Timestamp::from_nanos(times[times.len() / 2] as i64);
    let middle = |_: &Job| Some(Moment::At(middle));
    let from_middle = |job: &mut Job| job.choice.start = middle(job);
    let to_middle = |job: &mut Job| job.choice.end = middle(job);
    let by_rate = |job: &mut Job| {
        job.choice.rates.insert("/t".to_owned(), 0.001);
    };
    // The second half has none of the losses of the first.
    type Change<'a> = &'a dyn Fn(&mut Job);
    let cases: [(&str, Change<'_>, u64); 3] = [
        ("end", &from_middle, 0),
        ("beginning", &to_middle, 4),
        ("rate", &by_rate, 4),
    ];
    for (what, change, lost) in cases {
        let audit = audit_of_made(&[&recorded.output], change);
        assert_eq!(audit.faults, Vec::<String>::new(), "{what}");
        assert!(audit.is_balanced() && audit.recorded() < 150, "{what}");
        let missing = audit.missing();
        let of = |stage| missing.get(&stage).copied().unwrap_or(0);
        assert_eq!(of(LossStage::Policy), 154 - lost - audit.recorded(), "{what}");
        assert_eq!(of(LossStage::Transport), lost, "{what}");
        assert_eq!(audit.shortfall(), lost, "{what}");
    }
    let topic = audit_of_made(&[&recorded.output], |job| {
        job.choice.selection.topics = vec!["/other".to_owned()];
    });
    assert_eq!((topic.faults.clone(), topic.recorded()), (Vec::new(), 50));
}

#[test]
fn messages_of_bags_without_an_account_are_distinguished_and_unexplained_ones_stay_faults() {
    let mut worlds = [World::new(), World::new()];
    let [first, second] = worlds.each_mut().map(recorded);
    let merged = audit_of_made(&[&first.output, &second.output], |_| ());
    assert_eq!((merged.faults.clone(), merged.recorded()), (Vec::new(), 300));
    let dir = tempfile::tempdir().unwrap();
    let foreign = foreign_bag(dir.path());
    let mixed = audit_of_made(&[&first.output, &foreign], |_| ());
    assert_eq!((mixed.faults.clone(), mixed.recorded()), (Vec::new(), 151));
    let of_t = mixed.topics.iter().find(|topic| topic.name == "/t").unwrap();
    assert_eq!(of_t.account.as_ref().unwrap().unaccounted, 1);
    rewrite(&first.report.files[0], None);
    for change in [(|_| ()) as fn(&mut Job), |job: &mut Job| {
        job.choice.rates.insert("/other".to_owned(), 0.001);
    }] {
        let tampered = audit_of_made(&[&first.output], change);
        assert!(!tampered.is_balanced(), "{tampered:?}");
    }
}

#[test]
fn a_choice_of_publishers_takes_their_accounts_only() {
    let mut world = World::new();
    let recorded = recorded(&mut world);
    let accounts = recorded.ledger().topics;
    let of_t = accounts.iter().find(|topic| topic.name == "/t").unwrap();
    assert_eq!(of_t.publishers.len(), 2);
    let by_rate: fn(&mut Job) = |job| {
        job.choice.rates.insert("/t".to_owned(), 0.001);
    };
    for (change, in_bag) in [((|_| ()) as fn(&mut Job), 50), (by_rate, 1)] {
        for publisher in &of_t.publishers {
            let lost = publisher.missing(LossStage::Transport);
            let audit = audit_of_made(&[&recorded.output], |job| {
                job.choice.publishers = vec![publisher.gid.clone().unwrap()];
                change(job);
            });
            assert_eq!(audit.faults, Vec::<String>::new());
            assert_eq!((audit.recorded(), audit.shortfall()), (in_bag, lost));
            let left_out = 100 - in_bag;
            assert_eq!(
                audit.missing()[&LossStage::Policy],
                left_out,
                "of 100 on the topic"
            );
            let [topic] = audit.topics.as_slice() else {
                panic!("{audit:?}")
            };
            let kept = &topic.account.as_ref().unwrap().publishers;
            assert_eq!(kept, std::slice::from_ref(publisher));
            assert_eq!(topic.account.as_ref().unwrap().left_out_in_all(), left_out);
        }
    }
}
