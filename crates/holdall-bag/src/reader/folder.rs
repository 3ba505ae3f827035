//! The bags in a folder: directories with metadata or storage files, and storage files that are in none.

use super::{bag::METADATA_FILE, listing::storage_files};
use holdall_io::fs::{self, Kind};
use holdall_storage::{compression::unpacked_name, is_storage_extension, storage_of_directory};
use std::path::{Path, PathBuf};

/// Directories within directories that are searched.
const DEPTH_MAX: usize = 4;

/// Entries of directories that are inspected in one search.
const ENTRIES_MAX: usize = 50_000;

/// A bag in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundBag {
    /// Below the folder that was searched.
    pub name: PathBuf,
    /// Its files, with their lengths in bytes, below the folder that was searched.
    pub files: Vec<(PathBuf, u64)>,
    /// A name in it leads elsewhere: it is not a bag of this folder alone.
    pub has_links: bool,
}

impl FoundBag {
    /// Bytes of all its files.
    pub fn size_bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// The bags in a folder and in its subfolders, by name, at most `bags_max`; true if there may be more. Skips symbolic links and names that
/// begin with a dot.
pub fn bags_below(folder: &Path, bags_max: usize) -> (Vec<FoundBag>, bool) {
    let mut search = Search {
        folder,
        bags_max,
        entries: 0,
        found: Vec::new(),
        is_cut: false,
    };
    search.folder(Path::new(""), 0);
    search.found.sort_by(|a, b| a.name.cmp(&b.name));
    (search.found, search.is_cut)
}

struct Search<'a> {
    folder: &'a Path,
    bags_max: usize,
    entries: usize,
    found: Vec<FoundBag>,
    is_cut: bool,
}

impl Search<'_> {
    /// The names in a directory, with their kinds, except links and hidden ones.
    fn entries(&mut self, at: &Path) -> Vec<(PathBuf, Kind, u64)> {
        let left = ENTRIES_MAX.saturating_sub(self.entries);
        let listed = fs::list_dir_up_to(&self.folder.join(at), left).unwrap_or_default();
        self.entries += listed.len();
        self.is_cut |= listed.len() == left;
        let mut entries = Vec::new();
        for entry in listed {
            let Some(name) = entry.path.file_name() else {
                continue;
            };
            if let Ok(about) = fs::about_name(&entry.path) {
                entries.push((at.join(name), about.kind, about.len_bytes));
            }
        }
        entries
    }

    fn folder(&mut self, at: &Path, depth: usize) {
        for (name, kind, len_bytes) in self.entries(at) {
            if self.found.len() >= self.bags_max {
                self.is_cut = true;
                return;
            }
            let is_hidden = name
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            let path = self.folder.join(&name);
            match kind {
                _ if is_hidden => {}
                Kind::File if is_storage_file(&name) => self.found.push(FoundBag {
                    files: vec![(name.clone(), len_bytes)],
                    name,
                    has_links: false,
                }),
                Kind::Directory if is_bag_directory(&path) => {
                    let mut bag = FoundBag {
                        name: name.clone(),
                        files: Vec::new(),
                        has_links: false,
                    };
                    self.files_of(&name, &mut bag, 0);
                    self.found.push(bag);
                }
                Kind::Directory if depth < DEPTH_MAX => self.folder(&name, depth + 1),
                _ => {}
            }
        }
    }

    /// Adds the files of a bag's directory, and of directories in it, which some storages are.
    fn files_of(&mut self, at: &Path, bag: &mut FoundBag, depth: usize) {
        for (name, kind, len_bytes) in self.entries(at) {
            match kind {
                Kind::File => bag.files.push((name, len_bytes)),
                Kind::Directory if depth < DEPTH_MAX => self.files_of(&name, bag, depth + 1),
                Kind::Link => bag.has_links = true,
                _ => {}
            }
        }
    }
}

fn is_storage_file(path: &Path) -> bool {
    let plain = unpacked_name(path);
    let extension = plain.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(is_storage_extension)
}

fn is_bag_directory(path: &Path) -> bool {
    fs::is_file(&path.join(METADATA_FILE))
        || storage_of_directory(path).is_some()
        || storage_files(path).is_ok_and(|files| !files.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn bags_are_found_in_folders_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for (name, content) in [
            ("b/metadata.yaml", "abc"),
            ("b/b_0.mcap", "0123456789"),
            ("runs/monday/c_0.db3", ""),
            ("single.mcap", "12"),
            ("notes.txt", ""),
            (".hidden/d_0.mcap", ""),
            ("linked/e_0.mcap", ""),
        ] {
            fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            fs::write(root.join(name), content).unwrap();
        }
        symlink("/", root.join("out")).unwrap();
        symlink("../b/b_0.mcap", root.join("linked/f_0.mcap")).unwrap();
        let (bags, is_cut) = bags_below(root, 100);
        let names: Vec<&str> = bags.iter().filter_map(|bag| bag.name.to_str()).collect();
        assert_eq!(names, ["b", "linked", "runs/monday", "single.mcap"]);
        assert!(!is_cut && bags[1].has_links && !bags[0].has_links);
        assert_eq!(bags[0].size_bytes(), 13);
        let (bags, is_cut) = bags_below(root, 2);
        assert!(is_cut && bags.len() == 2);
    }
}
