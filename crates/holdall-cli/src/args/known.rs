//! Values that shells complete, of flags whose values are checked later, with the other arguments.

use clap::{
    Arg, Command, Error,
    builder::{PossibleValue, StringValueParser, TypedValueParser},
};
use holdall::supervise::control_socket::all_requests;
use holdall_storage::storages;
use std::{collections::BTreeSet, ffi::OsStr};

/// Accepts every text and lists the known values for completion.
#[derive(Clone, Debug)]
pub struct Known(BTreeSet<&'static str>);

impl Known {
    /// The storages of this build.
    pub fn storages() -> Self {
        Self(storages().iter().map(|storage| storage.id()).collect())
    }

    /// The requests of recordings and playbacks.
    pub fn requests() -> Self {
        Self(all_requests().into_iter().collect())
    }

    /// The presets of all storages.
    pub fn presets() -> Self {
        let presets = storages().iter().flat_map(|storage| storage.presets());
        Self(presets.copied().collect())
    }
}

impl TypedValueParser for Known {
    type Value = String;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<String, Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().copied().map(PossibleValue::new)))
    }
}
