//! What is changed where an encoder does not follow: step by step the quality, or the number of images, and back again.

use holdall_model::{marker::Marker, recoding::Recoding, time::Timestamp};
use std::time::Duration;

/// What happens where the encoder of a topic does not follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenBehind {
    /// Images are recorded unchanged for some seconds.
    #[default]
    Raw,
    /// The quality falls, in three steps; then as [`WhenBehind::Raw`].
    Quality,
    /// Images are left out: each second one, then three of four, up to 15 of 16; then as [`WhenBehind::Raw`].
    Rate,
}

/// Time between two steps down: the last one has an effect first.
const STEP: Duration = Duration::from_millis(1500);
/// A message waits for two segments and this long where the encoder does not follow.
const SLACK: Duration = Duration::from_millis(250);
/// How long the encoder must follow before a step up: at first, and after steps up that did not hold.
const REST_MIN: Duration = Duration::from_secs(10);
const REST_MAX: Duration = Duration::from_secs(80);
/// Steps of a topic that are listed and marked.
const STEPS_MAX: usize = 100;

/// Whether the encoder of a topic follows, and what was done.
pub(super) struct Behind {
    topic: String,
    policy: WhenBehind,
    /// Time from a key frame to the next.
    span: Duration,
    /// Steps down.
    level: u8,
    last_step: Option<Duration>,
    /// When the last step up was, if none down came after it.
    last_up: Option<Duration>,
    /// When it was last seen not to follow.
    last_behind: Duration,
    rest: Duration,
    /// Images since a step.
    images: u64,
    /// Log time of the last message.
    time: Timestamp,
    markers: Vec<Marker>,
}

impl Behind {
    pub fn new(topic: &str, policy: WhenBehind, span: Duration) -> Self {
        Self {
            topic: topic.to_owned(),
            policy,
            span,
            level: 0,
            last_step: None,
            last_up: None,
            last_behind: Duration::ZERO,
            rest: REST_MIN,
            images: 0,
            time: Timestamp::default(),
            markers: Vec::new(),
        }
    }

    /// A message of this log time is encoded.
    pub const fn at(&mut self, time: Timestamp) {
        self.time = time;
    }

    /// Whether the next image is left out.
    pub const fn leaves_out(&mut self) -> bool {
        if !matches!(self.policy, WhenBehind::Rate) || self.level == 0 {
            return false;
        }
        self.images += 1;
        !self.images.is_multiple_of(1 << self.level)
    }

    /// Steps by which the quality is lower than requested.
    pub const fn ease(&self) -> u8 {
        match self.policy {
            WhenBehind::Quality => self.level,
            WhenBehind::Raw | WhenBehind::Rate => 0,
        }
    }

    /// Steps down or up. The oldest message has `waited`; `is_full` where much of the memory is used.
    pub fn check(&mut self, waited: Duration, is_full: bool, now: Duration, account: &mut Recoding) {
        let level_max = match self.policy {
            WhenBehind::Raw => return,
            WhenBehind::Quality => 3,
            WhenBehind::Rate => 4,
        };
        let since = |then: Option<Duration>| then.map_or(Duration::MAX, |then| now.saturating_sub(then));
        if waited > 2 * self.span + SLACK || is_full {
            self.last_behind = now;
            if self.level < level_max && since(self.last_step) >= STEP {
                // A step up that did not hold has the next one come later.
                self.rest = match self.last_up.take() {
                    Some(up) if now.saturating_sub(up) < 2 * self.rest => (2 * self.rest).min(REST_MAX),
                    Some(_) => REST_MIN,
                    None => self.rest,
                };
                self.step(self.level + 1, now, account);
            }
        } else if self.level > 0 && now.saturating_sub(self.last_behind) >= self.rest {
            // The encoder has to keep up for the same time again before the next step up.
            self.last_behind = now;
            self.last_up = Some(now);
            self.step(self.level - 1, now, account);
        }
    }

    fn step(&mut self, level: u8, now: Duration, account: &mut Recoding) {
        let is_down = level > self.level;
        (self.level, self.last_step, self.images) = (level, Some(now), 0);
        let what = match (self.policy, level) {
            (WhenBehind::Rate, 0) => "all images again".to_owned(),
            (WhenBehind::Rate, level) => format!("one of {} images", 1_u32 << level),
            (_, 0) => "the quality that was requested again".to_owned(),
            (_, 1) => "a quality 1 step lower".to_owned(),
            (_, level) => format!("a quality {level} steps lower"),
        };
        let why = match is_down {
            true => "its encoder is behind",
            false => "its encoder follows",
        };
        self.note(format!("{what}, {why}"), account);
    }

    /// Images are recorded unchanged from now on.
    pub fn gave_up(&mut self, reason: &str, account: &mut Recoding) {
        self.note(format!("images as they come, {reason}"), account);
    }

    /// Images are encoded again.
    pub fn resumed(&mut self, account: &mut Recoding) {
        self.note("encoded again".to_owned(), account);
    }

    /// Something was changed by itself.
    pub fn note(&mut self, what: String, account: &mut Recoding) {
        if account.steps.len() >= STEPS_MAX {
            return;
        }
        let name = format!("{}: {what}", self.topic);
        self.markers.extend(Marker::shortened(self.time, &name));
        account.step(self.time, what);
    }

    /// The markers since the last call.
    pub fn take_markers(&mut self) -> Vec<Marker> {
        std::mem::take(&mut self.markers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quality_falls_while_it_is_behind_and_comes_back_after_rests_that_grow() {
        let (mut behind, mut account) = (
            Behind::new("/camera", WhenBehind::Quality, Duration::from_secs(1)),
            Recoding::default(),
        );
        let mut seen = Vec::new();
        for tick in 0..600_u32 {
            let now = tick * Duration::from_millis(500);
            let is_slow = tick < 8 || (100..104).contains(&tick);
            let waited = Duration::from_secs(if is_slow { 3 } else { 1 });
            behind.check(waited, false, now, &mut account);
            if seen.last() != Some(&behind.ease()) {
                seen.push(behind.ease());
            }
        }
        assert_eq!(seen, [1, 2, 3, 2, 1, 0, 1, 2, 1, 0]);
        assert_eq!(account.steps.len(), 10);
        assert_eq!(
            account.steps[0].what,
            "a quality 1 step lower, its encoder is behind"
        );
        assert_eq!(
            behind.take_markers()[0].name,
            "/camera: a quality 1 step lower, its encoder is behind"
        );
    }
}
