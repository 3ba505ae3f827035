//! How similar the images of two bags are, which are decoded where they are video.

use crate::{likeness::ssim_of_messages, recode::Plain};
use holdall_bag::reader::{BagMessage, BagSet};

/// The structural similarity of images in two bags.
pub struct Similarity([Plain; 2]);

impl Similarity {
    /// That of the topics which `takes` names.
    ///
    /// # Errors
    /// One clause: a file that cannot be read, video without a decoder.
    pub fn find(bags: [&BagSet; 2], takes: impl Fn(&str) -> bool) -> Result<Self, String> {
        let [one, other] = bags.map(|bags| {
            let topics = bags.topics().into_iter().filter(|topic| takes(&topic.name));
            Plain::find(bags, &topics.collect::<Vec<_>>())
        });
        Ok(Self([one?, other?]))
    }

    /// That of the images in two messages, one of each bag.
    ///
    /// # Errors
    /// One clause: as [`ssim_of_messages`], and video that cannot be decoded.
    pub fn of(&mut self, messages: [&BagMessage; 2]) -> Result<f64, String> {
        let [one, other] = &mut self.0;
        let one = one.decode(messages[0].clone())?;
        let other = other.decode(messages[1].clone())?;
        let [before, now] = [&one, &other].map(|message| &message.topic.type_name);
        if before != now {
            return Err(format!("a message of {before} became one of {now}"));
        }
        ssim_of_messages(before, &one.payload, &other.payload)
    }
}
