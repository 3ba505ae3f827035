//! Objects that are opened one after the other: the next ones are requested while one is being read.

use crate::object::RemoteObject;
use std::{
    collections::{HashMap, VecDeque},
    io,
    ops::Range,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
};

/// Objects requested ahead once two opens have followed one another; doubled with each further one.
const AHEAD_FIRST: usize = 2;
/// At most the number of concurrent requests.
const AHEAD_MAX: usize = 16;
/// Announcements that are kept; several bags may be read at once.
const LISTS_MAX: usize = 32;

/// An object that arrives, or why it does not.
pub(crate) type Opened = io::Result<Arc<RemoteObject>>;

/// Objects that were announced together.
#[derive(Debug)]
struct List {
    /// The process that requests them: after a fork its threads exist in the parent only.
    process: u32,
    urls: Vec<String>,
    places: HashMap<String, usize>,
    /// The one that was opened last; the furthest, while there is a direction.
    last: Option<usize>,
    direction: Direction,
    /// How many objects after the last one are requested.
    ahead: usize,
    requested: HashMap<String, Receiver<Opened>>,
}

/// Announced objects, and which of them are requested.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    lists: VecDeque<List>,
}

/// The consequences of opening an object.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// The channel that the object arrives on, if it was requested already.
    pub arrives: Option<Receiver<Opened>>,
    /// Objects that will probably be opened next.
    pub next: Vec<String>,
}

/// How the last objects that were opened follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    None,
    Up,
    Down,
}

impl List {
    /// Notes that the object at a place is opened; returns the places after it, once two have followed one another.
    fn step(&mut self, place: usize) -> Range<usize> {
        /// An object is opened again while the next one already is, and one may be left out.
        const NEAR: usize = 2;
        let last = self.last.unwrap_or(usize::MAX);
        let (up, down) = (place.checked_sub(last), last.checked_sub(place));
        let near = |distance: Option<usize>| distance.is_some_and(|distance| distance <= NEAR);
        let (onward, back) = match self.direction {
            Direction::Down => (down, up),
            Direction::Up | Direction::None => (up, down),
        };
        if place == last || self.direction != Direction::None && near(back) {
            // Nothing new.
        } else if self.direction != Direction::None && near(onward) {
            self.last = Some(place);
            self.ahead = (self.ahead * 2).min(AHEAD_MAX);
        } else {
            (self.direction, self.ahead) = match (up, down) {
                (Some(1), _) => (Direction::Up, AHEAD_FIRST),
                (_, Some(1)) => (Direction::Down, AHEAD_FIRST),
                _ => (Direction::None, 0),
            };
            self.last = Some(place);
        }
        let from = self.last.unwrap_or(place);
        match self.direction {
            Direction::Up => from + 1..(from + 1 + self.ahead).min(self.urls.len()),
            Direction::Down => from.saturating_sub(self.ahead)..from,
            Direction::None => 0..0,
        }
    }
}

impl Ahead {
    /// Notes that these objects will probably be opened one after the other, from either end.
    pub(crate) fn announce(&mut self, urls: Vec<String>) {
        if self.lists.len() == LISTS_MAX {
            self.lists.pop_front();
        }
        let places = urls.iter().cloned().zip(0..).collect();
        self.lists.push_back(List {
            process: std::process::id(),
            urls,
            places,
            last: None,
            direction: Direction::None,
            ahead: 0,
            requested: HashMap::new(),
        });
    }

    fn list_with(&mut self, url: &str) -> Option<(usize, &mut List)> {
        let process = std::process::id();
        let of_process = self.lists.iter_mut().rev();
        of_process
            .filter(|list| list.process == process)
            .find_map(|list| Some((*list.places.get(url)?, list)))
    }

    /// Notes that an object is opened.
    pub(crate) fn opened(&mut self, url: &str) -> Step {
        let Some((place, list)) = self.list_with(url) else {
            return Step::default();
        };
        let arrives = list.requested.remove(url);
        let wanted = list.step(place);
        // Skipped objects are not wanted any more.
        let places = &list.places;
        list.requested
            .retain(|url, _| places.get(url).is_some_and(|at| wanted.contains(at)));
        Step {
            arrives,
            next: list.urls[wanted]
                .iter()
                .filter(|url| !list.requested.contains_key(*url))
                .cloned()
                .collect(),
        }
    }

    /// Notes that an announced object is requested; send it to the returned channel.
    pub(crate) fn request(&mut self, url: &str) -> Option<SyncSender<Opened>> {
        let (_, list) = self.list_with(url)?;
        let (sender, receiver) = sync_channel(1);
        list.requested.insert(url.to_owned(), receiver);
        Some(sender)
    }

    /// Forgets announcements of objects at or below a URL.
    pub(crate) fn forget(&mut self, url: &str) {
        let is_below = |known: &String| {
            let rest = known.strip_prefix(url);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.lists.retain(|list| !list.urls.iter().any(is_below));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(count: usize) -> Ahead {
        let mut ahead = Ahead::default();
        ahead.announce((0..count).map(|number| format!("s3://b/bag/{number}")).collect());
        ahead
    }

    /// Opens an object and requests the next ones; returns the number of objects requested, and whether this one
    /// was requested before.
    fn open(ahead: &mut Ahead, number: usize) -> (usize, bool) {
        let step = ahead.opened(&format!("s3://b/bag/{number}"));
        for url in &step.next {
            assert!(ahead.request(url).is_some());
        }
        (step.next.len(), step.arrives.is_some())
    }

    #[test]
    fn each_object_is_requested_once_in_either_direction() {
        for backwards in [false, true] {
            let mut ahead = announced(100);
            let order = (0..100).map(|number| if backwards { 99 - number } else { number });
            let steps: Vec<_> = order.map(|number| open(&mut ahead, number)).collect();
            // One of the two is here by then, of the four three are new.
            assert_eq!(steps[..3], [(0, false), (AHEAD_FIRST, false), (3, true)]);
            assert_eq!(steps.iter().map(|(requested, _)| requested).sum::<usize>(), 98);
            assert!(steps[2..].iter().all(|(_, arrives)| *arrives));
        }
    }

    #[test]
    fn an_object_that_is_opened_again_changes_nothing() {
        let mut ahead = announced(100);
        let mut requested = open(&mut ahead, 0).0;
        for number in 0..99 {
            requested += open(&mut ahead, number + 1).0;
            requested += open(&mut ahead, number).0;
        }
        assert_eq!(requested, 98);
    }

    #[test]
    fn single_objects_and_jumps_request_nothing() {
        let mut ahead = announced(100);
        for number in [0, 99, 50, 10, 10, 0] {
            assert_eq!(open(&mut ahead, number), (0, false));
        }
        assert_eq!(open(&mut ahead, 1).0, AHEAD_FIRST);
        // Requested objects are dropped when the direction changes.
        assert_eq!(open(&mut ahead, 60), (0, false));
        assert!(ahead.lists[0].requested.is_empty());
    }

    #[test]
    fn no_more_are_requested_than_may_be_at_once() {
        let mut ahead = announced(100);
        for number in 0..50 {
            open(&mut ahead, number);
            assert!(ahead.lists[0].requested.len() <= AHEAD_MAX);
        }
        assert_eq!(ahead.lists[0].requested.len(), AHEAD_MAX);
    }

    #[test]
    fn a_bag_that_is_forgotten_is_not_requested() {
        let mut ahead = announced(10);
        ahead.forget("s3://b/ba");
        open(&mut ahead, 0);
        assert_eq!(open(&mut ahead, 1).0, AHEAD_FIRST);
        ahead.forget("s3://b/bag");
        assert_eq!(open(&mut ahead, 2), (0, false));
    }
}
