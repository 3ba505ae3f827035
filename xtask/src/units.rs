//! The rule that the program writes sizes in powers of 1024: no decimal unit in a text of the product.

/// Decimal units of sizes; `kB` alone is the kernel's word for a KiB.
const DECIMAL: [&str; 6] = ["kB/", "KB", "MB", "GB", "TB", "PB"];

/// Code that reads such units, and the documentation of flags that accept them.
const PLACES_ALLOWED: [&str; 4] = [
    "crates/holdall-model/src/quantity.rs",
    "crates/holdall-cli/src/args/",
    "tools/bench/src/args/",
    "xtask/",
];

/// Finds texts with a decimal unit. Tests and examples may have them.
pub fn check_units(shown: &str, text: &str, breaches: &mut Vec<String>) {
    if crate::lengths::is_test(shown) || PLACES_ALLOWED.iter().any(|place| shown.starts_with(place)) {
        return;
    }
    for (number, line) in crate::lengths::product(text).lines().enumerate() {
        if !line.trim_start().starts_with("//") && has_decimal_unit(line) {
            breaches.push(format!(
                "{shown}:{}: a decimal unit; people read KiB, MiB and GiB (holdall_model::units), files have bytes",
                number + 1
            ));
        }
    }
}

/// Whether one of the units is written as a separate word.
fn has_decimal_unit(line: &str) -> bool {
    let is_part =
        |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    DECIMAL.iter().any(|unit| {
        line.match_indices(unit).any(|(at, _)| {
            let after = line[at + unit.len()..].chars().next();
            !is_part(line[..at].chars().next_back()) && (unit.ends_with('/') || !is_part(after))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_the_product_has_no_decimal_unit() {
        let breaches_of = |shown: &str, text: &str| {
            let mut breaches = Vec::new();
            check_units(shown, text, &mut breaches);
            breaches.len()
        };
        let product = "tools/bench/src/report/table.rs";
        for line in [
            "format!(\"{:.0} MB/s\", 1.0)",
            "(\"CPU s/GB\", 1)",
            "\"{} kB/s\"",
            "\"0.3 GB\"",
        ] {
            assert_eq!(breaches_of(product, line), 1, "{line}");
            assert_eq!(breaches_of("tools/bench/tests/a.rs", line), 0, "{line}");
        }
        for line in [
            "format!(\"{:.0} MiB/s\", 1.0)",
            "strip_suffix(\" kB\")",
            "// 1 GB",
            "BlockSize::Max1MB",
            "SMB_SUPER_MAGIC",
        ] {
            assert_eq!(breaches_of(product, line), 0, "{line}");
        }
    }
}
