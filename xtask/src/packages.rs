//! The rules of `deny.toml` for packages that enter the program: licences and sources. `cargo deny` checks the same, but takes minutes to build.

use serde_json::Value;
use spdx::{Expression, ParseMode};
use std::{collections::BTreeSet, fs, path::Path, process::Command};

/// The permitted source of packages, as cargo writes it.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks every package that a build for Linux can contain.
pub fn check_packages(root: &Path, breaches: &mut Vec<String>) {
    let found = allowed_licences(&root.join("deny.toml")).and_then(|allowed| Ok((allowed, packages(root)?)));
    match found {
        Ok((allowed, packages)) => {
            breaches.extend(packages.iter().filter_map(|package| breach(package, &allowed)));
        }
        Err(reason) => breaches.push(reason),
    }
    let manifest = root.join("crates/holdall-transport/Cargo.toml");
    let text = fs::read_to_string(manifest).unwrap_or_default();
    breaches.extend(compression_of_zenoh(&text));
}

/// The feature of zenoh that calls `lz4_flex` 0.10, by the manifest that names zenoh's features: `deny.toml` accepts its fault because it is off.
fn compression_of_zenoh(manifest: &str) -> Option<String> {
    let mut lines = manifest.lines().filter(|line| line.starts_with("zenoh = {"));
    let is_off =
        |line: &str| line.contains("default-features = false") && !line.contains("transport_compression");
    (!lines.all(is_off)).then(|| {
        "crates/holdall-transport/Cargo.toml: zenoh with transport_compression has RUSTSEC-2026-0041 (deny.toml)".to_owned()
    })
}

/// `licenses.allow` of `deny.toml`.
fn allowed_licences(path: &Path) -> Result<BTreeSet<String>, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("deny.toml: {error}"))?;
    let table: toml::Table = text.parse().map_err(|error| format!("deny.toml: {error}"))?;
    let allow = table
        .get("licenses")
        .and_then(|licenses| licenses.get("allow")?.as_array());
    let allow = allow.ok_or("deny.toml: expected a list licenses.allow")?;
    Ok(allow
        .iter()
        .filter_map(|name| Some(name.as_str()?.to_owned()))
        .collect())
}

/// The packages of `cargo metadata`.
fn packages(root: &Path) -> Result<Vec<Value>, String> {
    let target = "x86_64-unknown-linux-gnu";
    let arguments = [
        "metadata",
        "--format-version=1",
        "--locked",
        "--filter-platform",
        target,
    ];
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(root)
        .output();
    let output = output.map_err(|error| format!("cargo metadata: {error}"))?;
    let mut found: Value = serde_json::from_slice(&output.stdout).map_err(|_| {
        format!(
            "cargo metadata: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )
    })?;
    match found["packages"].take() {
        Value::Array(packages) if !packages.is_empty() => Ok(packages),
        _ => Err("cargo metadata: it lists no packages".to_owned()),
    }
}

/// The fault of a package; `None` without one, and for packages of this project.
fn breach(package: &Value, allowed: &BTreeSet<String>) -> Option<String> {
    let source = package["source"].as_str()?;
    let name = format!("{} {}", package["name"].as_str()?, package["version"].as_str()?);
    if source != REGISTRY {
        return Some(format!(
            "Cargo.lock: {name} comes from {source}; deny.toml allows crates.io only"
        ));
    }
    let Some(text) = package["license"].as_str() else {
        return (package["license_file"].is_null()).then(|| format!("Cargo.lock: {name} states no licence"));
    };
    let Ok(expression) = Expression::parse_mode(text, ParseMode::LAX) else {
        return Some(format!(
            "Cargo.lock: {name} has the licence {text:?}, which is not an SPDX expression"
        ));
    };
    let is_allowed = expression.evaluate(|requirement| allowed.contains(&requirement.to_string()));
    (!is_allowed)
        .then(|| format!("Cargo.lock: {name} has the licence {text}, which deny.toml does not allow"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(licence: Option<&str>, source: &str) -> Option<String> {
        let allowed = ["MIT", "Apache-2.0 WITH LLVM-exception"]
            .map(str::to_owned)
            .into();
        let package = json!({"name": "p", "version": "1.0.0", "source": source, "license": licence, "license_file": null});
        breach(&package, &allowed)
    }

    #[test]
    fn a_package_needs_an_allowed_licence_and_the_registry() {
        for fine in [
            "MIT",
            "MIT/GPL-3.0",
            "GPL-2.0 OR MIT",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert_eq!(found(Some(fine), REGISTRY), None);
        }
        for (licence, source, reason) in [
            (Some("GPL-3.0-only"), REGISTRY, "does not allow"),
            (Some("MIT AND GPL-3.0-only"), REGISTRY, "does not allow"),
            (Some("Apache-2.0"), REGISTRY, "does not allow"),
            (Some("my own"), REGISTRY, "not an SPDX expression"),
            (None, REGISTRY, "states no licence"),
            (Some("MIT"), "git+https://example.org/p", "crates.io only"),
        ] {
            assert!(
                found(licence, source).is_some_and(|text| text.contains(reason)),
                "{licence:?}"
            );
        }
    }

    #[test]
    fn compression_of_zenoh_stays_off() {
        let line = r#"zenoh = { version = "1", default-features = false, features = ["transport_tcp"] }"#;
        assert_eq!(compression_of_zenoh(line), None);
        for bad in [
            line.replace("transport_tcp", "transport_compression"),
            line.replace("default-features = false, ", ""),
        ] {
            assert!(compression_of_zenoh(&bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn packages_of_this_project_are_not_judged() {
        let own = json!({"name": "holdall", "version": "1.0.0", "source": null, "license": null});
        assert_eq!(breach(&own, &BTreeSet::new()), None);
    }
}
