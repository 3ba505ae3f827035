//! Recordings and playbacks that run: a table, and what to name when there are several.

use super::fit::{Column, table};
use crate::units::{format_bytes, format_count, format_elapsed};
use holdall::supervise::{
    control_socket::ControlError,
    running::{Running, RunningFolder, RunningKind},
};
use holdall_model::text::{Outside, OutsidePath, one_line};
use serde_json::{Value, json};
use std::{io::ErrorKind, time::Duration};

/// A socket, and what answers.
pub struct Found {
    /// Whose it is.
    pub running: Running,
    /// Its status; `None` if nothing listens any more.
    pub status: Option<Result<Value, ControlError>>,
}

impl Found {
    /// For programs.
    pub fn json(&self) -> Value {
        let mut object = json!({
            "process": self.running.process,
            "kind": self.running.kind.as_str(),
            "socket": self.running.socket,
            "state": self.state(),
        });
        if let Some(Ok(status)) = &self.status {
            object["status"] = status.clone();
        }
        object
    }

    fn state(&self) -> String {
        let is = |status: &Value, key: &str| status[key] == json!(true);
        match &self.status {
            None => "dead: its process was killed".to_owned(),
            Some(Err(ControlError::Reach { source, .. }))
                if matches!(source.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
            {
                "no answer: it may be stopped".to_owned()
            }
            Some(Err(error)) => format!("no answer: {}", one_line(&error.to_string())),
            Some(Ok(status)) if is(status, "ended") => "ended".to_owned(),
            Some(Ok(status)) if is(status, "stalled") => "stalled".to_owned(),
            Some(Ok(status)) if is(status, "paused") => "paused".to_owned(),
            Some(Ok(status)) => status["phase"].as_str().unwrap_or("recording").to_owned(),
        }
    }

    fn status(&self) -> &Value {
        match &self.status {
            Some(Ok(status)) => status,
            _ => &Value::Null,
        }
    }

    /// One of two counters, by what runs.
    fn number(&self, of_recording: &str, of_playback: &str) -> Option<u64> {
        self.status()[if self.is_recording() {
            of_recording
        } else {
            of_playback
        }]
        .as_u64()
    }

    fn is_recording(&self) -> bool {
        self.running.kind == RunningKind::Recording
    }

    fn span(&self, key: &str) -> Option<String> {
        let seconds = self.status()[key].as_f64()?;
        Some(format_elapsed(Duration::try_from_secs_f64(seconds).ok()?))
    }

    /// The bag of a recording; how far a playback is.
    fn what(&self) -> String {
        match (
            self.status()["bag"].as_str(),
            self.span("elapsed_s"),
            self.span("duration_s"),
        ) {
            (Some(bag), ..) => bag.to_owned(),
            (None, Some(at), Some(of)) => format!("at {at} of {of}"),
            _ => self.running.socket.display().to_string(),
        }
    }

    fn since(&self) -> String {
        let elapsed = self.span("elapsed_s").filter(|_| self.is_recording());
        elapsed.unwrap_or_default()
    }
}

/// What is found where, when nothing is.
pub fn nothing(folder: &RunningFolder) -> String {
    let folders: Vec<String> = folder.paths().map(|path| OutsidePath(path).to_string()).collect();
    format!("no recording or playback is found in {}", folders.join(", "))
}

/// The table.
pub fn text(found: &[Found], folder: &RunningFolder, columns: Option<usize>) -> String {
    let mut lines = Vec::new();
    if found.is_empty() {
        lines.push(nothing(folder));
    } else {
        let each = |cell: &dyn Fn(&Found) -> String| found.iter().map(cell).collect::<Vec<_>>();
        let count = |count: Option<u64>| count.map_or_else(String::new, format_count);
        lines.push(table(
            vec![
                Column::of_numbers(1, "Process", each(&|one| one.running.process.to_string())),
                Column::of_text(1, "Kind", each(&|one| one.running.kind.as_str().to_owned())),
                Column::of_text(1, "State", each(&|one| one.state())),
                Column::of_numbers(3, "For", each(&|one| one.since())),
                Column::of_numbers(
                    2,
                    "Messages",
                    each(&|one| count(one.number("recorded", "published"))),
                ),
                Column::of_numbers(
                    4,
                    "Size",
                    each(&|one| {
                        let bytes = one.number("recorded_bytes", "published_bytes");
                        bytes.map_or_else(String::new, format_bytes)
                    }),
                ),
                Column::of_numbers(1, "Lost", each(&|one| count(one.number("lost", "lost")))),
                Column::of_text(1, "Bag", each(&|one| Outside(&one.what()).to_string())),
            ],
            columns,
        ));
    }
    for user in folder.other_users() {
        lines.push(format!(
            "user {user} has recorded or played here, too, and may do so now; only that user sees it"
        ));
    }
    lines.join("\n")
}

/// Several run, and a request names none of them.
pub fn several(running: &[Running], request: &str) -> String {
    let each = running.iter().take(5).map(|one| {
        format!(
            "{} ({}, process {})",
            one.socket.display(),
            one.kind.as_str(),
            one.process
        )
    });
    let more = if running.len() > 5 { ", …" } else { "" };
    format!(
        "{} recordings and playbacks run; name the socket of one: holdall control PATH {request}, with PATH one of {}{more}",
        running.len(),
        each.collect::<Vec<_>>().join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(process: u32, kind: RunningKind, status: Option<Value>) -> Found {
        let socket = format!("/run/holdall/{}-{process}.sock", kind.as_str()).into();
        let running = Running {
            process,
            kind,
            socket,
        };
        Found {
            running,
            status: status.map(Ok),
        }
    }

    #[test]
    fn what_runs_is_a_table_and_a_dead_socket_is_named() {
        let found = [
            found(
                17,
                RunningKind::Recording,
                Some(json!({
                    "elapsed_s": 75.2, "recorded": 12_345, "recorded_bytes": 5_000_000, "lost": 3, "bag": "/data/lab", "paused": false
                })),
            ),
            found(
                18,
                RunningKind::Playback,
                Some(json!({
                    "elapsed_s": 5.0, "duration_s": 60.0, "published": 100, "published_bytes": 2048, "phase": "playing", "paused": true
                })),
            ),
            found(19, RunningKind::Recording, None),
        ];
        let folder = RunningFolder::new("/run/user/1000/holdall");
        insta::assert_snapshot!(text(&found, &folder, Some(100)));
        assert_eq!(found[2].json()["state"], "dead: its process was killed");
        let said = several(&[found[0].running.clone(), found[1].running.clone()], "pause");
        assert!(
            said.contains("holdall control PATH pause") && said.contains("recording-17.sock"),
            "{said}"
        );
        assert_eq!(
            text(&[], &folder.and("/tmp/holdall-1000".into()), None),
            "no recording or playback is found in /run/user/1000/holdall, /tmp/holdall-1000"
        );
    }
}
