//! Dependencies within crates and between folders of two crates, which no manifest can restrict.

/// Folders of `holdall-bag`, each with the folders that it may not name.
const ARROWS_FORBIDDEN: [(&str, &[&str]); 2] = [
    ("writer", &["reader", "rescue"]),
    ("rescue", &["writer", "reader"]),
];

const LIBRARY: &str = "crates/holdall-bag/src/";

/// The recorder writes bags and reads none: it does not name the reader.
const RECORDER: &str = "crates/holdall-record/src/";
const READER_NAMES: [&str; 6] = [
    "reader",
    "Bag",
    "BagMessage",
    "BagSet",
    "MessageFilter",
    "ReadError",
];

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

/// Floors of the DDS transport, the lowest first: each names those below it only, and none the files beside them.
const DDS: &str = "crates/holdall-transport/src/dds/";
const DDS_FLOORS: [&str; 6] = ["wire", "reach", "settings", "ffi", "graph", "services"];

/// Finds places that name a folder above their own. Tests may.
pub fn check_arrows(shown: &str, text: &str, breaches: &mut Vec<String>) {
    if let Some((floor, _)) = shown.strip_prefix(DDS).and_then(|path| path.split_once('/')) {
        check_floor(shown, floor, text, breaches);
    }
    if shown.starts_with(RECORDER) && !shown.contains("/tests") {
        for (line, named) in names_after(crate::lengths::product(text), "holdall_bag::") {
            if READER_NAMES.contains(&named) {
                breaches.push(format!(
                    "{shown}:{line}: the recorder names holdall_bag::{named}: it reads no bags; put what both need below the reader"
                ));
            }
        }
    }
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
                "{shown}:{line}: {room} names crate::{named}, a folder above it: put what both need into the one below"
            ));
        }
    }
}

/// Finds files of the DDS transport that name a floor above their own.
fn check_floor(shown: &str, floor: &str, text: &str, breaches: &mut Vec<String>) {
    let place = |name: &str| DDS_FLOORS.iter().position(|known| *known == name);
    let Some(own) = place(floor) else {
        breaches.push(format!(
            "{shown}: dds/{floor} is not on the list DDS_FLOORS in xtask/src/arrows.rs: add it at its height"
        ));
        return;
    };
    let module = shown.split("/src/").nth(1).unwrap_or(shown);
    let module = module.trim_end_matches(".rs").trim_end_matches("/mod");
    let module: Vec<&str> = module.split('/').collect();
    for (line, path) in own_paths(crate::lengths::product(text), &module) {
        let mut names = path.iter().map(String::as_str);
        match names.next() {
            Some("dds") => {}
            // All of the crate, or the crate by another name.
            None | Some("") => {
                breaches.push(format!(
                    "{shown}:{line}: {floor} names the whole crate, with what is above it"
                ));
                continue;
            }
            Some(_) => continue,
        }
        let named = names.next().unwrap_or("*");
        if place(named).is_none_or(|place| place > own) {
            breaches.push(format!(
                "{shown}:{line}: {floor} names dds::{named}, which is above it; see DDS_FLOORS in xtask/src/arrows.rs"
            ));
        }
    }
}

/// All paths into its own crate that the source of `module` names, from the root of the crate, with their lines.
fn own_paths(text: &str, module: &[&str]) -> Vec<(usize, Vec<String>)> {
    let (mut found, mut read) = (Vec::new(), 0);
    let text: String = text.lines().map(|line| format!("{}\n", code_of(line))).collect();
    let starts = ["crate::", "super::", "self::super::"];
    let mut starts: Vec<usize> = starts
        .iter()
        .flat_map(|start| text.match_indices(start))
        .map(|(at, _)| at)
        .collect();
    starts.sort_unstable();
    for at in starts {
        let line = text[..at].matches('\n').count() + 1;
        // In a path that is read, after other names, or where something is visible.
        let is_inside = |c: char| c.is_ascii_alphanumeric() || "_:".contains(c);
        if at < read || text[..at].ends_with(is_inside) || text[..at].ends_with("(in ") {
            continue;
        }
        let mut paths = Vec::new();
        read = text.len() - expand(&text[at..], &[], &mut paths).len();
        for path in paths {
            let mut full: Vec<String> = module.iter().map(|name| (*name).to_owned()).collect();
            for name in path {
                match name {
                    "crate" => full.clear(),
                    "super" => drop(full.pop()),
                    "self" => {}
                    name => full.push(name.to_owned()),
                }
            }
            found.push((line, full));
        }
    }
    found
}

/// A line without its comment.
fn code_of(line: &str) -> &str {
    line.split_once("//").map_or(line, |(code, _)| code)
}

/// Adds each path of a tree such as `a::{b, c::{d, e}}`, which comes after `before`; returns what follows the tree.
fn expand<'t>(text: &'t str, before: &[&'t str], paths: &mut Vec<Vec<&'t str>>) -> &'t str {
    let Some(mut rest) = text.strip_prefix('{') else {
        let name = first_word(text).unwrap_or("");
        let path = [before, &[name]].concat();
        let rest = &text[name.len()..];
        return match rest.strip_prefix("::") {
            // Not a type's parameters.
            Some(deeper) if !deeper.starts_with('<') => expand(deeper, &path, paths),
            _ => {
                paths.push(path);
                rest
            }
        };
    };
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
        if rest.is_empty() || rest.starts_with('}') {
            return rest.get(1..).unwrap_or("");
        }
        let after = expand(rest, before, paths);
        rest = after.find([',', '}']).map_or("", |end| &after[end..]);
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
    fn a_folder_that_names_one_above_it_is_found() {
        for text in [
            "use crate::reader::BagSet;\n",
            "use std::io;\nuse crate::{\n    live::{LockError, lock_bag},\n    reader::ReadError,\n};\n",
            "fn a() {\n    let b: crate::reader::View = c();\n}\n",
        ] {
            for place in ["writer/split.rs", "rescue/mod.rs"] {
                let found = breaches_of(&format!("{LIBRARY}{place}"), text);
                assert_eq!(found.len(), 1, "{place}: {text}");
            }
        }
        let found = breaches_of(
            "crates/holdall-bag/src/rescue/layout.rs",
            "\nuse crate::{live::a, writer::b};\n",
        );
        assert!(
            found[0].starts_with("crates/holdall-bag/src/rescue/layout.rs:2: rescue names crate::writer")
        );
    }

    #[test]
    fn a_recorder_that_reads_bags_is_found() {
        for text in [
            "use holdall_bag::reader::BagSet;\n",
            "use holdall_bag::{Bag, live};\n",
            "fn a() {\n    holdall_bag::reader::open();\n}\n",
        ] {
            let found = breaches_of(&format!("{RECORDER}write/drain.rs"), text);
            assert_eq!(found.len(), 1, "{text}");
            assert_eq!(
                breaches_of(&format!("{RECORDER}tests/bags.rs"), text),
                Vec::<String>::new()
            );
        }
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
    fn a_floor_of_the_dds_transport_that_names_one_above_it_is_found() {
        let text = "use crate::dds::{reach::lives, settings::qos};\n";
        for (place, count) in [
            ("wire/keys.rs", 2),
            ("reach/unheard.rs", 1),
            ("ffi/entity.rs", 0),
            ("transport.rs", 0),
        ] {
            assert_eq!(
                breaches_of(&format!("{DDS}{place}"), text).len(),
                count,
                "{place}"
            );
        }
        for (place, text, count) in [
            ("services/server.rs", "use crate::dds::transport::BACKEND;\n", 1),
            (
                "wire/keys.rs",
                "use crate::{\n    dds::{reach, wire::{keys, self}, graph::{a, b as c}},\n    error::E,\n};\n",
                3,
            ),
            (
                "ffi/a/b.rs",
                "fn a() {\n    super::super::super::graph::peers::c();\n}\n",
                1,
            ),
            (
                "ffi/a/b.rs",
                "use super::{super::{qos, super::services}, graph};\n",
                1,
            ),
            ("ffi/mod.rs", "use super::{graph, wire};\n", 1),
            (
                "ffi/qos.rs",
                "use super::{graph, wire};\npub(in crate::dds) fn a() {}\n",
                0,
            ),
            ("ffi/qos.rs", "use crate::dds;\nuse crate::dds::*;\n", 2),
            ("ffi/qos.rs", "use crate::{self as c};\nuse crate::*;\n", 2),
            (
                "ffi/qos.rs",
                "fn a() {\n    for b in crate::dds::graph::c() {}\n}\n",
                1,
            ),
            ("ffi/qos.rs", "fn a() {\n    $crate::dds::graph::b();\n}\n", 1),
            ("ffi/qos.rs", "use self::super::super::graph::a;\n", 1),
            ("ffi/mod.rs", "use super::{super::error::E, wire};\n", 0),
            (
                "ffi/qos.rs",
                "use super::{\n    // Not, with graph,\n    entity,\n};\n",
                0,
            ),
            ("cellar/qos.rs", "use std::io;\n", 1),
        ] {
            let found = breaches_of(&format!("{DDS}{place}"), text);
            assert_eq!(found.len(), count, "{place}: {text}: {found:?}");
        }
    }

    #[test]
    fn arrows_down_tests_and_other_crates_are_no_breach() {
        let up = "use crate::reader::BagSet;\n";
        let in_tests = format!("fn a() {{}}\n#[cfg(test)]\nmod tests {{\n    {up}}}\n");
        for (place, text) in [
            ("crates/holdall-bag/src/table/mod.rs", up),
            ("crates/holdall-bag/src/writer/tests.rs", up),
            ("crates/holdall-cli/src/writer/bag.rs", up),
            ("crates/holdall-bag/src/writer/bag.rs", in_tests.as_str()),
            (
                "crates/holdall-bag/src/writer/bag.rs",
                "use crate::{live::{reader, rescue}, keys::reader};\n// crate::reader does\n",
            ),
            (
                "crates/holdall-record/src/write/drain.rs",
                "use holdall_bag::{live, writer};\n",
            ),
        ] {
            assert_eq!(breaches_of(place, text), Vec::<String>::new(), "{place}");
        }
    }
}
