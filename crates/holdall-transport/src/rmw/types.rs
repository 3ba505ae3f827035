//! Type supports: the only thing that rmw needs to know of a type.

use super::ffi::{Shim, TypeSupport};
use std::{collections::HashMap, sync::Arc};

/// The type supports that were looked for.
pub(super) struct Types {
    shim: Arc<Shim>,
    /// By ROS type; the error is the reason why it is missing.
    known: HashMap<String, Result<TypeSupport, String>>,
}

impl Types {
    /// Begins without any types.
    pub(super) fn new(shim: Arc<Shim>) -> Self {
        Self {
            shim,
            known: HashMap::new(),
        }
    }

    /// The type support of a ROS type, loaded when first requested.
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
        let Some((package, function)) = function_of(type_name) else {
            return Err(format!("{type_name} is not a ROS type"));
        };
        self.shim.type_support(&type_library(package), &function).map_err(|reason| {
            tracing::debug!("{type_name}: {reason}");
            format!("the type support of {type_name} is not installed (package {package}), which only this transport needs")
        })
    }
}

/// The parts of a service's type in an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServiceTypes {
    /// Library with the type supports.
    pub type_library: String,
    /// Library with the functions that make structures.
    pub structure_library: String,
    /// The part of its functions' names that names the type, for example `std_srvs__srv__Empty`.
    pub symbol: String,
}

impl ServiceTypes {
    /// The libraries and symbol of a service's type; `None` when the text is not a ROS type.
    pub(super) fn of(type_name: &str) -> Option<Self> {
        let (package, symbol) = parts_of(type_name)?;
        Some(Self {
            type_library: type_library(package),
            structure_library: format!("lib{package}__rosidl_generator_c.so"),
            symbol,
        })
    }
}

/// The library with a package's type supports, without a folder: only then its own libraries are searched where the shim's are, too.
fn type_library(package: &str) -> String {
    format!("lib{package}__rosidl_typesupport_c.so")
}

/// The package of a type, and the function that returns its type support.
fn function_of(type_name: &str) -> Option<(&str, String)> {
    let (package, symbol) = parts_of(type_name)?;
    Some((
        package,
        format!("rosidl_typesupport_c__get_message_type_support_handle__{symbol}"),
    ))
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
        let service = ServiceTypes::of("std_srvs/srv/Empty").unwrap();
        assert_eq!(service.type_library, "libstd_srvs__rosidl_typesupport_c.so");
        assert_eq!(service.structure_library, "libstd_srvs__rosidl_generator_c.so");
        assert_eq!(service.symbol, "std_srvs__srv__Empty");
        assert_eq!(ServiceTypes::of("../srv/Empty"), None);
    }
}
