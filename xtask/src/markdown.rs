//! The promises of Markdown: paths, links, flags, verbs and tests that it names exist, and decision records have numbers without
//! holes.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Flags of other programs that the documents name.
const FOREIGN_FLAGS: &[&str] = include!("foreign_flags.in");

/// Verbs that are subcommands without a variant in the enum of verbs, and other names of some that have one.
const BUILT_IN_VERBS: &[&str] = &["help", "promote"];

/// An identifier in backticks with at least this many underscores is a sentence, and thus a test's name.
const TEST_NAME_UNDERSCORES_MIN: usize = 4;

/// Names that the source tree defines, gathered once for all documents.
pub struct Sources {
    root: PathBuf,
    /// Words of the command line's definitions, in the spelling of flags.
    flags: BTreeSet<String>,
    verbs: BTreeSet<String>,
    /// Every identifier of Rust and Python sources that has the shape of a test's name.
    identifiers: BTreeSet<String>,
}

impl Sources {
    /// Reads the tree below `root`.
    pub fn read(root: &Path) -> Self {
        let programs = [
            "crates/holdall-cli/src",
            "crates/holdall-program/src",
            "tools/bench/src/args",
        ];
        let arguments = programs.map(|folder| sources_below(&root.join(folder), "rs"));
        let mut flags: BTreeSet<String> = FOREIGN_FLAGS.iter().map(|flag| (*flag).to_owned()).collect();
        let mut verbs: BTreeSet<String> = BUILT_IN_VERBS.iter().map(|verb| (*verb).to_owned()).collect();
        for text in arguments.iter().flatten() {
            flags.extend(words(text).map(|word| word.replace('_', "-")));
            verbs.extend(words(text).filter(|word| starts_upper(word)).map(kebab));
        }
        let mut identifiers = BTreeSet::new();
        let rust = ["crates", "tools", "xtask"].map(|folder| sources_below(&root.join(folder), "rs"));
        let python = ["tests", "demo", "scripts"].map(|folder| sources_below(&root.join(folder), "py"));
        for text in rust.iter().chain(&python).flatten() {
            identifiers.extend(words(text).filter(|word| is_test_name(word)).map(str::to_owned));
        }
        Self {
            root: root.to_owned(),
            flags,
            verbs,
            identifiers,
        }
    }

    /// Checks every document of the tree; one line for each breach.
    pub fn check_documents(&self) -> Vec<String> {
        let mut breaches = Vec::new();
        for file in documents(&self.root) {
            let shown = file
                .strip_prefix(&self.root)
                .unwrap_or(&file)
                .display()
                .to_string();
            match fs::read_to_string(&file) {
                Ok(text) => breaches.extend(self.check_text(&shown, &text)),
                Err(error) => breaches.push(format!("{shown}: {error}")),
            }
        }
        breaches.extend(check_records(&self.root.join("docs/adr")));
        breaches
    }

    /// Checks one document, named by its path below the root.
    pub fn check_text(&self, shown: &str, text: &str) -> Vec<String> {
        let folder = self
            .root
            .join(shown)
            .parent()
            .map_or_else(PathBuf::new, Path::to_owned);
        let mut breaches = Vec::new();
        let mut in_block = false;
        for (number, line) in text.lines().enumerate() {
            let mut breach = |what: String| breaches.push(format!("{shown}:{}: {what}", number + 1));
            if line.trim_start().starts_with("```") {
                in_block = !in_block;
                continue;
            }
            let codes: Vec<&str> = if in_block { vec![line] } else { code_spans(line) };
            for code in codes {
                self.check_code(code, in_block, &mut breach);
            }
            if !in_block {
                for target in links(line).filter(|target| is_local(target)) {
                    let path = target.split('#').next().unwrap_or(target);
                    if !path.is_empty() && !folder.join(path).exists() {
                        breach(format!("the link {target} leads nowhere"));
                    }
                }
            }
        }
        breaches
    }

    fn check_code(&self, code: &str, in_block: bool, breach: &mut impl FnMut(String)) {
        if !in_block {
            for path in expanded(code).iter().filter(|path| is_source_path(path)) {
                if !self.exists(path) {
                    breach(format!("{path} does not exist"));
                }
            }
            if is_test_name(code) && !self.identifiers.contains(code) {
                breach(format!("no test, function or field is called {code}"));
            }
        }
        for flag in long_flags(code) {
            if !self.flags.contains(flag) {
                breach(format!(
                    "no verb of holdall has a flag --{flag}; if another program has it, add it to xtask/src/foreign_flags.in"
                ));
            }
        }
        let command = code
            .trim_start_matches("$ ")
            .trim_start_matches("target/release/");
        if let Some(rest) = command.strip_prefix("holdall ") {
            let verb = rest.split_whitespace().next().unwrap_or_default();
            let is_word = !verb.is_empty()
                && verb.chars().all(|c| c.is_ascii_lowercase() || c == '-')
                && !verb.starts_with('-');
            if is_word && !self.verbs.contains(verb) {
                breach(format!("holdall has no verb {verb}"));
            }
        }
    }

    /// Paths are named from the root, or from `crates`; a `*` matches anything in one name.
    fn exists(&self, path: &str) -> bool {
        let path = path.split("::").next().unwrap_or(path);
        let path = path.split(':').next().unwrap_or(path);
        if let Some((start, _)) = path.split_once('*') {
            let folder = start.rsplit_once('/').map_or("", |(folder, _)| folder);
            return self.exists(folder);
        }
        self.root.join(path).exists() || self.root.join("crates").join(path).exists()
    }
}

/// Markdown that is written by hand: the root's, and all below `docs`.
pub fn documents(root: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    found.extend(files_below(&root.join("docs"), "md"));
    found.sort();
    found
}

/// Decision records are numbered from 1 without holes, so that a missing one is seen.
fn check_records(folder: &Path) -> Vec<String> {
    let mut numbers: Vec<u32> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.split('-').next()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    let expected = 1..;
    let wrong = numbers
        .iter()
        .zip(expected)
        .find(|(found, wanted)| **found != *wanted);
    wrong
        .map(|(_, wanted)| format!("docs/adr: there is no single record with number {wanted:04}"))
        .into_iter()
        .collect()
}

fn files_below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
    {
        if path.is_dir() && !path.ends_with("target") {
            found.extend(files_below(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found
}

fn sources_below(folder: &Path, extension: &str) -> Vec<String> {
    let files = files_below(folder, extension);
    files
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok())
        .collect()
}

/// Runs of letters, digits, `_` and `-` in between.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-'))
        .filter(|word| !word.is_empty())
}

fn starts_upper(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_uppercase())
}

/// `WriteRate` as the command line spells it: `write-rate`.
fn kebab(word: &str) -> String {
    let mut spelled = String::new();
    for (at, c) in word.chars().enumerate() {
        if c.is_ascii_uppercase() && at > 0 {
            spelled.push('-');
        }
        spelled.push(c.to_ascii_lowercase());
    }
    spelled
}

/// A test's name is a sentence in lower case.
fn is_test_name(word: &str) -> bool {
    word.matches('_').count() >= TEST_NAME_UNDERSCORES_MIN
        && word
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// The parts between single backticks in a line.
fn code_spans(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

/// Targets of inline links.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

fn is_local(target: &str) -> bool {
    !target.contains("://") && !target.starts_with("mailto:")
}

/// Names of long flags in a piece of code.
fn long_flags(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| {
        c.is_whitespace() || matches!(c, '[' | ']' | '(' | ')' | '|' | '"' | '\'' | ',' | '/')
    })
    .filter_map(|word| word.strip_prefix("--"))
    .map(|flag| {
        flag.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
            .next()
            .unwrap_or(flag)
    })
    .filter(|flag| flag.starts_with(|c: char| c.is_ascii_lowercase()))
}

/// A path of the source tree: it begins with one of its folders and has no space.
fn is_source_path(code: &str) -> bool {
    const FOLDERS: [&str; 7] = [
        "crates/", "tools/", "docs/", "scripts/", "tests/", "xtask/", "demo/",
    ];
    let begins = FOLDERS.iter().any(|folder| code.starts_with(folder))
        || code.starts_with("holdall-") && code.contains("/")
        || code.starts_with("holdall/");
    begins && !code.contains(' ') && !code.contains('<') && !code.contains("DATE")
}

/// `a/{b,c}.rs` as `a/b.rs` and `a/c.rs`.
fn expanded(code: &str) -> Vec<String> {
    let Some((before, rest)) = code.split_once('{') else {
        return vec![code.to_owned()];
    };
    let Some((choices, after)) = rest.split_once('}') else {
        return vec![code.to_owned()];
    };
    let choices = choices
        .split(',')
        .map(|choice| format!("{before}{}{after}", choice.trim()));
    choices.flat_map(|path| expanded(&path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> Sources {
        let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Sources {
            root: Path::new(env!("CARGO_MANIFEST_DIR")).join(".."),
            flags: set(&["topics"]),
            verbs: set(&["record"]),
            identifiers: set(&["a_test_that_is_really_there"]),
        }
    }

    fn breaches(text: &str) -> Vec<String> {
        sources().check_text("README.md", text)
    }

    #[test]
    fn what_exists_may_be_named() {
        let text = "[the map](ARCHITECTURE.md#rooms), `holdall record --topics /a`, `xtask/src/{main,tidy}.rs`, `holdall-model/src`, \
                    `a_test_that_is_really_there`, [web](https://example.org/x)";
        assert_eq!(breaches(text), Vec::<String>::new());
    }

    #[test]
    fn each_rule_has_a_text_that_breaks_it() {
        for (text, expected) in [
            ("[x](docs/nothing.md)", "the link docs/nothing.md leads nowhere"),
            ("`xtask/src/{main,none}.rs`", "xtask/src/none.rs does not exist"),
            (
                "`holdall-model/src/loss.rs`",
                "holdall-model/src/loss.rs does not exist",
            ),
            (
                "```\nholdall record --no-such-flag\n```",
                "no verb of holdall has a flag --no-such-flag",
            ),
            ("`holdall sing`", "holdall has no verb sing"),
            (
                "`a_test_that_was_never_there`",
                "called a_test_that_was_never_there",
            ),
        ] {
            let found = breaches(text);
            assert!(
                found.len() == 1 && found[0].contains(expected),
                "{text}: {found:?}"
            );
        }
    }

    #[test]
    fn records_without_a_number_between_are_found() {
        let folder = std::env::temp_dir().join(format!("holdall-xtask-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for name in ["0001-a.md", "0003-c.md", "README.md"] {
            fs::write(folder.join(name), "").unwrap();
        }
        let found = check_records(&folder);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, ["docs/adr: there is no single record with number 0002"]);
    }
}
