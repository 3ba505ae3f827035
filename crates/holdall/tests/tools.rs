//! Work on whole bags: the output has the input's messages, in time order, sound, and copied byte for byte where possible.

mod bags;

use bags::{Format, Message, START, message, write_mcap};
use holdall::{
    reader::{Bag, BagSet, MessageFilter},
    tools::{Choice, Job, Moment, OutputOptions, SplitAt, ToolError, Written, check, reindex, run},
};
use holdall_model::{selection::Selection, time::Timestamp};
use holdall_storage::check::Severity;
use proptest::prelude::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// Topic, log time, publish time and payload of each message, in the order of reading.
type Content = Vec<(String, i64, i64, Vec<u8>)>;

fn content(path: &Path) -> Content {
    BagSet::open(&[path])
        .unwrap()
        .messages(&MessageFilter::default())
        .map(|message| {
            let message = message.unwrap();
            let times = (message.log_time.as_nanos(), message.publish_time.as_nanos());
            (
                message.topic.name.clone(),
                times.0,
                times.1,
                message.payload.to_vec(),
            )
        })
        .collect()
}

/// Messages of the same time come in the order of chunks, which tools may change between topics.
fn sorted(mut content: Content) -> Content {
    content.sort();
    content
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos((START + millis * 1_000_000) as i64)
}

fn job(inputs: &[PathBuf], directory: &Path) -> Job {
    Job {
        inputs: inputs.iter().map(|path| Bag::open(path).unwrap()).collect(),
        choice: Choice::default(),
        output: OutputOptions {
            directory: directory.to_owned(),
            ..OutputOptions::default()
        },
    }
}

fn make(job: Job) -> Written {
    run(job, &mut |_, _| ()).unwrap()
}

/// Sound in every respect but the hashes, which these test bags invent.
#[track_caller]
fn assert_sound(path: &Path) {
    let found = check::check(path, &mut |_, _| ()).unwrap();
    let problems: Vec<String> = found
        .findings()
        .filter(|finding| finding.severity == Severity::Problem && !finding.what.contains("type hash"))
        .map(ToString::to_string)
        .collect();
    assert_eq!(problems, [] as [String; 0]);
}

/// md5 of all payloads of each topic, as the manifest of the sample bags has it.
fn digests(path: &Path) -> BTreeMap<String, (u64, String)> {
    let mut by_topic: BTreeMap<String, (u64, md5::Context)> = BTreeMap::new();
    for (topic, _, _, payload) in content(path) {
        let entry = by_topic.entry(topic).or_insert_with(|| (0, md5::Context::new()));
        entry.0 += 1;
        entry.1.consume(&payload);
    }
    let digest = |(topic, (count, md5)): (String, (u64, md5::Context))| {
        (topic, (count, format!("{:x}", md5.finalize())))
    };
    by_topic.into_iter().map(digest).collect()
}

#[test]
fn every_sample_bag_goes_through_every_storage() {
    let bags = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/rosbag2");
    let manifest: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(bags.join("manifest.json")).unwrap()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for (name, described) in manifest.as_object().unwrap() {
        let expected: BTreeMap<String, (u64, String)> = described["topics"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(topic, described)| {
                let digest = described["md5"].as_str().unwrap().to_owned();
                (topic.clone(), (described["count"].as_u64().unwrap(), digest))
            })
            .filter(|(_, (count, _))| *count > 0)
            .collect();
        let mut input = bags.join(name);
        for (step, storage) in ["sqlite3", "mcap", "mcap", "sqlite3"].into_iter().enumerate() {
            let output = dir.path().join(format!("{name}_{step}"));
            let mut job = job(std::slice::from_ref(&input), &output);
            job.output.storage_id = Some(storage.to_owned());
            make(job);
            assert_sound(&output);
            assert_eq!(digests(&output), expected, "{name} to {storage}, step {step}");
            input = output;
        }
    }
}

/// Two recordings of the same robot, one after the other, and one of another robot with the same channel numbers.
fn recordings(dir: &Path) -> [PathBuf; 3] {
    let paths = ["one.mcap", "two.mcap", "other.mcap"].map(|name| dir.join(name));
    let first: Vec<Message> = (0..200)
        .map(|n| message(["/a", "/b"][n as usize % 2], n * 10))
        .collect();
    let second: Vec<Message> = (0..200)
        .map(|n| message(["/a", "/b"][n as usize % 2], 2000 + n * 10))
        .collect();
    let other: Vec<Message> = (0..200)
        .map(|n| message(["/c", "/d"][n as usize % 2], 5 + n * 10))
        .collect();
    for (path, messages) in paths.iter().zip([first, second, other]) {
        write_mcap(path, &messages, &Format::default());
    }
    paths
}

#[test]
fn merging_copies_chunks_whose_channels_keep_their_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two, other] = recordings(dir.path());
    let out = dir.path().join("same");
    let written = make(job(&[one.clone(), two.clone()], &out));
    assert!(
        written.copied_chunks > 10 && written.messages == 400,
        "{written:?}"
    );
    assert_sound(&out);
    let mut expected = content(&one);
    expected.extend(content(&two));
    assert_eq!(content(&out), expected);

    let out = dir.path().join("both");
    let written = make(job(&[one.clone(), other.clone()], &out));
    assert!(
        written.copied_chunks > 5,
        "those of one input stay as they are: {written:?}"
    );
    assert_sound(&out);
    let mut expected = content(&one);
    expected.extend(content(&other));
    expected.sort_by_key(|(_, log_time, ..)| *log_time);
    assert_eq!(content(&out), expected);
}

#[test]
fn a_directory_with_files_of_two_storages_is_converted_whole() {
    let dir = tempfile::tempdir().unwrap();
    let bag = dir.path().join("bag");
    fs::create_dir(&bag).unwrap();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/rosbag2");
    for file in [
        "mcap_default/mcap_default_0.mcap",
        "sqlite3_default/sqlite3_default_0.db3",
    ] {
        let name = Path::new(file).file_name().unwrap();
        fs::copy(data.join(file), bag.join(name)).unwrap();
    }
    let out = dir.path().join("out");
    make(job(std::slice::from_ref(&bag), &out));
    assert_sound(&out);
    assert_eq!(sorted(content(&out)), sorted(content(&bag)));
}

#[test]
fn time_ranges_cut_only_the_chunks_at_their_ends() {
    let dir = tempfile::tempdir().unwrap();
    let [one, ..] = recordings(dir.path());
    let out = dir.path().join("cut");
    let mut job = job(std::slice::from_ref(&one), &out);
    job.choice.start = Some(Moment::AfterStart(Duration::from_millis(333)));
    job.choice.end = Some(Moment::At(at(1500)));
    let written = make(job);
    let expected: Content = content(&one)
        .into_iter()
        .filter(|(_, time, ..)| (at(333).as_nanos()..=at(1500).as_nanos()).contains(time))
        .collect();
    assert_eq!(content(&out), expected);
    assert!(written.copied_chunks > 3, "{written:?}");
    assert_sound(&out);
}

#[test]
fn rates_keep_one_message_of_each_period() {
    let dir = tempfile::tempdir().unwrap();
    let [one, ..] = recordings(dir.path());
    let out = dir.path().join("slow");
    let mut job = job(&[one], &out);
    job.choice.rates = [("/a".to_owned(), 10.0)].into();
    make(job);
    let found = content(&out);
    assert_eq!(found.iter().filter(|(topic, ..)| topic == "/a").count(), 20);
    assert_eq!(found.iter().filter(|(topic, ..)| topic == "/b").count(), 100);
    assert_sound(&out);
}

#[test]
fn bags_are_divided_by_span_size_number_and_times() {
    let dir = tempfile::tempdir().unwrap();
    let [one, ..] = recordings(dir.path());
    let whole = content(&one);
    let divisions = [
        (
            "span",
            SplitAt {
                duration_max: Some(Duration::from_millis(500)),
                ..SplitAt::default()
            },
            4,
        ),
        (
            "size",
            SplitAt {
                bytes_max: Some(8000),
                ..SplitAt::default()
            },
            2,
        ),
        (
            "count",
            SplitAt {
                count_max: Some(60),
                ..SplitAt::default()
            },
            4,
        ),
        (
            "times",
            SplitAt {
                times: vec![at(100), at(1905)],
                ..SplitAt::default()
            },
            3,
        ),
    ];
    for (name, split, files_min) in divisions {
        let out = dir.path().join(name);
        let mut job = job(std::slice::from_ref(&one), &out);
        job.output.split = split.clone();
        let written = make(job);
        assert!(written.files.len() >= files_min, "{name}: {written:?}");
        assert_eq!(content(&out), whole, "{name}");
        assert_sound(&out);
        for file in &written.files {
            let part = content(file);
            let span = part.last().unwrap().1 - part[0].1;
            assert!(
                split.duration_max.is_none_or(|max| span <= max.as_nanos() as i64),
                "{name}"
            );
            assert!(
                split.count_max.is_none_or(|max| part.len() as u64 <= max),
                "{name}"
            );
            let bytes = fs::metadata(file).unwrap().len();
            assert!(split.bytes_max.is_none_or(|max| bytes <= max), "{name}: {bytes}");
        }
    }
}

#[test]
fn an_output_that_is_there_is_not_touched_and_one_without_a_message_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let [one, ..] = recordings(dir.path());
    let taken = dir.path().join("taken");
    fs::create_dir(&taken).unwrap();
    let error = run(job(std::slice::from_ref(&one), &taken), &mut |_, _| ()).unwrap_err();
    assert!(matches!(error, ToolError::OutputExists { .. }), "{error}");
    let bytes = fs::read(&one).unwrap();
    // Cut off within its first chunk.
    fs::write(&one, &bytes[..200]).unwrap();
    let before = fs::read_dir(dir.path()).unwrap().count();
    let error = run(job(&[one], &dir.path().join("out")), &mut |_, _| ()).unwrap_err();
    assert!(matches!(error, ToolError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("nothing was written"), "{error}");
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        before,
        "nothing is left behind"
    );
}

#[test]
fn of_a_damaged_input_what_can_be_read_is_copied_and_the_rest_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    let [one, ..] = recordings(dir.path());
    let whole = sorted(content(&one));
    let bytes = fs::read(&one).unwrap();
    fs::write(&one, &bytes[..bytes.len() / 2]).unwrap();
    for storage in ["mcap", "sqlite3"] {
        let out = dir.path().join(storage);
        let mut job = job(std::slice::from_ref(&one), &out);
        job.output.storage_id = Some(storage.to_owned());
        let written = make(job);
        assert_eq!(
            written.left_out.messages, None,
            "what follows the cut is not known"
        );
        assert_eq!(written.left_out.place_count, 1);
        let found = content(&out);
        assert!(!found.is_empty() && found.len() < whole.len());
        assert!(found.iter().all(|message| whole.contains(message)), "{storage}");
        assert_sound(&out);
        let custom_data = Bag::open(&out).unwrap().metadata().custom_data.clone();
        assert!(
            custom_data["holdall.left_out"].contains("one.mcap"),
            "{custom_data:?}"
        );
    }
}

#[test]
fn records_of_others_and_what_users_keep_go_along() {
    let dir = tempfile::tempdir().unwrap();
    let entries = BTreeMap::from([("key".to_owned(), "value".to_owned())]);
    let messages: Vec<Message> = (0..50).map(|n| message("/a", n)).collect();
    let input = dir.path().join("in.mcap");
    bags::write_mcap_with_record(&input, &messages, "vendor", &entries);
    for storage in ["mcap", "sqlite3"] {
        let out = dir.path().join(storage);
        let mut job = job(std::slice::from_ref(&input), &out);
        job.output.storage_id = Some(storage.to_owned());
        job.output.custom_data = [("run".to_owned(), "7".to_owned())].into();
        make(job);
        let bag = Bag::open(&out).unwrap();
        assert_eq!(bag.metadata().custom_data["run"], "7");
        let summary = bag.files()[0].open().unwrap().summary().clone();
        assert_eq!(summary.last_metadata("vendor"), Some(&entries), "{storage}");
    }
}

/// Files from outside of ROS: schemas that are not text, attachments, messages without a schema.
#[test]
fn files_that_are_not_of_ros_go_along_with_their_attachments() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("foreign.mcap");
    let mut writer = mcap::WriteOptions::new()
        .profile("x-protobuf")
        .chunk_size(Some(500))
        .create(std::io::BufWriter::new(fs::File::create(&path).unwrap()))
        .unwrap();
    let schema_data: Vec<u8> = (0..=255).collect();
    let schema = writer
        .add_schema("vendor.Scan", "protobuf", &schema_data)
        .unwrap();
    let scans = writer
        .add_channel(schema, "scans", "protobuf", &BTreeMap::new())
        .unwrap();
    let notes = writer.add_channel(0, "notes", "json", &BTreeMap::new()).unwrap();
    for number in 0..100u64 {
        let header = mcap::records::MessageHeader {
            channel_id: if number % 2 == 0 { scans } else { notes },
            sequence: number as u32,
            log_time: START + number,
            publish_time: START + number,
        };
        writer
            .write_to_known_channel(&header, &[number as u8; 40])
            .unwrap();
    }
    let attachment = mcap::Attachment {
        log_time: 5,
        create_time: 6,
        name: "calibration.bin".to_owned(),
        media_type: "application/octet-stream".to_owned(),
        data: std::borrow::Cow::Owned(vec![7; 3000]),
    };
    writer.attach(&attachment).unwrap();
    writer.finish().unwrap();
    drop(writer);
    let out = dir.path().join("out");
    let mut job = job(std::slice::from_ref(&path), &out);
    job.choice.end = Some(Moment::At(Timestamp::from_nanos((START + 60) as i64)));
    let written = make(job);
    assert_eq!(written.messages, 61);
    assert_sound(&out);
    let bytes = fs::read(&written.files[0]).unwrap();
    let summary = mcap::Summary::read(&bytes).unwrap().unwrap();
    assert_eq!(
        summary.schemas.values().next().unwrap().data.as_ref(),
        schema_data
    );
    let index = &summary.attachment_indexes[0];
    assert_eq!((index.name.as_str(), index.data_size), ("calibration.bin", 3000));
    assert_eq!(mcap::read::attachment(&bytes, index).unwrap(), attachment);
    let found: Vec<_> = mcap::MessageStream::new(&bytes)
        .unwrap()
        .map(|message| message.unwrap())
        .collect();
    assert_eq!(found.len(), 61);
    assert!(
        found
            .iter()
            .all(|message| message.channel.schema.is_some() == (message.channel.topic == "scans"))
    );
}

#[test]
fn reindexing_gives_files_an_index_and_the_bag_its_metadata() {
    let dir = tempfile::tempdir().unwrap();
    let messages: Vec<Message> = (0..200)
        .map(|n| message(["/a", "/b"][n as usize % 2], n * 10))
        .collect();
    let format = Format {
        indexed: false,
        ..Format::default()
    };
    write_mcap(&dir.path().join("bag_0.mcap"), &messages, &format);
    let before = content(dir.path());
    let done = reindex(dir.path(), &mut |_, _| ()).unwrap();
    assert_eq!((done.indexed.len(), done.messages), (1, 200));
    assert_sound(dir.path());
    assert_eq!(content(dir.path()), before);
    let again = reindex(dir.path(), &mut |_, _| ()).unwrap();
    assert_eq!(again.indexed, [] as [PathBuf; 0], "what has an index keeps it");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

const TOPICS: [&str; 4] = ["/a", "/b", "/c", "/d"];

fn messages() -> impl Strategy<Value = Vec<Message>> {
    let one = (0usize..4, 0u64..400, 0usize..700).prop_map(|(topic, millis, padding)| {
        let mut message = message(TOPICS[topic], millis);
        message.payload.extend(vec![topic as u8; padding]);
        message
    });
    prop::collection::vec(one, 0..80)
}

fn format() -> impl Strategy<Value = Format> {
    let codec = prop_oneof![
        Just(None),
        Just(Some(mcap::Compression::Zstd)),
        Just(Some(mcap::Compression::Lz4))
    ];
    let chunk = prop_oneof![Just(None), Just(Some(300)), Just(Some(2000))];
    (codec, chunk, any::<bool>()).prop_map(|(compression, chunk_bytes, indexed)| Format {
        compression,
        chunk_bytes,
        indexed,
        ..Format::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    /// Whatever the files contain, the output is what a simple filter selects from the input.
    #[test]
    fn whatever_is_chosen_comes_out(
        inputs in prop::collection::vec((messages(), format()), 1..4),
        wanted in prop::collection::btree_set(0usize..4, 1..4),
        start in prop::option::of(0u64..400),
        end in prop::option::of(0u64..400),
        cut in prop::option::of(1u64..400),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut paths = Vec::new();
        for (place, (messages, format)) in inputs.iter().enumerate() {
            paths.push(dir.path().join(format!("in_{place}.mcap")));
            write_mcap(&paths[place], messages, format);
        }
        let topics: BTreeSet<&str> = wanted.iter().map(|place| TOPICS[*place]).collect();
        let out = dir.path().join("out");
        let mut job = job(&paths, &out);
        job.choice = Choice {
            selection: Selection { topics: topics.iter().map(|topic| (*topic).to_owned()).collect(), ..Selection::default() },
            start: start.map(|start| Moment::At(at(start))),
            end: end.map(|end| Moment::At(at(end))),
            // Files may lack the topic, and nothing may be left.
            is_lenient: true,
            ..Choice::default()
        };
        job.output.split.times = cut.map(at).into_iter().collect();
        make(job);
        let taken = |(topic, time, ..): &(String, i64, i64, Vec<u8>)| {
            topics.contains(topic.as_str())
                && start.is_none_or(|start| *time >= at(start).as_nanos())
                && end.is_none_or(|end| *time <= at(end).as_nanos())
        };
        let expected: Content = paths.iter().flat_map(|path| content(path)).filter(taken).collect();
        let found = content(&out);
        prop_assert!(found.is_sorted_by_key(|(_, time, ..)| *time));
        prop_assert_eq!(sorted(found), sorted(expected));
        let problems: Vec<String> = check::check(&out, &mut |_, _| ())
            .unwrap()
            .findings()
            .filter(|finding| finding.severity == Severity::Problem && !finding.what.contains("type hash"))
            .map(ToString::to_string)
            .collect();
        prop_assert_eq!(problems, Vec::<String>::new());
    }
}
