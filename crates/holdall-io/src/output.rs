//! New files that tools write from front to end, from memory and from other files, through the same path to
//! the disk as recordings.

use crate::{
    block::BlockPoolOptions,
    disk::{Disk, DiskError, FileId, Operation},
    fs::File,
    os::{DiskMode, OsDisk},
    queue::DiskQueue,
    sealed::{Seal, SealingDisk, seal_of},
    stream::BlockStream,
};
use std::{fs, io, path::Path};

/// Blocks in which bytes wait for the disk; a few of 4 MiB keep it busy while the next ones are filled.
const BLOCK_COUNT: usize = 6;
/// Bytes of another file that are read at once.
const READ_BYTES: usize = 1 << 20;

/// Unfinished files in one directory. It holds at most 24 MiB.
pub struct OutputDisk {
    q: DiskQueue,
    /// Files that have all their bytes, and become durable.
    closing: Vec<FileId>,
}

impl OutputDisk {
    /// A disk for files in `directory`, which must exist: direct where the file system can, else through the page cache.
    ///
    /// # Errors
    /// When it is not a directory, or memory or threads cannot be allocated.
    pub fn open(directory: &Path) -> Result<Self, DiskError> {
        Self::open_sealed(directory, None)
    }

    /// As [`Self::open`]; the files are sealed if a seal is given.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_sealed(directory: &Path, seal: Option<Seal>) -> Result<Self, DiskError> {
        let blocks = BlockPoolOptions {
            block_count: BLOCK_COUNT,
            ..BlockPoolOptions::default()
        };
        let disk: Box<dyn Disk> = Box::new(OsDisk::open(directory, DiskMode::Auto)?);
        let disk = match seal {
            Some(seal) => Box::new(SealingDisk::new(disk, seal)),
            None => disk,
        };
        Ok(Self {
            q: DiskQueue::new(disk, blocks)?,
            closing: Vec::new(),
        })
    }

    /// A disk for files that replace the one at `path`: in its directory, and sealed like it.
    ///
    /// # Errors
    /// As [`Self::open`]; a file that cannot be read.
    pub fn to_replace(path: &Path) -> Result<Self, DiskError> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        Self::open_sealed(parent.unwrap_or(Path::new(".")), seal_of(path)?)
    }

    /// Creates a file that will have about `expected_bytes`; 0 where that is not known.
    ///
    /// # Errors
    /// When it exists or cannot be made.
    pub fn create_new(&mut self, path: &Path, expected_bytes: u64) -> Result<OutputFile<'_>, DiskError> {
        let stream = BlockStream::new(self.q.create_file(path, expected_bytes)?);
        Ok(OutputFile { disk: self, stream })
    }

    /// Waits until all files are durable.
    ///
    /// # Errors
    /// When the disk fails or is full.
    pub fn finish(mut self) -> Result<(), DiskError> {
        let closing = std::mem::take(&mut self.closing);
        closing.into_iter().try_for_each(|file| self.q.wait_closed(file))
    }
}

/// An unfinished file.
pub struct OutputFile<'a> {
    disk: &'a mut OutputDisk,
    stream: BlockStream,
}

impl OutputFile<'_> {
    /// Its length so far.
    pub fn len_bytes(&self) -> u64 {
        self.stream.position()
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// When the disk fails or is full.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        self.stream.append(&mut self.disk.q, bytes)
    }

    /// Appends `len_bytes` bytes of another file, from `offset` on; they are read into the blocks that go to the disk.
    ///
    /// # Errors
    /// When the other file is shorter or cannot be read, or the disk fails or is full.
    pub fn append_from(&mut self, from: &File, offset: u64, len_bytes: u64) -> Result<(), DiskError> {
        let (mut offset, end) = (offset, offset.saturating_add(len_bytes));
        while offset < end {
            let spare = self.stream.spare(&mut self.disk.q)?;
            let step = (end - offset).min(spare.len().min(READ_BYTES) as u64);
            // Not more than there is room for in a block.
            let room = &mut spare[..step as usize];
            from.read_exact_at(room, offset)?;
            self.stream.advance(step as usize);
            offset += step;
        }
        Ok(())
    }

    /// Gives the rest to the disk and returns the file's length. It is durable after [`OutputDisk::finish`]
    /// has returned.
    ///
    /// # Errors
    /// When the disk has failed or is full.
    pub fn finish(self) -> Result<u64, DiskError> {
        let file = self.stream.file();
        let length = self.stream.finish(&mut self.disk.q)?;
        self.disk.closing.push(file);
        Ok(length)
    }
}

/// Renames a directory to a name that must be free, and makes that durable.
///
/// # Errors
/// When the name is taken, or the system refuses.
pub fn publish_dir(from: &Path, to: &Path) -> Result<(), DiskError> {
    crate::fs::rename_new(from, to)?;
    crate::os::sync_directory_of(to).map_err(|source| DiskError::new(to, Operation::Sync, source))
}

/// Removes a directory and everything in it; a missing one is not an error.
///
/// # Errors
/// When it cannot be removed.
pub fn remove_dir_all(path: &Path) -> Result<(), DiskError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(DiskError::new(path, Operation::Remove, error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_parts_of_files_come_one_after_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        let content: Vec<u8> = (0..9_000_000u32).map(|n| (n % 251) as u8).collect();
        fs::write(&from, &content).unwrap();
        let from = File::open(&from).unwrap();
        let mut disk = OutputDisk::open(dir.path()).unwrap();
        for name in ["first", "second"] {
            let path = dir.path().join(name);
            let mut to = disk.create_new(&path, 0).unwrap();
            to.append(b"head").unwrap();
            to.append_from(&from, 5, 8_500_000).unwrap();
            to.append(b"middle").unwrap();
            to.append(&content).unwrap();
            to.append_from(&from, 0, 1).unwrap();
            to.append(b"tail").unwrap();
            assert_eq!(to.len_bytes(), 17_500_015);
            assert_eq!(to.finish().unwrap(), 17_500_015);
            assert!(disk.create_new(&path, 0).err().unwrap().is_already_exists());
        }
        disk.finish().unwrap();
        let mut expected = b"head".to_vec();
        expected.extend(&content[5..8_500_005]);
        expected.extend(b"middle");
        expected.extend(&content);
        expected.push(content[0]);
        expected.extend(b"tail");
        assert!(fs::read(dir.path().join("first")).unwrap() == expected);
        assert!(fs::read(dir.path().join("second")).unwrap() == expected);
    }

    #[test]
    fn a_part_beyond_the_end_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("from"), b"short").unwrap();
        let from = File::open(&dir.path().join("from")).unwrap();
        let mut disk = OutputDisk::open(dir.path()).unwrap();
        let mut to = disk.create_new(&dir.path().join("to"), 0).unwrap();
        let error = to.append_from(&from, 2, 4).unwrap_err();
        assert_eq!(error.operation, Operation::Read);
    }

    #[test]
    fn a_directory_never_takes_a_name_that_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        fs::create_dir(&a).unwrap();
        fs::create_dir(&b).unwrap();
        assert!(publish_dir(&a, &b).unwrap_err().is_already_exists());
        publish_dir(&a, &dir.path().join("c")).unwrap();
        assert!(!a.exists() && dir.path().join("c").exists());
        remove_dir_all(&dir.path().join("none")).unwrap();
    }
}
