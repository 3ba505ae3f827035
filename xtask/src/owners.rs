//! Structs that own their fields: a struct's methods name its fields in at most three files, and a room of the library stays one that a person can know.

use crate::lengths::{is_test, product};
use std::collections::{BTreeMap, BTreeSet};

/// Files in which the methods of a struct may name its fields.
const FILES_MAX: usize = 3;
/// Lines of product code in a crate of the library's centre.
const ROOM_LINES_MAX: usize = 15_000;
const ROOMS: [&str; 6] = ["bag", "record", "play", "tools", "data", "serve"];

/// Collects the sources, and then judges them.
#[derive(Default)]
pub struct Owners {
    /// Fields by name of the struct and the folder of its file.
    fields: BTreeMap<(String, String), BTreeSet<String>>,
    /// Names after `self.` by struct and file.
    named: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
    lines: BTreeMap<String, usize>,
}

impl Owners {
    /// Adds a source file, formatted by rustfmt.
    pub fn add(&mut self, shown: &str, text: &str) {
        let Some(name) = shown
            .strip_prefix("crates/")
            .and_then(|rest| rest.split('/').next())
        else {
            return;
        };
        if is_test(shown) {
            return;
        }
        let text = product(text);
        *self.lines.entry(name.to_owned()).or_default() += text.lines().count();
        let mut inside: Option<Block> = None;
        for line in text.lines() {
            if line == "}" {
                inside = None;
            } else if let Some(block) = Block::of(line) {
                inside = Some(block);
            } else if let Some(block) = &inside {
                self.read(shown, block, line);
            }
        }
    }

    fn read(&mut self, shown: &str, block: &Block, line: &str) {
        if line.trim_start().starts_with("//") {
            return;
        }
        match block {
            Block::Struct(owner) => {
                if let Some(field) = field_of(line) {
                    let folder = shown.rsplit_once('/').map_or("", |(folder, _)| folder);
                    let key = (owner.clone(), format!("{folder}/"));
                    self.fields.entry(key).or_default().insert(field.to_owned());
                }
            }
            Block::Impl(owner) => {
                let files = self.named.entry(owner.clone()).or_default();
                files
                    .entry(shown.to_owned())
                    .or_default()
                    .extend(after_self(line).map(str::to_owned));
            }
        }
    }

    /// Structs whose fields are named in too many files.
    fn spread(&self) -> Vec<String> {
        let mut breaches = Vec::new();
        for ((name, folder), fields) in &self.fields {
            let Some(files) = self.named.get(name) else {
                continue;
            };
            let files: Vec<&str> = files
                .iter()
                .filter(|(file, names)| file.starts_with(folder) && !names.is_disjoint(fields))
                .map(|(file, _)| file.rsplit('/').next().unwrap_or(file))
                .collect();
            if files.len() > FILES_MAX {
                breaches.push(format!(
                    "{folder}: the fields of {name} are named in {} files, more than {FILES_MAX} ({}): divide it into owners of parts, each with its methods",
                    files.len(),
                    files.join(", ")
                ));
            }
        }
        breaches
    }

    /// What breaks the rules.
    pub fn breaches(&self) -> Vec<String> {
        let mut breaches = self.spread();
        for room in ROOMS.map(|room| format!("holdall-{room}")) {
            let lines = self.lines.get(&room).copied().unwrap_or(0);
            if lines > ROOM_LINES_MAX {
                breaches.push(format!(
                    "crates/{room}: {lines} lines of product code, more than {ROOM_LINES_MAX}: it is two rooms"
                ));
            }
        }
        breaches
    }
}

/// A block at the left margin.
enum Block {
    Struct(String),
    Impl(String),
}

impl Block {
    fn of(line: &str) -> Option<Self> {
        let code = line.strip_suffix('{')?;
        if let Some(rest) = code.strip_prefix("impl") {
            let rest = rest.strip_prefix('<').map_or(rest, after_generics);
            let subject = rest.rsplit(" for ").next()?;
            return Some(Self::Impl(word(subject.trim_start())?));
        }
        let rest = [
            "pub struct ",
            "pub(super) struct ",
            "pub(crate) struct ",
            "struct ",
        ]
        .iter()
        .find_map(|start| code.strip_prefix(start))?;
        Some(Self::Struct(word(rest)?))
    }
}

/// What follows the generic parameters that have just begun.
pub(crate) fn after_generics(text: &str) -> &str {
    let mut depth = 1;
    let end = text.char_indices().find(|(at, letter)| {
        match letter {
            '<' => depth += 1,
            '>' if !text[..*at].ends_with('-') => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    end.map_or("", |(at, _)| &text[at + 1..])
}

fn word(text: &str) -> Option<String> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let end = text.find(|letter| !is_letter(letter)).unwrap_or(text.len());
    (end > 0).then(|| text[..end].to_owned())
}

/// The field that a line of a struct declares.
fn field_of(line: &str) -> Option<&str> {
    let line = line.strip_prefix("    ")?;
    let line = ["pub ", "pub(super) ", "pub(crate) "]
        .iter()
        .find_map(|start| line.strip_prefix(start))
        .unwrap_or(line);
    let (name, _) = line.split_once(": ")?;
    name.chars()
        .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_')
        .then_some(name)
}

/// The names that follow `self.` in a line and are not called.
fn after_self(line: &str) -> impl Iterator<Item = &str> {
    line.split("self.").skip(1).filter_map(|rest| {
        let end = rest
            .find(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'))
            .unwrap_or(rest.len());
        (!rest[end..].starts_with('(')).then_some(&rest[..end])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(files: usize) -> Owners {
        let mut owners = Owners::default();
        owners.add(
            "crates/holdall-bag/src/a.rs",
            "//! A.\npub struct Large<T> {\n    /// One.\n    one: T,\n    pub two: u64,\n}\n",
        );
        for number in 0..files {
            owners.add(
                &format!("crates/holdall-bag/src/b{number}.rs"),
                "impl<T: Fn() -> u8> Large<T> {\n    fn f(&self) -> u64 {\n        self.two + self.other()\n    }\n}\n",
            );
            // Neither a test nor a call of a method names a field.
            owners.add(
                &format!("crates/holdall-bag/src/c{number}.rs"),
                "impl<T> Large<T> {\n    fn g(&self) {\n        self.one();\n    }\n}\n\n#[cfg(test)]\nmod tests {\n    fn f() {\n        self.one;\n    }\n}\n",
            );
        }
        owners
    }

    #[test]
    fn a_struct_whose_fields_are_named_in_many_files_is_refused() {
        assert!(owners(FILES_MAX).spread().is_empty());
        let breaches = owners(FILES_MAX + 1).spread();
        assert!(
            breaches.len() == 1
                && breaches[0].contains("Large are named in 4 files, more than 3 (b0.rs, b1.rs,"),
            "{breaches:?}"
        );
    }

    #[test]
    fn a_room_that_grows_too_large_is_named() {
        let mut owners = Owners::default();
        owners.add(
            "crates/holdall-play/src/a.rs",
            &"fn a() {}\n".repeat(ROOM_LINES_MAX + 1),
        );
        let breaches = owners.breaches();
        assert!(
            breaches
                .iter()
                .any(|breach| breach.contains("crates/holdall-play: 15001 lines")),
            "{breaches:?}"
        );
    }
}
