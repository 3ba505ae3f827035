//! The commands of the drain: topics and their definitions, in order, and requests for new files and snapshots, which are merged.

use super::{Drain, DrainRequests};
use crate::events::FinishedFile;
use holdall_io::mutex::lock;
use holdall_io::wait::Wait;
use holdall_model::{
    loss::ledger::Restart,
    topic::{MessageDefinition, TopicId, TopicInfo},
};
use holdall_storage::writer::ChannelInfo;

/// The most finished files that wait to be reported to other nodes.
const FINISHED_FILES_MAX: usize = 1024;

/// Facts that a drain must know before messages come, in order.
#[derive(Clone, Debug)]
pub enum DrainCommand {
    /// Messages of this topic will come.
    AddTopic {
        /// Its number in the recording.
        topic: TopicId,
        /// How the bag describes it.
        info: TopicInfo,
        /// Its definition; `None` while it is being asked for.
        definition: Option<MessageDefinition>,
    },
    /// Messages of this topic with another type will come.
    AddType {
        /// The topic's number in the recording.
        topic: TopicId,
        /// How the bag describes the topic of that type.
        info: TopicInfo,
        /// The type's definition; encoding `Unknown` while it is being asked for.
        definition: MessageDefinition,
    },
    /// The definition that a node was asked for, or that there is none.
    Define {
        /// The topics with this type.
        topics: Vec<TopicId>,
        /// The definition; encoding `Unknown` when there is none.
        definition: MessageDefinition,
    },
}

impl Drain {
    /// Runs the queued commands.
    pub(super) fn run_commands(&mut self) {
        loop {
            // Taken one by one, so that the lock is not held while one is carried out.
            let Some(command) = lock(&self.shared.commands).pop_front() else {
                break;
            };
            match command {
                DrainCommand::AddTopic {
                    topic,
                    info,
                    definition,
                } => {
                    self.add_topic(topic, info, definition);
                }
                DrainCommand::AddType {
                    topic,
                    info,
                    definition,
                } => self.add_type(topic, info, definition),
                DrainCommand::Define { topics, definition } => {
                    for topic in topics {
                        self.define(topic, definition.clone());
                    }
                }
            }
        }
        let requests = std::mem::take(&mut *lock(&self.shared.requests));
        self.run_requests(requests);
    }

    /// One new file serves all requests.
    fn run_requests(&mut self, requests: DrainRequests) {
        if let Some(reason) = requests.restart {
            let time = self.checkpoints.last_written();
            lock(&self.ledger).restarted(Restart { time, reason });
        }
        if requests.new_file {
            self.split();
        }
        if requests.snapshot {
            self.cache.dump();
        }
        self.unwritten_markers.extend(requests.markers);
        if !requests.events.is_empty() {
            self.add_requested(requests.events);
        }
    }

    pub(super) fn add_topic(
        &mut self,
        topic: TopicId,
        info: TopicInfo,
        definition: Option<MessageDefinition>,
    ) {
        self.watch_topic(topic, &info, definition.as_ref());
        let index = topic.0 as usize;
        if index >= self.topics.len() {
            self.topics.resize(index + 1, None);
        }
        match definition {
            Some(definition) => self.add_to_bag(topic, info, definition),
            None => self.waiting.add(topic, info),
        }
    }

    pub(super) fn add_to_bag(&mut self, topic: TopicId, info: TopicInfo, definition: MessageDefinition) {
        match self.bag.add_topic(ChannelInfo {
            topic: info,
            definition,
        }) {
            Ok(added) => {
                self.topics[topic.0 as usize] = Some(added);
                self.watch_place(topic, added);
                self.topic_of_bag.push(topic);
                debug_assert_eq!(self.topic_of_bag.len(), added.0 as usize + 1, "bags count from 0");
            }
            Err(error) => self.fail(error),
        }
    }

    /// Gives a topic its definition, and writes the messages held back for it.
    pub(super) fn define(&mut self, topic: TopicId, definition: MessageDefinition) {
        if self.define_other(topic, &definition) {
            return;
        }
        self.watch_type(topic, &definition);
        match self.waiting.remove(topic) {
            Some((info, held)) => {
                self.add_to_bag(topic, info, definition);
                for (entry, payload) in held {
                    if self.packing.is_some() {
                        self.pack(entry, payload);
                        continue;
                    }
                    self.write(entry, payload.as_payload(), payload.as_payload().len());
                    let pinned_bytes = payload.held_bytes();
                    drop(payload);
                    self.cache.loan_returned(topic, pinned_bytes);
                }
                self.count_runs();
            }
            // The topic's messages no longer waited.
            None => {
                if let Some(Some(topic)) = self.topics.get(topic.0 as usize)
                    && let Some(name) = self.bag.set_definition(*topic, definition)
                {
                    tracing::info!("{name}: a node sent the message definition; it is in the bag now");
                }
            }
        }
    }

    pub(super) fn split(&mut self) {
        self.write_packed(Wait::UntilReady);
        if self.failure.is_none() {
            match self.bag.split() {
                Ok(()) => self.report_split(),
                Err(error) => self.fail(error),
            }
        }
    }

    pub(super) fn report_split(&self) {
        let closed = self.shared.current_file();
        self.update_status(|status| status.splits += 1);
        let opened = self.shared.current_file();
        tracing::info!("now recording into {}", opened.display());
        let mut finished = lock(&self.shared.finished);
        // In a recording whose session is never stepped nothing takes them.
        if finished.len() < FINISHED_FILES_MAX {
            finished.push(FinishedFile { closed, opened });
        }
        drop(finished);
        self.shared.wake_recorder();
    }
}
