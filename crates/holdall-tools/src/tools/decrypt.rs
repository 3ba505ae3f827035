//! Makes the bag that an encrypted bag holds: each file with the bytes that it would have had.

use super::{Staged, ToolError};
use holdall_bag::{
    live::refuse_if_recorded,
    reader::{Bag, ReadError},
    writer::seal_faults,
};
use holdall_io::{
    disk::DiskError,
    fs::{self, DirEntry, File, is_stored_sealed},
    output::{OutputDisk, OutputFile},
};
use holdall_model::metadata::{BagMetadata, METADATA_BYTES_MAX};
use holdall_storage::storage_of_file;
use std::path::{Path, PathBuf};

/// Bytes that are decrypted at once.
const PIECE_BYTES: usize = 1 << 20;
/// At least this much is unreadable around a changed byte; the search for readable data continues in such steps.
const STEP_BYTES: usize = 4096;
/// Places that are listed of one file.
const DAMAGE_LISTED_MAX: usize = 64;

/// Bytes that could not be decrypted, because they are not those that were written: zeros in the new file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecrypted {
    /// The encrypted file.
    pub path: PathBuf,
    /// Offset in the decrypted file.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
}

/// The decrypted output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decrypted {
    /// The new bag or file.
    pub output: PathBuf,
    /// Files that were encrypted.
    pub files: usize,
    /// Their bytes, decrypted.
    pub bytes: u64,
    /// Places that could not be decrypted; the first ones of each file.
    pub damage: Vec<Undecrypted>,
}

/// Decrypts the bag directory or storage file at `path` into `output`, which appears whole; `path` is not changed. Files that are not
/// encrypted are copied.
///
/// # Errors
/// An output that exists; a bag that is being recorded, is not encrypted, or that no key of this process opens; a disk that fails.
pub fn decrypt(
    path: &Path,
    output: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Decrypted, ToolError> {
    refuse_if_recorded(path)?;
    let is_dir = fs::is_dir(path);
    let found = if is_dir {
        files_in(path)?
    } else {
        vec![path.to_owned()]
    };
    // Opened before anything is made: a missing key is found here.
    let total = found
        .iter()
        .map(|file| Ok(File::open(file)?.len_bytes()))
        .sum::<Result<u64, DiskError>>()?;
    if !found.iter().any(|file| is_stored_sealed(file)) {
        return Err(match Bag::open(path) {
            Err(error @ ReadError::NotABag { .. }) => error.into(),
            _ => ToolError::Unsupported {
                path: path.to_owned(),
                reason: "it is not encrypted".to_owned(),
            },
        });
    }
    if is_dir {
        expect_one_seal(path, &found)?;
    }
    let mut done = Decrypted {
        output: output.to_owned(),
        ..Decrypted::default()
    };
    let staged = Staged::begin(output)?;
    let directory = staged.directory().to_owned();
    let around = directory.parent().unwrap_or(Path::new(".")).to_owned();
    let place = if is_dir { directory.clone() } else { around };
    if is_dir {
        fs::create_dir_new(&directory)?;
    }
    let mut disk = OutputDisk::open(&place)?;
    let mut before = 0;
    for from in &found {
        let to = match (is_dir, from.file_name()) {
            (true, Some(name)) => directory.join(name),
            _ => directory.clone(),
        };
        let bytes = one_file(from, &to, &mut disk, &mut done.damage, &mut |at| {
            progress(before + at, total)
        })?;
        before += bytes;
        if is_stored_sealed(from) {
            done.files += 1;
            done.bytes += bytes;
        }
    }
    disk.finish()?;
    if is_dir {
        fs::sync_dir(&directory)?;
    }
    staged.publish()?;
    Ok(done)
}

/// Refuses a bag with a storage file that was not encrypted for it, and warns of one that is not as it was closed.
fn expect_one_seal(path: &Path, found: &[PathBuf]) -> Result<(), ToolError> {
    let text = fs::read_to_string(&path.join("metadata.yaml"), METADATA_BYTES_MAX);
    let metadata = text.ok().and_then(|text| BagMetadata::from_yaml(&text).ok());
    let is_storage = |file: &&PathBuf| storage_of_file(file).is_some();
    let files: Vec<PathBuf> = found.iter().filter(is_storage).cloned().collect();
    for fault in seal_faults(path, metadata.as_ref(), &files) {
        if fault.is_foreign {
            return Err(ReadError::NotOfBag {
                notice: fault.sentence(),
            }
            .into());
        }
        tracing::warn!("{}", fault.sentence());
    }
    Ok(())
}

/// The regular files of a bag's directory. Encrypted bags have no directories in it.
fn files_in(path: &Path) -> Result<Vec<PathBuf>, ToolError> {
    let mut files = Vec::new();
    for DirEntry { path, is_dir } in fs::list_dir(path)? {
        if is_dir {
            continue;
        }
        match File::open(&path) {
            Ok(_) => files.push(path),
            Err(error) if error.lacks_key() => return Err(ReadError::Disk(error).into()),
            // A FIFO, a device or a socket is nothing of a bag.
            Err(error) => tracing::warn!("not copied: {error}"),
        }
    }
    Ok(files)
}

/// Writes the contents of `from` to `to`; returns the length.
fn one_file(
    from: &Path,
    to: &Path,
    disk: &mut OutputDisk,
    damage: &mut Vec<Undecrypted>,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, ToolError> {
    let input = File::open(from)?;
    let mut output = disk.create_new(to, input.len_bytes())?;
    let mut piece = vec![0; PIECE_BYTES];
    let (mut offset, listed_before) = (0, damage.len());
    while offset < input.len_bytes() {
        // Not more than a piece.
        let count = (input.len_bytes() - offset).min(PIECE_BYTES as u64) as usize;
        match input.read_exact_at(&mut piece[..count], offset) {
            Ok(()) => output.append(&piece[..count])?,
            Err(error) if error.is_changed() => {
                for at in (0..count).step_by(STEP_BYTES) {
                    let part = &mut piece[at..count.min(at + STEP_BYTES)];
                    let start = offset + at as u64;
                    let bad = step(&input, start, part, &mut output)?;
                    if bad > 0 && damage.len() - listed_before < DAMAGE_LISTED_MAX {
                        note(damage, from, start, bad);
                    }
                }
            }
            Err(error) => return Err(error.into()),
        }
        offset += count as u64;
        progress(offset);
    }
    Ok(output.finish()?)
}

/// Decrypts a few bytes, or writes as many zeros; how many these are.
fn step(input: &File, start: u64, part: &mut [u8], output: &mut OutputFile<'_>) -> Result<u64, ToolError> {
    let read = input.read_exact_at(part, start);
    let bad = match &read {
        Ok(()) => 0,
        Err(error) if error.is_changed() => part.len() as u64,
        Err(error) => return Err(error.clone().into()),
    };
    if bad > 0 {
        part.fill(0);
    }
    output.append(part)?;
    Ok(bad)
}

fn note(damage: &mut Vec<Undecrypted>, path: &Path, offset: u64, bytes: u64) {
    match damage.last_mut() {
        Some(last) if last.path == path && last.offset + last.bytes == offset => last.bytes += bytes,
        _ => damage.push(Undecrypted {
            path: path.to_owned(),
            offset,
            bytes,
        }),
    }
}
