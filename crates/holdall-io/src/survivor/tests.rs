//! Tests of memory that survives: published bytes are read back, and everything else is rejected.

use super::*;
use crate::mutex::lock;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

const SHAPE: RegionShape = RegionShape {
    slot_bytes: 5000,
    slots_max: 3,
    buffers_max: 2,
};

fn owner() -> u32 {
    std::fs::metadata("/proc/self").unwrap().uid()
}

/// Releases everything that the writer's process holds, as a kill does, and leaves the file.
fn die(region: Region, arenas: Vec<Arena>) -> (PathBuf, String) {
    let (path, id) = (region.path().to_owned(), region.id());
    let bytes = std::fs::read(&path).unwrap();
    drop(arenas);
    drop(region);
    std::fs::write(&path, bytes).unwrap();
    (path, id)
}

#[test]
fn what_was_published_is_read_back_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let region = Region::create(dir.path(), SHAPE).unwrap();
    let mut arenas: Vec<Arena> = (1..=3).filter_map(|kind| region.arena(kind)).collect();
    assert!(region.arena(9).is_none(), "there are three slots");
    arenas[2].append(b"first", b"");
    arenas[0].append(b"sec", b"ond");
    arenas[0].append(b" and more", b"");
    arenas[1].append(b"gone", b"");
    arenas[1].clear();
    let opened = Survivor::open(region.path(), &region.id(), owner());
    assert!(matches!(opened, Err(SurvivorError::Alive { .. })), "{opened:?}");
    let (path, id) = die(region, arenas);
    let survivor = Survivor::open(&path, &id, owner()).unwrap();
    let read: Vec<_> = survivor
        .slots()
        .iter()
        .map(|slot| (slot.kind, survivor.read(slot).unwrap()))
        .collect();
    assert_eq!(read, [(3, b"first".to_vec()), (1, b"second and more".to_vec())]);
    survivor.remove().unwrap();
    assert!(!path.exists());
}

#[test]
fn a_dropped_arena_can_be_taken_again_and_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    let region = Region::create(dir.path(), SHAPE).unwrap();
    for _ in 0..10 {
        let mut arena = region.arena(1).unwrap();
        assert_eq!((arena.len(), arena.capacity()), (0, 65_536));
        arena.touch();
        arena.append(&[7; 8000], &[8; 192]);
        assert_eq!(arena.as_slice()[8191], 8);
    }
    assert_eq!(region.free_slots(), region.slots());
    let (path, id) = die(region, Vec::new());
    assert!(Survivor::open(&path, &id, owner()).unwrap().slots().is_empty());
}

#[test]
fn ordinary_memory_behaves_the_same_and_does_not_survive() {
    let mut arena = Arena::heap(100);
    arena.touch();
    arena.append(b"ab", b"cd");
    arena.overwrite(1, b"x");
    assert_eq!((arena.as_slice(), arena.survives()), (&b"axcd"[..], false));
    arena.clear();
    assert!(arena.is_empty());
}

#[test]
fn a_region_of_somebody_else_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, id) = die(Region::create(dir.path(), SHAPE).unwrap(), Vec::new());
    let reason = |id: &str, owner| match Survivor::open(&path, id, owner) {
        Err(SurvivorError::Other { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        reason(&id.replace(|c: char| c != '0', "0"), owner()),
        "it has another id"
    );
    assert_eq!(reason(&id, owner() + 1), "others may have written it");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[8] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(reason(&id, owner()), "it is of another boot");
    bytes[8] ^= 1;
    for word in [40, 48, 56, 64] {
        let mut forged = bytes.clone();
        forged[word..word + 8].copy_from_slice(&(u64::MAX / 2).to_le_bytes());
        std::fs::write(&path, &forged).unwrap();
        assert_eq!(reason(&id, owner()), "its lengths are not possible");
    }
    // A slot whose stated length is more than it can hold is skipped.
    let mut forged = bytes.clone();
    forged[HEADER_BYTES..HEADER_BYTES + 8].copy_from_slice(&1u64.to_le_bytes());
    forged[HEADER_BYTES + 8..HEADER_BYTES + 16].copy_from_slice(&u64::MAX.to_le_bytes());
    std::fs::write(&path, &forged).unwrap();
    assert!(Survivor::open(&path, &id, owner()).unwrap().slots().is_empty());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o620)).unwrap();
    assert_eq!(reason(&id, owner()), "others may have written it");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(matches!(
        Survivor::open(&link, &id, owner()),
        Err(SurvivorError::Io { .. })
    ));
}

#[test]
fn a_region_is_removed_when_it_cannot_be_begun() {
    let dir = tempfile::tempdir().unwrap();
    let shape = RegionShape {
        slot_bytes: usize::MAX / 4096,
        slots_max: SLOTS_MAX,
        buffers_max: 0,
    };
    assert!(Region::create(dir.path(), shape).is_err());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    assert!(Region::create(&dir.path().join("absent"), SHAPE).is_err());
}

/// Buffers are the process's, so tests of them take turns.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn bytes_in_buffers_are_read_back_and_outlive_the_region() {
    let _turn = lock(&TURN);
    let dir = tempfile::tempdir().unwrap();
    assert!(buffers::allocate().is_none(), "no region serves");
    let region = Region::create(dir.path(), SHAPE).unwrap();
    let serving = region.serve_buffers();
    let buffer = buffers::allocate().unwrap();
    let other = buffers::allocate().unwrap();
    assert!(buffers::allocate().is_none() && region.lacks_buffers());
    // SAFETY: a buffer of this length that nothing else uses.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.as_ptr(), buffers::BUFFER_BYTES) };
    bytes[1000..1005].copy_from_slice(b"where");
    let offset = region.offset_in_buffers(&bytes[1000..1005]).unwrap();
    assert_eq!(region.offset_in_buffers(b"elsewhere"), None);
    let read = |region: &Region| {
        let (path, id) = (dir.path().join("copy"), region.id());
        std::fs::copy(region.path(), &path).unwrap();
        let survivor = Survivor::open(&path, &id, owner()).unwrap();
        let mut found = [0; 5];
        survivor.read_buffers(offset, &mut found).unwrap();
        for (offset, bytes) in [(2 << 20, 1), ((2 << 20) - 4, 5), (u64::MAX, 2)] {
            assert!(!survivor.has_in_buffers(offset, bytes), "{offset}");
            assert!(survivor.read_buffers(offset, &mut [0; 5]).is_err());
        }
        std::fs::remove_file(path).unwrap();
        found
    };
    assert_eq!(&read(&region), b"where");
    assert!(buffers::release(other) && !buffers::release(NonNull::dangling()));
    assert_eq!(buffers::allocate(), Some(other), "what is released is used again");
    let occupied = || region.path().metadata().unwrap().blocks() * 512;
    let before = occupied();
    assert!(buffers::release(other));
    assert_eq!(occupied(), before, "it is kept for the next one");
    buffers::free_idle_buffers();
    assert!(occupied() <= before - buffers::BUFFER_BYTES as u64);
    assert_eq!(&read(&region), b"where", "one in use stays");
    assert_eq!(buffers::allocate(), Some(other));
    drop(serving);
    assert!(buffers::allocate().is_none());
    drop(region);
    bytes[0] = 1;
    assert_eq!(&bytes[1000..1005], b"where");
    assert!(buffers::release(other) && buffers::release(buffer));
    assert!(!buffers::release(buffer), "its memory is gone");
}

#[test]
fn buffers_that_were_free_all_the_time_give_their_memory_back() {
    let _turn = lock(&TURN);
    let dir = tempfile::tempdir().unwrap();
    let region = Region::create(dir.path(), SHAPE).unwrap();
    let _serving = region.serve_buffers();
    let occupied = || region.path().metadata().unwrap().blocks() * 512;
    let [first, second] = [(); 2].map(|()| buffers::allocate().unwrap());
    let full = occupied();
    assert!(buffers::release(first) && buffers::release(second));
    buffers::free_unused_buffers();
    assert_eq!(occupied(), full, "both were in use since the last call");
    let used = buffers::allocate().unwrap();
    assert!(buffers::release(used));
    buffers::free_unused_buffers();
    let bytes = |count: u64| count * buffers::BUFFER_BYTES as u64;
    assert!(
        (full - bytes(2) + 1..=full - bytes(1)).contains(&occupied()),
        "one was not"
    );
    buffers::free_unused_buffers();
    assert!(occupied() <= full - bytes(2));
}

#[test]
fn the_oldest_of_several_regions_serves() {
    let _turn = lock(&TURN);
    let dir = tempfile::tempdir().unwrap();
    let regions = [(); 2].map(|()| Region::create(dir.path(), SHAPE).unwrap());
    let [first, second] = [0, 1].map(|number| regions[number].serve_buffers());
    let is_of = |region: &Region| {
        let buffer = buffers::allocate().unwrap();
        // SAFETY: a buffer has at least these bytes, and memory for them.
        let found = region.offset_in_buffers(unsafe { std::slice::from_raw_parts(buffer.as_ptr(), 8) });
        assert!(buffers::release(buffer));
        found.is_some()
    };
    assert!(is_of(&regions[0]));
    drop(first);
    assert!(is_of(&regions[1]));
    drop(second);
}

#[test]
fn a_copy_is_what_a_kill_at_that_moment_leaves() {
    let dir = tempfile::tempdir().unwrap();
    let shape = RegionShape {
        slot_bytes: 5000,
        slots_max: 300,
        ..SHAPE
    };
    let region = Region::create(dir.path(), shape).unwrap();
    let mut arenas: Vec<Arena> = (0..300).filter_map(|_| region.arena(7)).collect();
    // Entries in several pages of the table, and one that was released.
    for (place, arena) in arenas.iter_mut().enumerate().step_by(37) {
        arena.append(format!("slot {place}").as_bytes(), b"");
    }
    arenas[74].clear();
    let copy = dir.path().join("copy");
    region.copy_to(&copy).unwrap();
    arenas[0].append(b", later", b"");
    let survivor = Survivor::open(&copy, &region.id(), owner()).unwrap();
    let read: Vec<_> = survivor
        .slots()
        .iter()
        .map(|slot| String::from_utf8(survivor.read(slot).unwrap()).unwrap())
        .collect();
    let expected: Vec<_> = (0..300)
        .step_by(37)
        .filter(|place| *place != 74)
        .map(|place| format!("slot {place}"))
        .collect();
    assert_eq!(read, expected);
    assert!(region.copy_to(&copy).is_err(), "nothing is overwritten");
}
