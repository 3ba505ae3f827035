//! Which part of the bags' time is played.

use super::{
    error::PlayError,
    options::{PlayOptions, PlayWindow},
};
use holdall_bag::reader::{BagSet, MessageFilter, MessageOrder, Moment};
use holdall_model::{marker::Marker, time::Timestamp};

/// The part of bag time that is played, in the stamps that order and pace messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlayRange {
    /// First stamp of the bags.
    pub first: Timestamp,
    /// Last stamp of the bags.
    pub last: Timestamp,
    /// First stamp that is played.
    pub start: Timestamp,
    /// Last stamp that may be played, when the user limits it.
    pub until: Option<Timestamp>,
    /// Where playback is expected to end.
    pub end: Timestamp,
}

impl PlayRange {
    /// Takes the options' offset and limits to the bags' time.
    pub fn new(bags: &BagSet, options: &PlayOptions) -> Result<Self, PlayError> {
        let nothing = |reason: String| PlayError::nothing(options, &reason);
        let (first, last) =
            stamps(bags, options.message_order)?.ok_or_else(|| nothing("it holds no messages".to_owned()))?;
        let mut window = options.window();
        let within = |moment: &Moment, what| {
            moment
                .within(Some((first, last)), || bags.markers(), what)
                .map_err(|error| nothing(error.to_string()))
        };
        if let Some(start) = &options.start {
            window.start_offset = within(start, "start")?.saturating_since(first);
        }
        if let Some(end) = &options.end {
            window.until = Some(within(end, "end")?);
        }
        if let Some(number) = options.episode {
            let episodes = Marker::episodes(&bags.markers()?);
            let count = episodes.len();
            let wanted = episodes.into_iter().find(|episode| episode.number == number);
            let wanted =
                wanted.ok_or_else(|| nothing(format!("episode {number} is none of its {count} episodes")))?;
            window.start_offset = wanted.start.saturating_since(first);
            window.until = wanted.until;
        }
        Self::of((first, last), &window).map_err(nothing)
    }

    /// Its length.
    pub fn span(&self) -> std::time::Duration {
        self.end.saturating_since(self.start)
    }

    /// The part of these bag times that `window` leaves, or one clause why that is none; the later limit wins, as in rosbag2.
    pub fn of((first, last): (Timestamp, Timestamp), window: &PlayWindow) -> Result<Self, String> {
        let start = first.saturating_add(window.start_offset);
        if start > last {
            let duration = last.saturating_since(first).as_secs_f64();
            return Err(format!(
                "the start offset of {} s is beyond its duration of {duration} s",
                window.start_offset.as_secs_f64()
            ));
        }
        let by_duration = window.duration.map(|duration| start.saturating_add(duration));
        let until = by_duration.max(window.until);
        if let Some(until) = until.filter(|until| *until < start) {
            return Err(format!(
                "the end of playback at {} ns is before its start at {} ns",
                until.as_nanos(),
                start.as_nanos()
            ));
        }
        Ok(Self {
            first,
            last,
            start,
            until,
            end: until.map_or(last, |until| until.min(last)),
        })
    }
}

/// First and last stamp of the bags; `None` if they hold no message.
fn stamps(bags: &BagSet, order: MessageOrder) -> Result<Option<(Timestamp, Timestamp)>, PlayError> {
    let Some((first, last)) = bags.log_times() else {
        return Ok(None);
    };
    if order == MessageOrder::Received {
        return Ok(Some((first, last)));
    }
    // Only the messages have publish times; the first one in their order is soon found. Some sources leave
    // the publish time at zero: such messages are played at once, and do not put the start at 1970.
    let filter = MessageFilter {
        order,
        ..MessageFilter::default()
    };
    for message in bags.messages(&filter) {
        let sent = message?.publish_time;
        if sent.as_nanos() > 0 {
            return Ok(Some((sent, last.max(sent))));
        }
    }
    Ok(Some((first, last)))
}
