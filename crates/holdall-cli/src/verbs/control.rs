//! `holdall control`: sends a request to a running recording.

use crate::{
    VerbResult,
    args::control::ControlArguments,
    exit::{Failure, Outcome},
    output,
};
use holdall::supervise::control_socket::ask;
use serde_json::Value;

/// Sends the request and shows the reply: metrics as text, all else as the JSON object received.
pub fn run(args: &ControlArguments) -> VerbResult {
    args.check().map_err(Failure::refused)?;
    let reply = ask(&args.socket, &args.request, &args.arguments).map_err(Failure::asking)?;
    match reply.get("metrics").and_then(Value::as_str) {
        Some(text) => output::result(text.trim_end()),
        None => output::result(&reply.to_string()),
    }?;
    Ok(Outcome::Done)
}
