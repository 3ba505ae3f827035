//! Changes of `holdall attach`.

use super::{UsageError, record::custom_data};
use crate::args::attach::AttachArguments;
use holdall::tools::attach::{Change, FileToAttach};
use holdall_io::fs;
use std::path::Path;

/// The change that a command line asks for.
///
/// # Errors
/// Nothing to do, one name for several files, a file without a name, pairs without `=`.
pub fn change(args: &AttachArguments) -> Result<Change, UsageError> {
    if args.files.is_empty() && args.metadata.is_none() && args.remove.is_empty() {
        return Err(UsageError::Needs {
            flag: "attach",
            needs: "files, --metadata or --remove",
        });
    }
    if let (Some(name), true) = (&args.name, args.files.len() != 1) {
        return Err(bad_value("--name", name, "it needs exactly one file"));
    }
    let mut files: Vec<FileToAttach> = Vec::with_capacity(args.files.len());
    for path in &args.files {
        let own = || path.file_name().and_then(|name| name.to_str());
        let Some(name) = args.name.as_deref().or_else(own) else {
            let path = path.display().to_string();
            return Err(bad_value(
                "FILE",
                &path,
                "its name is not UTF-8 text; --name names the attachment",
            ));
        };
        if files.iter().any(|other| other.name == name) {
            return Err(bad_value(
                "FILE",
                name,
                "two files have this name; attach one with --name",
            ));
        }
        let media_type = args.media_type.clone();
        files.push(FileToAttach {
            path: path.clone(),
            name: name.to_owned(),
            media_type: media_type.unwrap_or_else(|| media_type_of(path)),
        });
    }
    let metadata = args.metadata.as_ref();
    let entries = custom_data(&args.entry)?;
    Ok(Change {
        removed: args.remove.clone(),
        files,
        metadata: metadata.map(|name| (name.clone(), entries)),
    })
}

/// Checks that a file can be made at `path`.
///
/// # Errors
/// A file exists there and must not be replaced.
pub fn target(path: &Path, overwrite: bool) -> Result<(), UsageError> {
    if fs::is_dir(path) || (!overwrite && fs::exists(path).unwrap_or(false)) {
        return Err(UsageError::OutputExists {
            path: path.to_owned(),
        });
    }
    Ok(())
}

fn bad_value(flag: &'static str, value: &str, reason: &str) -> UsageError {
    UsageError::BadValue {
        flag,
        value: value.to_owned(),
        reason: reason.to_owned(),
    }
}

fn media_type_of(path: &Path) -> String {
    match path.extension().and_then(|extension| extension.to_str()) {
        // RFC 9512; the crate has a name from before it.
        Some("yaml" | "yml") => "application/yaml".to_owned(),
        _ => mime_guess::from_path(path)
            .first_or_octet_stream()
            .essence_str()
            .to_owned(),
    }
}
