//! The rule that a storage or transport is its folder and a line in a registry: its id is written nowhere else.

use std::{collections::BTreeSet, fs, path::Path};

/// Crates whose folders are storages and transports.
const CRATES: [&str; 2] = ["crates/holdall-storage/src", "crates/holdall-transport/src"];

/// Folders of these crates that are not backends that users can name.
const FOLDERS_OF_OTHERS: [&str; 3] = ["check", "compression", "memory"];

/// Other places where ids may be written: the registries, and programs that compare backends with others.
const PLACES_ALLOWED: [&str; 4] = [
    "crates/holdall-storage/src/registry.rs",
    "crates/holdall-transport/src/registry.rs",
    "tools/bench/",
    "xtask/",
];

/// The ids of all storages and transports: the names of their folders.
pub fn ids(root: &Path) -> BTreeSet<String> {
    let entries = CRATES
        .iter()
        .flat_map(|folder| fs::read_dir(root.join(folder)).into_iter().flatten())
        .flatten();
    let folders = entries.filter(|entry| entry.path().is_dir());
    folders
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !FOLDERS_OF_OTHERS.contains(&name.as_str()))
        .collect()
}

/// Finds places outside of a backend's folder and its registry that write its id as a text. Tests may.
pub fn check_ids(shown: &str, text: &str, ids: &BTreeSet<String>, breaches: &mut Vec<String>) {
    if crate::lengths::is_test(shown) || PLACES_ALLOWED.iter().any(|place| shown.starts_with(place)) {
        return;
    }
    let product = crate::lengths::product(text);
    for (number, line) in product.lines().enumerate() {
        // Features have the same names.
        if line.trim_start().starts_with("//") || line.contains("feature = \"") {
            continue;
        }
        let own = |id: &str| {
            CRATES
                .iter()
                .any(|folder| shown.starts_with(&format!("{folder}/{id}/")))
        };
        for id in ids.iter().filter(|id| !own(id)) {
            if line.contains(&format!("\"{id}\"")) {
                breaches.push(format!(
                    "{shown}:{}: \"{id}\" is written outside of its folder; ask the trait, or the registry",
                    number + 1
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches_of(shown: &str, text: &str) -> usize {
        let ids = ["mcap", "zenoh"].map(str::to_owned).into();
        let mut breaches = Vec::new();
        check_ids(shown, text, &ids, &mut breaches);
        breaches.len()
    }

    #[test]
    fn an_id_is_written_in_its_folder_and_its_registry_only() {
        let line = "    if storage.id() == \"mcap\" {\n";
        for place in [
            "crates/holdall/src/tools/copy.rs",
            "crates/holdall-cli/src/verbs/list.rs",
            "crates/holdall-storage/src/check/file.rs",
            "crates/holdall-storage/src/sqlite3/mod.rs",
        ] {
            assert_eq!(breaches_of(place, line), 1, "{place}");
        }
        for place in [
            "crates/holdall-storage/src/mcap/options.rs",
            "crates/holdall-storage/src/registry.rs",
            "crates/holdall-storage/tests/check.rs",
            "crates/holdall/src/writer/tests.rs",
            "tools/bench/src/verify.rs",
        ] {
            assert_eq!(breaches_of(place, line), 0, "{place}");
        }
        let place = "crates/holdall/src/tools/copy.rs";
        for text in [
            "#[cfg(feature = \"zenoh\")]\n".to_owned(),
            format!("// {line}"),
            format!("fn a() {{}}\n#[cfg(test)]\nmod tests {{\n{line}}}\n"),
            "    let name = \"mcap_default\";\n".to_owned(),
        ] {
            assert_eq!(breaches_of(place, &text), 0, "{text}");
        }
    }

    #[test]
    fn the_ids_are_the_names_of_the_folders() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let found = ids(&root);
        for id in [
            "dds", "iceoryx2", "leveldb", "mcap", "rosbag1", "sqlite3", "zenoh",
        ] {
            assert!(found.contains(id), "{id} in {found:?}");
        }
    }
}
