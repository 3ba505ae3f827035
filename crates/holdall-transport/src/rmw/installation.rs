//! The ROS 2 that is sourced: its headers, its libraries, and the shim that is compiled against them once and kept.

use holdall_io::fs;
use std::{
    collections::hash_map::DefaultHasher,
    ffi::OsString,
    hash::{Hash as _, Hasher as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// One file for the compiler.
const SOURCE: &str = concat!(include_str!("shim.c"), include_str!("services.c"));
/// All arguments but folders and files; the output file follows the last one.
const COMPILER_ARGUMENTS: &str = include_str!("compiler_arguments.in");
/// The implementation that ROS uses when `RMW_IMPLEMENTATION` is not set.
const DEFAULT_IMPLEMENTATION: &str = "rmw_fastrtps_cpp";
/// Packages whose headers the shim includes; those of the second kind are not in every distribution.
const PACKAGES: [&str; 4] = [
    "rmw",
    "rcutils",
    "rosidl_runtime_c",
    "rosidl_typesupport_interface",
];
const PACKAGES_OF_SOME: [&str; 2] = ["rosidl_dynamic_typesupport", "std_msgs"];
/// Linked in addition to the implementation.
const LIBRARIES: [&str; 3] = ["librmw.so", "librcutils.so", "librosidl_runtime_c.so"];
/// Largest header that is read.
const HEADER_BYTES_MAX: u64 = 4 << 20;
/// Most entries of a folder that are looked at.
const ENTRIES_MAX: usize = 10_000;

/// A ROS 2 with an rmw implementation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Installation {
    /// `rmw_fastrtps_cpp`, for example.
    pub implementation: String,
    /// Its library.
    library: PathBuf,
    /// Folders that the compiler searches.
    includes: Vec<PathBuf>,
    /// Folders with libraries, those of overlays first.
    libraries: Vec<PathBuf>,
    /// Folders that the environment names, which the loader knows.
    of_loader: Vec<PathBuf>,
}

impl Installation {
    /// Finds the sourced installation; `variable` returns environment variables that are set and
    /// not empty.
    ///
    /// # Errors
    /// One sentence about the missing part.
    pub(super) fn find(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, String> {
        let paths = |name: &str| -> Vec<PathBuf> {
            let value = variable(name).unwrap_or_default();
            value
                .split(':')
                .filter(|path| !path.is_empty())
                .map(PathBuf::from)
                .collect()
        };
        let prefixes = paths("AMENT_PREFIX_PATH");
        if prefixes.is_empty() {
            return Err(
                "no ROS 2 is sourced (AMENT_PREFIX_PATH is not set); source its setup file first".to_owned(),
            );
        }
        let implementation =
            variable("RMW_IMPLEMENTATION").unwrap_or_else(|| DEFAULT_IMPLEMENTATION.to_owned());
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if !implementation.bytes().all(is_plain) {
            return Err(format!(
                "RMW_IMPLEMENTATION is {implementation:?}, which no library is called"
            ));
        }
        let libraries: Vec<PathBuf> = prefixes
            .iter()
            .flat_map(|prefix| library_folders(prefix))
            .collect();
        let of_loader = paths("LD_LIBRARY_PATH");
        // Libraries that the implementation loads later, such as type supports, are searched only there.
        if !of_loader.iter().any(|folder| libraries.contains(folder)) {
            let lib = prefixes[0].join("lib");
            return Err(format!(
                "LD_LIBRARY_PATH does not name {}, so what ROS 2 loads later is not found; source its setup file first",
                lib.display()
            ));
        }
        let file = format!("lib{implementation}.so");
        let mut folders = libraries
            .iter()
            .chain(&of_loader)
            .map(|folder| folder.join(&file));
        let library = folders.find(|path| exists(path)).ok_or_else(|| {
            let searched: Vec<_> = prefixes
                .iter()
                .map(|prefix| prefix.display().to_string())
                .collect();
            format!(
                "the implementation {implementation} (RMW_IMPLEMENTATION) is not installed: no {file} in {}",
                searched.join(", ")
            )
        })?;
        let include = |package: &&str| prefixes.iter().find_map(|prefix| include_folder(prefix, package));
        let mut includes = Vec::new();
        for package in PACKAGES {
            includes.push(include(&package).ok_or_else(|| {
                format!("the headers of the package {package} are not installed; a part of this program is compiled against them")
            })?);
        }
        includes.extend(PACKAGES_OF_SOME.iter().filter_map(include));
        includes.dedup();
        Ok(Self {
            implementation,
            library,
            includes,
            libraries,
            of_loader,
        })
    }

    /// A library that a package brings: its path, or its name if only the loader may know it.
    fn library(&self, file: &str) -> PathBuf {
        let mut folders = self.libraries.iter().chain(&self.of_loader);
        let found = folders.find_map(|folder| Some(folder.join(file)).filter(|path| exists(path)));
        found.unwrap_or_else(|| PathBuf::from(file))
    }

    /// The shim for this installation, compiled into `cache` unless that was done before.
    ///
    /// # Errors
    /// No C compiler, or one that fails: one sentence.
    pub(super) fn shim(&self, cache: &Path, compiler: OsString) -> Result<PathBuf, String> {
        let shim = cache.join(format!("{}-{:016x}.so", self.implementation, self.key()));
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", cache.display());
        fs::create_dirs(cache).map_err(|error| failed(&error))?;
        // Its content runs in this process, so this user must own it, and no other user may be able to replace its
        // files.
        if let Some(folder) = fs::folder_of_others(cache) {
            return Err(format!(
                "the part for {} is kept in {}, and others may change {}; let XDG_CACHE_HOME name a folder that only this user can change",
                self.implementation,
                cache.display(),
                folder.display()
            ));
        }
        if fs::is_changed_by_us_only(&shim) {
            return Ok(shim);
        }
        let own = std::process::id();
        let (source, compiled) = (
            shim.with_extension(format!("{own}.c")),
            shim.with_extension(format!("{own}.so")),
        );
        fs::write_atomically_unsynced(&source, SOURCE.as_bytes()).map_err(|error| failed(&error))?;
        let outcome = self.compile(&source, &compiled, compiler);
        let _ = fs::remove_file(&source);
        outcome?;
        fs::make_private(&compiled).map_err(|error| failed(&error))?;
        // An interrupted compiler, or another recorder at the same time, leaves no part of it in its place.
        fs::rename_over(&compiled, &shim).map_err(|error| failed(&error))?;
        Ok(shim)
    }

    fn compile(&self, source: &Path, into: &Path, compiler: OsString) -> Result<(), String> {
        let mut command = Command::new(&compiler);
        // An undeclared function would be called with wrong types, so the file has that as an error.
        command
            .args(COMPILER_ARGUMENTS.split_ascii_whitespace())
            .arg(into);
        for include in &self.includes {
            command.arg("-I").arg(include);
        }
        command.arg(source).arg(&self.library);
        command.args(LIBRARIES.map(|file| self.library(file)));
        command.args(["-Wl,--allow-shlib-undefined", "-Wl,--disable-new-dtags"]);
        // Libraries that these load later are searched there, too.
        for folder in &self.libraries {
            command.arg("-Wl,-rpath").arg("-Xlinker").arg(folder);
        }
        let name = Path::new(&compiler).display().to_string();
        let output = command.stdin(Stdio::null()).output().map_err(|error| {
            format!("a C compiler is needed once, for a part of this program that is compiled against the headers of this ROS 2, and {name} cannot be started: {error}; on Debian and Ubuntu: apt install gcc libc6-dev")
        })?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let first = text
            .lines()
            .find(|line| line.contains("error"))
            .unwrap_or("it gives no reason");
        Err(format!(
            "{name} cannot compile the part for {}: {first}",
            self.implementation
        ))
    }

    /// Differs where the shim would be another one: by its source, the headers, and where the libraries are.
    fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (
            SOURCE,
            env!("CARGO_PKG_VERSION"),
            &self.library,
            &self.libraries,
            &self.includes,
        )
            .hash(&mut hasher);
        for (include, package) in self.includes.iter().zip(PACKAGES) {
            let folder = include.join(package);
            for entry in fs::list_dir_up_to(&folder, ENTRIES_MAX).unwrap_or_default() {
                if entry.path.extension().is_some_and(|extension| extension == "h") {
                    fs::read(&entry.path, HEADER_BYTES_MAX)
                        .unwrap_or_default()
                        .hash(&mut hasher);
                }
            }
        }
        hasher.finish()
    }
}

fn exists(path: &Path) -> bool {
    fs::about(path).is_ok_and(|about| about.kind == fs::Kind::File)
}

/// Folders of a prefix with libraries: its own, those of its architecture, and those that Python packages bring.
fn library_folders(prefix: &Path) -> Vec<PathBuf> {
    let folders = |path: &Path| -> Vec<PathBuf> {
        let entries = fs::list_dir_up_to(path, ENTRIES_MAX).unwrap_or_default();
        let folders = entries.into_iter().filter(|entry| entry.is_dir);
        folders.map(|entry| entry.path).collect()
    };
    let ends_with = |path: &Path, end: &str| path.to_str().is_some_and(|path| path.ends_with(end));
    let own = prefix.join("lib");
    let mut all = vec![own.clone()];
    for folder in folders(&own) {
        if ends_with(&folder, "-linux-gnu") {
            all.push(folder);
        } else if folder
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("python"))
        {
            let packages = folders(&folder.join("site-packages")).into_iter();
            all.extend(packages.filter(|path| ends_with(path, ".libs")));
        }
    }
    all
}

/// The folder of a package's headers: a separate one since Humble, the common one before.
fn include_folder(prefix: &Path, package: &str) -> Option<PathBuf> {
    let common = prefix.join("include");
    [common.join(package), common].into_iter().find(|folder| {
        fs::is_dir(&folder.join(package))
            && fs::list_dir_up_to(&folder.join(package), ENTRIES_MAX).is_ok_and(|found| {
                found
                    .iter()
                    .any(|entry| !entry.is_dir || entry.path.ends_with("msg"))
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};

    fn find(variables: &[(&str, &str)]) -> Result<Installation, String> {
        let prefix = variables.iter().find(|(key, _)| *key == "AMENT_PREFIX_PATH");
        let loader = prefix.map(|(_, prefix)| format!("{prefix}/lib"));
        Installation::find(&|name| {
            if name == "LD_LIBRARY_PATH" {
                return loader.clone();
            }
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn what_is_missing_is_named() {
        assert!(find(&[]).unwrap_err().contains("AMENT_PREFIX_PATH"));
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().to_str().unwrap();
        let unsourced = Installation::find(&|name| (name == "AMENT_PREFIX_PATH").then(|| prefix.to_owned()));
        assert!(unsourced.unwrap_err().contains("LD_LIBRARY_PATH does not name"));
        let absent = find(&[
            ("AMENT_PREFIX_PATH", prefix),
            ("RMW_IMPLEMENTATION", "rmw_pigeon"),
        ])
        .unwrap_err();
        assert!(
            absent.contains("no librmw_pigeon.so in ") && absent.contains(prefix),
            "{absent}"
        );
        let bad = find(&[("AMENT_PREFIX_PATH", prefix), ("RMW_IMPLEMENTATION", "../x")]).unwrap_err();
        assert!(bad.contains("\"../x\""), "{bad}");
        create_dir_all(folder.path().join("lib")).unwrap();
        write(folder.path().join("lib/librmw_pigeon.so"), "").unwrap();
        let headers = find(&[
            ("AMENT_PREFIX_PATH", prefix),
            ("RMW_IMPLEMENTATION", "rmw_pigeon"),
        ])
        .unwrap_err();
        assert!(headers.contains("headers of the package rmw "), "{headers}");
    }

    /// An installation that is complete except for the content of its files.
    fn hollow(folder: &Path) -> Installation {
        create_dir_all(folder.join("lib/x86_64-linux-gnu")).unwrap();
        create_dir_all(folder.join("lib/python3.12/site-packages/ros_rmw.libs")).unwrap();
        write(folder.join("lib/librmw_pigeon.so"), "").unwrap();
        for package in PACKAGES {
            let headers = folder.join("include").join(package).join(package);
            create_dir_all(&headers).unwrap();
            write(headers.join("one.h"), "int one;").unwrap();
        }
        let prefix = folder.to_str().unwrap();
        find(&[
            ("AMENT_PREFIX_PATH", prefix),
            ("RMW_IMPLEMENTATION", "rmw_pigeon"),
        ])
        .unwrap()
    }

    #[test]
    fn headers_and_libraries_are_found_and_decide_which_shim_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let installation = hollow(folder.path());
        assert_eq!(installation.includes[0], folder.path().join("include/rmw"));
        assert_eq!(installation.libraries.len(), 3);
        let before = installation.key();
        assert_eq!(installation.key(), before);
        write(folder.path().join("include/rmw/rmw/one.h"), "long one;").unwrap();
        assert_ne!(installation.key(), before, "another ROS 2");
    }

    #[test]
    fn a_compiler_that_is_absent_or_fails_is_reported_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let installation = hollow(folder.path());
        let cache = folder.path().join("cache");
        let absent = installation.shim(&cache, "no-such-compiler".into()).unwrap_err();
        assert!(absent.contains("no-such-compiler cannot be started"), "{absent}");
        assert!(absent.contains("apt install gcc libc6-dev"), "{absent}");
        let failed = installation.shim(&cache, "false".into()).unwrap_err();
        assert!(failed.contains("false cannot compile"), "{failed}");
        assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 0);
    }

    #[test]
    fn a_shim_that_others_may_have_planted_is_compiled_anew() {
        use std::os::unix::fs::{PermissionsExt, chown, symlink};
        let folder = tempfile::tempdir().unwrap();
        let installation = hollow(folder.path());
        let cache = folder.path().join("cache");
        create_dir_all(&cache).unwrap();
        let shim = cache.join(format!("rmw_pigeon-{:016x}.so", installation.key()));
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap()
        };
        let found = || installation.shim(&cache, "false".into());
        write(&shim, "").unwrap();
        for (permissions, is_taken) in [
            (0o600, true),
            (0o700, true),
            (0o644, true),
            (0o666, false),
            (0o664, false),
        ] {
            mode(&shim, permissions);
            assert_eq!(found().is_ok(), is_taken, "{permissions:o}");
        }
        mode(&shim, 0o600);
        mode(&cache, 0o777);
        assert!(found().unwrap_err().contains("XDG_CACHE_HOME"));
        mode(&cache, 0o700);
        assert_eq!(found().unwrap(), shim);
        // Only root can give files away.
        if chown(&shim, Some(65534), None).is_ok() {
            assert!(found().unwrap_err().contains("cannot compile"));
            chown(&shim, Some(0), None).unwrap();
            chown(&cache, Some(65534), None).unwrap();
            assert!(found().unwrap_err().contains("XDG_CACHE_HOME"));
            chown(&cache, Some(0), None).unwrap();
        }
        let elsewhere = folder.path().join("elsewhere");
        std::fs::rename(&shim, &elsewhere).unwrap();
        symlink(&elsewhere, &shim).unwrap();
        assert!(found().unwrap_err().contains("cannot compile"));
    }
}
