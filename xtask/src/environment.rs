//! The rule that only the programs read environment variables: the caller decides how a library behaves.

/// Crates below the programs.
const LIBRARIES: [&str; 14] = [
    "crates/holdall-model/",
    "crates/holdall-io/",
    "crates/holdall-storage/",
    "crates/holdall-transport/",
    "crates/holdall-remote/",
    "crates/holdall-web/",
    "crates/holdall-bag/",
    "crates/holdall-data/",
    "crates/holdall-media/",
    "crates/holdall-play/",
    "crates/holdall-record/",
    "crates/holdall-serve/",
    "crates/holdall-tools/",
    "crates/holdall/",
];

/// Functions that read the environment, `TMPDIR` and `HOME` among it.
const READS: [&str; 4] = ["env::var(", "env::var_os(", "env::vars", "env::temp_dir("];

/// Finds places in libraries that read the environment. Tests may.
pub fn check_environment(shown: &str, text: &str, breaches: &mut Vec<String>) {
    let is_library = LIBRARIES.iter().any(|folder| shown.starts_with(folder)) && shown.contains("/src/");
    if !is_library || crate::lengths::is_test(shown) {
        return;
    }
    for (number, line) in crate::lengths::product(text).lines().enumerate() {
        let is_comment = line.trim_start().starts_with("//");
        if let Some(call) = READS.iter().find(|call| !is_comment && line.contains(*call)) {
            breaches.push(format!(
                "{shown}:{}: {} in a library; the programs read the environment and pass it on",
                number + 1,
                call.trim_end_matches('(')
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_read_no_environment_and_programs_and_tests_may() {
        let line = "    let distro = std::env::var(\"ROS_DISTRO\").ok();\n";
        for (shown, text, expected) in [
            ("crates/holdall-storage/src/sqlite3/writer.rs", line, 1),
            ("crates/holdall-transport/src/dds/settings/config.rs", line, 1),
            ("crates/holdall-remote/src/config.rs", line, 1),
            ("crates/holdall/src/lib.rs", "let folder = env::temp_dir();\n", 1),
            ("crates/holdall/src/lib.rs", "// not env::var(\n", 0),
            ("crates/holdall/examples/cache_rate.rs", line, 0),
            ("crates/holdall-cli/src/main.rs", line, 0),
            ("crates/holdall-record/src/tests/bags.rs", line, 0),
        ] {
            let mut breaches = Vec::new();
            check_environment(shown, text, &mut breaches);
            assert_eq!(breaches.len(), expected, "{shown}: {text}");
        }
    }
}
