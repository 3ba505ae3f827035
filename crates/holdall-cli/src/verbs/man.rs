//! `holdall man`: manual pages from the same source as `--help`.

use crate::{
    VerbResult,
    args::{help, tools::ManArguments},
    exit::{Failure, Outcome},
    output,
};
use holdall_program::man::{page, write_all};

/// Writes one page to standard output, or all into a directory.
pub fn run(args: &ManArguments) -> VerbResult {
    let mut cli = help::command(&["holdall".into(), "--help".into()]);
    cli.build();
    match &args.dir {
        Some(dir) => {
            holdall_io::fs::create_dirs(dir).map_err(Failure::failed)?;
            write_all(dir, &cli, "holdall")?;
        }
        None => {
            let mut command = &cli;
            let mut name = "holdall".to_owned();
            for verb in &args.verb {
                command = command
                    .find_subcommand(verb)
                    .ok_or_else(|| Failure::refused(format!("{name} has no verb {verb:?}")))?;
                name = format!("{name}-{}", command.get_name());
            }
            output::result(&page(command, &name)?)?;
        }
    }
    Ok(Outcome::Done)
}
