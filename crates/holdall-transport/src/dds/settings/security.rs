//! What ROS's security variables (SROS 2) ask for: a secured participant with the files of an enclave, or one that is not secured. Where that is
//! impossible, the start is refused or a warning names the reason: a bag is never empty without a word.

use std::path::{Path, PathBuf};

/// The only value of `ROS_SECURITY_ENABLE` that turns security on, as in rcl.
const ENABLED: &str = "true";

/// The only value of `ROS_SECURITY_STRATEGY` that refuses to run without security, as in rcl.
const ENFORCED: &str = "Enforce";

/// The enclave of a participant that names none.
const ROOT: &str = "/";

/// Files of an enclave, with the properties of a participant that they are given to.
const FILES: [(&str, &str); 6] = [
    ("dds.sec.auth.identity_ca", "identity_ca.cert.pem"),
    ("dds.sec.auth.identity_certificate", "cert.pem"),
    ("dds.sec.auth.private_key", "key.pem"),
    ("dds.sec.access.permissions_ca", "permissions_ca.cert.pem"),
    ("dds.sec.access.governance", "governance.p7s"),
    ("dds.sec.access.permissions", "permissions.p7s"),
];

/// Certificates that are revoked: a file that an enclave may lack.
const REVOKED: (&str, &str) = ("org.eclipse.cyclonedds.sec.auth.crl", "crl.pem");

/// The plugins, which are part of Cyclone DDS and found by their names.
const PLUGINS: [(&str, &str); 9] = [
    ("dds.sec.auth.library.path", "dds_security_auth"),
    ("dds.sec.auth.library.init", "init_authentication"),
    ("dds.sec.auth.library.finalize", "finalize_authentication"),
    ("dds.sec.crypto.library.path", "dds_security_crypto"),
    ("dds.sec.crypto.library.init", "init_crypto"),
    ("dds.sec.crypto.library.finalize", "finalize_crypto"),
    ("dds.sec.access.library.path", "dds_security_ac"),
    ("dds.sec.access.library.init", "init_access_control"),
    ("dds.sec.access.library.finalize", "finalize_access_control"),
];

/// How a participant takes part in security.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// Its enclave, where one is named.
    enclave: Option<String>,
    /// The enclave's files; `None` without security.
    directory: Option<PathBuf>,
}

impl Security {
    /// What the variables ask for, and a warning where security is turned on but not available. `enclave` is the one that the user names.
    ///
    /// # Errors
    /// One sentence when security is enforced but not available.
    pub(crate) fn of(
        variable: &dyn Fn(&str) -> Option<String>,
        enclave: Option<&str>,
    ) -> Result<(Self, Option<String>), String> {
        let chosen = variable("ROS_SECURITY_ENCLAVE_OVERRIDE").or_else(|| enclave.map(str::to_owned));
        let plain = Self {
            enclave: chosen,
            directory: None,
        };
        if variable("ROS_SECURITY_ENABLE").as_deref() != Some(ENABLED) {
            return Ok((plain, None));
        }
        let keystore = variable("ROS_SECURITY_KEYSTORE").map(PathBuf::from);
        match directory_of(keystore.as_deref(), plain.enclave()) {
            Ok(directory) => {
                let secured = Self {
                    directory: Some(directory),
                    ..plain
                };
                Ok((secured, None))
            }
            Err(reason) if variable("ROS_SECURITY_STRATEGY").as_deref() == Some(ENFORCED) => Err(format!(
                "ROS_SECURITY_STRATEGY is Enforce, and {reason}, so nothing of the secured domain could be heard; \
                 unset ROS_SECURITY_ENABLE to reach what is not secured"
            )),
            Err(reason) => Ok((
                plain,
                Some(format!(
                    "ROS_SECURITY_ENABLE is true, and {reason}: only what is not secured is reached"
                )),
            )),
        }
    }

    /// The enclave.
    pub(in crate::dds) fn enclave(&self) -> &str {
        self.enclave.as_deref().unwrap_or(ROOT)
    }

    /// Whether the participant is secured.
    pub(in crate::dds) fn is_on(&self) -> bool {
        self.directory.is_some()
    }

    /// What the participant announces about itself, as rmw implementations do.
    pub(in crate::dds) fn user_data(&self) -> String {
        format!("enclave={};", self.enclave())
    }

    /// The participant's properties; empty without security.
    pub(in crate::dds) fn properties(&self) -> Vec<(&'static str, String)> {
        let Some(directory) = &self.directory else {
            return Vec::new();
        };
        let path = |file: &str| format!("file:{}", directory.join(file).display());
        let plugins = PLUGINS.map(|(name, value)| (name, value.to_owned()));
        let files = FILES.map(|(name, file)| (name, path(file)));
        let (name, file) = REVOKED;
        let revoked = directory.join(file).is_file().then(|| (name, path(file)));
        plugins.into_iter().chain(files).chain(revoked).collect()
    }

    /// Cyclone DDS's configuration of a secured domain, as XML; empty without security, or without a build for it.
    ///
    /// Fast DDS accepts a handshake only with its optional fields, which Cyclone sends when it is configured so. Such a configuration must name
    /// the files, too; the participant's properties override it.
    pub(in crate::dds) fn configuration(&self) -> String {
        let Some(directory) = self.directory.as_ref().filter(|_| cfg!(feature = "sros2")) else {
            return String::new();
        };
        let file = |name: &str| {
            let path = directory.join(name).display().to_string();
            let escaped = path
                .replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('>', "&gt;");
            format!("file:{escaped}")
        };
        format!(
            "<Security><Authentication><IdentityCA>{}</IdentityCA><IdentityCertificate>{}</IdentityCertificate>\
             <PrivateKey>{}</PrivateKey><IncludeOptionalFields>true</IncludeOptionalFields></Authentication></Security>",
            file("identity_ca.cert.pem"),
            file("cert.pem"),
            file("key.pem")
        )
    }

    /// The error for a refused secured participant, with Cyclone DDS's reason.
    pub(in crate::dds) fn refusal(&self, reason: &str) -> Option<String> {
        let directory = self.directory.as_ref()?;
        Some(format!(
            "the secured domain cannot be joined as enclave {} with the files in {}: {reason}",
            self.enclave(),
            directory.display()
        ))
    }

    /// Why a participant has left the domain after it had joined.
    pub(in crate::dds) fn expiry(&self) -> String {
        format!(
            "the certificate or the permissions of enclave {} have expired, and nothing of the secured domain is heard any more",
            self.enclave()
        )
    }
}

/// The folder of an enclave, with all its files.
#[cfg(feature = "sros2")]
fn directory_of(keystore: Option<&Path>, enclave: &str) -> Result<PathBuf, String> {
    let keystore = keystore.ok_or("ROS_SECURITY_KEYSTORE names no keystore")?;
    let parts: Vec<&str> = enclave.split('/').skip(1).collect();
    let is_root = enclave == ROOT;
    if !enclave.starts_with('/') || (!is_root && parts.iter().any(|part| ["", ".", ".."].contains(part))) {
        return Err(format!(
            "the enclave {enclave:?} is not a name like /robot/recorder"
        ));
    }
    let directory = keystore.join("enclaves").join(parts.join("/"));
    if !directory.is_dir() {
        return Err(format!(
            "the keystore {} has no enclave {enclave}: there is no folder {}",
            keystore.display(),
            directory.display()
        ));
    }
    let files = FILES.iter().map(|(_, file)| directory.join(file));
    let missing: Vec<String> = files
        .filter(|path| !path.is_file())
        .map(|path| path.display().to_string())
        .collect();
    if !missing.is_empty() {
        return Err(format!("the enclave {enclave} lacks {}", missing.join(" and ")));
    }
    // Relative paths would depend on where Cyclone resolves them.
    std::path::absolute(&directory).map_err(|error| format!("{}: {error}", directory.display()))
}

#[cfg(not(feature = "sros2"))]
fn directory_of(_: Option<&Path>, _: &str) -> Result<PathBuf, String> {
    Err("this build of holdall has no DDS security".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)], enclave: Option<&str>) -> Result<(Security, Option<String>), String> {
        let value = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Security::of(&value, enclave)
    }

    #[test]
    fn only_rcl_s_own_word_turns_security_on() {
        for enable in ["false", "TRUE", "1"] {
            let (security, warning) = of(
                &[
                    ("ROS_SECURITY_ENABLE", enable),
                    ("ROS_SECURITY_STRATEGY", "Enforce"),
                ],
                Some("/robot"),
            )
            .unwrap();
            assert_eq!((security.is_on(), warning), (false, None), "{enable}");
            assert_eq!(security.user_data(), "enclave=/robot;");
            assert_eq!(security.properties(), []);
        }
        assert_eq!(Security::default().user_data(), "enclave=/;");
    }

    #[test]
    fn what_cannot_be_had_is_refused_when_it_is_enforced_and_named_when_it_is_not() {
        for strategy in ["Permissive", "enforce"] {
            let variables = [
                ("ROS_SECURITY_ENABLE", "true"),
                ("ROS_SECURITY_STRATEGY", strategy),
            ];
            let (security, warning) = of(&variables, None).unwrap();
            assert!(!security.is_on());
            assert!(
                warning.unwrap().contains("only what is not secured"),
                "{strategy}"
            );
        }
        let enforced = [
            ("ROS_SECURITY_ENABLE", "true"),
            ("ROS_SECURITY_STRATEGY", "Enforce"),
        ];
        let refused = of(&enforced, None).unwrap_err();
        assert!(
            refused.starts_with("ROS_SECURITY_STRATEGY is Enforce, and "),
            "{refused}"
        );
    }

    #[cfg(feature = "sros2")]
    #[test]
    fn an_enclave_is_a_folder_of_the_keystore_with_six_files() {
        let keystore = tempfile::tempdir().unwrap();
        let root = keystore.path().to_str().unwrap();
        let variables = [
            ("ROS_SECURITY_ENABLE", "true"),
            ("ROS_SECURITY_STRATEGY", "Enforce"),
            ("ROS_SECURITY_KEYSTORE", root),
        ];
        let reason = |enclave: &str| of(&variables, Some(enclave)).unwrap_err();
        assert!(reason("/robot/arm").contains("has no enclave /robot/arm"));
        for bad in ["robot", "/robot/../other", "/robot//arm", "/robot/"] {
            assert!(reason(bad).contains("is not a name like"), "{bad}");
        }
        let folder = keystore.path().join("enclaves/robot/arm");
        std::fs::create_dir_all(&folder).unwrap();
        for (_, file) in FILES {
            let refused = reason("/robot/arm");
            assert!(refused.contains(&format!("/{file}")), "{refused}");
            std::fs::write(folder.join(file), "x").unwrap();
        }
        let (security, warning) = of(&variables, Some("/robot/arm")).unwrap();
        assert_eq!(warning, None);
        let properties = security.properties();
        assert_eq!(properties.len(), 15);
        let governance = format!("file:{root}/enclaves/robot/arm/governance.p7s");
        assert!(properties.contains(&("dds.sec.access.governance", governance)));
        std::fs::write(folder.join("crl.pem"), "x").unwrap();
        assert_eq!(security.properties().len(), 16);

        let overridden = [&variables[..], &[("ROS_SECURITY_ENCLAVE_OVERRIDE", "/robot/arm")]].concat();
        let (security, _) = of(&overridden, Some("/another")).unwrap();
        assert_eq!(security.user_data(), "enclave=/robot/arm;");
        assert!(security.refusal("expired").unwrap().ends_with(": expired"));
        assert!(reason("/").contains("cert.pem"), "the root is the folder itself");
    }
}
