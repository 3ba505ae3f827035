//! Every candidate stores a small workload completely: foreign libraries read back the offered messages.

use holdall::{
    record::options::CacheOptions,
    writer::{CompressionOptions, SplitOptions},
};
use holdall_bench::{
    BenchResult,
    candidate::{
        RawMessage, RawWriter,
        mcap_crate::McapCrateWriter,
        naive::NaiveWriter,
        ours::{DiskChoice, OurWriter, Transactions, channel_infos},
        pipeline::{Pipeline, PipelineOptions, Recorded},
        producers::OfferOptions,
        sqlite_bare::{SqliteBareWriter, SqlitePreset},
    },
    verify::{Verified, verify_files},
    workload::{Content, Load, Plan, SizeMix},
};
use holdall_io::{clock::SystemClock, os::DiskMode};
use holdall_storage::StorageOptions;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

const ANY_DISK: DiskChoice = DiskChoice::Os(DiskMode::Auto);

fn plan(mix: SizeMix, producers: u32, topics: u32, total_bytes: u64) -> Plan {
    let content = Content::Entropy(8.0);
    Plan::new(Load {
        mix,
        content,
        total_bytes,
        producers,
        topics,
        rate_hz: None,
        seed: 11,
    })
    .unwrap()
}

/// Writes all of a one-producer plan in batches and reads it back.
fn round_trip(plan: &Plan, path: PathBuf, writer: BenchResult<Box<dyn RawWriter>>) {
    let mut writer = writer.unwrap();
    let messages: Vec<_> = plan.stream(0).collect();
    for batch in messages.chunks(100) {
        let batch: Vec<_> = batch
            .iter()
            .map(|message| RawMessage {
                topic: message.topic,
                sequence: message.sequence,
                log_time_nanos: message.sequence * 1000,
                payload: plan.payload(message),
            })
            .collect();
        writer.write_batch(&batch).unwrap();
    }
    writer.close().unwrap();
    let verified = verify_files(plan, &[path], Some(plan.message_count())).unwrap();
    assert_eq!(
        verified,
        Verified {
            messages: plan.message_count(),
            bytes: plan.byte_count()
        }
    );
}

fn each_candidate(plan: &Plan, dir: &Path) {
    let channels = channel_infos(plan.topics());
    let path = dir.join("naive.mcap");
    let naive = NaiveWriter::create(ANY_DISK.queue(dir).unwrap(), &path, 0, &channels);
    round_trip(plan, path, naive.map(|writer| Box::new(writer) as _));

    for (name, config) in [
        ("crate.mcap", ""),
        ("crate_nochunking.mcap", "noChunking: true"),
        ("crate_nocrc.mcap", "noChunkCRC: true\nenableDataCRC: false"),
        ("crate_zstd.mcap", "noChunkCRC: true\ncompression: Zstd"),
    ] {
        let path = dir.join(name);
        let options = StorageOptions {
            config: Some(config.to_owned()),
            ..StorageOptions::default()
        };
        let rival = McapCrateWriter::create(&path, &channels, &options);
        round_trip(plan, path.clone(), rival.map(|writer| Box::new(writer) as _));
        let bytes = std::fs::read(&path).unwrap();
        let summary = mcap::Summary::read(&bytes).unwrap().unwrap();
        let chunks = summary.chunk_indexes;
        assert_eq!(chunks.is_empty(), config.contains("noChunking"), "{name}");
        let is_compressed = chunks.iter().any(|chunk| chunk.compression == "zstd");
        assert_eq!(is_compressed, config.contains("Zstd"), "{name}");
    }

    for (name, preset) in [
        ("a.db3", SqlitePreset::Default),
        ("b.db3", SqlitePreset::Resilient),
        ("c.db3", SqlitePreset::Durable),
    ] {
        let path = dir.join(name);
        let bare = SqliteBareWriter::create(&path, &channels, preset);
        round_trip(plan, path, bare.map(|writer| Box::new(writer) as _));
    }
    for preset in ["", "fastwrite", "zstd_fast"] {
        let path = dir.join(format!("ours-{preset}.mcap"));
        let options = StorageOptions {
            preset: Some(preset.to_owned()).filter(|preset| !preset.is_empty()),
            ..StorageOptions::default()
        };
        let ours = OurWriter::create(
            ANY_DISK.queue(dir).unwrap(),
            &path,
            0,
            &channels,
            ("mcap", &options),
            Transactions::Own,
        );
        round_trip(plan, path, ours.map(|writer| Box::new(writer) as _));
    }
    for (name, transactions) in [
        ("batch.db3", Transactions::EachBatch),
        ("own.db3", Transactions::Own),
    ] {
        let path = dir.join(name);
        let options = StorageOptions::default();
        let queue = ANY_DISK.queue(dir).unwrap();
        let ours = OurWriter::create(queue, &path, 0, &channels, ("sqlite3", &options), transactions);
        round_trip(plan, path, ours.map(|writer| Box::new(writer) as _));
    }
}

#[test]
fn candidates_store_small_messages_of_several_topics() {
    let dir = tempfile::tempdir().unwrap();
    each_candidate(&plan(SizeMix::single(100), 1, 7, 300_000), dir.path());
}

#[test]
fn candidates_store_mixed_sizes() {
    let dir = tempfile::tempdir().unwrap();
    each_candidate(&plan(SizeMix::mixed(), 1, 3, 12_000_000), dir.path());
}

#[test]
fn candidates_store_messages_larger_than_a_block() {
    let dir = tempfile::tempdir().unwrap();
    each_candidate(&plan(SizeMix::single(6_220_800), 1, 1, 20_000_000), dir.path());
}

fn pipeline_options() -> PipelineOptions {
    PipelineOptions {
        storage_id: "mcap".to_owned(),
        storage: StorageOptions::default(),
        cache: CacheOptions {
            bytes_max: 4 << 20,
            ..CacheOptions::default()
        },
        split: SplitOptions::default(),
        compression: CompressionOptions::default(),
        seal: None,
        meter: None,
        max_loss_window: Some(Duration::from_millis(200)),
        disk: ANY_DISK,
        offer: OfferOptions::default(),
    }
}

#[test]
fn the_recorder_stores_everything_when_producers_wait_for_room() {
    let dir = tempfile::tempdir().unwrap();
    for (name, mix, topics) in [
        ("small", SizeMix::single(100), 10),
        ("mixed", SizeMix::mixed(), 6),
        ("large", SizeMix::single(1 << 20), 2),
    ] {
        let plan = plan(mix, 2, topics, 24_000_000);
        let bag = dir.path().join(name);
        let recorded = recorded(&plan, &bag, &pipeline_options());
        assert_eq!(
            (recorded.stored, recorded.lost),
            (plan.message_count(), 0),
            "{name}"
        );
        assert_eq!(recorded.produced.offered, plan.message_count());
        verify_files(&plan, &recorded.files, Some(recorded.stored)).unwrap();
    }
}

/// A plan through the recorder.
fn recorded(plan: &Plan, bag: &Path, options: &PipelineOptions) -> Recorded {
    let channels = channel_infos(plan.topics());
    let pipeline = Pipeline::new(&channels, bag, options, Arc::new(SystemClock)).unwrap();
    pipeline.run(plan, &SystemClock).unwrap()
}

#[test]
fn splits_lose_no_message() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(SizeMix::single(10 << 10), 1, 3, 16_000_000);
    let options = PipelineOptions {
        split: SplitOptions {
            bytes_max: Some(2_000_000),
            ..SplitOptions::default()
        },
        ..pipeline_options()
    };
    let recorded = recorded(&plan, &dir.path().join("bag"), &options);
    assert!(
        recorded.files.len() >= 7 && recorded.splits as usize + 1 == recorded.files.len(),
        "{recorded:?}"
    );
    verify_files(&plan, &recorded.files, Some(recorded.stored)).unwrap();
}

#[test]
fn dropped_messages_are_counted_and_the_rest_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(SizeMix::single(100), 2, 2, 40_000_000);
    let options = PipelineOptions {
        cache: CacheOptions {
            bytes_max: 64 << 10,
            ..CacheOptions::default()
        },
        offer: OfferOptions {
            lossless: false,
            ..OfferOptions::default()
        },
        ..pipeline_options()
    };
    let recorded = recorded(&plan, &dir.path().join("bag"), &options);
    assert_eq!(recorded.stored + recorded.lost, plan.message_count());
    assert_eq!(recorded.lost, recorded.lost_by_stage.values().sum::<u64>());
    verify_files(&plan, &recorded.files, Some(recorded.stored)).unwrap();
}

#[test]
fn changed_bytes_are_found_when_reading_back() {
    let dir = tempfile::tempdir().unwrap();
    let (written, other) = (
        plan(SizeMix::single(1000), 1, 1, 10_000),
        plan(SizeMix::single(1000), 1, 1, 20_000),
    );
    let path = dir.path().join("a.mcap");
    let mut writer = McapCrateWriter::create(
        &path,
        &channel_infos(written.topics()),
        &StorageOptions::default(),
    )
    .unwrap();
    for message in written.stream(0) {
        let payload = if message.sequence == 7 {
            &[0; 1000][..]
        } else {
            written.payload(&message)
        };
        let raw = RawMessage {
            topic: 0,
            sequence: message.sequence,
            log_time_nanos: 1,
            payload,
        };
        writer.write_batch(&[raw]).unwrap();
    }
    Box::new(writer).close().unwrap();
    let error = verify_files(&written, std::slice::from_ref(&path), Some(10))
        .unwrap_err()
        .to_string();
    assert!(error.contains("message 7 has other bytes"), "{error}");
    let missing = verify_files(&other, &[], Some(20)).unwrap_err().to_string();
    assert!(
        missing.contains("20 messages should be stored, 0 were read back"),
        "{missing}"
    );
}
