//! `holdall control` and `holdall ps`: the recordings and playbacks that run on this computer.

use super::web::running_folder;
use crate::{
    VerbResult,
    args::{control::ControlArguments, ps::PsArguments},
    exit::{Failure, Outcome},
    output,
    render::ps,
    resolve,
};
use holdall::supervise::control_socket::ask;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Sends the request and shows the reply: metrics as text, all else as the JSON object received.
pub fn run(args: &ControlArguments) -> VerbResult {
    let exists = |path: &std::path::Path| holdall_io::fs::exists(path).unwrap_or(false);
    let asked = resolve::control::asked(args, exists).map_err(Failure::refused)?;
    let request = resolve::control::resolve(&asked).map_err(Failure::refused)?;
    let socket = match asked.socket {
        Some(socket) => socket.to_owned(),
        None => only_one(&request)?,
    };
    let reply = ask(&socket, &request).map_err(Failure::asking)?;
    match reply.get("metrics").and_then(Value::as_str) {
        Some(text) => output::result(text.trim_end()),
        None => output::result(&reply.to_string()),
    }?;
    Ok(Outcome::Done)
}

/// The socket of the only recording or playback.
fn only_one(request: &Value) -> Result<PathBuf, Failure> {
    let mut running = running_folder().list();
    match (running.pop(), running.is_empty()) {
        (Some(only), true) => Ok(only.socket),
        (Some(last), false) => {
            running.push(last);
            Err(Failure::refused(ps::several(
                &running,
                request["request"].as_str().unwrap_or_default(),
            )))
        }
        (None, _) => Err(Failure::refused(
            "no recording or playback of this user runs on this computer; holdall ps lists them",
        )),
    }
}

/// Lists what runs.
pub fn list(args: &PsArguments) -> VerbResult {
    let folder = running_folder();
    let found = folder.found().into_iter().map(|(running, is_alive)| {
        let reply = is_alive.then(|| ask(&running.socket, &json!({"request": "status"})));
        let status = reply.map(|reply| reply.map(|mut reply| reply["status"].take()));
        ps::Found { running, status }
    });
    let found: Vec<ps::Found> = found.collect();
    if args.json {
        for one in &found {
            output::result(&one.json().to_string())?;
        }
    } else {
        output::result(&ps::text(&found, &folder.other_users(), output::columns()))?;
    }
    Ok(Outcome::Done)
}
