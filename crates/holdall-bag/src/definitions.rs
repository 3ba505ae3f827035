//! Definition files (`.msg`, `.srv`, `.action`, `.idl`) on the disk, for bags that lack the definitions of their types.

use holdall_io::fs;
use holdall_model::interface::{
    Definition, Distribution, InterfaceSource, SOURCE_BYTES_MAX, SourceFormat, bundle::Bundle, defining_type,
};
use holdall_model::topic::MessageDefinition;
use std::{
    borrow::Cow,
    collections::HashMap,
    path::{Path, PathBuf},
};

/// Deepest folder that is searched: a workspace has `src/group/package/msg`, an installation `package/share/package/msg`.
const DEPTH_MAX: usize = 6;
/// Folders and files that are looked at.
const ENTRIES_MAX: usize = 200_000;

/// Folders with definition files.
#[derive(Clone, Debug, Default)]
pub struct DefinitionFolders {
    folders: Vec<PathBuf>,
    prefixes: Vec<PathBuf>,
    /// The files in the folders, by package, kind and name; a file outside of a package's folder has an empty package.
    files: HashMap<(String, String, String), Vec<PathBuf>>,
    /// A distribution of ROS 2 that is asked after the prefixes.
    distribution: Option<Distribution>,
}

/// Why a folder cannot be searched, or a file in it cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct DefinitionFolderError {
    /// The folder, or the file.
    pub path: PathBuf,
    /// The cause, one clause.
    pub reason: String,
}

impl DefinitionFolders {
    /// Searches `folders`, with all that is in them: packages (`my_msgs/msg/Wheel.msg`), workspaces, installations
    /// (`share/my_msgs/msg/Wheel.msg`), or the files alone. `prefixes` are installations that are asked last, as `AMENT_PREFIX_PATH` lists them.
    ///
    /// # Errors
    /// A folder that cannot be read, or has no definition file.
    pub fn open(folders: Vec<PathBuf>, prefixes: Vec<PathBuf>) -> Result<Self, DefinitionFolderError> {
        let mut found = Self {
            prefixes,
            ..Self::default()
        };
        let mut entries = 0;
        for folder in &folders {
            let fail = |reason: String| DefinitionFolderError {
                path: folder.clone(),
                reason,
            };
            let mut files = Vec::new();
            walk(folder, DEPTH_MAX, &mut entries, &mut files).map_err(fail)?;
            if files.is_empty() {
                return Err(fail(
                    "no .msg, .srv, .action or .idl file is in it or in the folders below".to_owned(),
                ));
            }
            files.sort();
            for path in files {
                for key in keys(folder, &path) {
                    found.files.entry(key).or_default().push(path.clone());
                }
            }
        }
        found.folders = folders;
        Ok(found)
    }

    /// The same, with the definitions of a distribution after the others.
    #[must_use]
    pub fn with_distribution(self, distribution: Option<Distribution>) -> Self {
        Self { distribution, ..self }
    }

    /// True if there is nothing to search.
    pub fn is_empty(&self) -> bool {
        self.folders.is_empty() && self.prefixes.is_empty() && self.distribution.is_none()
    }

    /// The definition of a type; `None` if no file has it.
    ///
    /// # Errors
    /// A file that has it and cannot be used, or needs a type that is missing.
    pub fn define(&self, type_name: &str) -> Result<Option<Definition>, DefinitionFolderError> {
        let mut not_text = self.not_text(defining_type(type_name));
        let found = self.resolve(type_name, |name| {
            let path = self.not_text(name);
            let is_refused = path.is_some();
            not_text = not_text.take().or(path);
            is_refused
        });
        match not_text {
            Some(path) => Err(DefinitionFolderError {
                path,
                reason: format!("it is not a text of at most {SOURCE_BYTES_MAX} bytes in UTF-8"),
            }),
            None => found
                .transpose()
                .map(|found| found.map(|(definition, _)| definition)),
        }
    }

    /// The file of a type in the folders, if it cannot be read: one of another place would be another definition.
    fn not_text(&self, type_name: &str) -> Option<PathBuf> {
        let first = self.listed(type_name).next();
        first.filter(|path| read(path).is_none()).cloned()
    }

    /// The folders that were given, without the prefixes.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// The definition of a type with the file that has it. With a hash only a definition of that hash is taken. Types that the files need and
    /// lack are those of ROS 2 Jazzy.
    pub(crate) fn find(&self, type_name: &str, type_hash: &str) -> Option<(Definition, PathBuf)> {
        let (definition, path) = self.resolve(type_name, |_| false)?.ok()?;
        let is_same = type_hash.is_empty() || definition.type_hash() == type_hash;
        is_same.then_some((definition, path))
    }

    /// The definition of a type with the file that has it, without types that `refuses` names; `None` if no file that can be read has it.
    fn resolve(
        &self,
        type_name: &str,
        mut refuses: impl FnMut(&str) -> bool,
    ) -> Option<Result<(Definition, PathBuf), DefinitionFolderError>> {
        let (path, _) = self.source(defining_type(type_name))?;
        let bundle = Bundle::embedded();
        let lookup = |name: &str| match self.source(name) {
            _ if refuses(name) => None,
            Some((_, source)) => Some(source),
            None => bundle.get(name),
        };
        Some(match Definition::resolve(type_name, lookup) {
            Ok(definition) => Ok((definition, path)),
            Err(error) => Err(DefinitionFolderError {
                path,
                reason: error.to_string(),
            }),
        })
    }

    /// As a bag stores it.
    pub(crate) fn stored(&self, type_name: &str, type_hash: &str) -> Option<MessageDefinition> {
        let (definition, _) = self.find(type_name, type_hash)?;
        Some(definition.message_definition())
    }

    /// The files of a type in the folders, the first one counts.
    fn listed(&self, type_name: &str) -> impl Iterator<Item = &PathBuf> {
        let mut parts = type_name.split('/');
        let mut part = || parts.next().unwrap_or_default().to_owned();
        let (package, kind, name) = (part(), part(), part());
        let in_package = self.files.get(&(package, kind.clone(), name.clone()));
        let alone = self.files.get(&(String::new(), kind, name));
        in_package.into_iter().chain(alone).flatten()
    }

    /// The file of a type, and its text.
    fn source(&self, type_name: &str) -> Option<(PathBuf, InterfaceSource)> {
        let mut in_folders = self.listed(type_name).filter_map(|path| read(path));
        let in_prefixes = || {
            let mut prefixes = self.prefixes.iter();
            prefixes.find_map(|prefix| in_share(prefix, type_name))
        };
        let known = in_folders.next().or_else(in_prefixes);
        known.or_else(|| {
            let distribution = self.distribution?;
            Some((PathBuf::from(distribution.name()), distribution.get(type_name)?))
        })
    }
}

/// The definition file of `pkg/kind/Name` below `<prefix>/share`.
pub fn in_share(prefix: &Path, type_name: &str) -> Option<(PathBuf, InterfaceSource)> {
    let mut parts = type_name.split('/');
    let (package, kind, name) = (parts.next()?, parts.next()?, parts.next()?);
    let is_plain = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    // Names come from the network: nothing that could leave the share folder.
    if parts.next().is_some() || ![package, kind, name].into_iter().all(is_plain) {
        return None;
    }
    let folder = prefix.join("share").join(package).join(kind);
    [SourceFormat::from_name(kind)?, SourceFormat::Idl]
        .into_iter()
        .find_map(|format| read(&folder.join(format!("{name}.{}", format.as_str()))))
}

/// A definition file, if it is one.
fn read(path: &Path) -> Option<(PathBuf, InterfaceSource)> {
    let format = SourceFormat::from_name(path.extension()?.to_str()?)?;
    let text = fs::read_to_string(path, SOURCE_BYTES_MAX as u64).ok()?;
    Some((
        path.to_owned(),
        InterfaceSource {
            format,
            text: Cow::Owned(text),
        },
    ))
}

/// Collects the definition files of a folder and of those in it.
fn walk(folder: &Path, depth: usize, entries: &mut usize, found: &mut Vec<PathBuf>) -> Result<(), String> {
    for entry in fs::list_dir_up_to(folder, ENTRIES_MAX).map_err(|error| error.to_string())? {
        *entries += 1;
        if *entries > ENTRIES_MAX {
            return Err(format!(
                "it has more than {ENTRIES_MAX} files and folders; name the folder of the package"
            ));
        }
        let name = entry
            .path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if entry.is_dir {
            if depth > 0 && !name.starts_with('.') {
                // A folder of another user in it ends nothing.
                let below = walk(&entry.path, depth - 1, entries, found);
                if *entries > ENTRIES_MAX {
                    return below;
                }
            }
        } else if format_of(&entry.path).is_some() {
            found.push(entry.path);
        }
    }
    Ok(())
}

fn format_of(path: &Path) -> Option<SourceFormat> {
    SourceFormat::from_name(path.extension()?.to_str()?)
}

/// Package, kind and name of a definition file in a folder. The package of `msg/Wheel.msg` is the folder's name, or any.
fn keys(folder: &Path, path: &Path) -> Vec<(String, String, String)> {
    let text = |path: Option<&Path>| Some(path?.file_name()?.to_str()?.to_owned());
    let (Some(name), Some(format)) = (path.file_stem().and_then(|name| name.to_str()), format_of(path))
    else {
        return Vec::new();
    };
    let parent = path.parent();
    let around = parent.and_then(Path::parent);
    let kind = text(parent).filter(|kind| ["msg", "srv", "action"].contains(&kind.as_str()));
    let package = kind.as_ref().and_then(|_| text(around));
    let is_below = parent != Some(folder) && around != Some(folder);
    let own = match format {
        SourceFormat::Srv => "srv",
        SourceFormat::Action => "action",
        SourceFormat::Msg | SourceFormat::Idl => "msg",
    };
    let is_in_package = kind.is_some() && is_below;
    let kind = kind.unwrap_or_else(|| own.to_owned());
    let any = (!is_in_package).then(String::new);
    let packages = package.into_iter().chain(any);
    packages
        .map(|package| (package, kind.clone(), name.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(layout: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in layout {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn packages_workspaces_installations_and_files_alone_are_searched() {
        let layouts: [&[(&str, &str)]; 7] = [
            &[
                ("share/my_msgs/msg/Wheel.msg", "Pair pair"),
                ("share/my_msgs/msg/Pair.msg", "int8 a"),
            ],
            &[
                ("my_msgs/share/my_msgs/msg/Wheel.msg", "Pair pair"),
                ("my_msgs/share/my_msgs/msg/Pair.msg", "int8 a"),
                ("other_msgs/share/other_msgs/msg/Pair.msg", "int16 a"),
            ],
            &[
                ("src/group/my_msgs/msg/Wheel.msg", "Pair pair"),
                ("src/group/my_msgs/msg/Pair.msg", "int8 a"),
                ("src/group/my_msgs/.git/msg/Pair.msg", "int16 a"),
            ],
            &[
                ("my_msgs/msg/Wheel.msg", "Pair pair"),
                ("my_msgs/msg/Pair.msg", "int8 a"),
            ],
            &[("msg/Wheel.msg", "Pair pair"), ("msg/Pair.msg", "int8 a")],
            &[("Wheel.msg", "Pair pair"), ("Pair.msg", "int8 a")],
            &[(
                "share/my_msgs/msg/Wheel.idl",
                "module my_msgs { module msg { struct Pair { int8 a; }; struct Wheel { my_msgs::msg::Pair pair; }; }; };",
            )],
        ];
        for layout in layouts {
            let folder = written(layout);
            let open = |folder: &Path| DefinitionFolders::open(vec![folder.to_owned()], Vec::new()).unwrap();
            let found = open(folder.path()).find("my_msgs/msg/Wheel", "");
            let (definition, path) = found.unwrap_or_else(|| panic!("{layout:?}"));
            assert!(
                definition.message_definition().text.contains("int8 a"),
                "{path:?}"
            );
        }
        let prefix = written(layouts[0]);
        let by_prefix = DefinitionFolders::open(Vec::new(), vec![prefix.path().to_owned()]).unwrap();
        let (definition, _) = by_prefix.find("my_msgs/msg/Wheel", "").unwrap();
        assert!(
            by_prefix
                .find("my_msgs/msg/Wheel", &definition.type_hash())
                .is_some()
        );
        assert!(by_prefix.find("my_msgs/msg/Wheel", "RIHS01_other").is_none());
        assert!(by_prefix.find("../../etc/passwd", "").is_none());
    }

    #[test]
    fn standard_types_that_files_need_are_those_of_the_bundle() {
        let folder = written(&[("my_msgs/msg/Stamped.msg", "std_msgs/Header header\nfloat64 value")]);
        let folders = DefinitionFolders::open(vec![folder.path().to_owned()], Vec::new()).unwrap();
        assert!(folders.find("my_msgs/msg/Stamped", "").is_some());
        assert!(folders.find("std_msgs/msg/Header", "").is_none());
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_with_the_reason() {
        let folder = written(&[
            ("my_msgs/msg/Wheel.msg", "other_msgs/Rim rim"),
            ("my_msgs/msg/Typo.msg", "int32 x\nint32"),
            ("my_msgs/msg/Good.msg", "int32 x"),
        ]);
        std::fs::write(folder.path().join("my_msgs/msg/Latin.msg"), b"int32 x # \xb0").unwrap();
        let folders = DefinitionFolders::open(vec![folder.path().to_owned()], Vec::new()).unwrap();
        for (name, reason) in [
            (
                "Wheel",
                "no definition of other_msgs/msg/Rim was found, which my_msgs/msg/Wheel needs",
            ),
            ("Typo", "line 2"),
            ("Latin", "UTF-8"),
        ] {
            let error = folders
                .define(&format!("my_msgs/msg/{name}"))
                .unwrap_err()
                .to_string();
            let path = folder.path().join(format!("my_msgs/msg/{name}.msg"));
            assert!(
                error.starts_with(&*path.to_string_lossy()) && error.contains(reason),
                "{error}"
            );
        }
        assert!(folders.define("my_msgs/msg/Good").unwrap().is_some());
        for unknown in ["my_msgs/msg/Other", "my_msgs", ""] {
            assert!(folders.define(unknown).unwrap().is_none(), "{unknown}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_does_not_give_way_to_that_of_another_place() {
        let folder = written(&[("my_msgs/msg/Near.msg", "sensor_msgs/Range range")]);
        let range = folder.path().join("sensor_msgs/msg/Range.msg");
        std::fs::create_dir_all(range.parent().unwrap()).unwrap();
        std::fs::write(&range, b"float32 range # \xb0").unwrap();
        let folders = DefinitionFolders::open(vec![folder.path().to_owned()], Vec::new()).unwrap();
        let folders = folders.with_distribution(Distribution::by_name("kilted"));
        for name in ["sensor_msgs/msg/Range", "my_msgs/msg/Near"] {
            let error = folders.define(name).unwrap_err().to_string();
            assert!(
                error.starts_with(&*range.to_string_lossy()) && error.contains("UTF-8"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_folder_without_definitions_is_refused() {
        let folder = written(&[("notes.txt", "x")]);
        let refusal = |path: &Path| {
            DefinitionFolders::open(vec![path.to_owned()], Vec::new())
                .unwrap_err()
                .to_string()
        };
        assert!(refusal(folder.path()).contains("no .msg"));
        assert!(refusal(&folder.path().join("nope")).contains("nope"));
    }
}
