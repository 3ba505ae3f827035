//! The history of repositories: commits by week, contributors, and how many of them made half of the commits.

use super::repository::DAY_S;
use crate::{
    error::{BenchError, BenchResult},
    suite::sheet::Sheet,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
};

/// The format for `git log`; a file with the same lines is read as well.
pub(super) const FORMAT: &str = "%H%x09%aI%x09%aN%x09%P";
const WEEK_S: f64 = 7.0 * DAY_S;

/// A repository's commits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// Its folder's name, or that of the file.
    pub repository: String,
    /// Commits, merges included.
    pub commits: u64,
    /// Commits with two parents or more.
    pub merges: u64,
    /// Authors by name.
    pub authors: u64,
    /// So many authors made half of the commits.
    pub bus_factor: u64,
    /// Lines that were added and removed.
    pub lines: [u64; 2],
    /// Weeks from the first commit to the last one, at least 1.
    pub weeks: u64,
    /// Commits by week, from the first one's.
    pub by_week: Vec<u64>,
}

/// Asks `git` for the history of a repository on this machine.
///
/// # Errors
/// No git, or a folder that is not a repository.
pub(super) fn of_repository(path: &Path) -> BenchResult<History> {
    let failed = |reason: String| BenchError::Program {
        program: format!("git log of {}", path.display()),
        reason,
    };
    let output = Command::new("git")
        .arg("-C")
        .arg(path)
        .args(["log", &format!("--format={FORMAT}"), "--numstat"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(format!("cannot be started: {error}")))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(failed(
            text.lines().next().unwrap_or("no reason printed").to_owned(),
        ));
    }
    read(path, &String::from_utf8_lossy(&output.stdout))
}

/// Reads a file that `git log` has printed.
///
/// # Errors
/// A file that cannot be read, or with other lines.
pub(super) fn of_file(path: &Path) -> BenchResult<History> {
    let bytes = fs::read(path).map_err(BenchError::io("read", path))?;
    read(path, &String::from_utf8_lossy(&bytes))
}

fn read(path: &Path, text: &str) -> BenchResult<History> {
    let broken = |line: usize, reason: &str| BenchError::Verify {
        path: path.to_owned(),
        reason: format!(
            "is not the output of git log --format={FORMAT} --numstat: line {}: {reason}",
            line + 1
        ),
    };
    let mut authors: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut weeks, mut merges, mut lines) = (Vec::new(), 0, [0_u64; 2]);
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields[..] {
            [hash, time, author, parents] if hash.len() >= 40 => {
                let time: jiff::Timestamp = time
                    .parse()
                    .map_err(|_| broken(number, &format!("{time:?} is not a time")))?;
                weeks.push((time.as_second() as f64 / WEEK_S).floor() as i64);
                merges += u64::from(parents.split(' ').count() > 1);
                *authors.entry(author).or_default() += 1;
            }
            [added, removed, _] => {
                for (sum, count) in lines.iter_mut().zip([added, removed]) {
                    // For a binary file git prints `-`.
                    *sum += count.parse::<u64>().unwrap_or(0);
                }
            }
            _ => return Err(broken(number, "expected a commit or counts of a file")),
        }
    }
    let (Some(first), Some(last)) = (weeks.iter().min().copied(), weeks.iter().max().copied()) else {
        return Err(broken(0, "there is no commit"));
    };
    /// A date of a broken clock would take all memory.
    const WEEKS_MAX: usize = 52 * 100;
    let place = |week: i64| usize::try_from(week - first).unwrap_or(0);
    let count = place(last) + 1;
    if count > WEEKS_MAX {
        return Err(broken(0, "commits are a century apart"));
    }
    let mut by_week = vec![0; count];
    for week in &weeks {
        by_week[place(*week)] += 1;
    }
    let mut each: Vec<u64> = authors.values().copied().collect();
    each.sort_unstable_by(|one, other| other.cmp(one));
    let half = weeks.len() as u64;
    let mut sum = 0;
    let bus_factor = each.iter().take_while(|count| {
        let is_needed = 2 * sum < half;
        sum += **count;
        is_needed
    });
    Ok(History {
        repository: path
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        commits: weeks.len() as u64,
        merges,
        bus_factor: bus_factor.count() as u64,
        authors: each.len() as u64,
        lines,
        weeks: by_week.len() as u64,
        by_week,
    })
}

/// The table of all repositories.
pub(super) fn sheet(histories: &[History]) -> Sheet {
    let rows = histories.iter().map(|one| {
        let [added, removed] = one.lines;
        vec![
            one.repository.clone(),
            one.commits.to_string(),
            one.merges.to_string(),
            one.weeks.to_string(),
            format!("{:.1}", one.commits as f64 / one.weeks as f64),
            one.authors.to_string(),
            one.bus_factor.to_string(),
            added.to_string(),
            removed.to_string(),
        ]
    });
    Sheet {
        title: "Commits",
        header: vec![
            "repository",
            "commits",
            "merges",
            "weeks",
            "a week",
            "authors",
            "of half",
            "lines added",
            "removed",
        ],
        words: 1,
        rows: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(time: &str, author: &str, parents: &str) -> String {
        format!(
            "{}\t{time}\t{author}\t{parents}\n\n3\t1\tsrc/a b.rs\n-\t-\tpicture.png\n",
            "a".repeat(40)
        )
    }

    #[test]
    fn commits_authors_and_weeks_are_counted() {
        let text = [
            commit("2026-01-22T10:00:00+01:00", "Ann", "p q"),
            commit("2026-01-08T10:00:00Z", "Ann", "p"),
            commit("2026-01-07T10:00:00Z", "Bob", "p"),
            commit("2026-01-01T10:00:00Z", "Cy", ""),
        ];
        let found = read(Path::new("/a/project"), &text.concat()).unwrap();
        assert_eq!(
            (found.repository.as_str(), found.commits, found.merges),
            ("project", 4, 1)
        );
        assert_eq!((found.authors, found.bus_factor, found.lines), (3, 1, [12, 4]));
        // The first of January 2026 is a Thursday, and so is the epoch.
        assert_eq!(found.by_week, [2, 1, 0, 1]);
        for (text, expected) in [("", "no commit"), ("hello\n", "line 1: expected a commit")] {
            let error = read(Path::new("x"), text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let late = text[0].replace("2026-01-22T10:00:00+01:00", "soon");
        let error = read(Path::new("x"), &late).unwrap_err().to_string();
        assert!(error.contains("\"soon\" is not a time"), "{error}");
    }
}
