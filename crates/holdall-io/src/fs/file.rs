//! Files that stay open: for reading at any place, and for changes in place.

use crate::{
    block::BLOCK_ALIGNMENT,
    disk::{DiskError, Operation},
    mutex::lock,
    new_file::{open_regular, open_to_change},
    remote::{self, Object},
    sealed::{Seal, SealedEdit, SealedFile, Stored},
};
use rustix::{
    buffer::spare_capacity,
    fs::{Advice, fadvise},
    io::{Errno, pread},
};
use std::{
    fs, io,
    num::NonZeroU64,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

/// The storage of a file's bytes.
#[derive(Debug)]
enum Place {
    Local(fs::File),
    Remote(Arc<dyn Object>),
}

impl Place {
    fn stored(&self) -> &dyn Stored {
        match self {
            Self::Local(file) => file,
            Self::Remote(object) => object,
        }
    }
}

/// A file open for reading at any place. Cheap to share: reading needs no `&mut`. For a sealed file, this reads the plain bytes. The
/// file may be an object in a bucket.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    place: Place,
    len_bytes: u64,
    sealed: Option<Box<SealedFile>>,
}

impl File {
    /// Opens an existing regular file.
    ///
    /// # Errors
    /// When it cannot be opened or is not a regular file, or is sealed and no key of this process opens
    /// it.
    pub fn open(path: &Path) -> Result<Self, DiskError> {
        let fail = |source| DiskError::new(path, Operation::Open, source);
        let (place, stored_bytes) = match remote::url(path) {
            Some(url) => {
                let object = remote::client()
                    .and_then(|client| client.open(url))
                    .map_err(fail)?;
                let len_bytes = object.len_bytes();
                (Place::Remote(object), len_bytes)
            }
            None => {
                let file = open_regular(path).map_err(fail)?;
                let len_bytes = file.metadata().map_err(fail)?.len();
                (Place::Local(file), len_bytes)
            }
        };
        // Sealed files consist of blocks. Of an object of another length the beginning is not requested.
        let may_be_sealed = matches!(place, Place::Local(_)) || is_of_blocks(stored_bytes);
        let sealed = match may_be_sealed {
            true => SealedFile::open(place.stored(), stored_bytes).map_err(fail)?,
            false => None,
        };
        Ok(Self {
            path: path.to_owned(),
            place,
            len_bytes: sealed.as_ref().map_or(stored_bytes, SealedFile::len_bytes),
            sealed: sealed.map(Box::new),
        })
    }

    /// Opens an existing file of this computer for its stored bytes: those of a sealed file stay sealed.
    ///
    /// # Errors
    /// When it cannot be opened or is not a regular file.
    pub fn open_stored(path: &Path) -> Result<Self, DiskError> {
        let fail = |source| DiskError::new(path, Operation::Open, source);
        let file = open_regular(path).map_err(fail)?;
        Ok(Self {
            path: path.to_owned(),
            len_bytes: file.metadata().map_err(fail)?.len(),
            place: Place::Local(file),
            sealed: None,
        })
    }

    /// Its seal; `None` when it is not sealed.
    pub fn seal(&self) -> Option<Seal> {
        self.sealed.as_ref().map(|sealed| sealed.seal().clone())
    }

    /// Whether it is an object in a bucket: each read that was not announced takes a request.
    pub fn is_remote(&self) -> bool {
        matches!(self.place, Place::Remote(_))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length when it was opened, in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Where bytes that were written begin, from `offset` on; `None` where only unwritten space follows, which reads as zeros. Any byte
    /// counts as written where the file system does not know, and in a sealed file.
    ///
    /// # Errors
    /// When the file system fails.
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>, DiskError> {
        if self.sealed.is_some() || offset >= self.len_bytes {
            return Ok(Some(offset).filter(|offset| *offset < self.len_bytes));
        }
        let found = self.place.stored().next_data(offset);
        found.map_err(|source| DiskError::new(&self.path, Operation::Read, source).at(offset))
    }

    /// Reads exactly `into.len()` bytes from `offset` on.
    ///
    /// # Errors
    /// When reading fails or the file ends before.
    pub fn read_exact_at(&self, into: &mut [u8], offset: u64) -> Result<(), DiskError> {
        let file = match &self.place {
            Place::Local(file) if self.sealed.is_none() => file,
            _ => {
                let count = self.read_at(into, offset)?;
                return if count == into.len() {
                    Ok(())
                } else {
                    Err(self.ends_early(offset))
                };
            }
        };
        file.read_exact_at(into, offset)
            .map_err(|source| DiskError::new(&self.path, Operation::Read, source).at(offset))
    }

    /// Reads exactly `count` bytes from `offset` on into new memory, which is not initialized first.
    /// Lack of memory is an error like others: `count` may come from the file.
    ///
    /// # Errors
    /// When memory is insufficient, reading fails, or the file ends too early.
    pub fn read_bytes_at(&self, offset: u64, count: usize) -> Result<Vec<u8>, DiskError> {
        let fail = |source| DiskError::new(&self.path, Operation::Read, source).at(offset);
        let mut bytes: Vec<u8> = Vec::new();
        bytes.try_reserve_exact(count).map_err(|_| {
            let what = format!("there is not enough memory for {count} bytes");
            fail(io::Error::new(io::ErrorKind::OutOfMemory, what))
        })?;
        let file = match &self.place {
            Place::Local(file) if self.sealed.is_none() => file,
            _ => {
                bytes.resize(count, 0);
                self.read_exact_at(&mut bytes, offset)?;
                return Ok(bytes);
            }
        };
        while bytes.len() < count {
            let at = offset.saturating_add(bytes.len() as u64);
            match pread(file, spare_capacity(&mut bytes), at) {
                Ok(0) => return Err(fail(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(fail(error.into())),
            }
        }
        // The allocator may have given more room than requested.
        bytes.truncate(count);
        Ok(bytes)
    }

    /// Reads up to `into.len()` bytes from `offset` on; fewer only at the end of the file.
    ///
    /// # Errors
    /// When reading fails.
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        if let Some(sealed) = &self.sealed {
            let read = sealed.read_at(self.place.stored(), into, offset);
            return read.map_err(|(at, source)| DiskError::new(&self.path, Operation::Read, source).at(at));
        }
        let file = match &self.place {
            Place::Local(file) => file,
            Place::Remote(object) => {
                let read = object.read_at(into, offset);
                return read.map_err(|source| DiskError::new(&self.path, Operation::Read, source).at(offset));
            }
        };
        let mut count = 0;
        while count < into.len() {
            match file.read_at(&mut into[count..], offset + count as u64) {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(DiskError::new(&self.path, Operation::Read, source).at(offset + count as u64));
                }
            }
        }
        Ok(count)
    }

    fn ends_early(&self, offset: u64) -> DiskError {
        DiskError::new(&self.path, Operation::Read, io::ErrorKind::UnexpectedEof.into()).at(offset)
    }

    /// Advises the kernel that these bytes will be read soon, so that it fetches them now.
    pub fn expect_read(&self, offset: u64, len_bytes: u64) {
        /// What the kernel fetches at one request: at least a device's largest transfer, which is this long on small ones; the rest is ignored.
        const REQUEST_BYTES: u64 = 512 << 10;
        match &self.place {
            Place::Local(file) => {
                let end = offset.saturating_add(len_bytes);
                let mut at = offset;
                while let Some(left) = NonZeroU64::new(end.saturating_sub(at).min(REQUEST_BYTES)) {
                    // Advice only: failing is harmless.
                    let _ = fadvise(file, at, Some(left), Advice::WillNeed);
                    at += left.get();
                }
            }
            // For a sealed file these offsets are slightly off.
            Place::Remote(object) => object.expect(offset, len_bytes),
        }
    }

    /// Advises the kernel that the file will be read from front to back, so that it reads further ahead.
    pub fn expect_sequential_reads(&self) {
        match &self.place {
            // Advice only: failing is harmless.
            Place::Local(file) => {
                let _ = fadvise(file, 0, None, Advice::Sequential);
            }
            Place::Remote(object) => object.expect_sequential(),
        }
    }
}

/// Whether a file of this length may be a sealed one that was closed.
pub(super) fn is_of_blocks(stored_bytes: u64) -> bool {
    stored_bytes.is_multiple_of(BLOCK_ALIGNMENT as u64)
}

/// An existing file that is changed in place: for repairs, which are few and small. A sealed file stays sealed: its changes are appended.
#[derive(Debug)]
pub struct EditedFile {
    path: PathBuf,
    file: fs::File,
    sealed: Option<Mutex<SealedEdit>>,
}

impl EditedFile {
    /// Opens an existing file for writing. A symbolic link is refused: its target may not be part of the bag.
    ///
    /// # Errors
    /// When it is not there, is a link or no regular file, or cannot be written; when it is sealed and no key of this process opens it.
    pub fn open(path: &Path) -> Result<Self, DiskError> {
        let fail = |source| DiskError::new(path, Operation::Open, source);
        let mut edited = Self::open_stored(path)?;
        let stored_bytes = edited.file.metadata().map_err(fail)?.len();
        // A file that can be written and not read is not sealed by this program.
        let Ok(readable) = open_regular(path) else {
            return Ok(edited);
        };
        if let Some(sealed) = SealedFile::open(&readable, stored_bytes).map_err(fail)? {
            let opened = open_to_change(path, fs::OpenOptions::new().read(true).write(true));
            edited.file = opened.map_err(fail)?;
            let edit = SealedEdit::begin(sealed, &edited.file).map_err(fail)?;
            edited.sealed = Some(Mutex::new(edit));
        }
        Ok(edited)
    }

    /// As [`Self::open`], for the bytes that are stored, sealed or not.
    pub(super) fn open_stored(path: &Path) -> Result<Self, DiskError> {
        let opened = open_to_change(path, fs::OpenOptions::new().write(true));
        let file = opened.map_err(|source| DiskError::new(path, Operation::Open, source))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            sealed: None,
        })
    }

    /// Overwrites bytes.
    ///
    /// # Errors
    /// When they cannot all be written.
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<(), DiskError> {
        let written = match &self.sealed {
            Some(edit) => lock(edit).write_all_at(&self.file, bytes, offset),
            None => std::os::unix::fs::FileExt::write_all_at(&self.file, bytes, offset),
        };
        written.map_err(|source| DiskError::new(&self.path, Operation::Write, source).at(offset))
    }

    /// Makes everything so far durable.
    ///
    /// # Errors
    /// When that fails: writes since the last sync may be lost.
    pub fn sync(&self) -> Result<(), DiskError> {
        let synced = match &self.sealed {
            Some(edit) => lock(edit).sync(&self.file),
            None => self.file.sync_all(),
        };
        synced.map_err(|source| DiskError::new(&self.path, Operation::Sync, source))
    }

    /// Cuts or extends the file.
    ///
    /// # Errors
    /// When that is not possible.
    pub fn set_len(&self, length_bytes: u64) -> Result<(), DiskError> {
        let set = match &self.sealed {
            Some(edit) => lock(edit).set_len(&self.file, length_bytes),
            None => self.file.set_len(length_bytes),
        };
        set.map_err(|source| DiskError::new(&self.path, Operation::Write, source))
    }
}
