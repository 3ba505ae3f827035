//! Hints at what a user can do about an error or a warning, in the words of the command line. The library names no flag: its errors are typed and its
//! warnings name a setting; here both become flags.

#[cfg(feature = "parquet")]
use holdall::training::TrainingError;
use holdall::{
    decode::ChoiceError,
    export::ExportError,
    play::PlayError,
    reader::ReadError,
    record::Setting,
    supervise::control_socket::ControlError,
    tools::{ToolError, repair::RepairError},
};
use holdall_io::disk::DiskError;
use holdall_model::unheard::NotHeardKind;
use holdall_storage::error::StorageError;
use std::fmt;

/// Where messages are readable that no table can hold.
pub const AS_JSON: &str = "use holdall cat --json";

/// The flag for a setting, with its value where only one helps.
pub const fn flag(setting: Setting) -> &'static str {
    match setting {
        Setting::CacheBytesMax => "--max-cache-size",
        Setting::MaxLossWindow => "--max-loss-window",
        Setting::RingOnDiskFull => "--on-disk-full ring",
        Setting::Triggers => "--trigger",
        Setting::Snapshot => "--snapshot-mode",
    }
}

/// A hint about a node or publisher that is not heard.
pub const fn not_heard_hint(kind: NotHeardKind) -> Option<&'static str> {
    match kind {
        NotHeardKind::NoUdp | NotHeardKind::DiscoveryServer => Some(
            "--transport rmw receives what the sourced ROS 2 receives, in the environment of these nodes",
        ),
        _ => None,
    }
}

/// An error of the library that a flag or another verb may help with.
pub trait Hint: fmt::Display {
    /// One clause, if anything helps.
    fn hint(&self) -> Option<&'static str>;

    /// The error, and advice.
    fn with_hint(&self) -> String {
        match self.hint() {
            Some(hint) => format!("{self}; {hint}"),
            None => self.to_string(),
        }
    }
}

/// For an encrypted bag.
fn key_hint(error: &DiskError) -> Option<&'static str> {
    error
        .lacks_key()
        .then_some("name the file of its owner's secret key with --identity")
}

impl Hint for StorageError {
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Disk(error) => key_hint(error),
            _ => None,
        }
    }
}

impl Hint for ReadError {
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Disk(error) => key_hint(error),
            Self::Storage(error) => error.hint(),
            Self::NoPublishers { .. } => {
                Some("MCAP and SQLite bags that holdall recorded do, unless --merge-publishers was set")
            }
            _ => None,
        }
    }
}

impl Hint for ChoiceError {
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Bag(error) => error.hint(),
            _ => None,
        }
    }
}

impl Hint for ToolError {
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::OutputExists { .. } => Some("choose another name with -o"),
            Self::Disk(error) => key_hint(error),
            Self::Storage(error) => error.hint(),
            Self::Read(error) => error.hint(),
            Self::Choice(error) => error.hint(),
            _ => None,
        }
    }
}

impl Hint for RepairError {
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Bag(error) => error.hint(),
            Self::Output(error) => error.hint(),
            Self::Storage(StorageError::NotInPlace { .. }) => Some("name it with -o"),
            // A copy is made of the readable part.
            Self::Storage(error) if error.is_damage() => {
                Some("with -o, what can be read of it is saved in another bag")
            }
            Self::Storage(error) => error.hint(),
            Self::Disk(error) => key_hint(error),
            _ => None,
        }
    }
}

impl Hint for ExportError {
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Exists { .. } => Some("choose another folder with -o or add --overwrite"),
            Self::TooManyColumns { .. } => Some(AS_JSON),
            Self::Bag(error) => error.hint(),
            Self::Choice(error) => error.hint(),
            _ => None,
        }
    }
}

#[cfg(feature = "parquet")]
impl Hint for TrainingError {
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Folder(ToolError::OutputExists { .. }) => {
                Some("choose another folder with -o or add --overwrite")
            }
            Self::Folder(error) => error.hint(),
            Self::Bag(error) => error.hint(),
            _ => None,
        }
    }
}

impl Hint for PlayError {
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::SerializationFormat { .. } => {
                Some("choose another with --transport, or leave the topic out with --exclude-topics")
            }
            Self::Bag(error) => error.hint(),
            _ => None,
        }
    }
}

impl Hint for ControlError {
    /// The flag that the recording would have to be started with.
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Refused {
                setting: Some(setting),
                ..
            } => Some(flag(*setting)),
            _ => None,
        }
    }

    fn with_hint(&self) -> String {
        match self.hint() {
            Some(flag) => format!("{self} ({flag})"),
            None => self.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn an_error_inside_of_another_keeps_its_hint() {
        let none = || ReadError::NoPublishers {
            path: PathBuf::from("bag"),
        };
        let alone = none().with_hint();
        assert!(
            alone.starts_with("bag: ") && alone.contains("--merge-publishers"),
            "{alone}"
        );
        for inside in [
            ChoiceError::from(none()).with_hint(),
            ToolError::from(none()).with_hint(),
            ToolError::from(ChoiceError::from(none())).with_hint(),
            ExportError::from(ChoiceError::from(none())).with_hint(),
            ExportError::from(none()).with_hint(),
            PlayError::from(none()).with_hint(),
        ] {
            assert_eq!(inside, alone);
        }
    }

    #[test]
    fn a_repair_that_fails_in_place_names_the_copy() {
        let damaged = StorageError::Malformed {
            path: PathBuf::from("bag_0.db3"),
            offset: 0,
            expected: "a whole database".to_owned(),
            found: "zeros".to_owned(),
        };
        let said = RepairError::Storage(damaged).with_hint();
        assert!(
            said.contains("damaged at byte 0") && said.contains("with -o"),
            "{said}"
        );
    }

    #[test]
    fn a_refusal_names_the_flag_of_its_setting() {
        let refused = |setting| {
            let reason = "refused".to_owned();
            ControlError::Refused { reason, setting }.with_hint()
        };
        assert_eq!(refused(None), "refused");
        for setting in Setting::ALL {
            assert_eq!(Setting::from_name(setting.name()), Some(setting));
            assert_eq!(refused(Some(setting)), format!("refused ({})", flag(setting)));
        }
    }
}
