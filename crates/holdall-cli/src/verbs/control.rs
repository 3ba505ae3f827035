//! `holdall control`: sends a request to a running recording or playback.

use crate::{
    VerbResult,
    args::control::ControlArguments,
    exit::{Failure, Outcome},
    output, resolve,
};
use holdall::supervise::control_socket::ask;
use serde_json::Value;

/// Sends the request and shows the reply: metrics as text, all else as the JSON object received.
pub fn run(args: &ControlArguments) -> VerbResult {
    let request = resolve::control::resolve(args).map_err(Failure::refused)?;
    let reply = ask(&args.socket, &request).map_err(Failure::asking)?;
    match reply.get("metrics").and_then(Value::as_str) {
        Some(text) => output::result(text.trim_end()),
        None => output::result(&reply.to_string()),
    }?;
    Ok(Outcome::Done)
}
