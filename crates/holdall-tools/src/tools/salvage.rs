//! The last resort of a repair that cannot mend a bag in place: a new bag of all readable messages.

use super::{
    Choice, Job, LeftOutMessages, OutputOptions, ToolError, Written,
    check::check,
    repair::{RepairError, RepairReport},
    run,
};
use holdall_bag::reader::Bag;
use holdall_io::{fs, output::remove_dir_all};
use holdall_storage::storage_by_id;
use std::path::Path;

/// A bag rebuilt from all readable messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Number of messages in it.
    pub messages: u64,
    /// The messages that it lacks.
    pub left_out: LeftOutMessages,
}

/// The folder for making the new bag, next to the copy that it replaces.
const FOLDER: &str = "salvaged";

/// Replaces the copy of a bag at `copy`, in which a check found problems, by what can be read of it, unless that would be no better. The
/// storage stays, and each file holds the messages of the same time.
pub(super) fn salvage(
    copy: &Path,
    report: &mut RepairReport,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), RepairError> {
    let (Some(around), Some(name)) = (copy.parent(), copy.file_name()) else {
        return Ok(());
    };
    let folder = around.join(FOLDER);
    fs::create_dir_new(&folder)?;
    let made = make(copy, &folder.join(name), progress);
    let replaced = made.and_then(|made| match made {
        Made::Bag(written) => replace(copy, *written, report),
        Made::Nothing => {
            report.messages = 0;
            Ok(())
        }
        Made::Impossible => Ok(()),
    });
    remove_dir_all(&folder)?;
    replaced
}

/// Result of making the new bag.
enum Made {
    Bag(Box<Written>),
    /// No message of it can be read.
    Nothing,
    /// Its storage cannot be written.
    Impossible,
}

fn make(copy: &Path, directory: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Made, RepairError> {
    let Ok(bag) = Bag::open_locked(copy) else {
        return Ok(Made::Nothing);
    };
    if storage_by_id(&bag.metadata().storage_identifier).is_err() {
        return Ok(Made::Impossible);
    }
    let first = bag.files().first().map(|file| fs::File::open(&file.path));
    let mut output = OutputOptions {
        directory: directory.to_owned(),
        leaves_out_files: true,
        seal: first.and_then(Result::ok).and_then(|file| file.seal()),
        ..OutputOptions::default()
    };
    let starts = bag.metadata().files.iter().skip(1);
    output.split.times = starts.filter_map(|file| file.starting_time).collect();
    let job = Job {
        inputs: vec![bag],
        choice: Choice::default(),
        output,
    };
    match run(job, progress) {
        Ok(written) => Ok(Made::Bag(Box::new(written))),
        Err(ToolError::Damaged { .. }) => Ok(Made::Nothing),
        Err(error) => Err(Box::new(error).into()),
    }
}

fn replace(copy: &Path, written: Written, report: &mut RepairReport) -> Result<(), RepairError> {
    let found = check(&written.directory, &mut |_, _| ())?;
    if written.left_out.is_empty() && found.problems() >= report.problem_count {
        return Ok(());
    }
    if fs::is_dir(copy) {
        remove_dir_all(copy)?;
        fs::rename_over(&written.directory, copy)?;
        report.metadata_written = true;
    } else if let [file] = &written.files[..] {
        fs::rename_over(file, copy)?;
    } else {
        return Ok(());
    }
    report.files.clear();
    report.messages = written.messages;
    let made = (
        written.directory.display().to_string(),
        copy.display().to_string(),
    );
    let named = |text: String| text.replace(&made.0, &made.1);
    report.unsaved.extend(
        written
            .left_out
            .places
            .iter()
            .map(|place| named(place.to_string())),
    );
    let more = written.left_out.place_count - written.left_out.places.len() as u64;
    if more > 0 {
        report.unsaved.push(format!("and {more} more damaged places"));
    }
    report.salvaged = Some(Salvaged {
        messages: written.messages,
        left_out: written.left_out,
    });
    report.set_problems(&found);
    for problem in &mut report.problems {
        *problem = named(std::mem::take(problem));
    }
    Ok(())
}
