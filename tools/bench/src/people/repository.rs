//! Issues and pull requests of repositories: how many are open, and how long they take to be closed.

use crate::error::{BenchError, BenchResult};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The kind of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemKind {
    /// A report or a wish.
    Issue,
    /// A change.
    PullRequest,
    /// A pull request that the hosting site lists among the issues, too.
    PullRequestListedAsIssue,
}

#[derive(Deserialize)]
struct Row {
    repository: String,
    kind: ItemKind,
    state: String,
    opened_at: String,
    /// Empty while it is open.
    open_for_s: Option<f64>,
}

/// The items of one kind of a repository.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Items {
    /// The repository.
    pub repository: String,
    /// The kind.
    pub kind: ItemKind,
    /// Items that are open at the end of the data.
    pub open: u64,
    /// Items that were closed.
    pub closed: u64,
    /// Days, and the share of items that are closed by then (Kaplan–Meier: open items count as long as they were watched).
    pub closed_after_days: Vec<(f64, f64)>,
    /// Days, and the share of all items that were closed by then, open ones counted as never closed: as published.
    #[serde(default)]
    pub closed_after_days_as_published: Vec<(f64, f64)>,
    /// Half of the items are closed after this many days; `None` when fewer are.
    pub median_days: Option<f64>,
    /// The same where open items count as closed after 180 days, as published.
    pub median_days_as_published: Option<f64>,
}

/// The time that the published report assumed for items still open.
const PUBLISHED_OPEN_DAYS: f64 = 180.0;
pub(super) const DAY_S: f64 = 86_400.0;

/// Reads items of repositories.
///
/// # Errors
/// A file that cannot be read or has other columns.
pub(crate) fn read(path: &Path) -> BenchResult<Vec<Items>> {
    let broken = |reason: String| BenchError::Verify {
        path: path.to_owned(),
        reason: format!("holds no items of repositories: {reason}"),
    };
    let mut reader = csv::Reader::from_path(path).map_err(|error| broken(error.to_string()))?;
    let rows: Vec<Row> = reader
        .deserialize()
        .collect::<Result<_, _>>()
        .map_err(|error: csv::Error| broken(error.to_string()))?;
    group(&rows).map_err(broken)
}

/// An entry of the hosting site's lists of issues and pull requests.
#[derive(Deserialize)]
struct ApiItem {
    html_url: String,
    state: String,
    created_at: String,
    closed_at: Option<String>,
    /// Present for an issue that is a pull request.
    pull_request: Option<serde::de::IgnoredAny>,
    /// Present only in the list of pull requests.
    head: Option<serde::de::IgnoredAny>,
}

impl ApiItem {
    fn row(self) -> Result<Row, String> {
        let repository = |url: &str| {
            let path = url.split_once("://")?.1.split_once('/')?.1;
            let mut names = path.split('/');
            Some(format!("{}/{}", names.next()?, names.next()?))
        };
        let time = |text: &str| days(text).ok_or_else(|| format!("{text:?} is not a time"));
        let opened = time(&self.created_at)?;
        let closed = self.closed_at.as_deref().map(time).transpose()?;
        Ok(Row {
            repository: repository(&self.html_url)
                .ok_or_else(|| format!("{:?} is not the address of an issue", self.html_url))?,
            kind: match (self.head.is_some(), self.pull_request.is_some()) {
                (true, _) => ItemKind::PullRequest,
                (_, true) => ItemKind::PullRequestListedAsIssue,
                _ => ItemKind::Issue,
            },
            state: self.state,
            opened_at: self.created_at,
            open_for_s: closed.map(|closed| (closed - opened) * DAY_S),
        })
    }
}

/// Reads pages of the hosting site's lists of issues or pull requests, as its interface returns them.
///
/// # Errors
/// A file that cannot be read, or that holds something else.
pub(crate) fn read_api(paths: &[std::path::PathBuf]) -> BenchResult<Vec<Items>> {
    let mut rows = Vec::new();
    for path in paths {
        let broken = |reason: String| BenchError::Verify {
            path: path.clone(),
            reason: format!("is not a list of issues or pull requests: {reason}"),
        };
        let bytes = std::fs::read(path).map_err(BenchError::io("read", path))?;
        let items: Vec<ApiItem> =
            serde_json::from_slice(&bytes).map_err(|error| broken(error.to_string()))?;
        for item in items {
            rows.push(item.row().map_err(broken)?);
        }
    }
    group(&rows).map_err(|reason| BenchError::Verify {
        path: paths.first().cloned().unwrap_or_default(),
        reason,
    })
}

/// The items of each kind of each repository.
fn group(rows: &[Row]) -> Result<Vec<Items>, String> {
    let opened: Vec<f64> = rows
        .iter()
        .map(|row| days(&row.opened_at).ok_or_else(|| format!("{:?} is not a time", row.opened_at)))
        .collect::<Result<_, _>>()?;
    // The data end with the last thing that happened in them.
    let closed = rows
        .iter()
        .zip(&opened)
        .filter_map(|(row, opened)| Some(opened + row.open_for_s? / DAY_S));
    let end = opened.iter().copied().chain(closed).fold(f64::MIN, f64::max);
    let mut groups: Vec<(String, ItemKind, Vec<Span>)> = Vec::new();
    for (row, opened) in rows.iter().zip(opened) {
        let is_closed = row.state != "open";
        let span = Span {
            days: row
                .open_for_s
                .filter(|_| is_closed)
                .map_or(end - opened, |seconds| seconds / DAY_S),
            is_closed,
        };
        match groups
            .iter_mut()
            .find(|(name, kind, _)| *name == row.repository && *kind == row.kind)
        {
            Some((.., spans)) => spans.push(span),
            None => groups.push((row.repository.clone(), row.kind, vec![span])),
        }
    }
    Ok(groups
        .into_iter()
        .map(|(repository, kind, spans)| items(repository, kind, spans))
        .collect())
}

/// How long an item was watched, and whether it was closed then.
#[derive(Clone, Copy, Debug)]
struct Span {
    days: f64,
    is_closed: bool,
}

fn items(repository: String, kind: ItemKind, mut spans: Vec<Span>) -> Items {
    spans.sort_by(|a, b| a.days.total_cmp(&b.days));
    let curve = kaplan_meier(&spans);
    let mut published: Vec<f64> = spans
        .iter()
        .map(|span| {
            if span.is_closed {
                span.days
            } else {
                PUBLISHED_OPEN_DAYS
            }
        })
        .collect();
    published.sort_by(f64::total_cmp);
    let closed = spans.iter().filter(|span| span.is_closed).count() as u64;
    Items {
        repository,
        kind,
        open: spans.len() as u64 - closed,
        closed,
        median_days: curve
            .iter()
            .find(|(_, share)| *share >= 0.5)
            .map(|(days, _)| *days),
        median_days_as_published: crate::statistics::median(&published),
        closed_after_days: curve,
        closed_after_days_as_published: naive(&spans),
    }
}

/// The share of all that was closed by then; `spans` are in order.
fn naive(spans: &[Span]) -> Vec<(f64, f64)> {
    let closed = spans.iter().filter(|span| span.is_closed).zip(1..);
    let share = |number: u32| f64::from(number) / spans.len().max(1) as f64;
    closed.map(|(span, number)| (span.days, share(number))).collect()
}

/// The share closed after each time at which an item was closed; `spans` are in order.
fn kaplan_meier(spans: &[Span]) -> Vec<(f64, f64)> {
    let mut open_share = 1.0;
    let mut curve = vec![(0.0, 0.0)];
    let mut watched = spans.len();
    for same in spans.chunk_by(|a, b| a.days == b.days) {
        let closed = same.iter().filter(|span| span.is_closed).count();
        if closed > 0 {
            open_share *= 1.0 - closed as f64 / watched as f64;
            curve.push((same[0].days, 1.0 - open_share));
        }
        watched -= same.len();
    }
    curve
}

/// Days since an epoch of `2020-10-16 13:37:45`, with or without `T`.
fn days(time: &str) -> Option<f64> {
    let text = time.trim_end_matches('Z').replace(' ', "T");
    let time: jiff::civil::DateTime = text.parse().ok()?;
    let seconds = time
        .to_zoned(jiff::tz::TimeZone::UTC)
        .ok()?
        .timestamp()
        .as_second();
    Some(seconds as f64 / DAY_S)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn pages_of_the_hosting_site_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let item = |number: u32, state: &str, closed: &str, more: &str| {
            format!(
                "{{\"html_url\":\"https://host/me/mine/issues/{number}\",\"number\":{number},\"state\":\"{state}\",\
                 \"created_at\":\"2020-01-01T00:00:00Z\",\"closed_at\":{closed},\"title\":\"t\"{more}}}"
            )
        };
        let closed = "\"2020-01-03T00:00:00Z\"";
        let issues = [
            item(1, "closed", closed, ""),
            item(2, "open", "null", ""),
            item(3, "closed", closed, ",\"pull_request\":{\"url\":\"u\"}"),
        ];
        let paths = ["1_issues.json", "1_pulls.json"].map(|name| folder.path().join(name));
        fs::write(&paths[0], format!("[{}]", issues.join(","))).unwrap();
        fs::write(
            &paths[1],
            format!("[{}]", item(3, "closed", closed, ",\"head\":{}")),
        )
        .unwrap();
        let found = read_api(&paths).unwrap();
        let kinds: Vec<_> = found.iter().map(|one| (one.kind, one.open, one.closed)).collect();
        assert_eq!(
            kinds,
            [
                (ItemKind::Issue, 1, 1),
                (ItemKind::PullRequestListedAsIssue, 0, 1),
                (ItemKind::PullRequest, 0, 1)
            ]
        );
        assert_eq!(
            (found[0].repository.as_str(), found[0].median_days),
            ("me/mine", Some(2.0))
        );
        fs::write(&paths[1], "{}").unwrap();
        let error = read_api(&paths).unwrap_err().to_string();
        assert!(error.contains("is not a list of issues"), "{error}");
    }

    #[test]
    fn open_items_count_as_long_as_they_were_watched() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "repository,kind,number,opened_at,closed_at,state,open_for_s\n\
            r,issue,1,2020-01-01 00:00:00,2020-01-03 00:00:00,closed,172800\n\
            r,issue,2,2020-01-01 00:00:00,,open,\n\
            r,issue,3,2020-01-08 00:00:00,,open,\n\
            r,issue,4,2020-01-01 00:00:00,2020-01-11 00:00:00,closed,864000\n\
            r,pull_request,5,2020-01-01T00:00:00Z,2020-01-02 00:00:00,closed,86400\n";
        fs::write(file.path(), text).unwrap();
        let found = read(file.path()).unwrap();
        assert_eq!(found.len(), 2);
        let issues = &found[0];
        assert_eq!((issues.open, issues.closed), (2, 2));
        // 1 of 4 after two days; the item of the 8th is watched for 3 days; of the two left one is closed at the end of the tenth.
        let expected = [(0.0, 0.0), (2.0, 0.25), (10.0, 0.625)];
        assert_eq!(issues.closed_after_days.len(), expected.len());
        for (found, expected) in issues.closed_after_days.iter().zip(expected) {
            assert!(
                (found.0 - expected.0).abs() < 1e-9 && (found.1 - expected.1).abs() < 1e-9,
                "{found:?}"
            );
        }
        assert_eq!(issues.median_days, Some(10.0));
        assert_eq!(issues.median_days_as_published, Some(95.0));
        assert_eq!(found[1].kind, ItemKind::PullRequest);
        fs::write(file.path(), text.replace("2020-01-08 00:00:00", "soon")).unwrap();
        assert!(
            read(file.path())
                .unwrap_err()
                .to_string()
                .contains("\"soon\" is not a time")
        );
    }
}
