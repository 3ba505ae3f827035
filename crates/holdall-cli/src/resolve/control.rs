//! Resolves the arguments of `holdall control` into the request that is sent.

use super::UsageError;
use crate::args::control::ControlArguments;
use holdall::supervise::control_socket::{RequestArgument, argument_of};
use serde_json::{Value, json};

/// The request as an object.
///
/// # Errors
/// Arguments that the request does not take, and their absence where it needs some.
pub fn resolve(args: &ControlArguments) -> Result<Value, UsageError> {
    let mut request = json!({"request": args.request});
    let given = &args.arguments;
    match argument_of(&args.request) {
        None | Some(RequestArgument::TextOrNone(_)) if given.is_empty() => {}
        None => return Err(UsageError::RequestTakesNoArgument(args.request.clone())),
        Some(RequestArgument::Text(_) | RequestArgument::Texts(_)) if given.is_empty() => {
            return Err(UsageError::RequestNeedsArgument(args.request.clone()));
        }
        Some(RequestArgument::Text(key) | RequestArgument::TextOrNone(key)) => {
            request[key] = json!(given.join(" "))
        }
        Some(RequestArgument::Texts(key)) => request[key] = json!(given),
        Some(RequestArgument::Values(key)) => {
            for argument in given {
                let (name, text) = argument.split_once('=').unwrap_or((key, argument));
                request[name] = value(text);
            }
        }
    }
    Ok(request)
}

/// Numbers and truth values as such, all else as text.
fn value(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
        _ => json!(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(words: &[&str]) -> Result<Value, String> {
        let args = ControlArguments {
            socket: "s".into(),
            request: words[0].to_owned(),
            arguments: words[1..].iter().map(|word| (*word).to_owned()).collect(),
        };
        resolve(&args).map_err(|error| error.to_string())
    }

    #[test]
    fn a_value_alone_is_the_first_argument_of_its_request() {
        assert_eq!(
            request(&["seek", "12.5"]),
            Ok(json!({"request": "seek", "time": 12.5}))
        );
        assert_eq!(
            request(&["play", "start_offset=5", "duration=0.5"]),
            Ok(json!({"request": "play", "start_offset": 5, "duration": 0.5}))
        );
        assert_eq!(
            request(&["set_rate", "fast"]),
            Ok(json!({"request": "set_rate", "rate": "fast"}))
        );
        assert_eq!(request(&["pause"]), Ok(json!({"request": "pause"})));
        assert_eq!(
            request(&["add_marker", "door", "opens"]),
            Ok(json!({"request": "add_marker", "name": "door opens"}))
        );
        assert_eq!(request(&["trigger"]), Ok(json!({"request": "trigger"})));
        assert_eq!(
            request(&["trigger", "near", "miss"]),
            Ok(json!({"request": "trigger", "name": "near miss"}))
        );
        assert_eq!(
            request(&["subscribe_to_topics", "/a", "/b"]),
            Ok(json!({"request": "subscribe_to_topics", "topics": ["/a", "/b"]}))
        );
        assert!(request(&["pause", "now"]).is_err_and(|error| error.contains("pause takes no argument")));
        assert!(request(&["add_marker"]).is_err_and(|error| error.contains("needs an argument")));
    }
}
