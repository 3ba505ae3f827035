//! Makes a bag from others: copies chunks unchanged where possible, else rewrites all messages in time order.

mod messages;

use super::{
    Choice, LatchedMode, Moment, OutputOptions, ToolError,
    accounts::{self, Accounts, Taken},
    beyond::{self, Beyond},
    change::Changer,
    choice::{Chooser, check_result, check_topics, settle},
    copy::{self, Plan},
    expired::{ExpiredTopic, expired_after},
    latched::InputState,
    left_out::{Damage, LeftOutMessages},
    pictures::Video,
    recode::Recode,
    relabel::Relabel,
    staged::Staged,
};
use holdall_bag::{
    decode::MessageChoice,
    reader::{Bag, BagSet, MessageFilter},
    writer::{BagOptions, CompressionMode, why_not_encrypted},
};
use holdall_io::{fs, hold::Hold};
use holdall_model::{marker::Marker, recoding::Recoding, time::Timestamp, topic::TopicInfo};
use holdall_storage::{DEFAULT_STORAGE_ID, Storage, StorageOptions, storage_by_id};
use messages::Rewrite;
use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    time::Duration,
};

/// An output and its inputs.
pub struct Job {
    /// The bags.
    pub inputs: Vec<Bag>,
    /// The selected messages.
    pub choice: Choice,
    /// Destination and format.
    pub output: OutputOptions,
}

/// The result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Written {
    /// The bag directory.
    pub directory: PathBuf,
    /// Its storage files, in order.
    pub files: Vec<PathBuf>,
    /// Number of messages in it.
    pub messages: u64,
    /// Number of messages whose fields were changed.
    pub changed_messages: u64,
    /// Length of its storage files.
    pub bytes: u64,
    /// Number of chunks that were copied unchanged.
    pub copied_chunks: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// Topics whose messages got another form.
    pub recoded: Vec<Recoding>,
    /// Topics of which rings no longer have all of the span that was asked for.
    pub expired: Vec<ExpiredTopic>,
    /// Parts that could not be read.
    pub left_out: LeftOutMessages,
}

/// Where episodes start, and where what is after them does.
fn episode_cuts(set: &BagSet) -> Result<Vec<Timestamp>, ToolError> {
    let mut cuts = Vec::new();
    for episode in Marker::episodes(&set.markers()?) {
        cuts.push(episode.start);
        cuts.extend(
            episode
                .until
                .map(|until| until.saturating_add(Duration::from_nanos(1))),
        );
    }
    if cuts.is_empty() {
        let path = set.bags().first().map(|bag| bag.path().to_owned());
        return Err(ToolError::Unsupported {
            path: path.unwrap_or_default(),
            reason: "it has no episodes to split by".to_owned(),
        });
    }
    Ok(cuts)
}

/// Makes a bag, which appears complete or not at all. `progress` receives the bytes done and the bytes in
/// total. Nothing damaged is copied: unreadable parts of the inputs are left out, and listed in [`Written::left_out`].
///
/// # Errors
/// Inputs that cannot be read at all, an output that exists or cannot be written.
pub fn run(job: Job, progress: &mut dyn FnMut(u64, u64)) -> Result<Written, ToolError> {
    run_recoded(job, None, progress)
}

/// Warns when a rate or an expression thins out video.
fn warn_of_pictures(
    set: &BagSet,
    choice: &Choice,
    chooser: &Chooser,
    recoder: Option<&(dyn Recode + '_)>,
) -> Result<(), ToolError> {
    if choice.is_by_index() {
        return Ok(());
    }
    let has_rate = |name: &str| choice.rates.keys().any(|rate| rate.is_empty() || rate == name);
    let is_asked = |name: &str| choice.questions.iter().any(|question| question.topic == name);
    let is_thinned = |topic: &&TopicInfo| {
        chooser.takes_topic(&topic.name, &topic.type_name) && (has_rate(&topic.name) || is_asked(&topic.name))
    };
    for topic in set.topics().iter().filter(is_thinned) {
        let stays = recoder.is_none_or(|recoder| recoder.form(topic).is_none());
        if stays && Video::new(set, topic, &MessageFilter::default()).is_video()? {
            tracing::warn!(
                "{} is video: many of the chosen pictures depend on pictures that are left out, and cannot be decoded; choose by time, or export the \
                 images",
                topic.name
            );
        }
    }
    Ok(())
}

/// As [`run`]; messages get another form where `recoder` has one.
///
/// # Errors
/// As [`run`].
pub fn run_recoded(
    mut job: Job,
    mut recoder: Option<&mut dyn Recode>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Written, ToolError> {
    let holds = hold(&mut job.inputs)?;
    let mut damage = Damage::of_inputs(&mut job.inputs, job.output.leaves_out_files)?;
    let chooser = job.choice.compile()?;
    let set = BagSet::from(std::mem::take(&mut job.inputs));
    let chooser = chooser.among(&set, &job.choice)?;
    check_topics(&set, &job.choice, &chooser)?;
    if let Some(recoder) = &mut recoder {
        recoder.begin(&set)?;
    }
    warn_of_pictures(&set, &job.choice, &chooser, recoder.as_deref())?;
    let changer = Changer::compile(&set, &job.output, &chooser)?;
    let inputs = set.bags().iter().map(|bag| &bag.metadata().custom_data);
    let migrated = changer.migrations.custom_data(inputs);
    job.output.custom_data.extend(migrated);
    let relabel = Relabel::new(&set, &job.output.renames, job.output.shift, &chooser)?;
    let settled = |moment: &Moment, what| settle(&set, &job.choice, moment, what);
    let start = job.choice.start.as_ref();
    let start = start.map(|start| settled(start, "start")).transpose()?;
    let end = job.choice.end.as_ref();
    let end = end.map(|end| settled(end, "end")).transpose()?;
    // Latched messages of before are read, too.
    let first = start.filter(|_| job.output.latched != LatchedMode::Repeat);
    let _holds = narrow(holds, &set, first, end);
    let moments = job.output.split_moments.iter();
    let times: Vec<Timestamp> = moments
        .map(|moment| settled(moment, "split"))
        .collect::<Result<_, _>>()?;
    job.output.split.times.extend(times);
    if job.output.splits_episodes {
        job.output.split.times.extend(episode_cuts(&set)?);
    }
    let staged = Staged::begin(&job.output.directory)?;
    let is_bounded = set.bags().iter().any(|bag| bag.bounds() != (None, None));
    let is_partial = start.is_some() || end.is_some() || is_bounded || !job.choice.is_by_index();
    let asked = job.choice.compile()?.among(&set, &job.choice)?;
    let output = &job.output;
    let is_changed =
        !(output.changes.is_empty() && output.frames.is_empty() && changer.migrations.is_empty());
    let taken = Taken {
        topic: &|name, type_name| asked.takes_topic(name, type_name),
        publishers: asked.publishers(),
        is_partial,
        is_changed,
        span: [start, end].map(|time| time.map(|time| relabel.shift.apply(time))),
    };
    let accounts = gather(&set, &taken, &relabel, &job.output.custom_data)?;
    accounts
        .damages
        .iter()
        .for_each(|sentence| damage.add_file_damage(sentence));
    let storage_id = storage_id(&set, &job.output);
    let storage = storage_by_id(&storage_id)?;
    refuse_unsealed(&set, &job.output, storage)?;
    let beyond = beyond::gather(set.bags())?;
    let codec = chunk_codec(storage, &job.output, !beyond.is_empty())?;
    let is_live = set.bags().iter().any(|bag| bag.writer().is_some());
    // Chunks are copied with all that they hold.
    let has_hidden = set.bags().iter().any(|bag| !bag.hidden_by_topic().is_empty());
    let has_other = || -> Result<bool, ToolError> {
        for bag in set.bags() {
            if bag.has_other_definitions()? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let by_index = recoder.is_none()
        && !has_hidden
        && !set.has_runs()
        && !has_other()?
        && !is_changed
        && relabel.is_idle()
        && job.choice.is_by_index()
        && (!job.output.is_rewritten || codec.is_some());
    let is_whole = start.is_none() && !is_bounded && job.output.split.is_none();
    let repeats = job.output.latched == LatchedMode::Repeat && !is_whole;
    let state = || InputState::of(&set, &job.choice, &asked);
    let latched = if repeats { state()? } else { None };
    let plan = Plan {
        bags: set.bags(),
        chooser: &chooser,
        start,
        end,
        split: &job.output.split,
        accounts: &accounts,
        taken: &taken,
        codec,
        latched: latched.as_ref(),
        directory: staged.directory(),
        seal: job.output.seal.as_ref(),
    };
    let written = match storage.chunks() {
        Some(chunks) if by_index => copy::run(&plan, storage, chunks, &mut damage, progress)?,
        _ => None,
    };
    let mut written = match written {
        Some(written) => written,
        None => {
            beyond::check(&beyond, storage)?;
            keep_chunk_codec(&set, &mut job.output, storage)?;
            let options = BagOptions {
                directory: staged.directory().to_owned(),
                storage,
                storage_options: job.output.storage_options.clone(),
                split: job.output.split.by_writer(),
                compression: job.output.compression.clone(),
                custom_data: accounts.custom_data.clone(),
                ros_distro: accounts.ros_distro.clone(),
                memory: None,
            };
            let messages = MessageChoice {
                from: start,
                until: end,
                questions: job.choice.questions.clone(),
                verified: true,
                ..MessageChoice::default()
            };
            let rewrite = Rewrite::new(
                &set,
                (options, job.output.seal.clone()),
                (chooser, changer, relabel),
                (job.output.split.clone(), latched),
                recoder.map(|recoder| recoder as &mut dyn Recode),
            )?;
            let records = |written: &_, repeated: &_, damaged: Option<&_>| {
                accounts.records(&taken, written, repeated, damaged)
            };
            let mut written = rewrite.run(&messages, &records, &mut damage, progress)?;
            carry(&beyond, storage, &mut written)?;
            written
        }
    };
    if let Some(place) = damage.first().filter(|_| written.messages == 0) {
        let notice = place.to_string();
        return Err(ToolError::Damaged { notice });
    }
    check_result(&set, &job.choice, &job.output.directory, written.messages)?;
    let is_narrowed = is_partial || asked.publishers().is_some();
    let (missing, unlisted) = missing(&set, &asked, &accounts, written.messages);
    let is_explained = is_live || damage.first().is_some() || asked.publishers().is_some();
    written.left_out = damage.finish(match is_narrowed {
        false => Some((missing, unlisted > 0)),
        // Which of them were selected is not known.
        true => Some((unlisted, true)).filter(|_| unlisted > 0 && !is_explained),
    });
    if let Some(start) = start {
        for bag in set.bags() {
            let takes = |name: &str, type_name: &str| asked.takes_topic(name, type_name);
            written.expired.extend(expired_after(bag, start, &takes));
        }
    }
    let directory = staged.publish()?;
    let in_place = |path: &PathBuf| directory.join(path.file_name().unwrap_or_default());
    written.files = written.files.iter().map(in_place).collect();
    written.directory = directory;
    Ok(written)
}

/// Keeps what the rings of recordings have while it is read, and opens these bags again: a file may have been removed before.
fn hold(inputs: &mut [Bag]) -> Result<Vec<Hold>, ToolError> {
    let mut holds = Vec::new();
    for bag in inputs.iter_mut().filter(|bag| bag.writer().is_some()) {
        if let Some(hold) = Hold::take(bag.path(), None, None) {
            holds.push(hold);
            *bag = bag.opened_again()?;
        }
    }
    Ok(holds)
}

/// Keeps no more than what is read.
fn narrow(holds: Vec<Hold>, set: &BagSet, start: Option<Timestamp>, end: Option<Timestamp>) -> Vec<Hold> {
    if holds.is_empty() || (start.is_none() && end.is_none()) {
        return holds;
    }
    let live = set.bags().iter().filter(|bag| bag.writer().is_some());
    let narrow: Option<Vec<Hold>> = live.map(|bag| Hold::take(bag.path(), start, end)).collect();
    narrow.unwrap_or(holds)
}

/// The settings of the compression of chunks when files with content beyond ROS 2 are copied to the same
/// storage; `None` if none is set, or other settings are.
fn chunk_codec(
    storage: &dyn Storage,
    output: &OutputOptions,
    is_beyond: bool,
) -> Result<Option<StorageOptions>, ToolError> {
    let is_asked = is_beyond && output.is_rewritten && output.compression.mode == CompressionMode::None;
    let Some(chunks) = storage.chunks().filter(|_| is_asked) else {
        return Ok(None);
    };
    chunks.check_codec(&output.storage_options)?;
    Ok(Some(output.storage_options.clone()))
}

/// Copies the inputs' attachments into a rewritten bag.
fn carry(beyond: &[Beyond], storage: &dyn Storage, written: &mut Written) -> Result<(), ToolError> {
    let Some(last) = written.files.last().filter(|_| storage.chunks().is_some()) else {
        return Ok(());
    };
    let before = fs::file_len(last)?;
    if let Some(after) = beyond::carry_attachments(beyond, &written.files)? {
        written.bytes = written.bytes - before + after;
    }
    Ok(())
}

fn gather(
    set: &BagSet,
    taken: &Taken<'_>,
    relabel: &Relabel,
    custom_data: &BTreeMap<String, String>,
) -> Result<Accounts, ToolError> {
    let types: HashMap<String, String> = set
        .topics()
        .into_iter()
        .map(|topic| (topic.name, topic.type_name))
        .collect();
    // A topic whose messages were all lost is in the ledger only; its type is unknown, which matters only for
    // selections by type.
    let takes = |name: &str| {
        (taken.topic)(
            name,
            types.get(name).map_or("unknown/msg/Unknown", String::as_str),
        )
    };
    accounts::gather(set.bags(), taken, relabel, &takes, custom_data)
}

/// How many selected messages the inputs list and the output does not have, and how many more their metadata lists than their files do.
fn missing(set: &BagSet, chooser: &Chooser, accounts: &Accounts, written: u64) -> (u64, u64) {
    let listed = set
        .bags()
        .iter()
        .flat_map(|bag| &bag.metadata().topics_with_message_count);
    let taken = listed.filter(|topic| {
        let topic = &topic.topic_metadata;
        chooser.takes_topic(&topic.name, &topic.type_name)
    });
    let by_metadata: u64 = taken.map(|topic| topic.message_count).sum();
    let by_files: u64 = accounts.taken_by_topic().map(|(_, count)| count).sum();
    let missing = by_metadata.max(by_files).saturating_sub(written);
    (missing, by_metadata.saturating_sub(by_files))
}

/// Refuses to encrypt a storage or compression that cannot be, before anything is made.
fn refuse_unsealed(set: &BagSet, output: &OutputOptions, storage: &dyn Storage) -> Result<(), ToolError> {
    match why_not_encrypted(storage, output.compression.mode).filter(|_| output.seal.is_some()) {
        None => Ok(()),
        Some(reason) => Err(ToolError::Unsupported {
            path: set
                .bags()
                .first()
                .map_or_else(Default::default, |bag| bag.path().to_owned()),
            reason,
        }),
    }
}

/// The requested storage, else that of all inputs, else the default.
fn storage_id(set: &BagSet, output: &OutputOptions) -> String {
    output.storage_id.clone().unwrap_or_else(|| {
        let mut ids = set
            .bags()
            .iter()
            .map(|bag| bag.metadata().storage_identifier.as_str());
        let first = ids.next().unwrap_or(DEFAULT_STORAGE_ID);
        let same = ids.all(|id| id == first) && storage_by_id(first).is_ok();
        if same { first } else { DEFAULT_STORAGE_ID }.to_owned()
    })
}

/// Chunks of a rewritten file are compressed like those of the first input, unless set otherwise.
fn keep_chunk_codec(
    set: &BagSet,
    output: &mut OutputOptions,
    storage: &dyn Storage,
) -> Result<(), ToolError> {
    let file = set.bags().first().and_then(|bag| bag.files().first());
    let Some(file) = file.filter(|_| storage.chunks().is_some() && !output.is_rewritten) else {
        return Ok(());
    };
    let codec = match file.open()?.summary().compression.as_deref() {
        Some("zstd") => "Zstd",
        Some("lz4") => "Lz4",
        _ => return Ok(()),
    };
    output.storage_options.config = Some(format!("compression: {codec}\n"));
    Ok(())
}
