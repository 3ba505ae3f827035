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
use holdall::supervise::{
    control_socket::{ask, ask_within},
    running::Running,
};
use serde_json::{Value, json};
use std::{path::PathBuf, time::Duration};

/// How long a process has to say how it is.
const STATUS_MAX: Duration = Duration::from_secs(2);

/// Sends the request and shows the reply: metrics as text, all else as the JSON object received.
pub fn run(args: &ControlArguments) -> VerbResult {
    let exists = |path: &std::path::Path| holdall_io::fs::exists(path).unwrap_or(false);
    let asked = resolve::control::asked(args, exists).map_err(Failure::refused)?;
    let mut request = resolve::control::resolve(&asked).map_err(Failure::refused)?;
    // A path means the same to the recording, which has another current directory.
    if let Some(path) = request["output"].as_str().filter(|path| path.contains('/')) {
        let path = std::path::absolute(path).map_err(Failure::refused)?;
        request["output"] = json!(path);
    }
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
        (None, _) => Err(Failure::refused(ps::nothing(&running_folder()))),
    }
}

/// Lists what runs.
pub fn list(args: &PsArguments) -> VerbResult {
    let folder = running_folder();
    let request = json!({"request": "status"});
    let status = |running: &Running| {
        let reply = ask_within(&running.socket, &request, STATUS_MAX);
        reply.map(|mut reply| reply["status"].take())
    };
    // All at once: each that is stopped takes the whole time.
    let found: Vec<ps::Found> = std::thread::scope(|scope| {
        let asked = folder.found().into_iter().map(|(running, is_alive)| {
            let asked = is_alive.then(|| {
                let running = running.clone();
                scope.spawn(move || status(&running))
            });
            (running, asked)
        });
        let asked: Vec<_> = asked.collect();
        let answers = asked.into_iter().map(|(running, asked)| ps::Found {
            running,
            status: asked.and_then(|asked| asked.join().ok()),
        });
        answers.collect()
    });
    if args.json {
        for one in &found {
            output::result(&one.json().to_string())?;
        }
    } else {
        output::result(&ps::text(&found, &folder, output::columns()))?;
    }
    Ok(Outcome::Done)
}
