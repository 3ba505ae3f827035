//! The directory that a path leads to, and the view it was seen from: names differ in each container.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path, time::UNIX_EPOCH};

/// Distinguishes a directory from all others of this computer, its copies too, and stays the same when it gets another name: 50 letters.
///
/// # Errors
/// When it is not a directory, or cannot be inspected.
pub fn directory_identity(path: &Path) -> io::Result<String> {
    let about = fs::metadata(path)?;
    if !about.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    // A number of the file system is given out again when its directory is removed. Some file systems keep no time.
    let made = about.created().ok();
    let made = made.and_then(|made| made.duration_since(UNIX_EPOCH).ok());
    let made = made.map_or(0, |made| made.as_nanos() as u64);
    Ok(format!("{:016x}-{:016x}-{made:016x}", about.dev(), about.ino()))
}

/// Identifies the meaning of paths in this process: its mount namespace and its root directory. Processes with equal values
/// see the same files.
///
/// # Errors
/// When the system does not show it.
pub fn view_of_files() -> io::Result<String> {
    let namespace = fs::read_link("/proc/self/ns/mnt")?;
    Ok(format!(
        "{} {}",
        namespace.display(),
        directory_identity(Path::new("/"))?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_renamed_is_the_same_and_a_new_one_of_its_name_another() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("first"), dir.path().join("second"));
        fs::create_dir(&first).unwrap();
        let identity = directory_identity(&first).unwrap();
        assert_eq!(identity.len(), 50);
        fs::rename(&first, &second).unwrap();
        assert_eq!(directory_identity(&second).unwrap(), identity);
        fs::create_dir(&first).unwrap();
        assert_ne!(directory_identity(&first).unwrap(), identity);
        assert_eq!(view_of_files().unwrap(), view_of_files().unwrap());
    }
}
