//! The rooms of the library and the arrows between them: what a bag says is read and written without the recorder and the player.

/// Rooms of the library, each with the rooms that it may not name. What both need is in the room below, or in `holdall-model`.
const ARROWS_FORBIDDEN: [(&str, &[&str]); 7] = [
    (
        "writer",
        &["record", "play", "reader", "rescue", "tools", "supervise"],
    ),
    ("reader", &["record", "play", "tools", "supervise"]),
    ("tools", &["record", "play", "supervise"]),
    (
        "rescue",
        &["writer", "reader", "record", "play", "tools", "supervise"],
    ),
    ("decode", &["record", "play", "tools", "supervise"]),
    ("record", &["reader", "play", "tools", "supervise"]),
    ("play", &["record", "tools", "supervise"]),
];

const LIBRARY: &str = "crates/holdall/src/";

/// Files of the reader, the lowest first: each names those above it in this list only, so that none hang in a circle.
const READER_FILES: [&str; 16] = [
    "error",
    "order",
    "merge",
    "pattern",
    "listing",
    "ros1",
    "file",
    "bag_file",
    "rebuild",
    "message",
    "bag",
    "set",
    "publishers",
    "contents",
    "audit",
    "undefined",
];

/// Finds places of the library that name a room above their own. Tests may.
pub fn check_arrows(shown: &str, text: &str, breaches: &mut Vec<String>) {
    let Some(path) = shown.strip_prefix(LIBRARY) else {
        return;
    };
    let room = path.split(['/', '.']).next().unwrap_or(path);
    if let Some(file) = path.strip_prefix("reader/") {
        check_reader(shown, file, text, breaches);
    }
    let forbidden = ARROWS_FORBIDDEN
        .iter()
        .find_map(|(name, rooms)| (*name == room).then_some(*rooms));
    let Some(forbidden) = forbidden.filter(|_| !path.contains("tests")) else {
        return;
    };
    let product = crate::lengths::product(text);
    for (line, named) in named_rooms(product) {
        if forbidden.contains(&named) {
            breaches.push(format!(
                "{shown}:{line}: {room} names crate::{named}, a room above it: put what both need into the room below"
            ));
        }
    }
}

/// Finds files of the reader that name one that is not below them.
fn check_reader(shown: &str, file: &str, text: &str, breaches: &mut Vec<String>) {
    let place = |name: &str| READER_FILES.iter().position(|known| *known == name);
    let name = file.split(['/', '.']).next().unwrap_or(file);
    let Some(own) = place(name) else { return };
    let product = crate::lengths::product(text);
    // In a folder `super` is the folder.
    let is_inside = file.contains('/') && !file.ends_with("/mod.rs");
    for path in ["reader::", "super::"].iter().take(if is_inside { 1 } else { 2 }) {
        for (line, named) in names_after(product, path) {
            if place(named).is_some_and(|place| place > own) {
                breaches.push(format!(
                    "{shown}:{line}: the reader's {name} names {named}, a file above it; see READER_FILES in xtask/src/arrows.rs"
                ));
            }
        }
    }
}

/// The rooms that a source names after `crate::`, also in the braces of a `use`, with their lines.
fn named_rooms(text: &str) -> Vec<(usize, &str)> {
    names_after(text, "crate::")
}

/// The names that a source has after `path`, also in the braces of a `use`, with their lines.
fn names_after<'t>(text: &'t str, path: &str) -> Vec<(usize, &'t str)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(path) {
        let begin = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let line = text[..at].matches('\n').count() + 1;
        if text[begin..at].contains("//") {
            continue;
        }
        let rest = &text[at + path.len()..];
        if let Some(group) = rest.strip_prefix('{') {
            found.extend(first_names(group).map(|name| (line, name)));
        } else {
            found.extend(first_word(rest).map(|name| (line, name)));
        }
    }
    found
}

/// The first name of each path of a group, up to its closing brace.
pub fn first_names(group: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    let mut is_first = true;
    group
        .char_indices()
        .map_while(move |(at, c)| {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => return None,
                '}' => depth -= 1,
                _ => {}
            }
            let begins = is_first && depth == 0 && c.is_ascii_alphabetic();
            is_first = depth == 0 && (c == ',' || is_first && c.is_whitespace());
            Some(begins.then_some(at))
        })
        .flatten()
        .filter_map(|at| first_word(&group[at..]))
}

fn first_word(text: &str) -> Option<&str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches_of(shown: &str, text: &str) -> Vec<String> {
        let mut breaches = Vec::new();
        check_arrows(shown, text, &mut breaches);
        breaches
    }

    #[test]
    fn a_room_that_names_one_above_it_is_found() {
        for text in [
            "use crate::record::options::RecordOptions;\n",
            "use std::io;\nuse crate::{\n    live::{LockError, lock_bag},\n    play::PlayError,\n};\n",
            "fn a() {\n    let b: crate::record::View = c();\n}\n",
        ] {
            for place in ["writer/split.rs", "reader/mod.rs", "tools/copy/one.rs"] {
                let found = breaches_of(&format!("{LIBRARY}{place}"), text);
                assert_eq!(found.len(), 1, "{place}: {text}");
            }
        }
        let found = breaches_of(
            "crates/holdall/src/reader/bag.rs",
            "\nuse crate::{live::a, record::b};\n",
        );
        assert!(found[0].starts_with("crates/holdall/src/reader/bag.rs:2: reader names crate::record"));
    }

    #[test]
    fn a_file_of_the_reader_that_names_one_above_it_is_found() {
        for (place, text) in [
            (
                "reader/file.rs",
                "use super::{\n    error::ReadError,\n    set::BagSet,\n};\n",
            ),
            ("reader/bag/open.rs", "use crate::reader::{file, set::BagSet};\n"),
            ("reader/message.rs", "use super::set::BagSet;\n"),
        ] {
            let found = breaches_of(&format!("{LIBRARY}{place}"), text);
            assert_eq!(found.len(), 1, "{place}: {found:?}");
        }
        for (place, text) in [
            ("reader/set.rs", "use super::{bag::Bag, message};\n"),
            (
                "reader/bag/open.rs",
                "use super::{Bag, account};\nuse crate::reader::rebuild::Rebuild;\n",
            ),
        ] {
            assert_eq!(
                breaches_of(&format!("{LIBRARY}{place}"), text),
                Vec::<String>::new(),
                "{place}"
            );
        }
    }

    #[test]
    fn arrows_down_tests_and_other_crates_are_no_breach() {
        let up = "use crate::record::options::RecordOptions;\n";
        let in_tests = format!("fn a() {{}}\n#[cfg(test)]\nmod tests {{\n    {up}}}\n");
        for (place, text) in [
            ("crates/holdall/src/supervise/mod.rs", up),
            ("crates/holdall/src/writer/tests.rs", up),
            ("crates/holdall-cli/src/reader/bag.rs", up),
            ("crates/holdall/src/reader/bag.rs", in_tests.as_str()),
            (
                "crates/holdall/src/reader/bag.rs",
                "use crate::{live::{record, play}, writer::tools};\n// crate::play does\n",
            ),
        ] {
            assert_eq!(breaches_of(place, text), Vec::<String>::new(), "{place}");
        }
    }
}
