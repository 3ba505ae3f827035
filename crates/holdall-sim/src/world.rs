//! One recording in a simulated world: the real recorder over a simulated network, disk and clock, driven event by event.

use crate::{
    aftermath::{Aftermath, Crashed},
    clocks::Clocks,
    death::{DeathWatch, Scene, WatchedDisk, WatchedFolder, memory_directory},
    ends::ExpectedEnds,
    folder::SimFolder,
    mutation::{self, Mutation},
    network::{Network, SimTransport, random_way},
    plan::{DefinitionPlan, Ending, Event, OFFERS, Plan, TOPICS},
    promote::{Asked, Promoter},
    types::{asked_hash, asked_sources, type_of},
};
use holdall::internals::SteppedRecorder;
use holdall_io::{
    clock::Clock,
    queue::DiskQueue,
    sim::{SimClock, SimDisk, SimDiskHandle, SimRng},
};
use holdall_transport::PublishRequest;
use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

/// Time between two steps of the drain when there is nothing to write.
const DRAIN_IDLE: Duration = Duration::from_millis(100);
/// How long the recorder waits at its end for messages in flight.
const CATCH_UP: Duration = Duration::from_millis(300);

/// The world.
pub struct World<'a> {
    plan: &'a Plan,
    mutation: Option<Mutation>,
    clock: SimClock,
    network: Network,
    recorder: SteppedRecorder,
    disk: SimDiskHandle,
    folder: SimFolder,
    started: Duration,
    next_session: Duration,
    next_drain: Duration,
    last_drain: Duration,
    pauses: Vec<(Duration, bool)>,
    memory_excess: Option<(&'static str, usize, usize)>,
    clocks: Clocks,
    /// The user has paused.
    is_paused: bool,
    /// Number of messages that each publisher had sent when the user requested the end.
    sent_at_stop: Option<Vec<usize>>,
    watch: DeathWatch,
    promoter: Option<Promoter>,
}

impl<'a> World<'a> {
    /// The world before the first event. `scratch` is a real directory for readers that want real files.
    ///
    /// # Errors
    /// When the recorder does not start; the sentence is its reason.
    pub fn new(plan: &'a Plan, mutation: Option<Mutation>, scratch: &Path) -> Result<Self, String> {
        let clock = SimClock::default();
        // As the recorder: making its first file takes time already.
        let started = clock.monotonic();
        let network = Network::new(clock.clone(), plan.signs);
        let disk = SimDisk::new(plan.disk.clone(), clock.clone());
        let handle = disk.handle();
        let folder = SimFolder::new(handle.clone(), scratch);
        let blocks = plan.blocks();
        let mut options = plan.options.clone();
        mutation::change_options(mutation, &mut options);
        mutation::prepare_disk(mutation, &handle);
        let watch = DeathWatch::default();
        if plan.keeps_memory {
            options.safety.rescue_directory =
                Some(memory_directory(scratch).map_err(|error| error.to_string())?);
        }
        let (of_disk, of_folder) = (watch.clone(), watch.clone());
        let recorder = SteppedRecorder::with_storage(
            options,
            vec![mutation::transport(mutation, SimTransport(network.clone()))],
            Arc::new(clock.clone()),
            Box::new(move |_| {
                let disk = WatchedDisk {
                    disk: mutation::disk(mutation, disk),
                    watch: of_disk,
                };
                DiskQueue::new(Box::new(disk), blocks)
            }),
            Box::new(WatchedFolder {
                folder: mutation::folder(mutation, folder.clone()),
                watch: of_folder,
            }),
            mutation::storage(mutation),
        )
        .map_err(|error| error.to_string())?;
        if plan.ending == Ending::Death {
            watch.begin(Scene {
                disk: handle.clone(),
                folder: folder.clone(),
                network: network.clone(),
                survival: recorder.survival(),
                mutation,
                memory: scratch.join("memory-of-the-dead"),
                bag: plan.options.output.clone(),
            });
        }
        let ready = clock.monotonic();
        network.set_paused(plan.is_shut_at_first());
        Ok(Self {
            promoter: Promoter::of(plan, &network, &folder, scratch)?,
            plan,
            mutation,
            clock,
            network,
            recorder,
            disk: handle,
            folder,
            started,
            next_session: ready,
            next_drain: ready,
            last_drain: ready,
            pauses: vec![(started, plan.is_shut_at_first())],
            memory_excess: None,
            clocks: Clocks::new(plan.options.use_sim_time),
            is_paused: plan.options.start_paused,
            sent_at_stop: None,
            watch,
        })
    }

    /// Lets everything happen.
    ///
    /// # Errors
    /// When the remains of a dead process cannot be copied.
    pub fn run(mut self) -> std::io::Result<Aftermath> {
        for event in &self.plan.events {
            self.act(*event);
            self.copy_due();
            let is_broken = |promoter: &Promoter| promoter.broken.is_some();
            if self.watch.is_dead() || self.promoter.as_ref().is_some_and(is_broken) {
                break;
            }
            self.check_memory();
        }
        match self.plan.ending {
            Ending::Stop => Ok(self.stop()),
            Ending::PowerCut | Ending::Kill => Ok(self.crash()),
            Ending::Death => self.die(),
        }
    }

    fn act(&mut self, event: Event) {
        match event {
            Event::Start {
                topic,
                offer,
                wrong_type,
            } => self.start(topic, offer, wrong_type),
            Event::End(number) => {
                if let Some(life) = self.chosen(number) {
                    self.network.end(life);
                }
            }
            Event::Restart(number) => self.restart(number),
            Event::Cut(number) => {
                if let Some(life) = self.chosen(number) {
                    self.network.cut(life);
                }
            }
            Event::Mend(number) => {
                if let Some(life) = chosen_of(&self.network.cut_off(), number) {
                    self.network.mend(life);
                }
            }
            Event::Kill(number) => {
                if let Some(life) = self.chosen(number) {
                    self.network.kill(life);
                }
            }
            Event::AskEnd => self.ask_end(),
            Event::Send { .. } => self.send(event),
            Event::Announce(number) => {
                if let Some(life) = self.chosen(number) {
                    self.network.announce(life);
                }
            }
            Event::Pass(span) => self.pass(span),
            Event::Starve(span) => {
                self.clock.advance(span);
                self.network.deliver_due();
            }
            Event::SetClock(nanos) => {
                self.set_clock(nanos);
            }
            Event::Simulate(nanos) => {
                let time = self.clocks.simulate(nanos, self.clock.monotonic());
                self.say_time(time);
            }
            Event::TogglePause => {
                self.is_paused = !self.is_paused;
                if mutation::pauses_on_request(self.mutation) {
                    self.recorder.control().toggle_pause();
                }
                self.note_pause();
            }
            Event::Split => self.recorder.control().split(),
            Event::Snapshot => drop(self.recorder.control().snapshot()),
            Event::Describe => self
                .network
                .describe(&type_of(DefinitionPlan::Asked), asked_sources()),
            Event::StallDisk(span) => self.disk.stall(span),
            Event::FailDisk {
                operation,
                nth,
                errno,
            } => self.disk.fail_nth(operation, nth, errno),
            Event::LimitDisk(bytes) => self.disk.set_capacity_bytes(bytes),
            Event::Die(points) => self.watch.arm(points),
            Event::Promote(asked) => self.promote(asked),
        }
    }

    fn promote(&mut self, asked: Asked) {
        let (now, status) = (self.clock.now(), self.recorder.status());
        if let Some(promoter) = &mut self.promoter {
            promoter.ask(asked, now, &status);
        }
    }

    /// Copies the parts of the ring that are asked for and on the disk, while the recording continues.
    fn copy_due(&mut self) {
        while !self.watch.is_dead()
            && let Some(promoter) = self.promoter.as_mut()
            && promoter.may_copy(self.clock.now())
        {
            let before = self.recorder.status();
            let Some(due) = promoter.take_due(self.clock.now(), self.clock.monotonic(), &before) else {
                return;
            };
            promoter.sync();
            let copied = due.copy(&mut |rng| self.go_on(rng));
            let after = self.recorder.status();
            if let Some(promoter) = self.promoter.as_mut() {
                promoter.judge(&due, copied, &before, &after);
            }
        }
    }

    /// Lets the recording continue for a moment, or for long enough to turn the ring round.
    fn go_on(&mut self, rng: &mut SimRng) {
        if self.watch.is_dead() {
            return;
        }
        let sends = [0, 1, 6][rng.below(3) as usize];
        for _ in 0..sends {
            self.send(Event::Send {
                publisher: rng.next_u64(),
                count: 1 + rng.below(8),
                spacing: rng.span_below(Duration::from_millis(50)),
                lost: 0,
                delayed: 0,
                salt: rng.next_u64(),
            });
            if self.watch.is_dead() {
                return;
            }
        }
        if let Some(promoter) = &self.promoter {
            promoter.sync();
        }
    }

    fn set_clock(&mut self, nanos: i64) {
        if self.plan.has_jumps {
            // It is not set twice before the recorder looks at it again.
            self.pass(self.plan.session_interval);
        }
        self.clock.set_by(nanos);
        self.clocks.set_by(nanos);
    }

    /// Whether messages from now on are wanted: not in a pause, nor before the first time on `/clock`.
    fn note_pause(&mut self) {
        let is_shut = self.is_paused || self.clocks.are_awaited();
        self.network.set_paused(is_shut);
        if self.pauses.last().is_some_and(|(_, before)| *before != is_shut) {
            self.pauses.push((self.clock.monotonic(), is_shut));
        }
    }

    /// Says a time on `/clock`.
    fn say_time(&mut self, time: Option<i64>) {
        let Some(time) = time else { return };
        self.network.say_time(time);
        self.note_pause();
    }

    fn chosen(&self, number: u64) -> Option<usize> {
        chosen_of(&self.network.alive(), number)
    }

    fn ask_end(&mut self) {
        if self.plan.ending == Ending::Stop && self.sent_at_stop.is_none() {
            self.recorder.begin_stop();
            self.sent_at_stop = Some(self.network.sent_counts());
        }
    }

    fn start(&mut self, topic: usize, offer: usize, wrong_type: bool) {
        let topic = TOPICS[topic];
        let type_name = if wrong_type {
            "std_msgs/msg/Header".to_owned()
        } else {
            type_of(topic.definition)
        };
        let type_hash = match topic.definition {
            DefinitionPlan::Bundled => None,
            DefinitionPlan::Asked => Some(asked_hash()),
            DefinitionPlan::Untold => Some(format!("RIHS01_{:064x}", 7)),
        };
        self.network.start(&PublishRequest {
            topic: topic.name.to_owned(),
            type_name,
            type_hash,
            qos: OFFERS[offer],
            ..PublishRequest::default()
        });
    }

    fn restart(&mut self, number: u64) {
        let Some(life) = self.chosen(number) else { return };
        let before = self.network.request(life);
        self.network.end(life);
        self.network.start(&before);
    }

    fn send(&mut self, event: Event) {
        let Event::Send {
            publisher,
            count,
            spacing,
            lost,
            delayed,
            salt,
        } = event
        else {
            return;
        };
        let Some(life) = self.chosen(publisher) else {
            return;
        };
        let topic = self.network.request(life).topic;
        let Some(topic) = TOPICS.iter().find(|known| known.name == topic) else {
            return;
        };
        let mut rng = SimRng::new(salt);
        let mut ways = SimRng::new(salt ^ 0x5eed);
        for _ in 0..count {
            let len = topic.len(&mut rng);
            self.network.send(life, len, || {
                random_way(&mut ways, lost, delayed, Duration::from_millis(80))
            });
            if self.watch.is_dead() {
                return;
            }
            self.check_loans();
            if spacing.is_zero() {
                continue;
            }
            self.pass(spacing);
        }
    }

    /// Lets time pass, in which messages arrive and the recorder's threads take their steps.
    fn pass(&mut self, span: Duration) {
        let end = self.clock.monotonic() + span;
        loop {
            let time = self.clocks.tick(self.clock.monotonic());
            self.say_time(time);
            self.network.deliver_due();
            self.check_loans();
            if self.clock.monotonic() >= self.next_session {
                self.network.set_step(self.clock.monotonic());
                self.recorder.step_session();
                self.next_session = self.clock.monotonic() + self.plan.session_interval;
            }
            if self.clock.monotonic() >= self.next_drain {
                self.drain();
            }
            if self.watch.is_dead() {
                return;
            }
            let now = self.clock.monotonic();
            if now >= end {
                return;
            }
            let mut next = end.min(self.next_session).min(self.next_drain);
            next = next.min(self.clocks.next_tick());
            if let Some(due) = self.network.next_due() {
                next = next.min(due);
            }
            self.clock.advance_to(next.max(now + Duration::from_nanos(1)));
        }
    }

    fn drain(&mut self) {
        let mut interval = DRAIN_IDLE;
        loop {
            self.last_drain = self.clock.monotonic();
            if !self.recorder.step_drain() {
                break;
            }
            interval = self.plan.drain_interval;
        }
        self.next_drain = self.clock.monotonic() + interval;
    }

    fn check_loans(&mut self) {
        // One message larger than all of the cache is let in when nothing else is pinned.
        let allowed = self.plan.options.cache.bytes_max.max(LARGEST_BYTES);
        let lent = self.network.lent_bytes();
        if lent > allowed {
            self.memory_excess.get_or_insert(("lent payloads", lent, allowed));
        }
    }

    fn check_memory(&mut self) {
        let allowed = self.plan.options.cache.bytes_max + LARGEST_BYTES;
        let held = self.recorder.cache_memory_bytes();
        if held > allowed {
            self.memory_excess.get_or_insert(("the cache", held, allowed));
        }
    }

    fn die(self) -> std::io::Result<Aftermath> {
        let death = self.watch.end()?;
        let ended = self.clock.monotonic();
        drop(self.recorder);
        let (mut files, mut lives, mut disk_failed) = (BTreeMap::new(), Vec::new(), false);
        let death = death.map(|mut death| {
            files = std::mem::take(&mut death.files);
            lives = std::mem::take(&mut death.lives);
            disk_failed = death.disk_failed;
            death
        });
        Ok(Aftermath {
            lives,
            files,
            started: self.started,
            ended,
            pauses: self.pauses,
            stopped: None,
            crashed: None,
            death,
            memory_excess: self.memory_excess,
            disk_failed,
            clocks: self.clocks,
            ends: None,
            promoter: self.promoter.map(Promoter::ended),
        })
    }

    fn crash(self) -> Aftermath {
        let mut rng = SimRng::new(self.plan.seed ^ 0xdead);
        let crashed = Crashed {
            status: self.recorder.status(),
            ledger: self.recorder.ledger(),
            last_drain: self.last_drain,
            has_failed: self.recorder.has_failed(),
        };
        let disk_failed = self.disk.has_failed();
        let mut files;
        let texts;
        if self.plan.ending == Ending::Kill {
            files = self.disk.kill();
            texts = self.folder.visible();
        } else {
            files = self.disk.crash();
            texts = self.folder.survivors(&mut rng);
        }
        files.extend(texts);
        let ended = self.clock.monotonic();
        // The recorder finds a disk on which everything fails.
        drop(self.recorder);
        Aftermath {
            lives: self.network.lives(),
            files,
            started: self.started,
            ended,
            pauses: self.pauses,
            stopped: None,
            crashed: Some(crashed),
            death: None,
            memory_excess: self.memory_excess,
            disk_failed,
            clocks: self.clocks,
            ends: None,
            promoter: self.promoter.map(Promoter::ended),
        }
    }

    fn stop(mut self) -> Aftermath {
        if self.plan.seed.is_multiple_of(2) {
            self.pass(CATCH_UP);
        }
        let ended = self.clock.monotonic();
        let ends = ExpectedEnds {
            sent: self
                .sent_at_stop
                .take()
                .unwrap_or_else(|| self.network.sent_counts()),
            answering: self.network.answering(),
        };
        let (report, ledger) = self.recorder.stop_with_ledger();
        for path in &report.files {
            mutation::change_file(self.mutation, &self.disk, path);
        }
        // The files of a clean end survive a power cut unchanged.
        let disk_failed = self.disk.has_failed();
        let mut files;
        if disk_failed || report.failure.is_some() {
            // A broken disk, or one without room for the last metadata, can be judged only by its visible content.
            files = self.disk.visible();
            files.extend(self.folder.visible());
        } else {
            files = self.disk.crash();
            files.extend(self.folder.survivors(&mut SimRng::new(self.plan.seed ^ 0xdead)));
        }
        Aftermath {
            lives: self.network.lives(),
            files,
            started: self.started,
            ended,
            pauses: self.pauses,
            stopped: Some((report, ledger)),
            crashed: None,
            death: None,
            memory_excess: self.memory_excess,
            disk_failed,
            clocks: self.clocks,
            ends: Some(ends),
            promoter: self.promoter.map(Promoter::ended),
        }
    }
}

/// One of some publishers.
fn chosen_of(lives: &[usize], number: u64) -> Option<usize> {
    let place = usize::try_from(number).unwrap_or(usize::MAX);
    lives.get(place.checked_rem(lives.len())?).copied()
}

/// The longest payload of any topic in bytes, including the overhead of the cache.
const LARGEST_BYTES: usize = 67_000;
