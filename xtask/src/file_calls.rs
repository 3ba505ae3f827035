//! The rule that files are read, made and changed by `holdall-io` only: its errors name the path, and it creates files without following
//! links.

use crate::arrows::first_names;

/// Ways to make or change files that follow links, or that others can foresee.
const FILE_CALLS_FORBIDDEN: [&str; 7] = [
    "File::create(",
    "File::create_new(",
    "File::options(",
    "OpenOptions::new(",
    "fs::write(",
    "fs::copy(",
    "fs::rename(",
];

/// Folders that may create files in other ways: `holdall-io` itself; rivals in measurements and the gate, which create their own files; the
/// simulator, whose files are in a separate folder; and xtask.
const FILE_CALLS_ALLOWED: [&str; 5] = [
    "crates/holdall-io/",
    "tools/bench/src/candidate/",
    "crates/holdall-gate/",
    "crates/holdall-sim/",
    "xtask/",
];

/// Crates that reach no file but through `holdall_io`.
const WITHOUT_STD_FS: [&str; 14] = [
    "crates/holdall-model/",
    "crates/holdall-storage/",
    "crates/holdall-transport/",
    "crates/holdall-bag/",
    "crates/holdall-data/",
    "crates/holdall-media/",
    "crates/holdall-play/",
    "crates/holdall-record/",
    "crates/holdall-serve/",
    "crates/holdall-tools/",
    "crates/holdall/",
    "crates/holdall-cli/src/",
    "crates/holdall-program/",
    "crates/holdall-web/",
];

/// Whether a source names `std::fs`, also in the braces of a `use`; the line from 1.
fn std_fs(product: &str) -> Option<usize> {
    let mut places = product.match_indices("std::");
    let (at, _) = places.find(|(at, _)| {
        let rest = &product[at + "std::".len()..];
        let begin = product[..*at].rfind('\n').map_or(0, |end| end + 1);
        let is_comment = product[begin..*at].contains("//");
        let is_fs = |name: &str| name == "fs";
        !is_comment
            && match rest.strip_prefix('{') {
                Some(group) => first_names(group).any(is_fs),
                None => rest.starts_with("fs::") || rest.starts_with("fs;"),
            }
    })?;
    Some(product[..at].matches('\n').count() + 1)
}

/// Finds places that make or change files by other ways than `holdall_io`. Tests may: everything after `#[cfg(test)]` or in files of
/// tests.
pub fn check_file_calls(shown: &str, text: &str, breaches: &mut Vec<String>) {
    if crate::lengths::is_test(shown) || FILE_CALLS_ALLOWED.iter().any(|folder| shown.starts_with(folder)) {
        return;
    }
    let product = crate::lengths::product(text);
    if WITHOUT_STD_FS.iter().any(|folder| shown.starts_with(folder))
        && let Some(line) = std_fs(product)
    {
        breaches.push(format!(
            "{shown}:{line}: std::fs outside of holdall-io; holdall_io::fs reads and makes files"
        ));
    }
    let code = text
        .lines()
        .enumerate()
        .take_while(|(_, line)| !line.starts_with("#[cfg(test)]"));
    for (number, line) in code.filter(|(_, line)| !line.trim_start().starts_with("//")) {
        // A function of holdall_io's own `fs` has another name, and `WriteOptions` is not about files.
        let is_call = |call: &&&str| {
            line.match_indices(**call)
                .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
        };
        if let Some(call) = FILE_CALLS_FORBIDDEN.iter().find(is_call) {
            breaches.push(format!(
                "{shown}:{}: {} makes or changes a file; holdall_io::fs and holdall_io::new_file do, which follow no links",
                number + 1,
                call.trim_end_matches('(')
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches_of(shown: &str, text: &str) -> usize {
        let mut breaches = Vec::new();
        check_file_calls(shown, text, &mut breaches);
        breaches.len()
    }

    #[test]
    fn libraries_and_the_command_name_std_fs_nowhere() {
        let library = "crates/holdall/src/reader/listing.rs";
        for text in [
            "use std::fs;\n",
            "use std::{\n    collections::BTreeMap,\n    fs,\n};\n",
            "use std::{\n    fs::{self, File},\n    io,\n};\n",
            "    let text = std::fs::read_to_string(path)?;\n",
        ] {
            assert_eq!(breaches_of(library, text), 1, "{text}");
            assert_eq!(breaches_of("crates/holdall-cli/src/output.rs", text), 1, "{text}");
            let in_tests = format!("fn a() {{}}\n#[cfg(test)]\nmod tests {{\n{text}\n}}\n");
            assert_eq!(breaches_of(library, &in_tests), 0, "{text}");
            assert_eq!(breaches_of("crates/holdall-io/src/fs/dir.rs", text), 0, "{text}");
        }
        for text in [
            "use holdall_io::{\n    fs,\n};\n",
            "// not std::fs::read\n",
            "use std::{io, path::fs};\n",
        ] {
            assert_eq!(breaches_of(library, text), 0, "{text}");
        }
    }

    #[test]
    fn files_are_made_by_one_crate_only() {
        let library = "tools/bench/src/folder.rs";
        for line in [
            "    let file = File::create(&path)?;",
            "    let file = fs::OpenOptions::new().write(true).open(path)?;",
            "    std::fs::write(&path, text)?;",
            "    fs::rename(&a, &b)?; // why not",
        ] {
            assert_eq!(breaches_of(library, line), 1, "{line}");
            for place in [
                "crates/holdall-io/src/fs/file.rs",
                "crates/holdall/tests/tools.rs",
                "crates/holdall/src/record/tests/bags.rs",
            ] {
                assert_eq!(breaches_of(place, line), 0, "{place}: {line}");
            }
            // Reports are files like any other; a rival in a measurement creates its own files.
            let (report, rival) = ("suite/report/mod.rs", "candidate/mcap_crate.rs");
            assert_eq!(
                breaches_of(&format!("tools/bench/src/{report}"), line),
                1,
                "{line}"
            );
            assert_eq!(
                breaches_of(&format!("tools/bench/src/{rival}"), line),
                0,
                "{line}"
            );
            let in_tests = format!("fn a() {{}}\n#[cfg(test)]\nmod tests {{\n{line}\n}}\n");
            assert_eq!(breaches_of(library, &in_tests), 0, "{line}");
        }
        for line in [
            "    // File::create would follow a link",
            "    fs::write_atomically(&path, b)?;",
            "    let made = PartialFile::create(&path)?;",
            "    open_options: Option<OpenOptions>,",
        ] {
            assert_eq!(breaches_of(library, line), 0, "{line}");
        }
    }
}
