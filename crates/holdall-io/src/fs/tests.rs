//! Tests of the operations on files: bounds, atomic writes, names.

use super::{file_system::reports_failed_writes, *};
use crate::clock::{Clock, SystemClock};
use std::{fs, io, io::Write, os::fd::AsRawFd, time::Duration};

#[test]
fn a_file_system_is_synced_where_the_kernel_reports_failed_writes() {
    let reporting = ["6.18.44-fc", "5.8.0", "5.10", "10.0"].map(reports_failed_writes);
    let silent = ["5.7.19", "4.19.0-amd64", "", "x"].map(reports_failed_writes);
    assert_eq!((reporting, silent), ([true; 4], [false; 4]));
    let dir = tempfile::tempdir().unwrap();
    if let Some(file_system) = FileSystem::of(dir.path()).unwrap() {
        file_system.sync().unwrap();
    }
    assert!(FileSystem::of(&dir.path().join("absent")).is_err());
}

#[test]
fn reading_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("text");
    write_atomically(&path, b"hello").unwrap();
    assert_eq!(read_to_string(&path, 5).unwrap(), "hello");
    let error = read_to_string(&path, 4).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("could not read {}: it is larger than 4 bytes", path.display())
    );
}

#[test]
fn text_that_is_none_names_the_byte() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("text");
    write_atomically(&path, b"ab\xff").unwrap();
    assert_eq!(read_to_string(&path, 100).unwrap_err().offset, Some(2));
}

#[test]
fn atomic_write_replaces_and_leaves_no_temporary() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metadata.yaml");
    write_atomically(&path, b"old").unwrap();
    write_atomically(&path, b"new").unwrap();
    assert_eq!(read(&path, 10).unwrap(), b"new");
    assert_eq!(list_dir(dir.path()).unwrap(), [DirEntry { path, is_dir: false }]);
}

#[test]
fn failed_atomic_write_keeps_the_old_content() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("taken");
    create_dir_new(&path).unwrap();
    write_atomically(&path.join("inside"), b"x").unwrap();
    assert!(write_atomically(&path, b"new").is_err());
    assert!(write_atomically_unsynced(&path, b"new").is_err());
    assert_eq!(list_dir(dir.path()).unwrap().len(), 1);
    assert_eq!(read(&path.join("inside"), 10).unwrap(), b"x");
}

#[test]
fn existing_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/bag");
    create_dir_new(&path).unwrap();
    let error = create_dir_new(&path).unwrap_err();
    assert!(error.is_already_exists());
    assert_eq!(
        error.to_string(),
        format!("could not create directory {}: it exists already", path.display())
    );
}

#[test]
fn a_file_in_the_place_of_a_parent_is_not_an_existing_directory() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let error = create_dir_new(&dir.path().join("file/bag")).unwrap_err();
    assert!(!error.is_already_exists(), "{error}");
    assert!(error.to_string().contains("not a directory"), "{error}");
}

#[test]
fn appending_makes_the_file_and_truncating_empties_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    append(&path, b"ab").unwrap();
    append(&path, b"c").unwrap();
    make_durable(&path).unwrap();
    assert_eq!(read(&path, 10).unwrap(), b"abc");
    truncate(&path).unwrap();
    assert_eq!(file_len(&path).unwrap(), 0);
    assert!(truncate(&dir.path().join("none")).unwrap_err().is_not_found());
}

#[test]
fn a_converted_file_is_there_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    write_atomically(&from, b"abc").unwrap();
    let broken = convert_file(&from, &to, true, |_, into| {
        into.write_all(b"half")?;
        Err(io::Error::other("torn"))
    });
    assert!(broken.unwrap_err().to_string().ends_with("torn"));
    assert_eq!(list_dir(dir.path()).unwrap().len(), 1);
    convert_file(&from, &to, true, |from, into| io::copy(from, into).map(drop)).unwrap();
    assert_eq!(read(&to, 10).unwrap(), b"abc");
    let again = convert_file(&from, &to, true, |_, _| Ok(()));
    assert!(again.unwrap_err().is_already_exists());
    assert_eq!(list_dir(dir.path()).unwrap().len(), 2);
}

#[test]
fn what_is_reserved_after_what_was_written_is_cut_and_written_zeros_stay() {
    let dir = tempfile::TempDir::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = dir.path().join("a");
    let mut content = vec![7; 10_000];
    content.resize(50_000, 0);
    std::fs::write(&path, &content).unwrap();
    assert_eq!(trim_unwritten(&path).unwrap(), 0, "a whole file is not changed");
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.sync_all().unwrap();
    let reserved = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 50_000, 32 << 20);
    if reserved.is_err() {
        file.set_len(50_000 + (32 << 20)).unwrap();
    }
    let trimmed = trim_unwritten(&path).unwrap();
    let found = std::fs::read(&path).unwrap();
    assert!(found.starts_with(&content));
    assert!(found[50_000..].iter().all(|byte| *byte == 0));
    assert!(trimmed > 30 << 20 && found.len() < 100_000, "{trimmed}");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(trim_unwritten(&link).is_err());
}

#[test]
fn a_file_of_zeros_is_unwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    for (bytes, expected) in [
        (vec![], true),
        (vec![0; 3_000_000], true),
        ([vec![0; 2_999_999], vec![1]].concat(), false),
    ] {
        write_atomically(&path, &bytes).unwrap();
        assert_eq!(is_unwritten(&path).unwrap(), expected);
    }
    assert!(!is_unwritten(dir.path()).unwrap());
}

#[test]
fn a_file_with_room_takes_a_longer_text_without_new_space() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metadata.yaml");
    write_atomically_with_room(&path, b"short", 65536).unwrap();
    let before = fs::metadata(&path).unwrap();
    assert_eq!(before.len(), 5);
    let long = vec![b'x'; 60_000];
    write_over(&path, &long).unwrap();
    let after = fs::metadata(&path).unwrap();
    assert!(fs::read(&path).unwrap() == long);
    // If the file system reserves space, the text goes into it; the file system may add a block for itself.
    let (reserved, used) = (before.blocks(), after.blocks());
    assert!(reserved < 128 || used < reserved + 64, "{reserved}, then {used}");
    write_over(&path, b"s").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"s");
    assert!(
        write_over(&dir.path().join("none"), b"")
            .unwrap_err()
            .is_not_found()
    );
}

#[test]
fn file_is_read_at_any_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    write_atomically(&path, b"0123456789").unwrap();
    let file = File::open(&path).unwrap();
    let mut four = [0; 4];
    file.read_exact_at(&mut four, 3).unwrap();
    assert_eq!(&four, b"3456");
    assert_eq!(file.read_at(&mut four, 8).unwrap(), 2);
    let error = file.read_exact_at(&mut four, 8).unwrap_err();
    assert_eq!(
        (error.offset, error.source.kind()),
        (Some(8), io::ErrorKind::UnexpectedEof)
    );
    assert_eq!((file.len_bytes(), file_len(&path).unwrap()), (10, 10));
}

#[test]
fn missing_file_and_directory_name_their_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("none");
    assert!(File::open(&path).unwrap_err().is_not_found());
    assert!(remove_file(&path).unwrap_err().is_not_found());
    assert_eq!(list_dir(&path).unwrap_err().path, path);
    let error = File::open(dir.path()).unwrap_err();
    assert!(error.to_string().contains("it is not a regular file"), "{error}");
}

/// Pages of a file that are in the page cache.
fn cached_pages(file: &fs::File, bytes: usize) -> usize {
    let mut pages = vec![0u8; bytes.div_ceil(4096)];
    // SAFETY: a mapping of its own, which is not read; the list has a byte for each of its pages, which have 4096 bytes or more.
    unsafe {
        let start = libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(start, libc::MAP_FAILED);
        assert_eq!(libc::mincore(start, bytes, pages.as_mut_ptr()), 0);
        libc::munmap(start, bytes);
    }
    pages.iter().filter(|page| **page & 1 == 1).count()
}

#[test]
fn all_expected_bytes_are_fetched_however_many() {
    const BYTES: usize = 48 << 20;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, vec![7; BYTES]).unwrap();
    let plain = fs::File::open(&path).unwrap();
    plain.sync_all().unwrap();
    let all = cached_pages(&plain, BYTES);
    rustix::fs::fadvise(&plain, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    if cached_pages(&plain, BYTES) > all / 10 {
        return; // A file system in memory.
    }
    File::open(&path).unwrap().expect_read(0, BYTES as u64);
    let begin = SystemClock.monotonic();
    while cached_pages(&plain, BYTES) < all {
        let waited = SystemClock.monotonic() - begin;
        assert!(waited < Duration::from_secs(60), "not all of it was fetched");
        std::thread::yield_now();
    }
}
