//! Whole files: read, written, copied and converted in one go.

use super::{EditedFile, File, FileNumbers, is_link, pinned, remove_that_file, sync_parent};
use crate::{
    disk::{DiskError, Operation},
    new_file::{NewFile, create_new, open_regular, open_to_change},
    os, remote,
    sealed::{Seal, is_sealed, seal_of},
};
use rustix::{
    fs::{Advice, FallocateFlags, SeekFrom, fadvise, fallocate, seek},
    io::Errno,
};
use std::{
    fs, io,
    io::{Read, Write},
    os::unix::fs::MetadataExt,
    path::Path,
};

/// The text of a small file.
///
/// # Errors
/// When it cannot be read, is larger than `bytes_max`, or is not UTF-8.
pub fn read_to_string(path: &Path, bytes_max: u64) -> Result<String, DiskError> {
    let bytes = read(path, bytes_max)?;
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to() as u64;
        let source = io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text");
        DiskError::new(path, Operation::Read, source).at(offset)
    })
}

/// The text of a small file that may be a pipe or a device, too (`<(…)` of a shell).
///
/// # Errors
/// When it cannot be read, is a directory, is larger than `bytes_max`, or is not UTF-8.
pub fn read_any_to_string(path: &Path, bytes_max: u64) -> io::Result<String> {
    let file = fs::File::open(pinned(path)?)?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    let mut text = String::new();
    file.take(bytes_max.saturating_add(1)).read_to_string(&mut text)?;
    if text.len() as u64 > bytes_max {
        let what = format!("larger than {} MiB, not a file of settings", bytes_max >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(text)
}

/// Copies the bytes of a file to `out`, for example to standard output.
///
/// # Errors
/// When it cannot be read, or `out` written.
pub fn copy_to(path: &Path, out: &mut dyn Write) -> io::Result<()> {
    if remote::is_remote(path) {
        return copy_object(path, out).map_err(DiskError::into_io);
    }
    let mut file = open_regular(path)?;
    io::copy(&mut file, out).map(drop)
}

/// Bytes of an object that are copied at once.
const PIECE_BYTES: usize = 1 << 20;

/// Copies an object's bytes; of a sealed one the plain bytes.
fn copy_object(path: &Path, out: &mut dyn Write) -> Result<(), DiskError> {
    let file = File::open(path)?;
    file.expect_sequential_reads();
    let mut piece = vec![0; PIECE_BYTES];
    let mut offset = 0;
    loop {
        let count = file.read_at(&mut piece, offset)?;
        if count == 0 {
            return Ok(());
        }
        out.write_all(&piece[..count])
            .map_err(|source| DiskError::new(path, Operation::Write, source))?;
        offset += count as u64;
    }
}

/// Copies an object to a new file, `to`, which is not durable.
///
/// # Errors
/// When the object cannot be read, or `to` exists or cannot be written.
pub fn download(from: &Path, to: &Path) -> Result<(), DiskError> {
    let mut file = create_new(to).map_err(|source| DiskError::new(to, Operation::Create, source))?;
    copy_object(from, &mut file)
}

/// The bytes of a small file; for a sealed one, the plain bytes.
///
/// # Errors
/// When it cannot be read, is not a regular file, or is larger than `bytes_max`; when it is sealed and no key of this process opens
/// it.
pub fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, DiskError> {
    // A sealed file is longer than its content.
    let bytes = read_stored(path, bytes_max.saturating_add(SEALED_MORE_BYTES))?;
    let plain = if is_sealed(&bytes) {
        let file = File::open(path)?;
        let len = file.len_bytes().min(bytes_max.saturating_add(1));
        // At most a little more than `bytes_max`, and as long as the file.
        file.read_bytes_at(0, usize::try_from(len).unwrap_or(usize::MAX))?
    } else {
        bytes
    };
    if plain.len() as u64 > bytes_max {
        let what = format!("it is larger than {bytes_max} bytes");
        let source = io::Error::new(io::ErrorKind::FileTooLarge, what);
        return Err(DiskError::new(path, Operation::Read, source));
    }
    Ok(plain)
}

/// How much longer a small sealed file is than its content: two heads of keys, frames, an index and an end.
const SEALED_MORE_BYTES: u64 = 1 << 20;

fn read_stored(path: &Path, bytes_max: u64) -> Result<Vec<u8>, DiskError> {
    let fail = |source| DiskError::new(path, Operation::Read, source);
    if let Some(url) = remote::url(path) {
        let read = remote::client().and_then(|client| client.read(url, bytes_max));
        return read.map_err(fail);
    }
    let file = open_regular(path).map_err(|source| DiskError::new(path, Operation::Open, source))?;
    let mut bytes = Vec::new();
    // The file system's length may be wrong (/proc) or change: the bound is kept while reading.
    file.take(bytes_max.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(fail)?;
    if bytes.len() as u64 > bytes_max {
        let what = format!("it is larger than {bytes_max} bytes");
        return Err(fail(io::Error::new(io::ErrorKind::FileTooLarge, what)));
    }
    Ok(bytes)
}

/// Replaces the file at `path` with `bytes`, so that after a crash there is the old content or the new, never
/// a part. Durable on return. A sealed file is replaced by a sealed one of the same owners, unless `bytes` are sealed already.
///
/// # Errors
/// When the new content cannot be written; the old content is unchanged then.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let mut new = written(path, bytes)?;
    new.sync()?;
    new.replace()?;
    new.sync_folder()
}

/// As [`write_atomically`] without waiting for the disk: a killed process leaves the old content or the new, a power cut may leave
/// an older one or none.
///
/// # Errors
/// When the new content cannot be written; the old content is unchanged then.
pub fn write_atomically_unsynced(path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    written(path, bytes)?.replace()
}

/// As [`write_atomically_unsynced`], with room after the end for a text of `room_bytes` that [`write_over`]
/// may need on a full disk. Best effort: a file system without reservations gives no room.
///
/// # Errors
/// As [`write_atomically_unsynced`].
pub fn write_atomically_with_room(path: &Path, bytes: &[u8], room_bytes: u64) -> Result<(), DiskError> {
    let mut new = written(path, bytes)?;
    // A failure is harmless.
    let _ = fallocate(new.file(), FallocateFlags::KEEP_SIZE, 0, room_bytes);
    new.replace()
}

/// A new file with this content, which has no name yet.
fn written(path: &Path, bytes: &[u8]) -> Result<NewFile, DiskError> {
    let fail = |source| DiskError::new(path, Operation::Write, source);
    let seal = if is_sealed(bytes) {
        None
    } else {
        seal_of_present(path)?
    };
    let sealed = seal
        .map(|seal| seal.seal_bytes(bytes))
        .transpose()
        .map_err(fail)?;
    let mut new = NewFile::beside(path)?;
    new.file()
        .write_all(sealed.as_deref().unwrap_or(bytes))
        .map_err(fail)?;
    Ok(new)
}

/// The seal of the file at `path`, if it exists and is sealed.
fn seal_of_present(path: &Path) -> Result<Option<Seal>, DiskError> {
    // An unreadable file is replaced, as before.
    let is_kept = !is_link(path) && is_stored_sealed(path);
    if is_kept { seal_of(path) } else { Ok(None) }
}

/// Whether the file at `path` is sealed, as far as its first bytes can be read; a key is not needed.
pub fn is_stored_sealed(path: &Path) -> bool {
    if remote::is_remote(path) {
        return match File::open(path) {
            Ok(file) => file.seal().is_some(),
            Err(error) => error.lacks_key(),
        };
    }
    let mut beginning = [0; 16];
    let read = open_regular(path).and_then(|mut file| file.read_exact(&mut beginning));
    read.is_ok() && is_sealed(&beginning)
}

/// Whether the first 16 bytes of a file are zeros, or it has fewer: nothing was written there yet.
///
/// # Errors
/// When it cannot be read.
pub fn begins_with_zeros(path: &Path) -> Result<bool, DiskError> {
    let mut beginning = [0; 16];
    let count = File::open_stored(path)?.read_at(&mut beginning, 0)?;
    Ok(count < beginning.len() || beginning == [0; 16])
}

/// Overwrites an existing file in place, when space for a new one is lacking. A kill during the
/// write leaves a part. Durable on return.
///
/// # Errors
/// When it does not exist, is not a regular file, or lacks the space; it may be torn then.
pub fn write_over(path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let file = EditedFile::open_stored(path)?;
    file.write_all_at(bytes, 0)?;
    file.set_len(bytes.len() as u64)?;
    file.sync()
}

/// Creates a file where none exists, and fills it with `content`.
///
/// # Errors
/// When the path exists, also as a link, or it cannot be written.
pub fn write_new(path: &Path, content: &mut dyn Read) -> Result<(), DiskError> {
    let mut file = create_new(path).map_err(|source| DiskError::new(path, Operation::Create, source))?;
    let copied = io::copy(content, &mut file);
    copied
        .map(drop)
        .map_err(|source| DiskError::new(path, Operation::Write, source))
}

/// Creates a file where none exists, for what another program writes.
///
/// # Errors
/// When the path exists, also as a link, or it cannot be created.
pub fn create_for_others(path: &Path) -> io::Result<fs::File> {
    create_new(path)
}

/// Creates a file that only this user can read, where none exists; it has its name when it is complete and durable.
///
/// # Errors
/// When the path exists, also as a link, or it cannot be written.
pub fn write_private_new(path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let mut file = NewFile::private_beside(path)?;
    file.write_all(bytes)
        .map_err(|source| DiskError::new(path, Operation::Write, source))?;
    file.sync()?;
    file.publish_new()?;
    file.sync_folder()
}

/// Reads a text that only this user may know.
///
/// # Errors
/// When it cannot be read, is longer than `bytes_max` or no text, or another user owns it or may read or write it.
pub fn read_private_to_string(path: &Path, bytes_max: u64) -> Result<String, DiskError> {
    let fail = |source| DiskError::new(path, Operation::Read, source);
    let file = open_regular(path).map_err(fail)?;
    let about = file.metadata().map_err(fail)?;
    if about.uid() != rustix::process::geteuid().as_raw() || about.mode() & 0o077 != 0 {
        return Err(fail(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "other users can read or change it; it must belong to this user, with permissions 0600",
        )));
    }
    let mut text = String::new();
    file.take(bytes_max + 1).read_to_string(&mut text).map_err(fail)?;
    if text.len() as u64 > bytes_max {
        return Err(fail(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("it is longer than {bytes_max} bytes"),
        )));
    }
    Ok(text)
}

/// Appends bytes to a file, which is created where it does not exist. Not durable before [`make_durable`].
///
/// # Errors
/// When it cannot be opened or written.
pub fn append(path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let opened = open_to_change(path, fs::OpenOptions::new().append(true).create(true));
    let mut file = opened.map_err(|source| DiskError::new(path, Operation::Open, source))?;
    file.write_all(bytes)
        .map_err(|source| DiskError::new(path, Operation::Write, source))
}

/// Cuts an existing file to nothing.
///
/// # Errors
/// When it is not there or cannot be cut.
pub fn truncate(path: &Path) -> Result<(), DiskError> {
    let opened = open_to_change(path, fs::OpenOptions::new().write(true).truncate(true));
    opened
        .map(drop)
        .map_err(|source| DiskError::new(path, Operation::Open, source))
}

/// Copies a file to a name that nothing has yet, where the file system can by sharing its blocks. Durable on return.
///
/// # Errors
/// When `to` exists, or the file cannot be copied; the partial copy is removed then.
pub fn copy_new(from: &Path, to: &Path) -> Result<(), DiskError> {
    let mut target = create_new(to).map_err(|source| DiskError::new(to, Operation::Create, source))?;
    let made = FileNumbers::of(&target);
    let copied = open_regular(from)
        .and_then(|mut source| io::copy(&mut source, &mut target))
        .and_then(|_| target.sync_all())
        .and_then(|()| os::sync_directory_of(to));
    copied.map_err(|source| {
        // A partial copy is useless; only the error counts.
        let _ = made.map(|made| remove_that_file(to, made));
        DiskError::new(to, Operation::Write, source)
    })
}

/// Creates the file `to`, which must not exist, with the output of `convert` while it reads `from`. It
/// appears under its name when it is complete, and `durable` if requested; `from` is not changed.
///
/// # Errors
/// When `from` is sealed; when `to` exists, a file cannot be opened, or `convert` fails; no file remains then.
pub fn convert_file(
    from: &Path,
    to: &Path,
    durable: bool,
    convert: impl FnOnce(&mut fs::File, &mut fs::File) -> io::Result<()>,
) -> Result<(), DiskError> {
    if is_stored_sealed(from) {
        let source = io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is encrypted, and has to be decrypted first",
        );
        return Err(DiskError::new(from, Operation::Read, source));
    }
    let mut reader = open_regular(from).map_err(|source| DiskError::new(from, Operation::Open, source))?;
    let mut new = NewFile::beside(to)?;
    convert(&mut reader, new.file()).map_err(|source| DiskError::new(from, Operation::Read, source))?;
    if durable {
        new.sync()?;
    }
    new.publish_new()?;
    if durable { new.sync_folder() } else { Ok(()) }
}

/// Cuts a file after its last written byte: the rest is reserved space, which reads as zeros. Written zeros stay, and nothing is cut where the
/// file system does not distinguish the two. Returns the number of bytes cut.
///
/// The caller makes sure that no process writes the file.
///
/// # Errors
/// When it cannot be opened or cut; a link is refused.
pub fn trim_unwritten(path: &Path) -> Result<u64, DiskError> {
    let fail = |source: io::Error| DiskError::new(path, Operation::Write, source);
    let file = open_to_change(path, fs::OpenOptions::new().read(true).write(true)).map_err(fail)?;
    let length = file.metadata().map_err(fail)?.len();
    let mut written = 0;
    // Each pass skips a written part and the gap after it.
    while written < length {
        let data = match seek(&file, SeekFrom::Data(written)) {
            Ok(data) => data,
            Err(Errno::NXIO) => break,
            Err(error) => return Err(fail(error.into())),
        };
        written = seek(&file, SeekFrom::Hole(data)).map_err(|error| fail(error.into()))?;
    }
    if written >= length {
        return Ok(0);
    }
    file.set_len(written).map_err(fail)?;
    Ok(length - written)
}

/// Whether a file is all zeros: nothing was written into the space reserved for it. False for a link and
/// for anything that is not a regular file.
///
/// # Errors
/// When it cannot be read.
pub fn is_unwritten(path: &Path) -> Result<bool, DiskError> {
    if is_link(path) || !path.is_file() {
        return Ok(false);
    }
    let file = File::open(path)?;
    let mut piece = vec![0; 1 << 20];
    let mut offset = 0;
    loop {
        let count = file.read_at(&mut piece, offset)?;
        if count == 0 {
            return Ok(true);
        }
        if piece[..count].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        offset += count as u64;
    }
}

/// Waits until a file and its name survive a power cut.
///
/// # Errors
/// When it cannot be opened or synced.
pub fn make_durable(path: &Path) -> Result<(), DiskError> {
    let file = open_regular(path).map_err(|source| DiskError::new(path, Operation::Open, source))?;
    file.sync_all()
        .map_err(|source| DiskError::new(path, Operation::Sync, source))?;
    sync_parent(path)
}

/// Makes a file's bytes durable and removes them from the page cache, so that the next read comes from the
/// disk. For measurements.
///
/// # Errors
/// When the file cannot be opened or synced.
pub fn forget_cached(path: &Path) -> Result<(), DiskError> {
    let file = open_regular(path).map_err(|source| DiskError::new(path, Operation::Open, source))?;
    file.sync_all()
        .map_err(|source| DiskError::new(path, Operation::Sync, source))?;
    let _ = fadvise(&file, 0, None, Advice::DontNeed);
    Ok(())
}
