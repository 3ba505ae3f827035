//! A command for each complete file of a recording: runs during the recording; only the end waits for it.

use super::line_command::{LineCommand, Subject};
use std::path::{Path, PathBuf};

/// The file's path, as the command sees it.
pub const FILE_VARIABLE: &str = "HOLDALL_FILE";

/// The bag's directory, as commands see it.
pub const BAG_VARIABLE: &str = "HOLDALL_BAG";

/// Runs a command for each file that it is given.
///
/// The command is a line for a shell: `{}` is the file's path as one word, however it is quoted; the environment has it as `HOLDALL_FILE`, and
/// the bag's directory as `HOLDALL_BAG`.
pub struct FileCommand(pub(super) LineCommand);

impl FileCommand {
    /// Runs this line by a shell: its path, and the argument that precedes a line.
    pub fn new(shell: [&str; 2], line: &str) -> Self {
        Self(LineCommand::new(shell, line))
    }

    /// Adds files; their commands are started in this order.
    pub(super) fn add(&mut self, files: impl IntoIterator<Item = PathBuf>) {
        self.0.add(files.into_iter().map(|file| subject(&file)));
    }
}

fn subject(file: &Path) -> Subject {
    // It fails only without a current directory, and the path is relative to that one.
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let bag = file.parent().unwrap_or(&file).to_owned();
    Subject {
        name: file.display().to_string(),
        variables: vec![(FILE_VARIABLE, file.clone().into()), (BAG_VARIABLE, bag.into())],
        word: file.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::command_tests::{SH, run};
    use std::fs;

    #[test]
    fn the_path_is_one_word_and_in_the_environment() {
        let folder = tempfile::tempdir().unwrap();
        let bag = folder.path().join("a bag; $(echo x)");
        fs::create_dir(&bag).unwrap();
        let file = bag.join("it's \"0\".mcap");
        for word in ["{}", "\"{}\"", "'{}'", "\"$1\"", "\"$HOLDALL_FILE\""] {
            fs::write(&file, "content").unwrap();
            let mut command = FileCommand::new(SH, &format!("cp {word} \"$HOLDALL_BAG\"/copy"));
            command.add([file.clone()]);
            run(&mut command.0);
            assert_eq!(fs::read_to_string(bag.join("copy")).unwrap(), "content", "{word}");
            fs::remove_file(bag.join("copy")).unwrap();
        }
    }
}
