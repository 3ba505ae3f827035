//! Files of settings that a command line names.

use std::{io, path::Path};

/// Largest file of settings that is read; real ones have a few kilobytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The text of a file of settings.
///
/// # Errors
/// As [`holdall_io::fs::read_any_to_string`].
pub fn read_small_file(path: &Path) -> io::Result<String> {
    holdall_io::fs::read_any_to_string(path, FILE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_and_huge_files_are_no_settings() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read_small_file(folder.path()).is_err());
        let path = folder.path().join("huge.yaml");
        std::fs::File::create(&path)
            .unwrap()
            .set_len(FILE_BYTES_MAX + 1)
            .unwrap();
        assert_eq!(
            read_small_file(&path).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
    }
}
