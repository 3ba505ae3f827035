//! What ROS's security variables (SROS 2) demand of a build without DDS security: refused or named, never an empty bag without a word.

/// The only value of `ROS_SECURITY_ENABLE` that turns security on, as in rcl.
const ENABLED: &str = "true";

/// The only value of `ROS_SECURITY_STRATEGY` that refuses to run without security, as in rcl.
const ENFORCED: &str = "Enforce";

/// A warning where secured participants cannot be heard although security is turned on; `None` where it is not.
///
/// # Errors
/// One sentence when security is enforced.
pub(crate) fn check(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<&'static str>, String> {
    if variable("ROS_SECURITY_ENABLE").as_deref() != Some(ENABLED) {
        return Ok(None);
    }
    if variable("ROS_SECURITY_STRATEGY").as_deref() == Some(ENFORCED) {
        return Err(
            "ROS_SECURITY_STRATEGY is Enforce, and this build of holdall has no DDS security, so nothing of the secured domain \
             could be heard; unset ROS_SECURITY_ENABLE to reach what is not secured"
                .to_owned(),
        );
    }
    Ok(Some(
        "ROS_SECURITY_ENABLE is true, and this build of holdall has no DDS security: only what is not secured is reached",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(enable: Option<&str>, strategy: Option<&str>) -> Result<Option<&'static str>, String> {
        check(&|name| {
            let value = match name {
                "ROS_SECURITY_ENABLE" => enable,
                "ROS_SECURITY_STRATEGY" => strategy,
                _ => None,
            };
            value.map(str::to_owned)
        })
    }

    #[test]
    fn security_is_refused_when_it_is_enforced_and_named_when_it_is_not() {
        for enable in [None, Some("false"), Some("TRUE"), Some("1")] {
            assert_eq!(
                outcome(enable, Some("Enforce")),
                Ok(None),
                "{enable:?}: rcl does not turn it on"
            );
        }
        for strategy in [None, Some("Permissive"), Some("enforce")] {
            let warning = outcome(Some("true"), strategy).unwrap().unwrap();
            assert!(warning.contains("no DDS security"), "{strategy:?}");
        }
        let refused = outcome(Some("true"), Some("Enforce")).unwrap_err();
        assert!(refused.contains("ROS_SECURITY_STRATEGY is Enforce"), "{refused}");
    }
}
