//! Reads back a candidate's output with foreign libraries and compares every byte with the offered one.

use crate::{
    error::{BenchError, BenchResult},
    workload::Plan,
};
use holdall_storage::{
    leveldb::{LeveldbReader, is_leveldb},
    reader::{ReadQuery, StorageReader},
};
use mcap::{
    parse_record,
    records::{Record, op},
    sans_io::linear_reader::{LinearReadEvent, LinearReader, LinearReaderOptions},
};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

/// Bytes of one read.
const READ_BYTES: usize = 1 << 20;

/// Data read back and found correct.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Verified {
    /// Messages.
    pub messages: u64,
    /// Payload bytes.
    pub bytes: u64,
}

/// Progress of reading back, over all files of a bag.
struct Check<'a> {
    plan: &'a Plan,
    topic_of_name: HashMap<&'a str, u32>,
    /// The last sequence number of each topic; messages may be missing (the sum shows it) but never repeat or
    /// change their order.
    last_sequence: Vec<u64>,
    verified: Verified,
}

impl<'a> Check<'a> {
    fn new(plan: &'a Plan) -> Self {
        let topic_of_name = plan
            .topics()
            .iter()
            .zip(0_u32..)
            .map(|(topic, index)| (topic.name.as_str(), index))
            .collect();
        Self {
            plan,
            topic_of_name,
            last_sequence: vec![0; plan.topics().len()],
            verified: Verified::default(),
        }
    }

    fn topic(&self, name: &str) -> Result<u32, String> {
        self.topic_of_name
            .get(name)
            .copied()
            .ok_or_else(|| format!("topic {name} was never offered"))
    }

    /// `sequence` is as MCAP stores it: the low 32 bits.
    fn numbered(&mut self, topic: u32, sequence: u32, payload: &[u8]) -> Result<(), String> {
        let last = self.last_sequence[topic as usize];
        // Beyond 2^32 messages on one topic the full number follows from the numbers never decreasing.
        let high = last & !u64::from(u32::MAX);
        let full = high | u64::from(sequence);
        if full <= last {
            return Err(format!(
                "topic {topic}: message {full} comes after message {last}"
            ));
        }
        let expected = self.plan.expected_payload(topic, full);
        if expected != Some(payload) {
            return Err(format!(
                "topic {topic}: message {full} has other bytes than were offered"
            ));
        }
        self.note(topic, full, payload);
        Ok(())
    }

    /// For storages without sequence numbers: the next message of the topic with these bytes, at most
    /// `missing_max` later.
    fn unnumbered(&mut self, topic: u32, payload: &[u8], missing_max: u64) -> Result<(), String> {
        let next = self.last_sequence[topic as usize] + 1;
        let found = (next..=next + missing_max)
            .find(|sequence| self.plan.expected_payload(topic, *sequence) == Some(payload));
        let sequence = found
            .ok_or_else(|| format!("topic {topic}: message {next} has other bytes than were offered"))?;
        self.note(topic, sequence, payload);
        Ok(())
    }

    fn note(&mut self, topic: u32, sequence: u64, payload: &[u8]) {
        self.last_sequence[topic as usize] = sequence;
        self.verified.messages += 1;
        self.verified.bytes += payload.len() as u64;
    }
}

/// Reads `files`, in order one bag, and checks checksums, order, every payload, and that there are exactly
/// `stored` messages (`None`: any number).
///
/// # Errors
/// A file that cannot be read or is not correct.
pub fn verify_files(plan: &Plan, files: &[PathBuf], stored: Option<u64>) -> BenchResult<Verified> {
    let mut check = Check::new(plan);
    let missing_max = plan.message_count() - stored.unwrap_or(0).min(plan.message_count());
    for path in files {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("db3") => verify_sqlite(&mut check, path, missing_max)?,
            _ if is_leveldb(path) => verify_leveldb(&mut check, path, missing_max)?,
            _ => verify_mcap(&mut check, path)?,
        }
    }
    if let Some(stored) = stored.filter(|stored| *stored != check.verified.messages) {
        let path = files.first().cloned().unwrap_or_default();
        let reason = format!(
            "{stored} messages should be stored, {} were read back",
            check.verified.messages
        );
        return Err(BenchError::Verify { path, reason });
    }
    Ok(check.verified)
}

fn verify_mcap(check: &mut Check<'_>, path: &Path) -> BenchResult<()> {
    let file = holdall_io::fs::File::open(path)?;
    let mut position = 0;
    let wrong = BenchError::verify::<String>(path);
    let foreign = BenchError::rival::<mcap::McapError>("mcap crate (reading)", path);
    let options = LinearReaderOptions::default()
        .with_validate_chunk_crcs(true)
        .with_validate_data_section_crc(true)
        .with_validate_summary_section_crc(true);
    let mut reader = LinearReader::new_with_options(options);
    let mut topics: HashMap<u16, u32> = HashMap::new();
    let before = check.verified.messages;
    let mut counted = None;
    while let Some(event) = reader.next_event() {
        match event.map_err(foreign)? {
            LinearReadEvent::ReadRequest(needed) => {
                let read = file.read_at(reader.insert(needed.max(READ_BYTES)), position)?;
                position += read as u64;
                reader.notify_read(read);
            }
            LinearReadEvent::Record {
                data,
                opcode: op::MESSAGE,
            } => {
                let (channel, sequence, payload) =
                    split_message(data).ok_or_else(|| wrong("a message is too short".into()))?;
                let topic = topics
                    .get(&channel)
                    .ok_or_else(|| wrong(format!("channel {channel} is not described")))?;
                check.numbered(*topic, sequence, payload).map_err(wrong)?;
            }
            LinearReadEvent::Record {
                data,
                opcode: op::CHANNEL,
            } => {
                if let Record::Channel(channel) = parse_record(op::CHANNEL, data).map_err(foreign)? {
                    topics.insert(channel.id, check.topic(&channel.topic).map_err(wrong)?);
                }
            }
            LinearReadEvent::Record {
                data,
                opcode: op::STATISTICS,
            } => {
                if let Record::Statistics(statistics) = parse_record(op::STATISTICS, data).map_err(foreign)? {
                    counted = Some(statistics.message_count);
                }
            }
            LinearReadEvent::Record { .. } => {}
        }
    }
    let found = check.verified.messages - before;
    if let Some(counted) = counted.filter(|counted| *counted != found) {
        return Err(wrong(format!(
            "its statistics count {counted} messages, it has {found}"
        )));
    }
    // Pages read only for checking would displace those that the next candidate needs; a refusal is harmless.
    let _refused = holdall_io::fs::forget_cached(path).is_err();
    Ok(())
}

/// Channel, sequence and payload of a message record.
fn split_message(data: &[u8]) -> Option<(u16, u32, &[u8])> {
    let channel = u16::from_le_bytes(data.get(..2)?.try_into().ok()?);
    let sequence = u32::from_le_bytes(data.get(2..6)?.try_into().ok()?);
    Some((channel, sequence, data.get(22..)?))
}

/// Verifies with our own reader, whose tests compare it with the real LevelDB: opening with the latter would change the
/// files.
fn verify_leveldb(check: &mut Check<'_>, path: &Path, missing_max: u64) -> BenchResult<()> {
    let wrong = BenchError::verify::<String>(path);
    let reader = LeveldbReader::open(path)?;
    let channels = &reader.summary().channels;
    let topics = channels
        .iter()
        .map(|channel| check.topic(&channel.info.topic.name))
        .collect::<Result<Vec<u32>, _>>()
        .map_err(wrong)?;
    for message in reader.messages(&ReadQuery::default())? {
        let message = message?;
        let topic = topics[message.channel.0 as usize];
        check
            .unnumbered(topic, &message.payload, missing_max)
            .map_err(wrong)?;
    }
    Ok(())
}

fn verify_sqlite(check: &mut Check<'_>, path: &Path, missing_max: u64) -> BenchResult<()> {
    let foreign = BenchError::rival::<rusqlite::Error>("SQLite (reading)", path);
    let wrong = BenchError::verify::<String>(path);
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = rusqlite::Connection::open_with_flags(path, flags).map_err(foreign)?;
    let mut select = connection
        .prepare("SELECT name, data FROM messages JOIN topics ON messages.topic_id = topics.id ORDER BY messages.id")
        .map_err(foreign)?;
    let mut rows = select.query([]).map_err(foreign)?;
    while let Some(row) = rows.next().map_err(foreign)? {
        let name = row
            .get_ref(0)
            .and_then(|name| Ok(name.as_str()?))
            .map_err(foreign)?;
        let topic = check.topic(name).map_err(wrong)?;
        let payload = row
            .get_ref(1)
            .and_then(|data| Ok(data.as_blob()?))
            .map_err(foreign)?;
        check.unnumbered(topic, payload, missing_max).map_err(wrong)?;
    }
    Ok(())
}
