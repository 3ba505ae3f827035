//! The arguments of `holdall upload`.

use crate::units::parse_bytes;
use clap::Args;
use std::path::PathBuf;

/// Shown below `-h` and `--help`.
pub const EXAMPLES: &str = "\
Examples:
  holdall upload lab s3://fleet/robot7/lab             then: holdall info s3://fleet/robot7/lab
  holdall upload lab s3://fleet/robot7/                into s3://fleet/robot7/lab
  holdall upload --limit-rate 2MiB --schedule 22:00-06:00 lab s3://fleet/robot7/
  holdall upload --delete-after-verify lab s3://fleet/robot7/

It continues an upload that was killed, and does not send again what the service has.";

/// A time of every day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Minutes since midnight at which it begins.
    pub from: u16,
    /// Minutes since midnight at which it ends; before the beginning: on the next day.
    pub to: u16,
}

/// Parses `22:00-06:00`.
pub fn schedule(text: &str) -> Result<Schedule, String> {
    let minutes = |text: &str| {
        let (hour, minute) = text.trim().split_once(':')?;
        let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
        (hour < 24 && minute < 60).then_some(hour * 60 + minute)
    };
    let parsed = text
        .split_once('-')
        .and_then(|(from, to)| Some((minutes(from)?, minutes(to)?)));
    match parsed {
        Some((from, to)) if from != to => Ok(Schedule { from, to }),
        _ => Err("expected two times of the day, as 22:00-06:00".to_owned()),
    }
}

impl Schedule {
    /// Minutes until it begins, at this minute of the day; zero while it lasts.
    pub fn wait(self, now: u16) -> u16 {
        let day = 24 * 60;
        let since = (now + day - self.from) % day;
        let length = (self.to + day - self.from) % day;
        if since < length { 0 } else { day - since }
    }
}

/// All flags of `holdall upload`.
#[derive(Args, Clone, Debug)]
pub struct UploadArguments {
    /// Bag directory; if it is being recorded, its finished files are sent
    #[arg(value_name = "BAG")]
    pub bag: PathBuf,

    /// Where its files go: s3://, gs:// or az://; after a final / the bag's name is added
    #[arg(value_name = "URL")]
    pub url: PathBuf,

    /// Send at most this many bytes each second, on average
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub limit_rate: Option<u64>,

    /// Send only between these times of the day, as 22:00-06:00
    #[arg(long, value_name = "FROM-TO", value_parser = schedule)]
    pub schedule: Option<Schedule>,

    /// Remove the local bag after the service has all of it and each file was compared
    #[arg(long)]
    pub delete_after_verify: bool,

    /// Replace files at the URL that have other content
    #[arg(long)]
    pub overwrite: bool,

    /// One JSON object
    #[arg(long)]
    pub json: bool,
}

/// The flags of `holdall record` for an upload.
#[derive(Args, Clone, Debug, Default)]
pub struct RecordUpload {
    /// Upload each file when it is complete, into a folder of the bag's name at this URL (s3://, gs://, az://)
    ///
    /// With --on-disk-full ring only uploaded files are removed. The remaining files are sent at the end; another Ctrl-C stops that, and
    /// holdall upload sends the rest
    #[arg(
        id = "upload",
        long = "upload",
        value_name = "URL",
        help_heading = "While it runs"
    )]
    pub url: Option<PathBuf>,

    /// Send at most this many bytes each second to the URL of --upload, on average
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, requires = "upload", help_heading = "While it runs")]
    pub limit_rate: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_may_last_over_midnight() {
        let night = schedule("22:00-06:00").unwrap();
        assert_eq!(night.wait(23 * 60), 0);
        assert_eq!(night.wait(0), 0);
        assert_eq!(night.wait(6 * 60), 16 * 60);
        assert_eq!(night.wait(21 * 60 + 59), 1);
        let noon = schedule("12:00-12:01").unwrap();
        assert_eq!((noon.wait(720), noon.wait(721)), (0, 24 * 60 - 1));
        for wrong in ["", "22:00", "24:00-01:00", "a-b", "01:00-01:00"] {
            assert!(schedule(wrong).is_err(), "{wrong}");
        }
    }
}
