//! Changes to a folder's bags that pages ask for, if the server was started to allow them: names, labels, deletion, uploads.

use super::{
    Answer, Server,
    bags::Listed,
    jobs::{Progress, Task},
};
use crate::http::{Refusal, Request, Response, json_body};
use holdall::{
    supervise::promotions::{Promotion, is_name},
    tools::{ToolError, manage},
    upload::{UploadOptions, Uploader},
};
use holdall_io::remote::is_remote;
use serde_json::{Value, json};
use std::{collections::BTreeMap, path::Path, sync::atomic::Ordering};

/// A change of a bag.
enum Change {
    Name(String),
    Labels(BTreeMap<String, String>),
    Removal,
}

impl Server {
    /// Carries out a change, or refuses it.
    pub(super) fn change(&self, request: &Request) -> Answer {
        if !self.allows_changes {
            return Err(refused());
        }
        let bag = self.named(request)?;
        if request.path == "/api/promote" {
            return self.promote(&bag, request);
        }
        let path = self.path_of(&bag)?;
        let body = json_body(&request.body)?;
        let text = |key: &str| {
            let text = body[key].as_str().map(str::to_owned);
            text.ok_or_else(|| Refusal::new(400, &format!("the request has no text {key:?}")))
        };
        if request.path == "/api/upload" {
            return self.read_whole(Task::Upload(text("to")?), request);
        }
        let change = match request.path.as_str() {
            "/api/rename" => Change::Name(text("to")?),
            "/api/label" => {
                let labels = serde_json::from_value(body["labels"].clone());
                Change::Labels(labels.map_err(|_| Refusal::new(400, "\"labels\" has a text for each name"))?)
            }
            // The name once more: a click alone removes nothing.
            _ if text("confirm")? != bag.name => {
                return Err(Refusal::new(409, "\"confirm\" must be the name of the bag"));
            }
            _ => Change::Removal,
        };
        if !matches!(change, Change::Labels(_)) && self.is_played(&bag.name) {
            return Err(Refusal::new(
                409,
                "the bag is being played; end the playback first",
            ));
        }
        let failed = |error: ToolError| Refusal::new(409, &error.to_string());
        let mut answer = json!({"ok": true});
        // Nothing reads a bag that is changed.
        self.jobs.forget(&bag.name);
        self.open.close(&bag.name);
        match change {
            Change::Name(to) => {
                let renamed = manage::rename(&path, &to).map_err(failed)?;
                let name = Path::new(&bag.name).with_file_name(renamed.file_name().unwrap_or_default());
                answer["name"] = json!(name);
            }
            Change::Labels(labels) => manage::set_labels(&path, &labels).map_err(failed)?,
            Change::Removal => manage::remove(&path).map_err(failed)?,
        }
        self.bags.forget(&bag.name);
        Ok(Some(Response::json(answer.to_string())))
    }

    /// Copies a part of a bag into another one beside it, also while it is recorded.
    fn promote(&self, bag: &Listed, request: &Request) -> Answer {
        let body = json_body(&request.body)?;
        if !body["output"].as_str().is_some_and(is_name) {
            return Err(Refusal::new(400, "\"output\" must be a name without a path"));
        }
        let ring = self.root.find(Path::new(&bag.name));
        let ring = ring.map_err(|error| Refusal::new(404, &error.to_string()))?;
        if is_remote(&ring) {
            return Err(Refusal::new(409, "bags are copied on this computer only"));
        }
        let begun = Promotion::of_request(&ring, &body).and_then(|part| self.promotions.begin(part));
        let reply = begun.map_err(|reason| Refusal::new(409, &reason))?;
        Ok(Some(Response::json(reply.to_string())))
    }
}

/// The refusal of a server that changes nothing.
pub(super) fn refused() -> Refusal {
    Refusal::new(
        403,
        "this server changes no bags; holdall web --allow-changes does",
    )
}

/// Sends a bag to a URL; ends after the parts in flight once the job is cancelled.
pub(super) fn upload(path: &Path, url: &str, progress: &Progress) -> Result<Value, String> {
    let uploader = Uploader::new(path, UploadOptions::new(url.trim_end_matches('/')));
    let uploader = uploader.map_err(|error| error.to_string())?;
    let stop = uploader.stop_flag();
    let report = uploader.send_bag(&mut |_, sent, bytes| {
        progress.note(sent, bytes);
        stop.store(progress.is_unwanted(), Ordering::Relaxed);
    });
    let report = report.map_err(|error| error.to_string())?;
    Ok(json!({"files": report.files.len(), "bytes": report.bytes(), "sent_bytes": report.sent_bytes()}))
}
