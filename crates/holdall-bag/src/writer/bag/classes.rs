//! The open files of all classes of topics: a class has storage files of its own, and one is chosen for each message.

use super::{BagTopic, current::CurrentFile, open::OpenFiles};
use crate::writer::SplitOptions;
use holdall_io::queue::DiskQueue;
use holdall_model::{
    file_order::FileOrder,
    topic::TopicInfo,
    topic_class::{NextMessage, TopicClasses},
};
use std::{
    iter,
    ops::{Deref, DerefMut, Range},
};

/// The open files by class; those of the chosen class are what it dereferences to.
pub(super) struct Classes {
    topics: TopicClasses,
    /// Apart, so that they are found without an index: most bags have no other class.
    first: OpenFiles,
    others: Vec<OpenFiles>,
    chosen: usize,
    /// `None` until it is asked which messages the system has, and with one class.
    order: Option<FileOrder>,
}

impl Deref for Classes {
    type Target = OpenFiles;

    #[inline]
    fn deref(&self) -> &OpenFiles {
        self.of(self.chosen)
    }
}

impl DerefMut for Classes {
    #[inline]
    fn deref_mut(&mut self) -> &mut OpenFiles {
        self.chosen_mut().0
    }
}

impl Classes {
    /// No file yet; the first class is chosen.
    pub fn new(split: &SplitOptions) -> Self {
        let files = |class| OpenFiles::new(split.clone(), split.classes.name(class));
        Self {
            topics: TopicClasses::new(split),
            first: files(0),
            others: (1..split.streams_max()).map(files).collect(),
            chosen: 0,
            order: None,
        }
    }

    /// One topic more.
    pub fn add_topic(&mut self, topic: &TopicInfo) {
        self.topics.add_topic(&topic.name, &topic.type_name);
        self.each_mut().for_each(OpenFiles::add_topic);
    }

    /// Chooses the class of a topic.
    #[inline]
    pub fn choose_for(&mut self, topic: BagTopic) {
        if !self.others.is_empty() {
            self.chosen = self.topics.of(topic.0);
        }
    }

    /// Chooses the class of a message, which is a new one where its topic has too many bytes a second for files with others.
    #[inline]
    pub fn choose_for_next(&mut self, next: NextMessage) {
        if !self.others.is_empty() {
            self.choose_among(next);
        }
    }

    #[inline(never)]
    fn choose_among(&mut self, next: NextMessage) {
        self.chosen = self.topics.of(next.topic);
        if !self.topics.measures() {
            return;
        }
        let current = self.current.as_ref();
        let current = current.map(|current| current.open_file(BagTopic(next.topic)));
        if let Some(leaving) = self.topics.leave(next, current) {
            let Some((class, name)) = &leaving.into else {
                tracing::warn!("{leaving}");
                return;
            };
            tracing::info!("{leaving}");
            self.others[class - 1].class.clone_from(name);
            self.chosen = *class;
        }
    }

    /// Chooses a class.
    pub fn choose(&mut self, class: usize) {
        self.chosen = class;
    }

    /// How many classes have topics, or may have.
    pub fn count(&self) -> usize {
        self.topics.count()
    }

    /// The numbers of all classes, also of those for topics that may leave others.
    pub fn all(&self) -> Range<usize> {
        0..self.others.len() + 1
    }

    #[inline]
    fn of(&self, class: usize) -> &OpenFiles {
        match class.checked_sub(1) {
            None => &self.first,
            Some(other) => &self.others[other],
        }
    }

    /// The files of the chosen class, and its topics.
    #[inline]
    pub fn chosen_mut(&mut self) -> (&mut OpenFiles, TopicsOfClass<'_>) {
        let (class, topics) = (self.chosen, &self.topics);
        let files = match class.checked_sub(1) {
            None => &mut self.first,
            Some(other) => &mut self.others[other],
        };
        (files, TopicsOfClass { class, topics })
    }

    /// Whether a ring removes files of the chosen class.
    pub fn is_in_ring(&self) -> bool {
        self.topics.rules().is_in_ring(self.chosen)
    }

    /// The classes that have an open file, in the order of its number: the last one is the last file of the bag, however its files are listed.
    pub fn open_in_order(&self) -> Vec<usize> {
        let number = |class: usize| Some((self.of(class).current.as_ref()?.number(), class));
        let mut open: Vec<(u32, usize)> = self.all().filter_map(number).collect();
        open.sort_unstable();
        open.into_iter().map(|(_, class)| class).collect()
    }

    /// How many files that take messages a ring will remove.
    pub fn in_ring(&self) -> usize {
        let is_open = |class: &usize| self.of(*class).current.is_some();
        let classes = self.all().filter(|class| self.topics.rules().is_in_ring(*class));
        classes.filter(is_open).count()
    }

    /// Of every class.
    pub fn each_mut(&mut self) -> impl Iterator<Item = &mut OpenFiles> {
        iter::once(&mut self.first).chain(&mut self.others)
    }

    /// The files that take messages, that of the first class last.
    pub fn currents(&self) -> impl Iterator<Item = &CurrentFile> {
        let files = self.others.iter().rev().chain([&self.first]);
        files.filter_map(|files| files.current.as_ref())
    }

    /// The file of the first class.
    pub fn first_current(&self) -> Option<&CurrentFile> {
        self.first.current.as_ref()
    }

    /// Whether a file that takes messages has any.
    pub fn has_messages(&self) -> bool {
        self.all().any(|class| self.of(class).split.has_messages())
    }

    /// Announces that [`Self::handed_in_all`] will be called.
    pub fn track_handed_in_all(&mut self) {
        self.each_mut().for_each(|files| files.handed.track());
        self.order = (!self.others.is_empty()).then(|| FileOrder::of(self.all().len()));
    }

    /// Notes that a message went to the chosen class.
    #[inline]
    pub fn note_written(&mut self) {
        if let Some(order) = &mut self.order {
            order.note(self.chosen);
        }
    }

    /// Length of the prefix of the messages written so far that the system has.
    pub fn handed_in_all(&mut self, queue: &DiskQueue) -> u64 {
        let Some(order) = &mut self.order else {
            return self.handed(queue);
        };
        let files = iter::once(&mut self.first).chain(&mut self.others);
        let handed: Vec<u64> = files.map(|files| files.handed(queue)).collect();
        order.prefix(&handed)
    }
}

/// The topics of a class.
#[derive(Clone, Copy)]
pub(super) struct TopicsOfClass<'a> {
    class: usize,
    topics: &'a TopicClasses,
}

impl TopicsOfClass<'_> {
    /// Whether a topic is one of them.
    pub fn has(self, topic: BagTopic) -> bool {
        self.topics.has(self.class, topic.0)
    }
}
