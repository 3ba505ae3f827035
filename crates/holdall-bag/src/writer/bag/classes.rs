//! The open files of all classes of topics: a class has storage files of its own, and one is chosen for each message.

use super::{BagTopic, current::CurrentFile, open::OpenFiles};
use crate::writer::SplitOptions;
use holdall_io::queue::DiskQueue;
use holdall_model::{file_class::FileClasses, topic::TopicInfo};
use std::{
    collections::VecDeque,
    iter,
    ops::{Deref, DerefMut, Range},
};

/// The open files by class; those of the chosen class are what it dereferences to.
pub(super) struct Classes {
    rules: FileClasses,
    /// Apart, so that they are found without an index: most bags have no other class.
    first: OpenFiles,
    others: Vec<OpenFiles>,
    chosen: usize,
    /// The class of each topic.
    of_topic: Vec<usize>,
    /// `None` until it is asked which messages the system has, and with one class.
    order: Option<Order>,
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
        let rules = split.classes.clone();
        let files = |class| OpenFiles::new(split.clone(), rules.name(class));
        Self {
            first: files(0),
            others: (1..rules.count()).map(files).collect(),
            rules,
            chosen: 0,
            of_topic: Vec::new(),
            order: None,
        }
    }

    /// One topic more.
    pub fn add_topic(&mut self, topic: &TopicInfo) {
        self.of_topic.push(self.rules.of(&topic.name, &topic.type_name));
        self.each_mut().for_each(OpenFiles::add_topic);
    }

    /// Chooses the class of a topic.
    #[inline]
    pub fn choose_for(&mut self, topic: BagTopic) {
        if !self.others.is_empty() {
            self.chosen = self.of_topic.get(topic.0 as usize).copied().unwrap_or(0);
        }
    }

    /// Chooses a class.
    pub fn choose(&mut self, class: usize) {
        self.chosen = class;
    }

    /// The numbers of all classes.
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
        let (class, of_topic) = (self.chosen, &self.of_topic);
        let files = match class.checked_sub(1) {
            None => &mut self.first,
            Some(other) => &mut self.others[other],
        };
        (files, TopicsOfClass { class, of_topic })
    }

    /// Whether a ring removes files of the chosen class.
    pub fn is_in_ring(&self) -> bool {
        self.rules.is_in_ring(self.chosen)
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
        let classes = self.all().filter(|class| self.rules.is_in_ring(*class));
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
        self.order = (!self.others.is_empty()).then(|| Order::of(self.all().len()));
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
    of_topic: &'a [usize],
}

impl TopicsOfClass<'_> {
    /// Whether a topic is one of them.
    pub fn has(self, topic: BagTopic) -> bool {
        self.of_topic.get(topic.0 as usize) == Some(&self.class)
    }
}

/// The order of messages that go to several files.
struct Order {
    /// Classes with their number of messages, one after the other; those of the prefix are gone.
    runs: VecDeque<(usize, u64)>,
    /// Messages of each class that are in the prefix.
    passed: Vec<u64>,
    prefix: u64,
}

impl Order {
    fn of(classes: usize) -> Self {
        Self {
            runs: VecDeque::new(),
            passed: vec![0; classes],
            prefix: 0,
        }
    }

    #[inline]
    fn note(&mut self, class: usize) {
        match self.runs.back_mut() {
            Some((last, count)) if *last == class => *count += 1,
            _ => self.runs.push_back((class, 1)),
        }
    }

    /// Length of the longest prefix of which each class has its part, when it has its first `had` messages.
    fn prefix(&mut self, had: &[u64]) -> u64 {
        while let Some((class, count)) = self.runs.front_mut() {
            let more = had[*class].saturating_sub(self.passed[*class]).min(*count);
            self.passed[*class] += more;
            self.prefix += more;
            *count -= more;
            if *count > 0 {
                break;
            }
            self.runs.pop_front();
        }
        self.prefix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_counts_when_all_before_it_are_in_the_system_whatever_file_they_are_in() {
        let mut order = Order::of(2);
        for class in [0, 0, 1, 0, 1, 1] {
            order.note(class);
        }
        assert_eq!(order.prefix(&[0, 3]), 0);
        assert_eq!(order.prefix(&[1, 3]), 1);
        assert_eq!(order.prefix(&[3, 0]), 2);
        assert_eq!(order.prefix(&[3, 2]), 5);
        order.note(1);
        assert_eq!(order.prefix(&[3, 4]), 7);
        assert!(order.runs.is_empty());
    }
}
