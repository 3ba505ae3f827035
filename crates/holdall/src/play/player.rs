//! Plays bags on a thread of its own: opens them, creates the publishers, and drives the playback by the clock.

use super::{
    clock_topic::ClockTopic,
    control::{PlayControl, Shared, monotonic_of},
    error::PlayError,
    files::FileLog,
    options::{ClockSource, PlayOptions},
    playback::{Next, Playback, PlaybackParts, Played},
    publications::Publications,
    range::PlayRange,
    read_ahead::{MessageStream, OpenStream, PlayMessage, ReadAhead, ReadAheadLimits},
    schedule::{Schedule, is_rate_valid},
    status::{PlayReport, PlayStatus},
    topic_choice::TopicChoice,
};
use crate::decode::why_no_topic;
use crate::reader::{BagMessage, BagSet, FileHook, MessageFilter, PublisherChoice, Ros1View};
use bytes::Bytes;
use holdall_io::clock::{Clock, wake_this_thread_exactly};
use holdall_model::topic::TopicInfo;
use holdall_transport::Transport;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

/// Longest wait at the end for the last messages to arrive when the options ask for none: a publisher that is gone
/// cannot send again what was lost.
const LINGER_MAX: Duration = Duration::from_secs(1);

/// Payloads below this are copied out of their chunk.
const COPY_BYTES_MAX: usize = 1024 * 1024;

/// A running playback; dropping it stops it.
pub struct Player {
    control: PlayControl,
    notices: Vec<String>,
    topics: Vec<String>,
    thread: Option<JoinHandle<PlayReport>>,
}

impl Player {
    /// Opens the bags, creates the publishers and begins to play as soon as enough was read ahead and discovery has settled.
    /// A topic is published over the transport that it was recorded from when that is among `transports`, else over the first.
    ///
    /// # Errors
    /// When an option makes no sense, a bag cannot be read, there is nothing to play, or the transport refuses.
    pub fn start(
        options: PlayOptions,
        mut transports: Vec<Box<dyn Transport>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, PlayError> {
        check(&options)?;
        let choice = TopicChoice::new(&options)?;
        let bags = BagSet::open_with(&options.inputs, Ros1View::AllConverted)?;
        let mut topics = all_topics(&bags)?;
        let publishers = publishers(&bags, &options)?;
        if let Some(publishers) = &publishers {
            topics.retain(|topic| publishers.takes_topic(&topic.name));
        }
        let range = PlayRange::new(&bags, &options)?;
        let publications = Publications::create(&topics, &options, &choice, &mut transports)?;
        if publications.is_empty() {
            let names: Vec<&str> = topics.iter().map(|topic| topic.name.as_str()).collect();
            let reason = why_no_topic(&names, options.regex.as_deref());
            return Err(PlayError::nothing(&options, &reason));
        }
        let clock_topic = ClockTopic::create(
            &options.clock,
            &publications.recorded_names(),
            clock.monotonic(),
            &mut transports,
        )?;
        let mut notices = bags.notices();
        notices.extend(missing_topics(&choice, &topics));
        let played_topics = publications
            .recorded_names()
            .into_iter()
            .map(str::to_owned)
            .collect();

        let (wake, files) = (Arc::default(), Arc::<FileLog>::default());
        let source = ReadAhead::start(
            open_stream((bags, publishers), &publications, &range, &options, &files),
            (range.start, range.until),
            options.repeat,
            ReadAheadLimits {
                messages_max: options.read_ahead_messages,
                bytes_max: options.read_ahead_bytes_max,
            },
            Arc::clone(&wake),
        )
        .map_err(PlayError::Thread)?;
        let playback = Playback::new(PlaybackParts {
            source,
            publications,
            clock_topic,
            schedule: Schedule::paused(range.start, options.rate, options.delay),
            range,
            start_paused: options.start_paused,
            persistent: options.persistent,
            begin: options.start_at.map(|at| monotonic_of(at, &*clock)),
            discovery_wait: options.discovery_wait,
        });
        let shared = Arc::new(Shared::new(playback.progress(), files, wake, clock));
        let control = PlayControl {
            shared: Arc::clone(&shared),
        };
        let acked = options.wait_for_all_acked;
        let thread = std::thread::Builder::new()
            .name("holdall-play".to_owned())
            .spawn(move || play(playback, &shared, transports, acked))
            .map_err(PlayError::Thread)?;
        Ok(Self {
            control,
            notices,
            topics: played_topics,
            thread: Some(thread),
        })
    }

    /// Steers the playback from wherever it is sent to.
    pub fn control(&self) -> PlayControl {
        self.control.clone()
    }

    /// A snapshot of the playback.
    pub fn status(&self) -> PlayStatus {
        self.control.status()
    }

    /// Things a user should know once, one sentence each: metadata that was rebuilt, chosen topics that are not in the bag.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// The topics that are played, by their names in the bag.
    pub fn topics(&self) -> &[String] {
        &self.topics
    }

    /// True once [`Player::wait`] would return at once.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end.
    pub fn wait(mut self) -> PlayReport {
        self.join()
    }

    /// Stops the playback and waits for its end.
    pub fn stop(mut self) -> PlayReport {
        self.control.quit();
        self.join()
    }

    fn join(&mut self) -> PlayReport {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(report)) => report,
            // The panic hook has printed the cause already.
            Some(Err(_)) | None => PlayReport {
                status: self.status(),
                failure: Some("the thread that plays ended unexpectedly".to_owned()),
                ..PlayReport::default()
            },
        }
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.control.quit();
            self.join();
        }
    }
}

/// Refuses requests when the playing thread ends, also by a panic: an asker must not wait for ever.
struct Closing<'a>(&'a Shared);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// What the playing thread does. The transports live as long as their publishers.
fn play(
    mut playback: Playback<ReadAhead>,
    shared: &Shared,
    transports: Vec<Box<dyn Transport>>,
    acked: Option<Duration>,
) -> PlayReport {
    wake_this_thread_exactly();
    let closing = Closing(shared);
    loop {
        while let Some(request) = shared.next_request() {
            playback.carry_out(shared.clock.monotonic(), request);
        }
        match playback.step(shared.clock.monotonic()) {
            Next::At(at) => shared.wake.wait_until(&*shared.clock, at),
            Next::Signal => shared.wake.wait(),
            Next::Ended => break,
        }
    }
    drop(closing);
    let ended = shared.clock.monotonic();
    let Played {
        mut parts,
        began,
        stopped,
        failure,
    } = playback.into_played();
    let mut unacked = Vec::new();
    if !stopped {
        // Only a stop can still come; it may be asked for while this waits for ever.
        let go_on = || !shared.is_stop_asked();
        let timeout = acked.unwrap_or(LINGER_MAX);
        let mut waiting = u64::MAX;
        loop {
            unacked = parts.publications.wait_for_acked(timeout, &*shared.clock, go_on);
            let left = parts.publications.unacknowledged();
            // A slow subscription that still acknowledges gets the time that it needs.
            if unacked.is_empty() || left >= waiting || acked.is_some() || !go_on() {
                break;
            }
            waiting = left;
        }
    }
    if stopped {
        parts.publications.count_abandoned();
    } else {
        parts.publications.count_unacknowledged();
    }
    let report = PlayReport {
        status: shared.status(),
        elapsed: began.map_or(Duration::ZERO, |began| ended.saturating_sub(began)),
        clock_published: parts.clock_topic.as_ref().map_or(0, ClockTopic::published),
        topics: parts.publications.into_reports(),
        unacked: if acked.is_some() { unacked } else { Vec::new() },
        stopped,
        failure,
    };
    drop((parts.clock_topic, parts.source));
    drop(transports);
    report
}

/// Refuses choices that make no sense before anything is opened.
fn check(options: &PlayOptions) -> Result<(), PlayError> {
    let refuse = |option, expected, found: String| {
        Err(PlayError::Option {
            option,
            expected,
            found,
        })
    };
    if options.inputs.is_empty() {
        return refuse("the input", "at least one bag", "none".to_owned());
    }
    if !is_rate_valid(options.rate) {
        return refuse("the rate", "a number above zero", options.rate.to_string());
    }
    if options.read_ahead_messages == 0 {
        return refuse("the read-ahead queue size", "at least 1", "0".to_owned());
    }
    match options.clock {
        ClockSource::Rate(hertz) if !(hertz.is_finite() && hertz > 0.0) => {
            refuse("the rate of /clock", "a number above zero", hertz.to_string())
        }
        _ => Ok(()),
    }
}

/// The topics that the bags list, and those that they contain without listing them.
fn all_topics(bags: &BagSet) -> Result<Vec<TopicInfo>, PlayError> {
    let mut topics = bags.topics();
    let key = |topic: &TopicInfo| (topic.name.clone(), topic.type_name.clone());
    let mut known: HashSet<_> = topics.iter().map(key).collect();
    for bag in bags.bags() {
        for topic in bag.unlisted_topics()? {
            if known.insert(key(&topic)) {
                topics.push(topic);
            }
        }
    }
    Ok(topics)
}

/// The publishers whose messages alone are played; `None` for all.
fn publishers(bags: &BagSet, options: &PlayOptions) -> Result<Option<Arc<PublisherChoice>>, PlayError> {
    if options.publishers.is_empty() {
        return Ok(None);
    }
    Ok(Some(Arc::new(PublisherChoice::resolve(
        bags,
        &options.publishers,
    )?)))
}

/// One sentence for each topic that the user named and the bags do not have.
fn missing_topics<'a>(choice: &'a TopicChoice, topics: &[TopicInfo]) -> impl Iterator<Item = String> + 'a {
    let missing = choice.missing(topics.iter().map(|topic| topic.name.as_str()));
    missing
        .into_iter()
        .map(|name| format!("topic {name} is not in the bag"))
}

/// Reads what is played from the bags, for each round and each seek anew.
fn open_stream(
    (bags, publishers): (BagSet, Option<Arc<PublisherChoice>>),
    publications: &Publications,
    range: &PlayRange,
    options: &PlayOptions,
    files: &Arc<FileLog>,
) -> OpenStream {
    let mut by_topic: HashMap<String, HashMap<String, usize>> = HashMap::new();
    for (index, (name, type_name)) in publications.recorded_topics().enumerate() {
        by_topic
            .entry(name.to_owned())
            .or_default()
            .insert(type_name.to_owned(), index);
    }
    let by_topic = Arc::new(by_topic);
    let mut filter = MessageFilter {
        topics: Some(Arc::new(by_topic.keys().cloned().collect())),
        publishers,
        order: options.message_order,
        ..MessageFilter::default()
    };
    let first = range.first;
    let files = Arc::clone(files);
    Box::new(move |from, until| {
        // The metadata may have a wrong first stamp: the whole bag means the whole bag.
        filter.from = (from > first).then_some(from);
        filter.until = until;
        let by_topic = Arc::clone(&by_topic);
        let files = Arc::clone(&files);
        let opened: FileHook = Arc::new(move |bag, file| files.opened(bag, file));
        let playable =
            bags.messages_noting_files(&filter, &opened)
                .filter_map(move |message| match message {
                    Ok(message) => play_message(message, &by_topic).map(Ok),
                    Err(error) => Some(Err(error.to_string())),
                });
        Box::new(playable) as MessageStream
    })
}

/// Finds who publishes a message; `None` for one of a topic that is not played.
fn play_message(
    message: BagMessage,
    by_topic: &HashMap<String, HashMap<String, usize>>,
) -> Option<PlayMessage> {
    let publication = *by_topic.get(&message.topic.name)?.get(&message.topic.type_name)?;
    // A payload keeps its whole chunk in memory, which the bound of the read-ahead does not see: small ones are copied out.
    let payload = if message.payload.len() < COPY_BYTES_MAX {
        Bytes::copy_from_slice(&message.payload)
    } else {
        message.payload
    };
    Some(PlayMessage {
        stamp: message.stamp,
        publication,
        payload,
    })
}
