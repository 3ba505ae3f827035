//! The rule that an item which only tests name does not exist: tests would prove code that never runs.

use crate::{
    lengths::{is_test, product},
    owners::after_generics,
};
use std::collections::{BTreeMap, BTreeSet};

/// Helpers of tests in other crates.
const ALLOWED: [&str; 2] = [
    "crates/holdall-io/src/disk_conformance.rs",
    "crates/holdall-transport/src/memory/network.rs",
];

/// Words before the kind of an item.
const BEFORE: [&str; 4] = ["const", "unsafe", "async", "extern"];
const KINDS: [&str; 7] = ["fn", "struct", "enum", "trait", "const", "static", "type"];

/// Collects the words of all sources, and then judges the items.
#[derive(Default)]
pub struct OnlyTests {
    /// Each item by its name, with its place.
    items: BTreeMap<String, Vec<String>>,
    /// Words in code of the product, without definitions, `impl` lines and imports.
    named: BTreeSet<String>,
    tested: BTreeSet<String>,
}

impl OnlyTests {
    /// Adds a source file, formatted by rustfmt. Examples and fuzz targets are users like others.
    pub fn add(&mut self, shown: &str, text: &str) {
        let is_user = ["/examples/", "/benches/", "/fuzz/"]
            .iter()
            .any(|folder| shown.contains(folder));
        let code = if is_user || !is_test(shown) {
            product(text)
        } else {
            ""
        };
        let mut tests: Vec<&str> = text[code.len()..].lines().collect();
        let mut lines = code.lines().enumerate();
        while let Some((at, line)) = lines.next() {
            let indentation = line.len() - line.trim_start().len();
            let is_end = |other: &str, end: &[char]| {
                other.len() - other.trim_start().len() == indentation && other.ends_with(end)
            };
            let code = line.trim_start();
            if code.starts_with("#[cfg(test)]") || code.starts_with("#[cfg(any(test") {
                let mut item = lines.by_ref().map(|(_, line)| line);
                tests.extend(
                    item.by_ref()
                        .find(|line| !line.trim_start().starts_with("#["))
                        .inspect(|first| {
                            if !is_end(first, &[';', '}', ',']) {
                                item.find(|line| is_end(line, &[';', '}', ',']));
                            }
                        }),
                );
            } else if is_import(code) {
                if !code.ends_with(';') {
                    lines.find(|(_, line)| line.ends_with(';'));
                }
            } else {
                self.read(shown, at + 1, code);
            }
        }
        self.tested
            .extend(tests.into_iter().flat_map(words).map(str::to_owned));
    }

    fn read(&mut self, shown: &str, line: usize, code: &str) {
        let item = item_of(code);
        if let Some(name) = item.filter(|_| shown.contains("/src/")) {
            self.items
                .entry(name.to_owned())
                .or_default()
                .push(format!("{shown}:{line}"));
        }
        // An `impl` uses what its bounds name, not what it is for.
        let used = match code.strip_prefix("impl") {
            Some(rest) => rest.strip_prefix('<').map_or("", |bounds| {
                let subject = after_generics(bounds);
                &bounds[..bounds.len() - subject.len()]
            }),
            None => code,
        };
        let found = words(used).filter(|word| Some(*word) != item);
        self.named.extend(found.map(str::to_owned));
    }

    /// The items that only tests name.
    pub fn breaches(&self) -> Vec<String> {
        self.lonely(&ALLOWED)
    }

    /// The items that only tests name and that are not in a file that is `allowed` to have some, and allowed files that have none.
    fn lonely(&self, allowed: &[&str]) -> Vec<String> {
        let (mut breaches, mut needed) = (Vec::new(), BTreeSet::new());
        let lonely = |name: &String| !self.named.contains(name) && self.tested.contains(name);
        for (name, places) in self.items.iter().filter(|(name, _)| lonely(name)) {
            let file = |place: &String| place.rsplit_once(':').map_or("", |(file, _)| file).to_owned();
            let is_allowed = |place: &&String| allowed.contains(&file(place).as_str());
            let (excused, others): (Vec<_>, Vec<_>) = places.iter().partition(is_allowed);
            needed.extend(excused.into_iter().map(file));
            if let [place] = others[..] {
                breaches.push(format!(
                    "{place}: only tests name {name}: remove it, let the product use it, or move it to the tests (#[cfg(test)])"
                ));
            }
        }
        let unneeded = allowed.iter().filter(|file| !needed.contains(**file));
        breaches.extend(unneeded.map(|file| {
            format!(
                "xtask/src/only_tests.rs: {file} has nothing that only tests name: remove it from the list"
            )
        }));
        breaches
    }
}

fn is_import(code: &str) -> bool {
    without_visibility(code).starts_with("use ")
}

fn without_visibility(code: &str) -> &str {
    match code.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ").map_or(rest, |(_, rest)| rest),
        Some(rest) if rest.starts_with(' ') => rest.trim_start(),
        _ => code,
    }
}

/// The name of the item that a line defines.
fn item_of(code: &str) -> Option<&str> {
    let mut words = without_visibility(code)
        .split([' ', '(', '<', ':', ';', '=', '{'])
        .filter(|word| !word.is_empty());
    let mut kind = words.next()?;
    let mut name = words.next()?;
    // `const fn`, `unsafe extern "C" fn`
    while BEFORE.contains(&kind) && (BEFORE.contains(&name) || KINDS.contains(&name) || name == "\"C\"") {
        kind = if name == "\"C\"" { words.next()? } else { name };
        name = words.next()?;
    }
    KINDS.contains(&kind).then_some(name)
}

/// The words of a line without its comment.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let comment = line.find("// ").filter(|at| !line[..*at].ends_with(':'));
    let code = match line.trim_start().starts_with("//") {
        true => "",
        false => comment.map_or(line, |at| &line[..at]),
    };
    code.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(files: &[(&str, &str)]) -> Vec<String> {
        let mut found = OnlyTests::default();
        for (shown, text) in files {
            found.add(shown, text);
        }
        found.lonely(&[])
    }

    const TEST: &str = "crates/a/tests/t.rs";

    #[test]
    fn an_item_of_any_kind_that_only_tests_name_is_found() {
        for item in [
            "pub fn lonely() {}",
            "    pub(crate) const fn lonely(self) -> u8 {",
            "fn lonely<T>(of: T) {}",
            "pub struct Lonely {",
            "pub const LONELY: u8 = 1;",
            "pub(in crate::x) static LONELY: u8 = 1;",
            "pub unsafe extern \"C\" fn lonely() {}",
        ] {
            let name = item_of(item.trim_start()).unwrap();
            let product = format!(
                "//! A file.\n{item}\n// lonely Lonely LONELY\nimpl Lonely {{\npub use a::{{\n    {name},\n}};\n"
            );
            let in_module = format!("{product}\n#[cfg(test)]\nmod tests {{\n    {name}\n}}\n");
            let test = (TEST, format!("let a = {name};"));
            assert_eq!(
                breaches(&[("crates/a/src/lib.rs", &in_module)]).len(),
                1,
                "{item}"
            );
            assert_eq!(
                breaches(&[("crates/a/src/lib.rs", &product), (test.0, &test.1)]).len(),
                1,
                "{item}"
            );
        }
    }

    #[test]
    fn a_file_on_the_list_is_excused_and_leaves_it_when_it_has_no_such_item() {
        let mut found = OnlyTests::default();
        found.add("crates/a/src/lib.rs", "pub fn lonely() {}\n");
        found.add(TEST, "lonely();");
        assert!(found.lonely(&["crates/a/src/lib.rs"]).is_empty());
        let breaches = found.lonely(&["crates/a/src/lib.rs", "crates/a/src/b.rs"]);
        assert!(
            breaches.len() == 1 && breaches[0].contains("crates/a/src/b.rs has nothing"),
            "{breaches:?}"
        );
    }

    #[test]
    fn what_the_product_an_example_or_nothing_names_and_what_tests_have_for_themselves_is_not() {
        let test = (TEST, "shared();");
        let item = ("crates/a/src/lib.rs", "pub fn shared() {}\n");
        let bound = [("crates/a/src/lib.rs", "pub trait Shared {\n"), (TEST, "Shared")];
        let of_bound = ("crates/a/src/b.rs", "impl<T: Shared> Of<T> {\n");
        assert!(breaches(&[bound[0], bound[1], of_bound]).is_empty());
        for user in [
            "crates/b/src/main.rs",
            "crates/a/examples/e.rs",
            "crates/a/fuzz/f.rs",
        ] {
            assert!(
                breaches(&[item, test, (user, "    shared();\n")]).is_empty(),
                "{user}"
            );
        }
        assert!(
            breaches(&[item]).is_empty(),
            "the compiler finds it, or it is an interface"
        );
        for of_tests in [
            "#[cfg(test)]\npub fn shared() {}\n",
            "    #[cfg(test)]\n    #[must_use]\n    pub fn shared(\n        a: u8,\n    ) {\n    }\n",
        ] {
            assert!(
                breaches(&[("crates/a/src/lib.rs", of_tests), test]).is_empty(),
                "{of_tests}"
            );
        }
    }
}
