//! The rules of the house that no compiler checks: module sentences, file lengths, unsafe only behind fences, one-way dependencies.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

const FILE_LINES_MAX: usize = 800;
const MODULES_FORBIDDEN: [&str; 4] = ["util.rs", "utils.rs", "common.rs", "manager.rs"];

/// Each crate with the crates of this project that it may depend on.
const DEPENDENCIES_ALLOWED: [(&str, &[&str]); 7] = [
    ("holdall-model", &[]),
    ("holdall-io", &["holdall-model"]),
    ("holdall-storage", &["holdall-model", "holdall-io"]),
    ("holdall-transport", &["holdall-model", "holdall-io"]),
    (
        "holdall",
        &[
            "holdall-model",
            "holdall-io",
            "holdall-storage",
            "holdall-transport",
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
    // Built on its own with a profile of its own: no more than the data path.
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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut breaches = Vec::new();
    for file in rust_files(&root.join("crates"))
        .into_iter()
        .chain(rust_files(&root.join("xtask")))
    {
        check_file(&root, &file, &mut breaches);
    }
    check_lints(&root, &mut breaches);
    for (name, allowed) in DEPENDENCIES_ALLOWED {
        check_dependencies(&root, name, allowed, &mut breaches);
    }
    for breach in &breaches {
        eprintln!("tidy: {breach}");
    }
    if breaches.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else {
        return found;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() && !path.ends_with("target") {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
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
    if MODULES_FORBIDDEN.iter().any(|name| file.ends_with(name)) {
        breaches.push(format!("{shown}: the name says nothing about what is in it"));
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
    let crates = fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
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
