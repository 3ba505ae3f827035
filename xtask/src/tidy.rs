//! The rules of the house that no compiler checks: module sentences, file lengths, unsafe only in its two places, one-way dependencies.

use crate::{
    lengths::long_functions,
    markdown::{Sources, documents},
    packages::check_packages,
    words::banned_words,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

const FILE_LINES_MAX: usize = 800;
/// Functions longer than a screen that the tree may have: lower this when one was carved, never raise it.
const LONG_FUNCTIONS_MAX: usize = 8;
/// Words of the glossary that are still in comments and documents.
const WORDS_MAX: usize = 0;
const MODULES_FORBIDDEN: [&str; 4] = ["util.rs", "utils.rs", "common.rs", "manager.rs"];

/// Each crate with the crates of this project that it may depend on.
const DEPENDENCIES_ALLOWED: [(&str, &[&str]); 20] = [
    ("holdall-cyclone-sys", &[]),
    ("holdall-model", &[]),
    ("holdall-io", &["holdall-model"]),
    ("holdall-storage", &["holdall-model", "holdall-io"]),
    (
        "holdall-transport",
        &["holdall-model", "holdall-io", "holdall-cyclone-sys"],
    ),
    ("holdall-discovery", &["holdall-model", "holdall-transport"]),
    ("holdall-bag", &["holdall-model", "holdall-io", "holdall-storage"]),
    (
        "holdall-record",
        &[
            "holdall-model",
            "holdall-io",
            "holdall-storage",
            "holdall-transport",
            "holdall-discovery",
            "holdall-bag",
        ],
    ),
    (
        "holdall-play",
        &["holdall-model", "holdall-io", "holdall-transport", "holdall-bag"],
    ),
    (
        "holdall-tools",
        &["holdall-model", "holdall-io", "holdall-storage", "holdall-bag"],
    ),
    (
        "holdall-data",
        &[
            "holdall-model",
            "holdall-io",
            "holdall-storage",
            "holdall-bag",
            "holdall-tools",
            "holdall-media",
        ],
    ),
    (
        "holdall-media",
        &[
            "holdall-model",
            "holdall-io",
            "holdall-bag",
            "holdall-play",
            "holdall-tools",
        ],
    ),
    (
        "holdall-serve",
        &[
            "holdall-model",
            "holdall-io",
            "holdall-transport",
            "holdall-bag",
            "holdall-record",
            "holdall-play",
            "holdall-tools",
            "holdall-media",
        ],
    ),
    (
        "holdall",
        &[
            "holdall-model",
            "holdall-io",
            "holdall-storage",
            "holdall-transport",
            "holdall-bag",
            "holdall-record",
            "holdall-play",
            "holdall-tools",
            "holdall-media",
            "holdall-data",
            "holdall-serve",
        ],
    ),
    // What the programs have in common; it knows no verb.
    (
        "holdall-program",
        &[
            "holdall-model",
            "holdall-io",
            "holdall-storage",
            "holdall-transport",
            "holdall",
        ],
    ),
    // The simulator knows the library from outside, as a user of it does; nothing depends on it.
    (
        "holdall-sim",
        &[
            "holdall-model",
            "holdall-io",
            "holdall-storage",
            "holdall-transport",
            "holdall",
        ],
    ),
    // Reached through a trait of `holdall-io`: only the programs name it.
    ("holdall-remote", &["holdall-io"]),
    // A view of the library from outside; only the command depends on it.
    (
        "holdall-web",
        &["holdall-model", "holdall-io", "holdall-transport", "holdall"],
    ),
    // The product: none of the bench is in it.
    (
        "holdall-cli",
        &[
            "holdall-model",
            "holdall-io",
            "holdall-storage",
            "holdall-transport",
            "holdall",
            "holdall-program",
            "holdall-remote",
            "holdall-web",
        ],
    ),
    // Built separately with its own profile: only the data path.
    (
        "holdall-gate",
        &[
            "holdall-model",
            "holdall-io",
            "holdall-storage",
            "holdall-transport",
            "holdall",
        ],
    ),
];

/// Checks the whole tree and prints each breach with its place.
pub fn run() -> ExitCode {
    // Read at run time: cargo considers a program fresh even if another clone with the same target folder built it.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let root = Path::new(&package).join("..");
    let mut breaches = Vec::new();
    let files: Vec<PathBuf> = ["crates", "tools", "xtask"]
        .iter()
        .flat_map(|folder| files_below(&root.join(folder), "rs"))
        .collect();
    for file in &files {
        check_file(&root, file, &mut breaches);
    }
    check_lengths(&root, &files, &mut breaches);
    let ids = crate::ids::ids(&root);
    let mut owners = crate::owners::Owners::default();
    let mut only_tests = crate::only_tests::OnlyTests::default();
    for (shown, text) in files.iter().map(|file| read_shown(&root, file)) {
        crate::ids::check_ids(&shown, &text, &ids, &mut breaches);
        crate::units::check_units(&shown, &text, &mut breaches);
        owners.add(&shown, &text);
        only_tests.add(&shown, &text);
    }
    breaches.extend(owners.breaches());
    breaches.extend(only_tests.breaches());
    let python = ["tests", "scripts", "python", "demo", "crates", "tools"].iter();
    for file in python
        .flat_map(|folder| files_below(&root.join(folder), "py"))
        .chain(
            ["scripts", "demo", "tests"]
                .iter()
                .flat_map(|folder| files_below(&root.join(folder), "sh")),
        )
        .chain([".ci/run", "Makefile"].map(|file| root.join(file)))
        .chain(files.iter().cloned())
    {
        let (shown, text) = read_shown(&root, &file);
        crate::outside::check_outside(&root, &shown, &text, &mut breaches);
    }
    let home = std::env::var("HOME").ok();
    for ending in ["json", "csv", "txt", "yaml", "md", "svg"] {
        for file in files_below(&root.join("docs/benchmarks"), ending) {
            let (shown, text) = read_shown(&root, &file);
            crate::outside::check_figures(&root, home.as_deref(), &shown, &text, &mut breaches);
        }
    }
    check_words(&root, &files, &mut breaches);
    check_lints(&root, &mut breaches);
    for (name, allowed) in DEPENDENCIES_ALLOWED {
        check_dependencies(&root, name, allowed, &mut breaches);
    }
    check_packages(&root, &mut breaches);
    breaches.extend(Sources::read(&root).check_documents());
    for breach in &breaches {
        eprintln!("tidy: {breach}");
    }
    if breaches.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// A file's path below the root, and its text.
fn read_shown(root: &Path, file: &Path) -> (String, String) {
    let shown = file.strip_prefix(root).unwrap_or(file).display().to_string();
    (shown, fs::read_to_string(file).unwrap_or_default())
}

fn files_below(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else {
        return found;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() && !path.ends_with("target") {
            found.extend(files_below(&path, ending));
        } else if path.extension().is_some_and(|extension| extension == ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn check_file(root: &Path, file: &Path, breaches: &mut Vec<String>) {
    let shown = file.strip_prefix(root).unwrap_or(file).display().to_string();
    if shown.ends_with("src/tidy.rs") {
        return;
    }
    let Ok(text) = fs::read_to_string(file) else {
        breaches.push(format!("{shown}: cannot be read as UTF-8 text"));
        return;
    };
    if !text.starts_with("//! ") {
        breaches.push(format!(
            "{shown}:1: the first line is not a //! sentence that says what the file is for"
        ));
    }
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        breaches.push(format!(
            "{shown}: {lines} lines, more than {FILE_LINES_MAX}: is it still one thing?"
        ));
    }
    for (number, line) in text.lines().enumerate() {
        if line.contains("unsafe ") && is_code(line) && !may_be_unsafe(&shown) {
            breaches.push(format!(
                "{shown}:{}: unsafe outside holdall-io and ffi files",
                number + 1
            ));
        }
    }
    crate::file_calls::check_file_calls(&shown, &text, breaches);
    crate::environment::check_environment(&shown, &text, breaches);
    crate::arrows::check_arrows(&shown, &text, breaches);
    crate::flags::check_flags(&shown, &text, breaches);
    if MODULES_FORBIDDEN.iter().any(|name| file.ends_with(name)) {
        breaches.push(format!("{shown}: the name says nothing about what is in it"));
    }
}

/// Words of the glossary in comments and documents; every one of them when there are more than allowed, so that the new one can be found.
fn check_words(root: &Path, files: &[PathBuf], breaches: &mut Vec<String>) {
    let documents = documents(root);
    let mut found = Vec::new();
    for file in files.iter().chain(&documents) {
        let shown = file.strip_prefix(root).unwrap_or(file).display().to_string();
        let is_exempt = shown.contains("CHANGELOG") || shown.ends_with("src/words.rs");
        let Some(text) = fs::read_to_string(file).ok().filter(|_| !is_exempt) else {
            continue;
        };
        let words = banned_words(&text, shown.ends_with(".md"));
        found.extend(
            words
                .iter()
                .map(|word| format!("{shown}:{}: {}", word.line, word.word)),
        );
    }
    if found.len() > WORDS_MAX {
        breaches.push(format!(
            "{} words that the glossary in CONTRIBUTING.md replaces, more than {WORDS_MAX}:\n  {}",
            found.len(),
            found.join("\n  ")
        ));
    }
}

/// Long functions of the product are counted; those of tests, examples and fuzz targets are not.
fn check_lengths(root: &Path, files: &[PathBuf], breaches: &mut Vec<String>) {
    let mut functions = Vec::new();
    for file in files {
        let shown = file.strip_prefix(root).unwrap_or(file).display().to_string();
        let is_product = !crate::lengths::is_test(&shown);
        let Some(text) = fs::read_to_string(file).ok().filter(|_| is_product) else {
            continue;
        };
        for found in long_functions(crate::lengths::product(&text)) {
            functions.push(format!(
                "{shown}:{}: {} has {} lines",
                found.line, found.name, found.lines
            ));
        }
    }
    if functions.len() > LONG_FUNCTIONS_MAX {
        breaches.push(format!(
            "{} functions over 70 lines, more than {LONG_FUNCTIONS_MAX}:\n  {}",
            functions.len(),
            functions.join("\n  ")
        ));
    }
}

fn is_code(line: &str) -> bool {
    !line.trim_start().starts_with("//")
        && (line.contains("unsafe {") || line.contains("unsafe impl") || line.contains("unsafe fn"))
}

fn may_be_unsafe(shown: &str) -> bool {
    let name = shown.rsplit('/').next().unwrap_or(shown);
    shown.contains("crates/holdall-io/") || name.starts_with("ffi") || shown.contains("/ffi/")
}

/// The workspace's lints (nothing left open, no debug prints, reasons for unsafe blocks) hold only for crates that inherit them.
fn check_lints(root: &Path, breaches: &mut Vec<String>) {
    let crates =
        ["crates", "tools"].map(|folder| fs::read_dir(root.join(folder)).into_iter().flatten().flatten());
    let crates = crates.into_iter().flatten();
    let folders = crates.map(|entry| entry.path()).chain([root.join("xtask")]);
    for manifest in folders.map(|folder| folder.join("Cargo.toml")) {
        let text = fs::read_to_string(&manifest).unwrap_or_default();
        let inherits = text
            .split_once("[lints]")
            .is_some_and(|(_, lints)| lints.trim_start().starts_with("workspace = true"));
        if !inherits && !text.lines().any(|line| line == "lints.workspace = true") {
            breaches.push(format!(
                "{}: does not inherit the lints of the workspace ([lints] workspace = true)",
                manifest.display()
            ));
        }
    }
}

fn check_dependencies(root: &Path, name: &str, allowed: &[&str], breaches: &mut Vec<String>) {
    let path = root.join("crates").join(name).join("Cargo.toml");
    let Ok(text) = fs::read_to_string(&path) else {
        breaches.push(format!("{}: cannot be read", path.display()));
        return;
    };
    let dependencies = text.split("[dev-dependencies]").next().unwrap_or(&text);
    for line in dependencies.lines().filter(|line| line.starts_with("holdall")) {
        let dependency = line.split(['.', ' ', '=']).next().unwrap_or(line);
        if !allowed.contains(&dependency) {
            breaches.push(format!("crates/{name} must not depend on {dependency}"));
        }
    }
}
