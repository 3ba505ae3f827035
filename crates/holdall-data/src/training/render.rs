//! Messages as values and pictures, several at a time.

use super::{
    copies::Recorded,
    picture::{self, Picture},
    values::{Extractor, Number, Values},
};
use holdall_bag::{decode::Fields, reader::BagMessage};
use holdall_io::mutex::lock;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// How a feature is read out of the messages of one bag.
#[derive(Clone)]
pub(super) enum Source {
    /// Fields.
    Fields(Box<Extractor>),
    /// Images.
    Images { fields: Fields, is_video: bool },
}

/// The value of a feature in a frame.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Item {
    Numbers(Vec<Number>),
    Text(String),
    Picture(Picture),
}

/// A message whose video is decoded, and the message of recorded video that it was, where that is needed.
pub(super) struct Message {
    pub plain: BagMessage,
    pub recorded: Option<Recorded>,
}

impl Message {
    /// Bytes that it keeps in memory.
    pub fn bytes(&self) -> usize {
        let recorded = self.recorded.as_ref().map_or(0, |recorded| recorded.data.len());
        self.plain.payload.len() + recorded
    }
}

/// A message of a feature to read, with its number.
pub(super) type Job = (usize, Arc<Message>);

/// Its outcome.
pub(super) type Rendered = Result<Arc<Item>, String>;

impl Source {
    fn read(&mut self, payload: &[u8]) -> Result<Item, String> {
        match self {
            Self::Fields(extractor) => extractor.read(payload).map(|values| match values {
                Values::Numbers(numbers) => Item::Numbers(numbers),
                Values::Text(text) => Item::Text(text),
            }),
            Self::Images { fields, is_video } => {
                let payload = fields.payload(payload).map_err(|error| error.to_string())?;
                picture::read(fields.plan(), &payload, *is_video).map(Item::Picture)
            }
        }
    }
}

/// Reads all messages; those of images in several threads.
pub(super) fn render(sources: &mut [Source], jobs: &[Job], threads: usize) -> Vec<Rendered> {
    let read = |sources: &mut [Source], (feature, message): &Job| -> Rendered {
        let mut item = sources[*feature].read(&message.plain.payload)?;
        if let Item::Picture(picture) = &mut item {
            picture.recorded.clone_from(&message.recorded);
        }
        Ok(Arc::new(item))
    };
    let images = jobs
        .iter()
        .filter(|(feature, _)| matches!(sources[*feature], Source::Images { .. }));
    let threads = threads.min(images.count());
    if threads < 2 {
        return jobs.iter().map(|job| read(sources, job)).collect();
    }
    let next = AtomicUsize::new(0);
    let rendered: Vec<Mutex<Option<Rendered>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        let mut sources = sources.to_vec();
        while let Some((place, job)) = {
            let place = next.fetch_add(1, Ordering::Relaxed);
            jobs.get(place).map(|job| (place, job))
        } {
            *lock(&rendered[place]) = Some(read(&mut sources, job));
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let taken = rendered.into_iter().map(|slot| {
        let slot = slot
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        slot.unwrap_or_else(|| Err("it was not read".to_owned()))
    });
    taken.collect()
}
