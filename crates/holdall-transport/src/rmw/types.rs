//! Type supports: the only thing that rmw needs to know of a type.

use super::ffi::{Shim, TypeSupport};
use std::{collections::HashMap, sync::Arc};

/// The type supports that were looked for.
pub(super) struct Types {
    shim: Arc<Shim>,
    /// By ROS type; why there is none.
    known: HashMap<String, Result<TypeSupport, String>>,
}

impl Types {
    /// Nothing was looked for yet.
    pub(super) fn new(shim: Arc<Shim>) -> Self {
        Self {
            shim,
            known: HashMap::new(),
        }
    }

    /// The type support of a ROS type, loaded when it is first asked for.
    ///
    /// # Errors
    /// One clause when it is not installed.
    pub(super) fn get(&mut self, type_name: &str) -> Result<TypeSupport, String> {
        if let Some(known) = self.known.get(type_name) {
            return known.clone();
        }
        let found = self.load(type_name);
        self.known.insert(type_name.to_owned(), found.clone());
        found
    }

    fn load(&self, type_name: &str) -> Result<TypeSupport, String> {
        let Some((package, name)) = parts_of(type_name) else {
            return Err(format!("{type_name} is no ROS type"));
        };
        let function = format!("rosidl_typesupport_c__get_message_type_support_handle__{name}");
        // Without a folder: only then its own libraries are searched where the shim's are, too.
        let library = format!("lib{package}__rosidl_typesupport_c.so");
        self.shim.type_support(&library, &function).map_err(|reason| {
            tracing::debug!("{type_name}: {reason}");
            format!("the type support of {type_name} is not installed (package {package}), which only this transport needs")
        })
    }
}

/// The package of a type, and its name as C has it.
pub(super) fn parts_of(type_name: &str) -> Option<(&str, String)> {
    let mut parts = type_name.split('/');
    let (package, kind, name) = (parts.next()?, parts.next()?, parts.next()?);
    let is_plain = |part: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        !part.is_empty() && part.bytes().all(is_plain)
    };
    // Names come from the network: nothing that could lead elsewhere.
    if parts.next().is_some() || ![package, kind, name].into_iter().all(is_plain) {
        return None;
    }
    Some((package, format!("{package}__{kind}__{name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_rosidl() {
        let name = "std_msgs__msg__String".to_owned();
        assert_eq!(parts_of("std_msgs/msg/String"), Some(("std_msgs", name)));
        for bad in ["", "String", "a/b", "a/b/c/d", "../x/msg/Y", "a//c", "a/msg/C\0"] {
            assert_eq!(parts_of(bad), None, "{bad:?}");
        }
    }
}
