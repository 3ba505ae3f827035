//! Tests of memory that survives: published bytes are read back, and everything else is rejected.

use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

const SHAPE: RegionShape = RegionShape {
    slot_bytes: 5000,
    slots_max: 3,
};

fn owner() -> u32 {
    std::fs::metadata("/proc/self").unwrap().uid()
}

/// Releases what the writer's process holds, as a kill does, and leaves the file.
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
        assert_eq!((arena.len(), arena.capacity()), (0, 8192));
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
    for word in [40, 48, 56] {
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
    };
    assert!(Region::create(dir.path(), shape).is_err());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    assert!(Region::create(&dir.path().join("absent"), SHAPE).is_err());
}
