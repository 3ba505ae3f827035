//! The class of files of each topic of a bag: by its rules, and by its rate. A topic that has too many bytes a second for files with others
//! leaves them for files of its own.

use crate::{file_class::FileClasses, split::SplitOptions, time::Timestamp};
use std::{collections::HashMap, fmt, ops::Range, time::Duration};

/// Rates are taken over at least this span: a file may end at any time.
const SPAN_MIN: Duration = Duration::from_secs(1);

/// The classes of topics, which have numbers from 0.
pub struct TopicClasses {
    rules: FileClasses,
    of_topic: Vec<usize>,
    /// `None` where topics never leave their class.
    rates: Option<Rates>,
}

/// A message that is written next.
#[derive(Clone, Copy, Debug)]
pub struct NextMessage {
    /// The number of its topic.
    pub topic: u32,
    /// Its log time.
    pub log_time: Timestamp,
    /// Length of its payload.
    pub payload_bytes: usize,
    /// Bytes of the messages that need the same file, where it is the first of them; 0 for the others.
    pub run_bytes: Option<usize>,
}

/// A file that takes messages.
#[derive(Clone, Copy, Debug)]
pub struct OpenFile {
    /// Its number.
    pub number: u32,
    /// Bytes of the topic that it repeats at its beginning; `None` until it has them.
    pub repeated_bytes: Option<u64>,
}

/// A topic that is too much for files with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// Its name.
    pub topic: String,
    /// The number and the name of its class from now on; `None` where all are taken, so that it stays.
    pub into: Option<(usize, String)>,
}

impl fmt::Display for Leaving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.into {
            Some(_) => "has files of its own from now on",
            None => {
                "stays in files with other topics, although it has too many bytes a second: no more topics get files of their own"
            }
        };
        write!(f, "{} {what}", self.topic)
    }
}

impl TopicClasses {
    /// No topic yet.
    pub fn new(split: &SplitOptions) -> Self {
        let rules = split.classes.clone();
        let free = rules.count()..split.streams_max();
        let rates = split.shared_max();
        Self {
            rates: rates.map(|max| Rates::new(max, free)),
            rules,
            of_topic: Vec::new(),
        }
    }

    /// The rules by name and type.
    pub fn rules(&self) -> &FileClasses {
        &self.rules
    }

    /// How many classes have topics, or may have by the rules.
    pub fn count(&self) -> usize {
        self.rules.count() + self.rates.as_ref().map_or(0, |rates| rates.names.len())
    }

    /// One topic more.
    pub fn add_topic(&mut self, name: &str, type_name: &str) {
        let class = self.rules.of(name, type_name);
        let class = match &mut self.rates {
            Some(rates) => rates.add_topic(name, class, self.rules.keeps(name)),
            None => class,
        };
        self.of_topic.push(class);
    }

    /// The class of a topic.
    #[inline]
    pub fn of(&self, topic: u32) -> usize {
        self.of_topic.get(topic as usize).copied().unwrap_or(0)
    }

    /// Whether a topic has this class.
    pub fn has(&self, class: usize, topic: u32) -> bool {
        self.of_topic.get(topic as usize) == Some(&class)
    }

    /// Whether topics may leave shared files.
    pub fn measures(&self) -> bool {
        self.rates.is_some()
    }

    /// Whether the topic of a message has to leave the present file of its class before it.
    pub fn leave(&mut self, next: NextMessage, file: Option<OpenFile>) -> Option<Leaving> {
        let class = self.of(next.topic);
        let rates = self.rates.as_mut()?;
        if !rates.are_passed(next, class, file) {
            return None;
        }
        let leaving = rates.set_apart(next.topic, &self.rules)?;
        if let Some((class, _)) = leaving.into {
            let places = self.of_topic.iter_mut().zip(&rates.places);
            let same = places.filter(|(_, place)| rates.topics[**place].class == class);
            same.for_each(|(of_topic, _)| *of_topic = class);
        }
        Some(leaving)
    }
}

/// How much of the current file of its class each topic has.
struct Rates {
    bytes_per_second_max: u64,
    /// Classes that no topic has yet.
    free: Range<usize>,
    /// Names of those that one has.
    names: Vec<String>,
    /// The number of the file of each class, and the least and the greatest log time of a message there.
    files: Vec<(Option<u32>, [Timestamp; 2])>,
    /// Topics by name: a topic with several types is one.
    topics: Vec<NamedTopic>,
    by_name: HashMap<String, usize>,
    /// By the number of the bag's topic.
    places: Vec<usize>,
}

struct NamedTopic {
    name: String,
    class: usize,
    /// It never leaves its files, or has left.
    stays: bool,
    file: Option<u32>,
    /// What it has in this file, with the messages that this repeats if they are counted.
    bytes: u64,
    counts_repeated: bool,
}

impl Rates {
    /// No topic yet; the `free` classes are for those that leave shared files.
    fn new(bytes_per_second_max: u64, free: Range<usize>) -> Self {
        Self {
            bytes_per_second_max,
            files: vec![(None, [Timestamp::from_nanos(0); 2]); free.end],
            free,
            names: Vec::new(),
            topics: Vec::new(),
            by_name: HashMap::new(),
            places: Vec::new(),
        }
    }

    /// One topic more, of a class; returns the class that it has.
    fn add_topic(&mut self, name: &str, class: usize, stays: bool) -> usize {
        let place = *self.by_name.entry(name.to_owned()).or_insert_with(|| {
            self.topics.push(NamedTopic {
                name: name.to_owned(),
                class,
                stays,
                file: None,
                bytes: 0,
                counts_repeated: false,
            });
            self.topics.len() - 1
        });
        self.places.push(place);
        self.topics[place].class
    }

    /// Whether a message gives its topic too many bytes a second in the current file of a class, however soon that ends.
    fn are_passed(&mut self, next: NextMessage, class: usize, open: Option<OpenFile>) -> bool {
        let file = open.map(|open| open.number);
        let (known, [first, last]) = self.files[class];
        // The clock may have been set back.
        let [first, last] = if known == file {
            [first.min(next.log_time), last.max(next.log_time)]
        } else {
            [next.log_time; 2]
        };
        let place = self.places.get(next.topic as usize);
        let Some(topic) = place.and_then(|place| self.topics.get_mut(*place)) else {
            return false;
        };
        if topic.file != file {
            (topic.file, topic.bytes, topic.counts_repeated) = (file, 0, false);
        }
        if let Some(repeated) = open.and_then(|open| open.repeated_bytes)
            && !topic.counts_repeated
        {
            topic.bytes += repeated;
            topic.counts_repeated = true;
        }
        let span = last.saturating_since(first).max(SPAN_MIN);
        let max = u128::from(self.bytes_per_second_max);
        let bytes = next.run_bytes.unwrap_or(next.payload_bytes) as u64;
        // A message may be the only one of the next file.
        let is_much = u128::from(bytes) > max
            || u128::from(topic.bytes + bytes) * 1_000_000_000 > max * span.as_nanos();
        if is_much && !topic.stays && next.run_bytes != Some(0) {
            return true;
        }
        topic.bytes += next.payload_bytes as u64;
        self.files[class] = (file, [first, last]);
        false
    }

    /// Gives a topic a class without others, if one is left.
    #[cold]
    fn set_apart(&mut self, topic: u32, rules: &FileClasses) -> Option<Leaving> {
        let place = *self.places.get(topic as usize)?;
        let topic = self.topics.get_mut(place)?;
        topic.stays = true;
        let into = self.free.next().map(|class| {
            topic.class = class;
            let name = rules.name_for_topic(&topic.name, &self.names);
            self.names.push(name.clone());
            (class, name)
        });
        Some(Leaving {
            topic: topic.name.clone(),
            into,
        })
    }
}
