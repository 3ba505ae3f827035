//! The outcome of a run, and its exit code: which errors refuse the input, and which are failures during the work.

use crate::hint::Hint;
#[cfg(feature = "parquet")]
use holdall::training::TrainingError;
use holdall::{
    decode::ChoiceError,
    export::ExportError,
    live::LockError,
    play::PlayError,
    reader::{ReadError, bags_below},
    supervise::control_socket::ControlError,
    tools::{Ending, ToolError, repair::RepairError},
};
use holdall_io::{fs, remote};
use holdall_model::text::OutsidePath;
use holdall_storage::StorageError;
use std::{
    fmt, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Everything was done.
pub const OK: u8 = 0;
/// Something failed on the way: a damaged bag, a full disk.
pub const FAILED: u8 = 1;
/// Refused before anything was done: wrong flags, no such file, not a bag, no such topic, nothing chosen.
pub const REFUSED: u8 = 2;
/// Done, but messages were lost or cannot be read.
pub const LOST: u8 = 3;
/// Done, but a rule of the contract failed.
pub const BROKEN: u8 = 4;

/// The table of exit codes in `--help`.
pub const HELP: &str = "\
Exit codes:
  0  done
  1  failed: a damaged bag, a full disk; or check, audit or diff found something
  2  refused before anything was done: wrong flags, no such file, not a bag, nothing selected
  3  done, but messages were lost or cannot be read, or a reliable publisher went silent (the report says which)
  4  done, but a rule of the contract failed (--contract)";

/// How a run ended when nothing failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything was done.
    Done,
    /// Done, but a rule of the contract failed.
    Broken,
    /// Done, but messages were lost or cannot be read.
    Lost,
    /// Two things that were compared are not the same.
    Different,
    /// Ended early for a reason that has been logged already.
    Failed,
}

impl Outcome {
    /// The outcome of a verb that repairs a bag or describes it anew.
    pub fn of(ending: Ending) -> Self {
        match ending {
            Ending::Lost => Self::Lost,
            Ending::Wrong => Self::Failed,
            Ending::Whole => Self::Done,
        }
    }

    /// The worse of two.
    #[must_use]
    pub fn or_worse(self, other: Self) -> Self {
        let rank = |outcome| match outcome {
            Self::Done => 0,
            Self::Broken => 1,
            Self::Lost => 2,
            Self::Different => 3,
            Self::Failed => 4,
        };
        if rank(other) > rank(self) { other } else { self }
    }
}

/// Why a run failed: one sentence for the user.
#[derive(Debug)]
pub enum Failure {
    /// Wrong usage or bad input; nothing was done.
    Refused(String),
    /// Failed during the work.
    Failed(String),
}

impl Failure {
    /// Refuses bad input with the sentence in `reason`.
    pub fn refused(reason: impl fmt::Display) -> Self {
        Self::Refused(reason.to_string())
    }

    /// Fails with the sentence in `reason`.
    pub fn failed(reason: impl fmt::Display) -> Self {
        Self::Failed(reason.to_string())
    }

    fn when(is_refused: bool, error: &impl Hint) -> Self {
        if is_refused {
            Self::Refused(error.with_hint())
        } else {
            Self::Failed(error.with_hint())
        }
    }

    /// The failure to open a bag; `named` are the paths of the command line.
    pub fn opening(error: ReadError, named: &[PathBuf]) -> Self {
        Self::when(refuses(&error, named), &error).with(meant(&error))
    }

    /// With another clause.
    fn with(self, clause: Option<String>) -> Self {
        let Some(clause) = clause else { return self };
        match self {
            Self::Refused(sentence) => Self::Refused(format!("{sentence}; {clause}")),
            Self::Failed(sentence) => Self::Failed(format!("{sentence}; {clause}")),
        }
    }

    /// The failure of a choice of messages.
    pub fn choosing(error: ChoiceError) -> Self {
        Self::when(refuses_choice(&error), &error)
    }

    /// The failure of a verb that makes a bag, or changes the bag `named`.
    pub fn making(error: ToolError, named: &[PathBuf]) -> Self {
        let clause = match &error {
            ToolError::Read(error) => meant(error),
            _ => None,
        };
        Self::when(refuses_tool(&error, named), &error).with(clause)
    }

    /// The failure to repair the bag `named`.
    pub fn repairing(error: RepairError, named: &Path) -> Self {
        let named = [named.to_owned()];
        let is_refused = match &error {
            RepairError::Bag(error) => refuses(error, &named),
            RepairError::Storage(error) => refuses_file(error, &named),
            RepairError::Lock(error) => refuses_lock(error, &named),
            RepairError::Alive(_) => true,
            RepairError::Disk(error) => error.lacks_key() || named.contains(&error.path),
            RepairError::Output(error) => refuses_tool(error, &named),
            _ => false,
        };
        let clause = match &error {
            RepairError::Bag(error) => meant(error),
            _ => None,
        };
        Self::when(is_refused, &error).with(clause)
    }

    /// Names the bags in a folder that is none itself.
    #[must_use]
    pub fn with_bags_in(self, folder: &Path) -> Self {
        self.with(inside(folder))
    }

    /// The failure to play the bags `named`.
    pub fn playing(error: PlayError, named: &[PathBuf]) -> Self {
        let clause = match &error {
            PlayError::Bag(error) => meant(error),
            _ => None,
        };
        let is_refused = match &error {
            PlayError::Option { .. }
            | PlayError::Regex { .. }
            | PlayError::Nothing { .. }
            | PlayError::Step { .. }
            | PlayError::Rules(_)
            | PlayError::SerializationFormat { .. } => true,
            PlayError::Bag(error) => refuses(error, named),
            _ => false,
        };
        Self::when(is_refused, &error).with(clause)
    }

    /// The failure of an export.
    pub fn exporting(error: ExportError) -> Self {
        let is_refused = match &error {
            ExportError::Exists { .. } | ExportError::NotBuilt { .. } | ExportError::NoFfmpeg => true,
            ExportError::Choice(error) => refuses_choice(error),
            _ => false,
        };
        Self::when(is_refused, &error)
    }

    /// The failure of an export of training data.
    #[cfg(feature = "parquet")]
    pub fn training(error: TrainingError) -> Self {
        match error {
            TrainingError::Choice(error) => Self::choosing(error),
            error => Self::when(error.is_refusal(), &error),
        }
    }

    /// The failure of a request to a running recording.
    pub fn asking(error: ControlError) -> Self {
        let is_refused = match &error {
            ControlError::Bind { .. } | ControlError::Refused { .. } => true,
            ControlError::Reach { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ),
            _ => false,
        };
        Self::when(is_refused, &error)
    }

    /// The sentence.
    pub fn sentence(&self) -> &str {
        match self {
            Self::Refused(sentence) | Self::Failed(sentence) => sentence,
        }
    }
}

/// Most bags that are named.
const BAGS_MAX: usize = 5;

/// Names of a folder that are compared.
const LISTED_MAX: usize = 1000;

/// Letters of a name for each one that differs.
const LETTERS_PER_FAULT: usize = 3;

/// What may have been meant: the bags in a folder that is none itself, what is beside a name that is not there.
fn meant(error: &ReadError) -> Option<String> {
    match error {
        ReadError::NotABag { path, .. } if !remote::is_remote(path) => inside(path),
        ReadError::Io { path, source, .. } if source.kind() == io::ErrorKind::NotFound => beside(path),
        ReadError::Disk(error) if error.source.kind() == io::ErrorKind::NotFound => beside(&error.path),
        _ => None,
    }
}

fn inside(folder: &Path) -> Option<String> {
    let (bags, is_cut) = bags_below(folder, BAGS_MAX);
    let bags = bags.iter().filter(|bag| !bag.name.as_os_str().is_empty());
    let names: Vec<String> = bags.map(|bag| shown(&folder.join(&bag.name))).collect();
    let more = if is_cut { ", …" } else { "" };
    (!names.is_empty()).then(|| format!("there are bags in it: {}{more}", names.join(", ")))
}

/// Names in the same folder that one begins with, or that differ from it in few letters.
fn beside(path: &Path) -> Option<String> {
    if remote::is_remote(path) {
        return None;
    }
    let wanted = path.file_name()?.to_str()?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = parent.unwrap_or(Path::new("."));
    let is_near = |name: &str| {
        let distance = strsim::osa_distance(name, wanted);
        name.starts_with(wanted) || distance * LETTERS_PER_FAULT <= wanted.len()
    };
    let listed = fs::list_dir_up_to(folder, LISTED_MAX).unwrap_or_default();
    let named = listed.iter().filter_map(|entry| entry.path.file_name()?.to_str());
    let mut near: Vec<String> = named
        .filter(|name| is_near(name))
        .map(|name| shown(&parent.map_or_else(|| name.into(), |parent| parent.join(name))))
        .collect();
    near.sort();
    near.truncate(BAGS_MAX);
    (!near.is_empty()).then(|| format!("did you mean {}?", near.join(" or ")))
}

fn shown(path: &Path) -> String {
    OutsidePath(path).to_string()
}

/// Whether opening a bag was refused: the named path does not exist, is not a bag, or has an unsupported form. An error in a
/// file inside of a bag is damage.
fn refuses(error: &ReadError, named: &[PathBuf]) -> bool {
    match error {
        ReadError::Unsupported { .. } | ReadError::Publishers { .. } | ReadError::NoPublishers { .. } => true,
        ReadError::NotABag { path, .. } | ReadError::Io { path, .. } => named.contains(path),
        ReadError::Disk(error) => error.lacks_key() || named.contains(&error.path),
        ReadError::Storage(error) => refuses_file(error, named),
        _ => false,
    }
}

fn refuses_file(error: &StorageError, named: &[PathBuf]) -> bool {
    match error {
        StorageError::Unsupported { .. } | StorageError::NotInPlace { .. } => true,
        StorageError::WrongFormat { path, .. } | StorageError::Io { path, .. } => named.contains(path),
        StorageError::Disk(error) => error.lacks_key() || named.contains(&error.path),
        _ => false,
    }
}

fn refuses_lock(error: &LockError, named: &[PathBuf]) -> bool {
    match error {
        LockError::BeingRecorded { .. } | LockError::Remote { .. } => true,
        LockError::Disk(error) => named.contains(&error.path),
    }
}

fn refuses_choice(error: &ChoiceError) -> bool {
    matches!(
        error,
        ChoiceError::UnknownTopic { .. }
            | ChoiceError::Outside(_)
            | ChoiceError::Question { .. }
            | ChoiceError::Opaque { .. }
            | ChoiceError::Nothing { .. }
    )
}

fn refuses_tool(error: &ToolError, named: &[PathBuf]) -> bool {
    match error {
        ToolError::OutputExists { .. }
        | ToolError::OutputName { .. }
        | ToolError::Selection(_)
        | ToolError::Change { .. }
        | ToolError::Rename { .. }
        | ToolError::Shift { .. }
        | ToolError::Rules(_)
        | ToolError::Unsupported { .. } => true,
        ToolError::Choice(error) => refuses_choice(error),
        ToolError::Lock(error) => refuses_lock(error, named),
        ToolError::Read(error) => refuses(error, named),
        ToolError::Disk(error) => error.lacks_key() || named.contains(&error.path),
        ToolError::Storage(error) => matches!(error, StorageError::Disk(error) if error.lacks_key()),
        _ => false,
    }
}

/// The exit code of a run.
pub fn code(result: &Result<Outcome, Failure>) -> ExitCode {
    ExitCode::from(match result {
        Ok(Outcome::Done) => OK,
        Ok(Outcome::Broken) => BROKEN,
        Ok(Outcome::Lost) => LOST,
        Ok(Outcome::Different | Outcome::Failed) | Err(Failure::Failed(_)) => FAILED,
        Err(Failure::Refused(_)) => REFUSED,
    })
}
