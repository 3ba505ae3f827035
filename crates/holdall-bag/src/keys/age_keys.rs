//! Recipients and identities of the crate `age`: X25519 keys, and ssh keys of the kinds ed25519 and rsa.

use super::{KEYS_BYTES_MAX, KeyError, Seal};
use age::{Decryptor, Encryptor, Identity, Recipient, ssh, x25519};
use holdall_io::{
    fs,
    sealed::{FILE_KEY_BYTES, FileKey, add_key_opener},
};
use std::{
    io::{Read, Write},
    path::Path,
};

pub(super) fn seal_for(recipients: &[String]) -> Result<Seal, KeyError> {
    let mut all = Vec::new();
    for text in recipients {
        add_recipients(text, &mut all)?;
    }
    Seal::generate(|key| wrap(key, &all))
}

/// A key that only the owners of `recipients` can unwrap.
fn wrap(key: &FileKey, recipients: &[Box<dyn Recipient>]) -> Result<Vec<u8>, KeyError> {
    let refused = |error: String| KeyError::Wrap(std::io::Error::other(error));
    let each = recipients.iter().map(|recipient| &**recipient as &dyn Recipient);
    let encryptor = Encryptor::with_recipients(each).map_err(|error| refused(error.to_string()))?;
    let mut wrapped = Vec::new();
    let mut writer = encryptor.wrap_output(&mut wrapped)?;
    writer.write_all(key.as_bytes())?;
    writer.finish()?;
    Ok(wrapped)
}

/// The key that was wrapped, if one of `identities` can unwrap it.
fn unwrap(wrapped: &[u8], identities: &[Box<dyn Identity + Send + Sync>]) -> Option<FileKey> {
    let decryptor = Decryptor::new(wrapped).ok()?;
    let each = identities.iter().map(|identity| &**identity as &dyn Identity);
    let mut key = Vec::new();
    let reader = decryptor.decrypt(each).ok()?;
    // Not more than a key, whatever was wrapped.
    reader
        .take(FILE_KEY_BYTES as u64 + 1)
        .read_to_end(&mut key)
        .ok()?;
    FileKey::from_bytes(&key)
}

/// The recipient that `text` is, or those in the file that it names.
fn add_recipients(text: &str, all: &mut Vec<Box<dyn Recipient>>) -> Result<(), KeyError> {
    let refuse = |reason: String| KeyError::Recipient {
        text: text.to_owned(),
        reason,
    };
    let reason = match parse(text.trim()) {
        Ok(recipient) => {
            all.push(recipient);
            return Ok(());
        }
        Err(reason) => reason,
    };
    let path = Path::new(text);
    if text.contains("SECRET-KEY") {
        return Err(KeyError::Recipient {
            text: "AGE-SECRET-KEY-...".to_owned(),
            reason: "this is a secret key; name the public one, which begins with age1".to_owned(),
        });
    }
    if looks_like_key(text) || !path.exists() {
        return Err(refuse(reason));
    }
    let content = fs::read_to_string(path, KEYS_BYTES_MAX).map_err(|error| refuse(error.to_string()))?;
    let before = all.len();
    for (number, line) in (1..).zip(content.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.contains("SECRET-KEY") || line.contains("PRIVATE KEY") {
            return Err(refuse(format!(
                "line {number} has a secret key; name the file of the public one"
            )));
        }
        all.push(parse(line).map_err(|reason| refuse(format!("line {number}: {reason}")))?);
    }
    if all.len() == before {
        return Err(refuse("the file has none".to_owned()));
    }
    Ok(())
}

fn looks_like_key(text: &str) -> bool {
    text.starts_with("age1") || text.starts_with("ssh-")
}

fn parse(text: &str) -> Result<Box<dyn Recipient>, String> {
    if text.starts_with("ssh-") {
        let parsed = text.parse::<ssh::Recipient>();
        return match parsed {
            Ok(recipient) => Ok(Box::new(recipient)),
            Err(ssh::ParseRecipientKeyError::Unsupported(kind)) => {
                Err(format!("keys of the kind {kind} cannot encrypt"))
            }
            Err(_) => Err("this is not an ssh public key".to_owned()),
        };
    }
    match text.parse::<x25519::Recipient>() {
        Ok(recipient) => Ok(Box::new(recipient)),
        Err(reason) => Err(reason.to_owned()),
    }
}

pub(super) fn add_identity(path: &Path) -> Result<(), KeyError> {
    let identities = identities(path).map_err(|reason| KeyError::Identity {
        path: path.to_owned(),
        reason,
    })?;
    add_key_opener(move |wrapped| unwrap(wrapped, &identities));
    Ok(())
}

/// The secret keys in a file.
fn identities(path: &Path) -> Result<Vec<Box<dyn Identity + Send + Sync>>, String> {
    let text = fs::read_to_string(path, KEYS_BYTES_MAX).map_err(|error| error.to_string())?;
    if text.starts_with("age-encryption.org/") || text.starts_with("-----BEGIN AGE") {
        return Err(
            "it is encrypted with a passphrase, and holdall does not ask for one; decrypt it first"
                .to_owned(),
        );
    }
    if text.contains("-----BEGIN") {
        let name = Some(path.display().to_string());
        return match ssh::Identity::from_buffer(text.as_bytes(), name) {
            Ok(identity @ ssh::Identity::Unencrypted(_)) => Ok(vec![Box::new(identity)]),
            Ok(ssh::Identity::Encrypted(_)) => Err(
                "it is protected by a passphrase, and holdall does not ask for one; use a key without"
                    .to_owned(),
            ),
            Ok(ssh::Identity::Unsupported(_)) => {
                Err("it is an ssh key of a kind that cannot decrypt; ed25519 and rsa can".to_owned())
            }
            Err(error) => Err(format!("it is not an ssh secret key: {error}")),
        };
    }
    let mut found: Vec<Box<dyn Identity + Send + Sync>> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let identity = line.parse::<x25519::Identity>();
        // The line is not shown: it may be a secret.
        found.push(Box::new(identity.map_err(|_| {
            format!("line {number} is not an age secret key: expected AGE-SECRET-KEY-1...")
        })?));
    }
    if found.is_empty() {
        return Err("it has no secret key".to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use age::secrecy::ExposeSecret;

    #[test]
    fn only_the_owner_of_an_age_key_unwraps_what_is_wrapped_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let file_of = |name: &str, identity: &x25519::Identity| {
            let path = folder.path().join(name);
            let text = format!("# made by a test\n{}\n", identity.to_string().expose_secret());
            std::fs::write(&path, text).unwrap();
            identities(&path).unwrap()
        };
        let (owner, other) = (x25519::Identity::generate(), x25519::Identity::generate());
        let mut recipients = Vec::new();
        add_recipients(&owner.to_public().to_string(), &mut recipients).unwrap();
        let key = FileKey::from_bytes(&[7; FILE_KEY_BYTES]).unwrap();
        let wrapped = wrap(&key, &recipients).unwrap();
        let found = unwrap(&wrapped, &file_of("owner", &owner)).unwrap();
        assert_eq!(found.as_bytes(), key.as_bytes());
        assert!(unwrap(&wrapped, &file_of("other", &other)).is_none());
        assert!(unwrap(&wrapped[..wrapped.len() - 1], &file_of("owner", &owner)).is_none());
        let secret = owner.to_string().expose_secret().to_owned();
        let error = add_recipients(&secret, &mut recipients).unwrap_err().to_string();
        assert!(!error.contains(&secret[20..]), "a secret is in an error");
    }
}
