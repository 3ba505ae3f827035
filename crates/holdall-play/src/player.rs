//! Plays bags on a separate thread: opens them, creates the publishers, and drives the playback by the clock.

use super::{
    clock_topic::{CLOCK_TOPIC, ClockTopic},
    control::{PlayControl, Shared, monotonic_of},
    discovery::Discovery,
    error::PlayError,
    files::FileLog,
    first_form::first_forms,
    neighbours::Neighbours,
    options::{ClockSource, PlayMigration, PlayOptions},
    playback::{Gaps, Next, Playback, PlaybackParts, Played},
    publications::Publications,
    range::PlayRange,
    read_ahead::{ReadAhead, ReadAheadLimits},
    requests::{Replay, wait_for_answers},
    schedule::{Schedule, is_rate_valid},
    status::{PlayReport, PlayStatus},
    steps::{Steps, listeners},
    stream::{StreamSource, all_topics, open_stream},
    topic_choice::TopicChoice,
};
use holdall_bag::decode::{Decoders, known_topics, why_no_topic};
use holdall_bag::reader::{BagSet, PublisherChoice, Ros1View};
use holdall_io::clock::{Clock, wake_this_thread_exactly};
use holdall_model::dynamic::migrate::{Migrations, Target};
use holdall_model::marker::Marker;
use holdall_model::topic::TopicInfo;
use holdall_transport::Transport;
use std::{sync::Arc, thread::JoinHandle, time::Duration};

/// Longest wait at the end for the last messages to arrive when the options ask for none: a publisher that is gone
/// cannot send again what was lost.
const LINGER_MAX: Duration = Duration::from_secs(1);

/// A running playback; dropping it stops it.
pub struct Player {
    control: PlayControl,
    notices: Vec<String>,
    topics: Vec<String>,
    markers: Vec<Marker>,
    bags: BagSet,
    thread: Option<JoinHandle<PlayReport>>,
}

impl Player {
    /// Opens the bags, creates the publishers and begins to play as soon as enough was read ahead and discovery has settled.
    /// A topic is published over the transport that it was recorded from when that is among `transports`, else over the first.
    ///
    /// # Errors
    /// When an option makes no sense, a bag cannot be read, there is nothing to play, or the transport refuses.
    pub fn start(
        mut options: PlayOptions,
        mut transports: Vec<Box<dyn Transport>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, PlayError> {
        check(&options)?;
        let choice = TopicChoice::new(&options)?;
        let bags = open(&options)?;
        let mut topics = all_topics(&bags, options.keep_publishers)?;
        let publishers = publishers(&bags, &options)?;
        add_hashes(&mut topics, &bags);
        let played = topics.iter().filter(|topic| choice.takes(&topic.name));
        let migrations = migrations(played, &bags, options.migration.as_ref())?;
        for topic in &mut topics {
            migrations.relabel(topic);
        }
        let mut notices = bags.notices();
        let forms = first_forms(&mut topics, &bags, (&options, &choice), &mut notices)?;
        if let Some(publishers) = &publishers {
            topics.retain(|topic| publishers.takes_topic(&topic.name));
        }
        let plays_clock = |topic: &TopicInfo| topic.name == CLOCK_TOPIC && choice.takes(&topic.name);
        if options.prefer_recorded_clock && topics.iter().any(plays_clock) {
            options.clock = ClockSource::Off;
        }
        let range = PlayRange::new(&bags, &options)?;
        let wake = Arc::default();
        let replay = Replay::new(options.requests, &bags, &wake, &clock);
        let publications = Publications::create(&topics, &options, &choice, &mut transports, Some(replay))?;
        if publications.is_empty() {
            let names: Vec<&str> = topics.iter().map(|topic| topic.name.as_str()).collect();
            let missing = |topic: &&String| !names.contains(&topic.as_str());
            let reason = match options.topics.iter().find(missing) {
                Some(topic) => format!(
                    "topic {topic} is not in what is played; there are {}",
                    known_topics(topic, names)
                ),
                None => why_no_topic(&names, options.regex.as_deref()),
            };
            return Err(PlayError::nothing(&options, &reason));
        }
        let decoders = (!options.lockstep.rules.is_empty()).then(|| Decoders::new(bags.clone()));
        let steps = Steps::new(&options.lockstep, &publications, &topics, decoders, &wake)?;
        let clock_topic = ClockTopic::create(
            &options.clock,
            &publications.recorded_names(),
            clock.monotonic(),
            &mut transports,
        )?;
        let clock_name = clock_topic.as_ref().map(|_| CLOCK_TOPIC.to_owned());
        let neighbours = Neighbours::new(
            publications.published_names().chain(clock_name),
            publications.published_types(),
        );
        notices.extend(migrations.notices().cloned());
        if (options.requests.services || options.requests.actions) && publications.requests().next().is_none()
        {
            let nothing =
                "what is played has no recorded requests of services or actions, so that none are sent again";
            notices.push(nothing.to_owned());
        }
        // Marks to seek to; a bag is played without them as well.
        let markers = bags.markers().unwrap_or_default();
        notices.extend(missing_topics(&choice, &topics));
        let mut played_topics: Vec<String> = publications
            .recorded_names()
            .into_iter()
            .map(str::to_owned)
            .collect();
        // With a publisher for each recorded one, a topic has several rows.
        played_topics.dedup();

        let files = Arc::<FileLog>::default();
        let of_bags = bags.clone();
        let source = ReadAhead::start(
            open_stream(
                StreamSource {
                    bags,
                    publishers,
                    files: Arc::clone(&files),
                    migrations,
                    forms,
                },
                &publications,
                &range,
                &options,
            ),
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
            discovery: Discovery::new(
                options.discovery_wait,
                listeners(&options.lockstep, &options.wait_for_subscribers),
                options.subscribers_timeout,
            ),
            pace: options.pace,
            gaps: Gaps {
                skipped_from: options.skip_empty,
                jumps: markers.iter().filter_map(|marker| marker.jump).collect(),
            },
            steps,
        });
        let shared = Arc::new(Shared::new(playback.progress(), files, wake, clock));
        let control = PlayControl {
            shared: Arc::clone(&shared),
        };
        let acked = options.wait_for_all_acked;
        let thread = std::thread::Builder::new()
            .name("holdall-play".to_owned())
            .spawn(move || play(playback, &shared, transports, neighbours, acked))
            .map_err(PlayError::Thread)?;
        Ok(Self {
            control,
            notices,
            topics: played_topics,
            markers,
            bags: of_bags,
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

    /// The bags' markers by time.
    pub fn markers(&self) -> &[Marker] {
        &self.markers
    }

    /// The definitions in the bags, for nodes that ask for them.
    pub fn definitions(&self) -> Decoders {
        Decoders::new(self.bags.clone())
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

/// The body of the playing thread. The transports live as long as their publishers.
fn play(
    mut playback: Playback<ReadAhead>,
    shared: &Shared,
    mut transports: Vec<Box<dyn Transport>>,
    mut neighbours: Neighbours,
    acked: Option<Duration>,
) -> PlayReport {
    wake_this_thread_exactly();
    let closing = Closing(shared);
    loop {
        while let Some(request) = shared.next_request() {
            playback.execute(shared.clock.monotonic(), request);
        }
        // Before the step that publishes the first message: what does not fit is known by then.
        let look = neighbours.look(&*shared.clock, &mut transports, &mut playback);
        match playback.step(shared.clock.monotonic()) {
            Next::At(at) if at <= look => shared.wake.wait_until(&*shared.clock, at),
            Next::At(_) | Next::Signal => {
                let left = look.saturating_sub(shared.clock.monotonic());
                shared.wake.wait_for(left);
            }
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
        let requests: Vec<_> = parts.publications.requests().cloned().collect();
        wait_for_answers(&requests, &*shared.clock, go_on);
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
        services: parts.publications.service_calls(),
        topics: parts.publications.into_reports(),
        steps: parts.steps.report(),
        unacked: if acked.is_some() { unacked } else { Vec::new() },
        stopped,
        failure,
    };
    drop((parts.clock_topic, parts.source));
    drop(transports);
    report
}

/// Opens the bags, with the old definitions that they lack.
fn open(options: &PlayOptions) -> Result<BagSet, PlayError> {
    let bags = BagSet::open_with(&options.inputs, Ros1View::AllConverted)?;
    let Some(migration) = &options.migration else {
        return Ok(bags);
    };
    let bags = bags.bags().iter().cloned();
    let bags = bags.map(|bag| migration.old.complete(bag));
    Ok(BagSet::from(bags.collect::<Vec<_>>()))
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
    if options.lockstep.in_flight == 0 {
        return refuse("the number of messages in flight", "at least 1", "0".to_owned());
    }
    match options.clock.rate() {
        Some(hertz) if !(hertz.is_finite() && hertz > 0.0) => {
            refuse("the rate of /clock", "a number above zero", hertz.to_string())
        }
        _ => Ok(()),
    }
}

/// Completes the hashes of topics that were recorded without one, so that subscribers can ask for their definition.
fn add_hashes(topics: &mut [TopicInfo], bags: &BagSet) {
    let is_without = |topic: &&mut TopicInfo| topic.type_description_hash.is_empty();
    let mut decoders = Decoders::new(bags.clone());
    for topic in topics.iter_mut().filter(is_without) {
        // Playback works without unreadable definitions.
        if let Ok(Some(definition)) = decoders.definition(&topic.type_name, "") {
            topic.type_description_hash = definition.type_hash();
        }
    }
}

/// The new definitions of topics.
///
/// # Errors
/// Rules that do not fit, and what cannot be carried without one.
fn migrations<'t>(
    topics: impl Iterator<Item = &'t TopicInfo>,
    bags: &BagSet,
    options: Option<&PlayMigration>,
) -> Result<Migrations, PlayError> {
    let Some(PlayMigration { folders, rules, .. }) = options else {
        return Ok(Migrations::default());
    };
    let target = Target {
        rules,
        define: &|name| folders.define(name).map_err(|error| error.to_string()),
    };
    let mut decoders = Decoders::new(bags.clone());
    let compared = target.compare_all(topics.cloned(), |type_name, hash| {
        Ok::<_, PlayError>(decoders.definition(type_name, hash)?)
    })?;
    Ok(Migrations::compile(compared, rules)?)
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
