//! The rule that a clone is enough: no source or test names a path outside the checkout.

use std::path::Path;

/// Lines after the name of a crate's folder that are searched for a path from there.
const LINES_AFTER: usize = 4;

/// Finds paths of Rust, Python and shell files that leave the checkout; `root` is where the checkout is now.
pub fn check_outside(root: &Path, shown: &str, text: &str, breaches: &mut Vec<String>) {
    // Its own tests name such paths.
    if shown.ends_with("src/outside.rs") {
        return;
    }
    let place = root.canonicalize().ok();
    let place = place.as_deref().and_then(Path::to_str);
    let is_python = Path::new(shown)
        .extension()
        .is_some_and(|extension| extension == "py");
    let mut from_crate = 0;
    for (number, line) in text.lines().enumerate() {
        if line.contains("CARGO_MANIFEST_DIR") {
            from_crate = LINES_AFTER;
        }
        let leaves = if is_python {
            leaves_python(shown, line)
        } else if !shown.ends_with(".rs") {
            ups(line) > shown.matches('/').count()
        } else {
            from_crate > 0 && ups(line) > crate_depth(shown)
        };
        from_crate = from_crate.saturating_sub(1);
        if leaves || place.is_some_and(|place| names(line, place)) {
            breaches.push(format!(
                "{shown}:{}: a path outside the checkout; a clone alone must do: move the data into the tree",
                number + 1
            ));
        }
    }
}

/// Finds paths of the machine in figures that were measured on it: of the checkout, and of the user who runs this.
pub fn check_figures(root: &Path, home: Option<&str>, shown: &str, text: &str, breaches: &mut Vec<String>) {
    let place = root.canonicalize().ok();
    let places = [
        place.as_deref().and_then(Path::to_str),
        home.filter(|home| home.len() > 1),
    ];
    for (number, line) in text.lines().enumerate() {
        if places.iter().flatten().any(|place| names(line, place)) {
            breaches.push(format!(
                "{shown}:{}: a path of the machine that measured; readers have others",
                number + 1
            ));
        }
    }
}

/// Whether the line names the folder of this checkout.
fn names(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let after = line[at + place.len()..].chars().next();
        !after.is_some_and(|letter| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_')
    })
}

/// The longest run of `..` in the paths of a line.
fn ups(line: &str) -> usize {
    let mut longest = 0;
    let mut run = 0;
    for part in line.split(['/', '"', '\'', '`', ' ', '(', ')']) {
        run = if part == ".." { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}

/// Folders between the root and the crate of a source, as `2` of `crates/holdall/src/lib.rs`.
fn crate_depth(shown: &str) -> usize {
    let inner = ["src", "tests", "examples", "benches", "fuzz", "build.rs"];
    shown.split('/').take_while(|part| !inner.contains(part)).count()
}

/// Whether `parents[N]`, with the `.parent` after it, `.parent` or `..` of a file's own path, or `ROOT.parent`, is above the root.
fn leaves_python(shown: &str, line: &str) -> bool {
    let depth = shown.matches('/').count();
    let parents = |after: &str| (after.len() - after.trim_start_matches(".parent").len()) / ".parent".len();
    let is_above = line.match_indices(".parents[").any(|(at, found)| {
        let rest = &line[at + found.len()..];
        let number = rest.split_once(']');
        number.is_some_and(|(number, after)| {
            number
                .parse::<usize>()
                .is_ok_and(|number| number + parents(after) > depth)
        })
    });
    let chain = line.find(".parent.").map_or(0, |at| parents(&line[at..]));
    let is_own = line.contains("__file__");
    line.contains("ROOT.parent") || is_above || (is_own && (chain > depth + 1 || ups(line) > depth))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(shown: &str, text: &str) -> usize {
        let mut breaches = Vec::new();
        check_outside(Path::new("/nowhere/at/all"), shown, text, &mut breaches);
        breaches.len()
    }

    #[test]
    fn figures_name_no_folder_of_the_machine() {
        let found = |text: &str| {
            let mut breaches = Vec::new();
            check_figures(
                Path::new("."),
                Some("/home/ann"),
                "docs/a.json",
                text,
                &mut breaches,
            );
            breaches.len()
        };
        assert_eq!(found("rmw_fastrtps_cpp of /home/ann/venv, its defaults"), 1);
        assert_eq!(found("rmw_fastrtps_cpp 8.4.3, its defaults\n/home/anna"), 0);
    }

    #[test]
    fn a_path_from_a_crates_folder_stays_in_the_checkout() {
        let joined = |path: &str| format!("Path::new(env!(\"CARGO_MANIFEST_DIR\"))\n    .join(\"{path}\")\n");
        for shown in [
            "crates/holdall/src/tools/check.rs",
            "crates/holdall/tests/tools.rs",
        ] {
            assert_eq!(found(shown, &joined("../../../elsewhere/bags")), 1, "{shown}");
            assert_eq!(found(shown, &joined("../../scripts")), 0, "{shown}");
        }
        assert_eq!(found("xtask/src/main.rs", &joined("..")), 0);
        for path in ["../..", "../../x"] {
            assert_eq!(found("xtask/src/main.rs", &joined(path)), 1);
        }
        assert_eq!(
            found(
                "crates/holdall/tests/tools.rs",
                "refused(\"../../../../etc/passwd\")"
            ),
            0
        );
    }

    #[test]
    fn a_path_from_a_python_file_stays_in_the_checkout() {
        let shown = "tests/e2e/test_tools.py";
        assert_eq!(found(shown, "ROOT = Path(__file__).resolve().parents[2]"), 0);
        assert_eq!(
            found(
                shown,
                "BAGS = Path(__file__).resolve().parents[2].parent / \"bags\""
            ),
            1
        );
        assert_eq!(
            found(shown, "BAGS = Path(__file__).resolve().parents[3] / \"bags\""),
            1
        );
        assert_eq!(found(shown, "BAGS = ROOT.parent / \"bags\""), 1);
        assert_eq!(found(shown, "BAGS = HERE.parents[3] / \"bags\""), 1);
        assert_eq!(found(shown, "ROOT = Path(__file__).parent.parent.parent"), 0);
        assert_eq!(
            found(shown, "BAGS = Path(__file__).parent.parent.parent.parent"),
            1
        );
        let joined = |path: &str| format!("BAGS = os.path.join(os.path.dirname(__file__), \"{path}\")");
        assert_eq!(found(shown, &joined("../../docs")), 0);
        assert_eq!(found(shown, &joined("../../../bags")), 1);
    }

    #[test]
    fn a_path_from_a_shell_file_stays_in_the_checkout() {
        assert_eq!(found("scripts/fuzz.sh", "cd \"$(dirname \"$0\")/..\""), 0);
        assert_eq!(found("scripts/fuzz.sh", "cp ../../bags/a.mcap ."), 1);
        assert_eq!(found("Makefile", "BAGS = ../bags"), 1);
    }
}
