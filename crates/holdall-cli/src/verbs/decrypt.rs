//! `holdall decrypt`: the bag that an encrypted bag holds.

use crate::{
    VerbResult,
    args::decrypt::DecryptArguments,
    exit::{Failure, Outcome},
    output,
    terminal::{log, progress::Progress},
    units::{format_bytes, plural},
};
use holdall_model::text::OutsidePath;
use tracing::{error, level_filters::LevelFilter};

/// Decrypts; exit code 1 when some bytes are not those that were written.
pub fn run(args: &DecryptArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let progress = Progress::of_bytes(&format!("decrypting {}", args.bag.display()));
    let done = holdall::tools::decrypt::decrypt(&args.bag, &args.output, &mut |done, total| {
        progress.show(done, total);
    });
    drop(progress);
    let done = done.map_err(|error| Failure::making(error, std::slice::from_ref(&args.bag)))?;
    for place in &done.damage {
        error!(
            "{}: {} bytes from byte {} on were changed after they were written, and are zeros in the decrypted file",
            OutsidePath(&place.path),
            place.bytes,
            place.offset
        );
    }
    output::result(&if args.json {
        let damage = done.damage.iter().map(|place| {
            serde_json::json!({ "file": place.path.display().to_string(), "offset": place.offset, "bytes": place.bytes })
        });
        serde_json::json!({
            "output": done.output.display().to_string(),
            "files": done.files,
            "bytes": done.bytes,
            "damage": damage.collect::<Vec<_>>(),
        })
        .to_string()
    } else {
        format!(
            "{}: {} decrypted, {}",
            OutsidePath(&done.output),
            plural(done.files as u64, "file"),
            format_bytes(done.bytes)
        )
    })?;
    Ok(if done.damage.is_empty() {
        Outcome::Done
    } else {
        Outcome::Failed
    })
}
