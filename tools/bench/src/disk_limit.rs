//! A disk of a chosen speed: a file system in a file beside the results, on a loop device whose writes the kernel throttles, so that whatever writes to it
//! is held to the same rate, programs of others and the page cache included.

use crate::error::{BenchError, BenchResult};
use holdall_io::{
    clock::{Clock, SystemClock},
    disk::Disk,
    link::is_root,
    os::{DiskMode, OsDisk},
    unfinished::Unfinished,
};
use holdall_model::{
    quantity::{QuantityError, parse_bytes},
    units::format_byte_rate,
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    env, fs,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    process::{self, Command, ExitStatus},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// The image of the disk, beside the results.
const IMAGE: &str = "limited-disk";

/// Where it is mounted.
const MOUNTED: &str = "limited-disk.mounted";

/// Names the limited disk's folder to the program that runs on it.
const FOLDER: &str = "HOLDALL_BENCH_DISK";

/// Its rate in bytes a second.
const RATE: &str = "HOLDALL_BENCH_DISK_RATE";

/// Space that the image leaves free for results and others.
const SPARE_BYTES: u64 = 2 << 30;

/// A smaller image holds no bag.
const IMAGE_BYTES_MIN: u64 = 256 << 20;

/// Time between two looks whether the program has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// How much faster than asked for a limited disk may be measured: the kernel throttles by the tenth of a second, and lets more through after a pause.
const EXCESS_MAX: f64 = 1.3;

/// A measurement of a limited disk lasts about this long: in half a second up to twice the rate was measured, 150 MB too much of 510 MB/s.
const MEASUREMENT_S: [f64; 2] = [2.0, 4.0];

/// Throttles of control groups: of version 1 in its root group, which has the writes of the page cache, too.
const VERSION_1: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";
const VERSION_2: &str = "/sys/fs/cgroup";

/// Reads a rate such as `510MB/s`.
///
/// # Errors
/// The text is not a number of bytes.
pub fn parse_rate(text: &str) -> Result<u64, QuantityError> {
    let bytes = text.trim().strip_suffix("/s").unwrap_or(text);
    parse_bytes(bytes)
}

/// The limited disk that this program runs on.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskLimit {
    /// Where it is mounted.
    pub folder: PathBuf,
    /// Bytes a second.
    pub bytes_per_s: f64,
}

impl DiskLimit {
    /// That of this process, if [`run_on`] started it.
    #[must_use]
    pub fn of_process() -> Option<Self> {
        let bytes_per_s = env::var(RATE).ok()?.parse().ok()?;
        Some(Self {
            folder: env::var_os(FOLDER)?.into(),
            bytes_per_s,
        })
    }

    /// Whether this is the name of the disk's file or folder beside the results.
    pub(crate) fn has(name: &str) -> bool {
        name == IMAGE || name == MOUNTED
    }

    /// Bytes of one measurement, where `bytes` are asked for.
    pub(crate) fn measured_bytes(&self, bytes: u64) -> u64 {
        let [least, most] = MEASUREMENT_S.map(|seconds| (self.bytes_per_s * seconds) as u64);
        bytes.clamp(least, most)
    }

    /// Refuses a disk that is faster than its limit.
    pub(crate) fn check(&self, measured_bytes_per_s: f64) -> BenchResult<()> {
        if measured_bytes_per_s <= self.bytes_per_s * EXCESS_MAX {
            return Ok(());
        }
        Err(refused(format!(
            "does not hold here: {} were measured for {}",
            format_byte_rate(measured_bytes_per_s),
            format_byte_rate(self.bytes_per_s)
        )))
    }
}

/// Runs this program's command line again, on a disk of `bytes_per_s` for all that is measured; results go to `out` itself. `stop` ends it early.
///
/// # Errors
/// No root, no loop device, no file system, no throttle.
pub fn run_on(bytes_per_s: u64, out: &Path, stop: &AtomicBool) -> BenchResult<ExitStatus> {
    if !is_root() {
        return Err(refused(
            "needs root: it makes a loop device and a file system on it".to_owned(),
        ));
    }
    if bytes_per_s == 0 {
        return Err(refused("expected a rate above 0".to_owned()));
    }
    fs::create_dir_all(out).map_err(BenchError::io("create", out))?;
    let image = out.join(IMAGE);
    let mounted = out.join(MOUNTED);
    let _image = Unfinished::new(&image);
    let _mounted = Unfinished::new(&mounted);
    let outcome = with_image(&image, &mounted, bytes_per_s, (out, stop));
    let _ = fs::remove_file(&image);
    let _ = fs::remove_dir(&mounted);
    outcome
}

fn with_image(
    image: &Path,
    mounted: &Path,
    bytes_per_s: u64,
    (out, stop): (&Path, &AtomicBool),
) -> BenchResult<ExitStatus> {
    let available = OsDisk::open(out, DiskMode::Buffered)?.available_bytes(out)?;
    let bytes = available.saturating_sub(SPARE_BYTES);
    // A measurement of the limit takes half of it at most.
    let needed = IMAGE_BYTES_MIN.max((bytes_per_s as f64 * MEASUREMENT_S[0]) as u64 * 2);
    if bytes < needed {
        return Err(BenchError::NoSpace {
            path: out.to_owned(),
            needed_bytes: needed + SPARE_BYTES,
            available_bytes: available,
        });
    }
    fs::create_dir_all(mounted).map_err(BenchError::io("create", mounted))?;
    let image = image.to_string_lossy();
    run("truncate", &["--size", &bytes.to_string(), &image])?;
    // Everything is laid out now: what ext4 does later would be part of what is measured.
    run(
        "mkfs.ext4",
        &[
            "-q",
            "-F",
            "-T",
            "largefile4",
            "-E",
            "lazy_itable_init=0,lazy_journal_init=0",
            &image,
        ],
    )?;
    let device = run("losetup", &["--find", "--show", "--direct-io=on", &image])?;
    let outcome = with_device(device.trim(), mounted, bytes_per_s, stop);
    // Where it was mounted, it went with that.
    let _ = run("losetup", &["--detach", device.trim()]);
    outcome
}

fn with_device(device: &str, mounted: &Path, bytes_per_s: u64, stop: &AtomicBool) -> BenchResult<ExitStatus> {
    let throttle = Throttle::of(device)?;
    let outcome = throttle.set(Some(bytes_per_s)).and_then(|()| {
        let program = env::current_exe().map_err(BenchError::io("find", Path::new("holdall-bench")))?;
        // The mount is this namespace's, and so ends with it; detached while in use, the device goes at the same time.
        let script = "echo $$ > \"$1\" && mount -o noatime,discard \"$2\" \"$3\" && losetup --detach \"$2\" && shift 3 && exec \"$@\"";
        let mut child = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"])
            .args([&throttle.procs(), Path::new(device), mounted, &program])
            .args(env::args_os().skip(1))
            .env(FOLDER, mounted)
            .env(RATE, bytes_per_s.to_string())
            .spawn()
            .map_err(BenchError::io("start", Path::new("unshare")))?;
        // What a signal ends is ended by the program itself, with all that it has started; the disk is given back after that.
        let wait = |error| BenchError::io("wait for", &program)(error);
        loop {
            if let Some(status) = child.try_wait().map_err(wait)? {
                return Ok(status);
            }
            if stop.swap(false, Ordering::SeqCst)
                && let Some(child) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
            {
                let _ = kill_process(child, Signal::TERM);
            }
            SystemClock.sleep_until(SystemClock.monotonic() + LOOK_INTERVAL);
        }
    });
    let _ = throttle.set(None);
    outcome
}

/// What holds a device to a rate.
struct Throttle {
    /// Such as `7:3`.
    device: String,
    /// Of version 2: the group whose writes are throttled.
    group: Option<PathBuf>,
}

impl Throttle {
    fn of(device: &str) -> BenchResult<Self> {
        let about = fs::metadata(device).map_err(BenchError::io("find", Path::new(device)))?;
        if !about.file_type().is_block_device() {
            return Err(refused(format!(
                "losetup made {device}, where a block device was expected"
            )));
        }
        let number = std::os::unix::fs::MetadataExt::rdev(&about);
        let device = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
        if Path::new(VERSION_1).exists() {
            return Ok(Self { device, group: None });
        }
        let root = Path::new(VERSION_2);
        // Writes of the page cache are charged to a group only where it has both.
        let control = root.join("cgroup.subtree_control");
        write(&control, "+io +memory").map_err(|error| {
            refused(format!(
                "needs control groups that throttle writes (blkio or io): {error}"
            ))
        })?;
        let group = root.join(format!("holdall-bench-{}", process::id()));
        fs::create_dir(&group).map_err(BenchError::io("create", &group))?;
        Ok(Self {
            device,
            group: Some(group),
        })
    }

    fn set(&self, bytes_per_s: Option<u64>) -> BenchResult<()> {
        let (path, text) = match (&self.group, bytes_per_s) {
            (None, rate) => (
                PathBuf::from(VERSION_1),
                format!("{} {}", self.device, rate.unwrap_or(0)),
            ),
            (Some(group), Some(rate)) => (group.join("io.max"), format!("{} wbps={rate}", self.device)),
            (Some(group), None) => return fs::remove_dir(group).map_err(BenchError::io("remove", group)),
        };
        write(&path, &text)
    }

    /// Where a program joins what is throttled.
    fn procs(&self) -> PathBuf {
        self.group
            .as_ref()
            .map_or(PathBuf::from("/dev/null"), |group| group.join("cgroup.procs"))
    }
}

/// Writes into a file of the kernel.
fn write(path: &Path, text: &str) -> BenchResult<()> {
    // Never a new file: where control groups are elsewhere, that would be an ordinary one.
    let script = "[ -e \"$1\" ] || { echo \"$1 does not exist\" >&2; exit 1; }; printf %s \"$2\" > \"$1\"";
    run("sh", &["-c", script, "sh", &path.to_string_lossy(), text]).map(drop)
}

/// Runs a program of the system and returns what it printed.
fn run(program: &str, arguments: &[&str]) -> BenchResult<String> {
    let done = Command::new(program)
        .args(arguments)
        .output()
        .map_err(BenchError::io("start", Path::new(program)))?;
    if !done.status.success() {
        let reason = String::from_utf8_lossy(&done.stderr);
        return Err(refused(format!(
            "{program} failed: {}",
            reason.trim().lines().last().unwrap_or_default()
        )));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

fn refused(reason: String) -> BenchError {
    BenchError::Program {
        program: "--disk-limit".to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_bytes_a_second() {
        assert_eq!(parse_rate("510MB/s").unwrap(), 510_000_000);
        assert_eq!(parse_rate("40 MiB/s").unwrap(), 40 << 20);
        assert_eq!(parse_rate("1000000").unwrap(), 1_000_000);
        for text in ["", "/s", "fast", "-1MB/s", "10 MB/min"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_limited_disk_is_measured_for_seconds_and_a_faster_one_is_refused() {
        let limit = DiskLimit {
            folder: "/nowhere".into(),
            bytes_per_s: 40e6,
        };
        assert_eq!(
            [1, 100_000_000, 1 << 40].map(|bytes| limit.measured_bytes(bytes)),
            [80_000_000, 100_000_000, 160_000_000]
        );
        assert!(limit.check(39e6).is_ok());
        let error = limit.check(900e6).unwrap_err().to_string();
        assert_eq!(
            error,
            "--disk-limit does not hold here: 858 MiB/s were measured for 38.1 MiB/s"
        );
    }
}
