//! Resolves the arguments of `holdall control` into the request that is sent.

use super::UsageError;
use crate::args::{control::ControlArguments, hints::nearest};
use holdall::supervise::control_socket::{RequestArgument, all_requests, argument_of};
use serde_json::{Value, json};
use std::path::Path;

/// The words of a command line by what they are.
pub struct Asked<'a> {
    /// The socket, if it is named.
    pub socket: Option<&'a Path>,
    request: &'a str,
    arguments: &'a [String],
}

/// A first word that is a request needs no socket, unless a file has its name.
///
/// # Errors
/// A socket without a request; a request that does not exist.
pub fn asked<'a>(
    args: &'a ControlArguments,
    exists: impl Fn(&Path) -> bool,
) -> Result<Asked<'a>, UsageError> {
    let known = all_requests();
    let is_request = |word: &str| known.contains(&word);
    let socket = Path::new(&args.first);
    let named = args.words.first().is_some_and(|word| is_request(word));
    let is_alone = is_request(&args.first) && !(named && exists(socket));
    let (socket, request, arguments) = match args.words.split_first() {
        _ if is_alone => (None, args.first.as_str(), args.words.as_slice()),
        Some((request, arguments)) => (Some(socket), request.as_str(), arguments),
        None => (None, args.first.as_str(), args.words.as_slice()),
    };
    // A word that names no file was meant as the request: `marker door`.
    let request =
        match socket.filter(|path| !is_request(request) && !args.first.contains('/') && !exists(path)) {
            Some(_) => args.first.as_str(),
            None => request,
        };
    let late = arguments
        .iter()
        .find(|word| word.contains('/') && exists(Path::new(word)));
    if let (None, Some(late)) = (socket, late) {
        return Err(UsageError::SocketIsLate {
            socket: late.clone(),
            request: request.to_owned(),
        });
    }
    if !is_request(request) {
        return Err(UsageError::UnknownRequest {
            near: near(request, &known).map_or_else(String::new, |near| format!("; did you mean {near}?")),
            request: request.to_owned(),
            known: known.join(", "),
        });
    }
    Ok(Asked {
        socket,
        request,
        arguments,
    })
}

/// The request that has this word in its name, `add_marker` for `marker`, or that differs from it by little.
fn near<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_ascii_lowercase().replace('-', "_");
    let names = || known.iter().copied();
    let mut with_word = names().filter(|known| known.split('_').any(|part| part == word));
    with_word.next().or_else(|| nearest(&word, names()))
}

/// The request as an object.
///
/// # Errors
/// Arguments that the request does not take, and their absence where it needs some.
pub fn resolve(asked: &Asked<'_>) -> Result<Value, UsageError> {
    let name = || asked.request.to_owned();
    let mut request = json!({"request": asked.request});
    let given = asked.arguments;
    match argument_of(asked.request) {
        None | Some(RequestArgument::TextOrNone(_)) if given.is_empty() => {}
        None => return Err(UsageError::RequestTakesNoArgument(name())),
        Some(RequestArgument::Text(_) | RequestArgument::Texts(_)) if given.is_empty() => {
            return Err(UsageError::RequestNeedsArgument(name()));
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
        let args = arguments(words);
        let asked = asked(&args, |_| false).map_err(|error| error.to_string())?;
        resolve(&asked).map_err(|error| error.to_string())
    }

    fn arguments(words: &[&str]) -> ControlArguments {
        ControlArguments {
            first: words[0].to_owned(),
            words: words[1..].iter().map(|word| (*word).to_owned()).collect(),
        }
    }

    #[test]
    fn a_socket_comes_before_its_request_and_may_be_left_out() {
        let socket = |words: &[&str], exists: bool| {
            let args = arguments(words);
            let asked = asked(&args, |_| exists).map_err(|error| error.to_string());
            asked.map(|asked| (asked.socket.map(Path::to_owned), asked.request.to_owned()))
        };
        let named = |path: &str, request: &str| Ok((Some(path.into()), request.to_owned()));
        assert_eq!(socket(&["pause"], false), Ok((None, "pause".to_owned())));
        assert_eq!(
            socket(&["add_marker", "status"], false),
            Ok((None, "add_marker".to_owned()))
        );
        assert_eq!(socket(&["rec.sock", "pause"], true), named("rec.sock", "pause"));
        assert_eq!(socket(&["pause", "status"], true), named("pause", "status"));
        let unknown = socket(&["rec.sock", "jump"], true).unwrap_err();
        assert!(
            unknown.contains("jump") && unknown.contains("add_marker, "),
            "{unknown}"
        );
        assert!(socket(&["rec.sock"], true).is_err());
        let meant = |words: &[&str], exists: bool| socket(words, exists).unwrap_err();
        let marker = meant(&["marker", "door opens"], false);
        assert!(
            marker.starts_with("marker is not a request; did you mean add_marker?"),
            "{marker}"
        );
        assert!(meant(&["puase"], false).contains("did you mean pause?"));
        assert!(
            meant(&["rec.sock", "Stopp"], true).starts_with("Stopp is not a request; did you mean stop?")
        );
        assert!(meant(&["split"], false).contains("did you mean split_bagfile?"));
        assert!(meant(&["dance"], false).starts_with("dance is not a request; expected"));
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
