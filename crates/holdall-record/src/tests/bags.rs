//! The form of bags: directories, splits, rings, snapshots.

use super::*;
use holdall_bag::writer::SplitOptions;

#[test]
fn an_existing_output_is_refused_and_left_as_it_was() {
    let mut world = World::new();
    fs::create_dir(&world.options.output).unwrap();
    fs::write(world.options.output.join("mine"), "text").unwrap();
    let error = world.try_record().err().unwrap().to_string();
    assert!(
        error.contains("bag") && error.contains("exists already"),
        "{error}"
    );
    assert_eq!(fs::read_dir(&world.options.output).unwrap().count(), 1);
}

#[test]
fn an_empty_recording_is_a_bag() {
    let mut world = World::new();
    let recorded = world.record().stop();
    assert_eq!(recorded.messages(), []);
    let metadata = recorded.metadata();
    assert_eq!((metadata.message_count, metadata.starting_time), (0, None));
    assert_eq!(metadata.relative_file_paths, ["bag_0.mcap"]);
}

#[test]
fn an_unknown_storage_is_refused_before_anything_is_made() {
    let mut world = World::new();
    world.options.files.storage_id = "rosbag".to_owned();
    let error = world.try_record().err().unwrap().to_string();
    assert!(error.contains("rosbag"), "{error}");
    assert!(!world.options.output.exists());
    world.options.files.storage_id = "mcap".to_owned();
    world.options.files.storage_preset = Some("nonsense".to_owned());
    let error = world.try_record().err().unwrap().to_string();
    assert!(error.contains("nonsense"), "{error}");
    assert!(!world.options.output.exists());
}

#[test]
fn splits_keep_order_and_lose_nothing_and_each_file_has_all_topics() {
    let mut world = World::new();
    world.options.files.split = SplitOptions {
        bytes_max: Some(40_000),
        ..SplitOptions::default()
    };
    let quiet = world.publisher("/quiet", RELIABLE);
    let publisher = world.publisher("/t", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    recording.wait_matched(&quiet);
    let payloads: Vec<_> = (0..500).map(|number| payload(number, 1000)).collect();
    payloads.iter().for_each(|payload| publisher.send(payload));
    let recorded = recording.stop();
    assert_eq!(recorded.payloads("/t"), payloads);
    let files = &recorded.report.files;
    assert!(files.len() > 10, "{} files", files.len());
    for file in files {
        let file_bytes = fs::metadata(file).unwrap().len();
        assert!(file_bytes <= 40_000, "{} has {file_bytes} bytes", file.display());
        let bytes = fs::read(file).unwrap();
        let summary = mcap::Summary::read(&bytes).unwrap().unwrap();
        let mut topics: Vec<_> = summary
            .channels
            .values()
            .map(|channel| channel.topic.clone())
            .collect();
        topics.sort();
        assert_eq!(topics, ["/quiet", "/t"]);
    }
    let metadata = recorded.metadata();
    assert_eq!(
        metadata.files.iter().map(|file| file.message_count).sum::<u64>(),
        500
    );
    assert_eq!(metadata.files.len(), files.len());
    let on_disk = fs::read_dir(&recorded.output).unwrap().count();
    assert_eq!(on_disk, files.len() + 1, "no file that was opened ahead is left");
}

#[test]
fn a_ring_of_files_keeps_the_newest() {
    let mut world = World::new();
    world.options.files.split = SplitOptions {
        bytes_max: Some(40_000),
        files_max: Some(3),
        ..SplitOptions::default()
    };
    let publisher = world.publisher("/t", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    for number in 0..500 {
        publisher.send(&payload(number, 1000));
    }
    let recorded = recording.stop();
    assert_eq!(recorded.report.files.len(), 3);
    let payloads = recorded.payloads("/t");
    let first = 500 - payloads.len();
    assert_eq!(
        payloads,
        (first..500)
            .map(|number| payload(number, 1000))
            .collect::<Vec<_>>()
    );
    assert_eq!(recorded.metadata().message_count, payloads.len() as u64);
    let account = recorded.ledger().topics[0].clone();
    assert_eq!(account.recorded - account.expired, payloads.len() as u64);
    assert_eq!(fs::read_dir(&recorded.output).unwrap().count(), 4);
}

#[test]
fn a_split_on_request_continues_in_a_new_file() {
    let mut world = World::new();
    let publisher = world.publisher("/t", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    publisher.send(&payload(0, 8));
    recording.wait_recorded(1);
    recording.control.split();
    recording.wait_until("the new file is there", |recording| {
        recording.recorder.status().current_file.ends_with("bag_1.mcap")
    });
    publisher.send(&payload(1, 8));
    let recorded = recording.stop();
    let counts: Vec<_> = recorded
        .metadata()
        .files
        .iter()
        .map(|file| file.message_count)
        .collect();
    assert_eq!(counts, [1, 1]);
}

#[test]
fn a_snapshot_holds_the_newest_and_nothing_else_is_written() {
    let mut world = World::new();
    world.options.cache = CacheOptions {
        bytes_max: 200_000,
        snapshot: true,
        ..CacheOptions::default()
    };
    let publisher = world.publisher("/t", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    for number in 0..500 {
        publisher.send(&payload(number, 1000));
    }
    assert!(recording.control.snapshot());
    recording.wait_until("the snapshot is written", |recording| {
        let status = recording.recorder.status();
        status.recorded > 0 && status.cache_bytes == 0
    });
    publisher.send(&payload(1000, 8));
    let recorded = recording.stop();
    let payloads = recorded.payloads("/t");
    let first = 500 - payloads.len();
    assert!((50..190).contains(&payloads.len()), "{} messages", payloads.len());
    assert_eq!(
        payloads,
        (first..500)
            .map(|number| payload(number, 1000))
            .collect::<Vec<_>>()
    );
    assert_eq!(recorded.lost(), 0, "what falls out of the ring was not asked for");
}

#[test]
fn custom_data_and_distribution_are_in_the_metadata() {
    let mut world = World::new();
    world
        .options
        .files
        .custom_data
        .insert("robot".to_owned(), "r2".to_owned());
    world.options.files.ros_distro = Some("jazzy".to_owned());
    let metadata = world.record().stop().metadata();
    assert_eq!(
        metadata.custom_data,
        BTreeMap::from([
            ("robot".to_owned(), "r2".to_owned()),
            // Nothing was received, so that nothing waited for a sync.
            ("holdall.loss_window".to_owned(), "max=2.000s missed=0".to_owned()),
        ])
    );
    assert_eq!(
        (
            metadata.ros_distro.as_deref().unwrap_or_default(),
            metadata.storage_identifier.as_str()
        ),
        ("jazzy", "mcap")
    );
}

#[test]
fn a_running_recording_has_metadata_that_names_its_files() {
    let mut world = World::new();
    let recording = world.record();
    let text = fs::read_to_string(world.options.output.join("metadata.yaml")).unwrap();
    let metadata = BagMetadata::from_yaml(&text).unwrap();
    assert_eq!(metadata.relative_file_paths, ["bag_0.mcap"]);
    assert_eq!(metadata.custom_data["holdall.state"], "recording");
    recording.stop();
}

#[test]
fn every_storage_records_and_splits() {
    for storage in holdall_storage::storages() {
        let mut world = World::new();
        world.options.files.storage_id = storage.id().to_owned();
        let publisher = world.publisher("/t", RELIABLE);
        let recording = world.record();
        recording.wait_matched(&publisher);
        for number in 0..10 {
            publisher.send(&payload(number, 100_000));
        }
        recording.wait_recorded(10);
        recording.control.split();
        recording.wait_until("the new file is there", |recording| {
            recording
                .recorder
                .status()
                .current_file
                .to_string_lossy()
                .contains("bag_1")
        });
        publisher.send(&payload(10, 8));
        let recorded = recording.stop();
        assert_eq!(recorded.report.failure, None, "{}", storage.id());
        let mut payloads = Vec::new();
        for file in &recorded.report.files {
            let reader = storage.open_reader(file).unwrap();
            let messages = reader
                .messages(&holdall_storage::reader::ReadQuery::default())
                .unwrap();
            payloads.extend(messages.map(|message| message.unwrap().payload.to_vec()));
        }
        let sizes = (0..11).map(|number| if number == 10 { 8 } else { 100_000 });
        let expected: Vec<_> = sizes
            .enumerate()
            .map(|(number, len)| payload(number, len))
            .collect();
        assert_eq!(payloads, expected, "{}", storage.id());
        assert_eq!(recorded.metadata().storage_identifier, storage.id());
        let counts: Vec<_> = recorded
            .metadata()
            .files
            .iter()
            .map(|file| file.message_count)
            .collect();
        assert_eq!(counts, [10, 1], "{}", storage.id());
    }
}
