//! zenoh's configuration as rmw_zenoh builds it: its defaults, or a file, and overrides on top.

use ::zenoh::Config;
use std::path::PathBuf;

/// The settings of a session where no file sets others: rmw_zenoh's choices. A peer that learns of the others
/// from the router on this machine, and communicates with them directly. Shared memory is used where it is
/// offered.
const DEFAULT: &str = r#"{
    mode: "peer",
    connect: {
        timeout_ms: { router: -1, peer: -1, client: 0 },
        endpoints: ["tcp/localhost:7447"],
        exit_on_failure: { router: false, peer: false, client: true },
    },
    listen: { endpoints: ["tcp/localhost:0"] },
    scouting: {
        multicast: { enabled: false },
        gossip: {
            enabled: true,
            target: { router: ["router", "peer"], peer: ["router"] },
            autoconnect_strategy: { peer: { to_router: "always", to_peer: "greater-zid" } },
        },
    },
    timestamping: { enabled: { router: true, peer: true, client: true } },
    queries_default_timeout: 600000,
    transport: {
        unicast: { open_timeout: 60000, accept_timeout: 60000, accept_pending: 10000, max_sessions: 10000 },
        shared_memory: { enabled: true },
    },
}"#;

/// The environment variables that decide how a session reaches others. Empty variables count as unset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZenohEnvironment {
    /// `ZENOH_SESSION_CONFIG_URI`: a file that replaces the defaults (JSON5 or YAML).
    pub session_config_uri: Option<PathBuf>,
    /// `ZENOH_CONFIG_OVERRIDE`: `key=value` pairs, separated by `;`, that are put on top.
    pub config_override: Option<String>,
    /// `ZENOH_ROUTER_CHECK_ATTEMPTS`: below 0 no router is expected.
    pub router_check_attempts: Option<String>,
}

impl ZenohEnvironment {
    /// Checks all variables, without connecting.
    ///
    /// # Errors
    /// One sentence about the first one with a bad value.
    pub fn check(&self) -> Result<(), String> {
        self.expects_router()?;
        self.config().map(drop)
    }

    /// Whether a user should be warned when no router is found.
    pub(super) fn expects_router(&self) -> Result<bool, String> {
        let Some(text) = &self.router_check_attempts else {
            return Ok(true);
        };
        match text.trim().parse::<i64>() {
            Ok(attempts) => Ok(attempts >= 0),
            Err(_) => Err(format!(
                "ZENOH_ROUTER_CHECK_ATTEMPTS must be a number, not {text:?}"
            )),
        }
    }

    /// The configuration that the variables result in.
    pub(super) fn config(&self) -> Result<Config, String> {
        let mut config = match &self.session_config_uri {
            None => Config::from_json5(DEFAULT).map_err(|error| error.to_string())?,
            Some(path) => Config::from_file(path).map_err(|error| {
                format!(
                    "ZENOH_SESSION_CONFIG_URI: {} is not a configuration of zenoh: {error}",
                    path.display()
                )
            })?,
        };
        for (key, value) in overrides(self.config_override.as_deref().unwrap_or_default())? {
            config
                .insert_json5(key, value)
                .map_err(|error| format!("ZENOH_CONFIG_OVERRIDE: {key}={value} is refused: {error}"))?;
        }
        Ok(config)
    }
}

/// The pairs of `ZENOH_CONFIG_OVERRIDE`: separated by `;` outside of quotation marks.
fn overrides(text: &str) -> Result<Vec<(&str, &str)>, String> {
    let mut quoted = None;
    let separates = |character: char| match quoted {
        Some(mark) => {
            if character == mark {
                quoted = None;
            }
            false
        }
        None if matches!(character, '"' | '\'') => {
            quoted = Some(character);
            false
        }
        None => character == ';',
    };
    text.split(separates)
        .map(str::trim)
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let split = pair
                .split_once('=')
                .map(|(key, value)| (key.trim(), value.trim()));
            split
                .filter(|(key, value)| !key.is_empty() && !value.is_empty())
                .ok_or_else(|| {
                    format!("ZENOH_CONFIG_OVERRIDE must be key=value pairs separated by ';', not {pair:?}")
                })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(config_override: &str) -> ZenohEnvironment {
        ZenohEnvironment {
            config_override: Some(config_override.to_owned()),
            ..ZenohEnvironment::default()
        }
    }

    fn get(environment: &ZenohEnvironment, key: &str) -> String {
        environment.config().unwrap().get_json(key).unwrap()
    }

    #[test]
    fn the_defaults_are_those_of_rmw_zenoh() {
        let plain = ZenohEnvironment::default();
        assert_eq!(get(&plain, "mode"), "\"peer\"");
        assert_eq!(get(&plain, "connect/endpoints"), "[\"tcp/localhost:7447\"]");
        assert_eq!(get(&plain, "scouting/multicast/enabled"), "false");
        assert_eq!(get(&plain, "transport/shared_memory/enabled"), "true");
        assert_eq!(plain.expects_router(), Ok(true));
    }

    #[test]
    fn overrides_lie_on_top() {
        let client = with(
            r#"mode="client"; connect/endpoints=["tcp/127.0.0.1:1;x=1"] ;transport/shared_memory/enabled=false;"#,
        );
        assert_eq!(get(&client, "mode"), "\"client\"");
        assert_eq!(get(&client, "connect/endpoints"), "[\"tcp/127.0.0.1:1;x=1\"]");
        assert_eq!(get(&client, "transport/shared_memory/enabled"), "false");
    }

    #[test]
    fn a_file_replaces_the_defaults() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("session.json5");
        std::fs::write(
            &path,
            "{ mode: 'router', listen: { endpoints: ['tcp/127.0.0.1:0'] } }",
        )
        .unwrap();
        let environment = ZenohEnvironment {
            session_config_uri: Some(path),
            ..with("scouting/multicast/enabled=false")
        };
        assert_eq!(get(&environment, "mode"), "\"router\"");
        assert_eq!(get(&environment, "scouting/multicast/enabled"), "false");
    }

    #[test]
    fn bad_values_are_refused_with_the_variable() {
        let missing = ZenohEnvironment {
            session_config_uri: Some("/nonexistent/session.json5".into()),
            ..ZenohEnvironment::default()
        };
        let attempts = ZenohEnvironment {
            router_check_attempts: Some("often".to_owned()),
            ..ZenohEnvironment::default()
        };
        for (environment, parts) in [
            (
                missing,
                ["ZENOH_SESSION_CONFIG_URI", "/nonexistent/session.json5"],
            ),
            (attempts, ["ZENOH_ROUTER_CHECK_ATTEMPTS", "often"]),
            (with("mode"), ["ZENOH_CONFIG_OVERRIDE", "\"mode\""]),
            (with("mode=\"captain\""), ["ZENOH_CONFIG_OVERRIDE", "captain"]),
            (with("no/such/key=1"), ["ZENOH_CONFIG_OVERRIDE", "no/such/key"]),
        ] {
            let error = environment.check().unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }
}
