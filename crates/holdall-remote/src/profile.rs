//! Credentials of S3 from the files of its tools: `~/.aws/credentials` and `~/.aws/config`.

use crate::environment::variable;
use std::{collections::BTreeMap, path::PathBuf};

/// Longest file of settings that is read.
const BYTES_MAX: u64 = 1 << 20;

/// The settings of the profile that `AWS_PROFILE` names, or of `default`, from both files; those of the credentials win.
pub(crate) fn settings() -> BTreeMap<String, String> {
    let profile = variable("AWS_PROFILE").unwrap_or("default");
    let home = variable("HOME").map(PathBuf::from);
    let file = |named: &str, usual: &str| {
        let path = variable(named).map(PathBuf::from);
        let path = path.or_else(|| home.as_ref().map(|home| home.join(".aws").join(usual)))?;
        holdall_io::fs::read_to_string(&path, BYTES_MAX).ok()
    };
    let mut found = BTreeMap::new();
    if let Some(text) = file("AWS_CONFIG_FILE", "config") {
        found.extend(section(&text, &[&format!("profile {profile}"), profile]));
    }
    if let Some(text) = file("AWS_SHARED_CREDENTIALS_FILE", "credentials") {
        found.extend(section(&text, &[profile]));
    }
    found
}

/// The settings of the sections with one of these names.
fn section(text: &str, names: &[&str]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut inside = false;
    for line in text.lines() {
        // Settings of a setting are indented.
        if line.starts_with([' ', '\t', '#', ';']) {
            continue;
        }
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            inside = names.contains(&name.trim());
        } else if let Some((key, value)) = line.split_once('=')
            && inside
        {
            found.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_its_section() {
        let text = "[default]\nregion = eu-west-1\n[profile fleet]\n# a remark\nregion=us-east-2\ns3 =\n  max_queue = 4\nendpoint_url = http://127.0.0.1:9\n[other]\nregion = x\n";
        let found = section(text, &["profile fleet", "fleet"]);
        assert_eq!(found["region"], "us-east-2");
        assert_eq!(found["endpoint_url"], "http://127.0.0.1:9");
        assert!(!found.contains_key("max_queue"));
        assert_eq!(section(text, &["default"]).len(), 1);
    }
}
