//! The requests to a playback.

use super::{Requests, refusal};
use crate::supervise::metrics::play_metrics;
use holdall_model::time::Timestamp;
use holdall_play::{
    PlayControl, PlayWindow,
    status::{PlayPhase, PlayStatus},
};
use serde_json::{Value, json};
use std::time::Duration;

/// The requests to a playback, named like rosbag2's services where those exist.
pub const PLAY_REQUESTS: &[&str] = &[
    "status",
    "metrics",
    "is_paused",
    "pause",
    "resume",
    "toggle_paused",
    "get_rate",
    "set_rate",
    "play",
    "play_next",
    "burst",
    "seek",
    "stop",
];

/// Seconds since 1970 or in a span that fit in 64-bit nanoseconds.
const SECONDS_MAX: f64 = 9.2e9;

/// Carries out the requests to a playback.
pub struct PlayRequests(pub PlayControl);

impl Requests for PlayRequests {
    fn names(&self) -> &'static [&'static str] {
        PLAY_REQUESTS
    }

    fn execute(&self, name: &str, request: &Value) -> Value {
        let reply = match name {
            "status" => Ok(json!({"ok": true, "status": status(&self.0.status())})),
            "metrics" => Ok(json!({"ok": true, "metrics": play_metrics(&self.0.status())})),
            "is_paused" => Ok(self.paused()),
            "pause" => self.done(self.0.pause()).map(|()| self.paused()),
            "resume" => self.done(self.0.resume()).map(|()| self.paused()),
            "toggle_paused" => self.done(self.0.toggle()).map(|()| self.paused()),
            "get_rate" => Ok(self.rate()),
            "set_rate" => self.set_rate(request),
            "play" => self.play(request),
            "play_next" => self.burst(Some(1)),
            "burst" => count(request).and_then(|count| self.burst(count)),
            "seek" => self.seek(request),
            _ => self.done(self.0.stop()).map(|()| json!({"ok": true})),
        };
        reply.unwrap_or_else(|sentence| refusal(&sentence))
    }
}

impl PlayRequests {
    /// Only a playback that has ended refuses requests that are otherwise always possible.
    fn done(&self, is_done: bool) -> Result<(), String> {
        if is_done {
            Ok(())
        } else {
            Err(self.why_not("the playback did not answer in time"))
        }
    }

    /// Why something was not done: the playback has ended, or `otherwise`.
    fn why_not(&self, otherwise: &str) -> String {
        match self.0.status().phase {
            PlayPhase::Ended => "the playback has ended".to_owned(),
            PlayPhase::Waiting => "nothing is being played".to_owned(),
            PlayPhase::Preparing | PlayPhase::Playing => otherwise.to_owned(),
        }
    }

    fn paused(&self) -> Value {
        json!({"ok": true, "paused": self.0.is_paused()})
    }

    fn rate(&self) -> Value {
        json!({"ok": true, "rate": self.0.rate()})
    }

    fn set_rate(&self, request: &Value) -> Result<Value, String> {
        let rate = request["rate"]
            .as_f64()
            .ok_or("\"rate\" must be a number above zero")?;
        if self.0.set_rate(rate) {
            Ok(self.rate())
        } else {
            Err(self.why_not(&format!(
                "the rate must be a number from 0.000001 to 1000000000, not {rate}"
            )))
        }
    }

    fn play(&self, request: &Value) -> Result<Value, String> {
        let window = PlayWindow {
            start_offset: span(request, "start_offset")?.unwrap_or_default(),
            duration: span(request, "duration")?,
            until: time(request, "until")?,
            start_time: time(request, "start_time")?,
        };
        if self.0.play(window) {
            return Ok(json!({"ok": true}));
        }
        Err(match self.0.status().phase {
            PlayPhase::Waiting => "the part to play is not in the bag".to_owned(),
            _ => self.why_not("the bag is being played already"),
        })
    }

    fn burst(&self, count: Option<u64>) -> Result<Value, String> {
        if !self.0.is_paused() {
            return Err(self.why_not("only a paused playback plays messages one by one"));
        }
        match self.0.burst(count) {
            0 => Err(self.why_not("no message is left to play")),
            played => Ok(json!({"ok": true, "played": played})),
        }
    }

    fn seek(&self, request: &Value) -> Result<Value, String> {
        let status = self.0.status();
        let to = match span(request, "time")? {
            Some(offset) => status.start.saturating_add(offset),
            None => time(request, "time")?.ok_or("\"time\" must be seconds after the beginning")?,
        };
        if self.0.seek(to) {
            Ok(json!({"ok": true, "position_ns": to.max(status.start).as_nanos()}))
        } else {
            Err(self.why_not("the time is after the end of what is played"))
        }
    }
}

/// A number of messages; all for none and for 0, as in rosbag2.
fn count(request: &Value) -> Result<Option<u64>, String> {
    match &request["count"] {
        Value::Null => Ok(None),
        value => {
            let count = value.as_u64().ok_or("\"count\" must be a whole number")?;
            Ok((count > 0).then_some(count))
        }
    }
}

/// A span in seconds.
fn span(request: &Value, name: &str) -> Result<Option<Duration>, String> {
    let wrong = || format!("{name:?} must be a number of seconds, not below 0");
    match &request[name] {
        Value::Null => Ok(None),
        value => {
            let seconds = value
                .as_f64()
                .filter(|seconds| *seconds <= SECONDS_MAX)
                .ok_or_else(wrong)?;
            Duration::try_from_secs_f64(seconds)
                .map(Some)
                .map_err(|_| wrong())
        }
    }
}

/// A time: `NAME` in seconds since 1970, or `NAME_ns` in nanoseconds.
fn time(request: &Value, name: &str) -> Result<Option<Timestamp>, String> {
    match &request[format!("{name}_ns")] {
        Value::Null => {}
        value => {
            let nanos = value
                .as_i64()
                .ok_or_else(|| format!("\"{name}_ns\" must be nanoseconds since 1970"))?;
            return Ok(Some(Timestamp::from_nanos(nanos)));
        }
    }
    Ok(span(request, name)?.map(|since| Timestamp::from_nanos(0).saturating_add(since)))
}

fn status(status: &PlayStatus) -> Value {
    json!({
        "phase": match status.phase {
            PlayPhase::Preparing => "preparing",
            PlayPhase::Playing => "playing",
            PlayPhase::Waiting => "waiting",
            PlayPhase::Ended => "ended",
        },
        "paused": status.paused,
        "rate": status.rate,
        "position_ns": status.position.as_nanos(),
        "start_ns": status.start.as_nanos(),
        "elapsed_s": status.elapsed().as_secs_f64(),
        "duration_s": status.duration.as_secs_f64(),
        "round": status.round,
        "published": status.published,
        "published_bytes": status.published_bytes,
        "refused": status.refused,
        "read_too_late": status.starved,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_make_no_sense_are_refused_by_name() {
        assert_eq!(
            span(&json!({"duration": 1.5}), "duration"),
            Ok(Some(Duration::from_millis(1500)))
        );
        assert_eq!(span(&json!({}), "duration"), Ok(None));
        for value in [json!(-1), json!("soon"), json!(1e300)] {
            let refused = span(&json!({"duration": value}), "duration").expect_err("no span");
            assert!(refused.contains("duration"), "{refused}");
        }
        let late = json!({"until_ns": 1_700_000_000_000_000_001_i64});
        let until = Timestamp::from_nanos(1_700_000_000_000_000_001);
        assert_eq!(time(&late, "until"), Ok(Some(until)));
        assert!(time(&json!({"until_ns": 0.5}), "until").is_err());
        assert_eq!(count(&json!({"count": 0})), Ok(None));
        assert_eq!(count(&json!({"count": 7})), Ok(Some(7)));
        assert!(count(&json!({"count": -7})).is_err());
    }
}
