//! Declarations of quality as REP-2004 has them: for each package its level, and the requirements it meets in each of the seven
//! categories.

use crate::error::{BenchError, BenchResult};
use crate::sheet::Sheet;
use holdall_model::yaml::{self, Node, YamlError};
use serde::{Deserialize, Serialize};
use std::{fs, path::Path};

/// The categories of REP-2004 with their keys in a file.
const CATEGORIES: [(&str, &str); 7] = [
    ("version_policy", "version policy"),
    ("change_control", "change control"),
    ("documentation", "documentation"),
    ("testing", "testing"),
    ("dependencies", "dependencies"),
    ("platform_support", "platforms"),
    ("security", "security"),
];

/// The requirements of a category that a package meets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Points {
    /// Requirements met without a remark.
    pub met: u64,
    /// Requirements with a remark instead of a plain yes.
    pub with_remark: u64,
    /// All that were answered.
    pub of: u64,
}

impl Points {
    fn add(&mut self, other: Self) {
        self.met += other.met;
        self.with_remark += other.with_remark;
        self.of += other.of;
    }

    fn text(self) -> String {
        match (self.of, self.with_remark) {
            (0, _) => "–".to_owned(),
            (of, 0) => format!("{} of {of}", self.met),
            (of, remarks) => format!("{} + {remarks}* of {of}", self.met),
        }
    }
}

/// An answer that is neither yes nor no, in its own words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remark {
    /// The category of the requirement.
    pub category: String,
    /// The answer.
    pub text: String,
}

/// A package's declaration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declaration {
    /// The package.
    pub package: String,
    /// The level that it declares, 1 (best) to 5.
    pub level: u64,
    /// Points by category, in REP-2004's order.
    pub categories: Vec<Points>,
    /// Its remarks, in the order of the file. Empty in results of older versions.
    #[serde(default)]
    pub remarks: Vec<Remark>,
}

/// Reads a file: packages, each with `level` and lists of `yes`, `no` or a remark by category.
///
/// # Errors
/// A file that cannot be read, or with another key or value.
pub(super) fn read(path: &Path) -> BenchResult<Vec<Declaration>> {
    let text = fs::read_to_string(path).map_err(BenchError::io("read", path))?;
    let wrong = BenchError::verify(path);
    parse(&text).map_err(|error| wrong(format!("holds no declarations of quality: {error}")))
}

fn parse(text: &str) -> Result<Vec<Declaration>, YamlError> {
    let root = yaml::parse(text)?;
    let packages = root.as_map()?.iter();
    packages
        .map(|(package, node)| declaration(package, node))
        .collect()
}

fn declaration(package: &str, node: &Node) -> Result<Declaration, YamlError> {
    let mut level = None;
    let mut categories = vec![Points::default(); CATEGORIES.len()];
    let mut remarks = Vec::new();
    for (key, value) in node.as_map()? {
        if key == "level" {
            level = Some(value.as_number::<u64>()?).filter(|level| (1..=5).contains(level));
            if level.is_none() {
                return Err(value.expected("a quality level from 1 to 5"));
            }
            continue;
        }
        let place = CATEGORIES.iter().position(|(name, _)| name == key);
        let Some(place) = place else {
            let names = CATEGORIES.map(|(name, _)| name).join(", ");
            return Err(value.error(format!("unknown key {key}, expected level, {names}")));
        };
        for answer in value.as_sequence()? {
            let (met, with_remark) = match answer.as_bool() {
                Ok(is_met) => (u64::from(is_met), 0),
                Err(_) => match answer.as_str()? {
                    "yes" => (1, 0),
                    "no" => (0, 0),
                    remark => {
                        remarks.push(Remark {
                            category: CATEGORIES[place].1.to_owned(),
                            text: remark.to_owned(),
                        });
                        (0, 1)
                    }
                },
            };
            let of = 1;
            categories[place].add(Points { met, with_remark, of });
        }
    }
    Ok(Declaration {
        package: package.to_owned(),
        level: level.ok_or_else(|| node.error("has no level".to_owned()))?,
        categories,
        remarks,
    })
}

/// The remarks of all packages in their own words; `None` without any.
pub(super) fn remarks(declarations: &[Declaration]) -> Option<Sheet> {
    let mut rows = Vec::new();
    for one in declarations {
        let row = |remark: &Remark| vec![one.package.clone(), remark.category.clone(), remark.text.clone()];
        rows.extend(one.remarks.iter().map(row));
    }
    (!rows.is_empty()).then(|| Sheet {
        title: "Quality as declared (REP-2004): remarks".to_owned(),
        header: ["package", "category", "remark"].map(str::to_owned).to_vec(),
        words: 3,
        rows,
    })
}

/// The table of all packages.
pub(super) fn sheet(declarations: &[Declaration]) -> Sheet {
    let rows = declarations.iter().map(|one| {
        let mut all = Points::default();
        one.categories.iter().for_each(|points| all.add(*points));
        let words = [one.package.clone(), one.level.to_string()];
        let points = one.categories.iter().copied().chain([all]).map(Points::text);
        words.into_iter().chain(points).collect()
    });
    let names = CATEGORIES.map(|(_, name)| name);
    Sheet {
        title: "Quality as declared (REP-2004): points met, * with a remark".to_owned(),
        header: ["package", "level"]
            .into_iter()
            .chain(names)
            .chain(["all"])
            .map(str::to_owned)
            .collect(),
        words: 1,
        rows: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_counted_by_category() {
        let found =
            parse("rmw_a:\n  level: 2\n  testing: [yes, no, \"95 % of lines\", true]\n  security: [no]\n")
                .unwrap();
        assert_eq!((found[0].package.as_str(), found[0].level), ("rmw_a", 2));
        let testing = Points {
            met: 2,
            with_remark: 1,
            of: 4,
        };
        assert_eq!(found[0].categories[3], testing);
        let row = &sheet(&found).rows[0];
        assert_eq!(
            (row[5].as_str(), row[8].as_str(), row[9].as_str()),
            ("2 + 1* of 4", "0 of 1", "2 + 1* of 5")
        );
        assert_eq!(row[2], "–");
        assert_eq!(
            remarks(&found).unwrap().rows,
            [["rmw_a", "testing", "95 % of lines"].map(str::to_owned)]
        );
        assert!(remarks(&parse("rmw_a:\n  level: 2\n  testing: [yes]\n").unwrap()).is_none());
        for (text, expected) in [
            ("a:\n  level: 7\n", "from 1 to 5"),
            ("a:\n  testing: [yes]\n", "has no level"),
            ("a:\n  level: 1\n  tests: [yes]\n", "unknown key tests"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
