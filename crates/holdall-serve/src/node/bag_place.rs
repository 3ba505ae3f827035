//! Where a service may let the recorder make a bag: any node of the domain can ask for it.

use holdall_io::{fs, remote};
use std::path::{Component, Path, PathBuf};

/// Names below the recorder's folder that a path may have.
const DEPTH_MAX: usize = 8;

/// Where bags that services ask for may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BagPlaces {
    /// In the folder that the first bag is in, and in folders below it.
    BesideFirst,
    /// Wherever the recorder's user may write.
    Anywhere,
}

/// The folder of the first bag, without links, if needed.
#[derive(Clone, Debug, Default)]
pub(super) struct AllowedFolder(Option<PathBuf>);

impl AllowedFolder {
    /// The folder of the recording's bag `bag`.
    pub(super) fn beside(bag: &Path) -> Self {
        let folder = bag.parent().filter(|folder| !folder.as_os_str().is_empty());
        Self(folder.unwrap_or(Path::new(".")).canonicalize().ok())
    }

    /// Why no bag may be made at `bag`.
    pub(super) fn refuse(&self, bag: &Path) -> Result<(), String> {
        let Some(folder) = &self.0 else {
            return Err("the folder of the recorder's bags is not known any more".to_owned());
        };
        let outside = || {
            format!(
                "bags that services ask for are made in {}, with plain names and not through links; the recorder can be started so that others are allowed",
                folder.display()
            )
        };
        let absolute = std::path::absolute(bag).map_err(|error| error.to_string())?;
        let names = names_below(folder, &absolute).ok_or_else(outside)?;
        let mut at = folder.clone();
        for name in names {
            at.push(name);
            if fs::is_link(&at) {
                return Err(outside());
            }
        }
        Ok(())
    }
}

/// The names of `path` after `folder`, which has no link in it; the way there may have some. `None` if the path is not below it, or its
/// names are hidden or not plain.
fn names_below<'a>(folder: &Path, path: &'a Path) -> Option<Vec<&'a str>> {
    let mut names = Vec::new();
    let mut above = path;
    while above.canonicalize().ok().as_deref() != Some(folder) {
        let Some(Component::Normal(name)) = above.components().next_back() else {
            return None;
        };
        let name = name.to_str()?;
        let is_plain = !name.starts_with(['.', '-']) && !name.chars().any(char::is_control);
        if !is_plain || names.len() == DEPTH_MAX {
            return None;
        }
        names.push(name);
        above = above.parent()?;
    }
    names.reverse();
    (!names.is_empty()).then_some(names)
}

/// Why a text cannot be a path of this computer.
pub(super) fn refuse_url(uri: &str) -> Result<(), String> {
    let scheme = uri.split_once("://").map(|(scheme, _)| scheme);
    let is_scheme = |scheme: &str| {
        !scheme.is_empty()
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    if remote::is_remote(Path::new(uri)) || scheme.is_some_and(is_scheme) {
        return Err("a recording is written to a folder of this computer, and this is a URL".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn bags_are_made_beside_the_first_one_and_not_through_links() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let (bags, outside) = (dir.join("bags"), dir.join("outside"));
        for folder in [&bags, &outside, &bags.join("day")] {
            std::fs::create_dir(folder).unwrap();
        }
        symlink(&outside, bags.join("link")).unwrap();
        symlink(&outside, bags.join("day/link")).unwrap();
        symlink(&bags, dir.join("way")).unwrap();
        let allowed = AllowedFolder::beside(&bags.join("first"));
        for path in [
            bags.join("second"),
            bags.join("day/third"),
            bags.join("new/deep/bag"),
            dir.join("way/fourth"),
            bags.join("second/"),
        ] {
            assert_eq!(allowed.refuse(&path), Ok(()), "{}", path.display());
        }
        for path in [
            dir.join("other"),
            bags.clone(),
            bags.join("../other"),
            bags.join("x/../../other"),
            outside.join("bag"),
            bags.join("link"),
            bags.join("link/bag"),
            bags.join("day/link/bag"),
            bags.join("link/../bag"),
            bags.join(".config/autostart"),
            bags.join("day/.hidden"),
            bags.join("line\nbreak"),
            bags.join("-o"),
            bags.join("a/".repeat(50)),
            PathBuf::from("/proc/self/bag"),
            PathBuf::from("/"),
        ] {
            let refused = allowed.refuse(&path).unwrap_err();
            assert!(refused.contains(&bags.display().to_string()), "{refused}");
        }
    }

    #[test]
    fn urls_are_refused_whatever_their_scheme() {
        for url in [
            "http://127.0.0.1:9/x",
            "https://h/x",
            "s3://bucket/x",
            "file:///tmp/x",
            "HTTP://h",
            "a+b://c",
        ] {
            assert!(refuse_url(url).is_err(), "{url}");
        }
        for path in ["bag", "/tmp/bag", "a/b://c", "://x"] {
            assert_eq!(refuse_url(path), Ok(()), "{path}");
        }
    }
}
