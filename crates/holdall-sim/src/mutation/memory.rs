//! Memory of a dead process as a faulty recorder would have left it.

use super::Mutation;
use holdall::internals::{KIND_LOG, KIND_MESSAGES};
use holdall_io::survivor::{Survivor, SurvivorSlot, own_user};
use std::{fs::OpenOptions, io, os::unix::fs::FileExt, path::Path};

/// Bytes of the last message that are not there yet when its length is.
const LATE_BYTES: usize = 24;

/// Changes the memory in `path`, which has this id.
///
/// # Errors
/// When it cannot be read or written.
pub fn change(mutation: Mutation, path: &Path, id: &str) -> io::Result<()> {
    let other = |error: holdall_io::survivor::SurvivorError| io::Error::other(error.to_string());
    let survivor = Survivor::open(path, id, own_user()?).map_err(other)?;
    let file = OpenOptions::new().write(true).open(path)?;
    let read = |slot: &SurvivorSlot| survivor.read(slot).map_err(other);
    match mutation {
        Mutation::LengthBeforeBytes => {
            let Some(last) = survivor.slots().iter().rfind(|slot| slot.kind == KIND_MESSAGES) else {
                return Ok(());
            };
            let late = LATE_BYTES.min(last.bytes);
            file.write_all_at(
                &[0; LATE_BYTES][..late],
                survivor.offset_of(last) + (last.bytes - late) as u64,
            )
        }
        Mutation::ForgottenTopic
        | Mutation::ForgottenDefinition
        | Mutation::ForgottenMiss
        | Mutation::ForgottenPublisher => {
            let slots: Vec<_> = survivor
                .slots()
                .iter()
                .filter(|slot| slot.kind == KIND_LOG)
                .collect();
            let mut log = Vec::new();
            for slot in &slots {
                log.extend_from_slice(&read(slot)?);
            }
            forget(mutation, &mut log);
            let mut rest = &log[..];
            for slot in slots {
                let (now, later) = rest.split_at(slot.bytes);
                file.write_all_at(now, survivor.offset_of(slot))?;
                rest = later;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Removes lines from the log, or a definition from its line; the length is unchanged.
fn forget(mutation: Mutation, log: &mut [u8]) {
    for line in log.split_mut(|byte| *byte == b'\n') {
        let begins = |name: &str| line.starts_with(format!("{{\"{name}\":").as_bytes());
        match mutation {
            Mutation::ForgottenTopic if begins("topic") => line.fill(b'\n'),
            Mutation::ForgottenMiss if begins("miss") => line.fill(b'\n'),
            Mutation::ForgottenPublisher if begins("publisher") => line.fill(b'\n'),
            Mutation::ForgottenDefinition if begins("define") => line.fill(b'\n'),
            Mutation::ForgottenDefinition if begins("topic") => {
                const KEY: &[u8] = b"\"definition\":";
                if let Some(at) = line.windows(KEY.len()).position(|part| part == KEY) {
                    let (_, rest) = line.split_at_mut(at + KEY.len());
                    rest.fill(b' ');
                    rest[..6].copy_from_slice(b"null}}");
                }
            }
            _ => {}
        }
    }
}
