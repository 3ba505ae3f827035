//! The arguments of `holdall control`.

use crate::resolve::UsageError;
use clap::{Args, builder::PossibleValuesParser};
use holdall::supervise::control_socket::{REQUESTS, argument_of};
use std::path::PathBuf;

/// Shown below `-h` and `--help`.
pub const EXAMPLES: &str = "\
Examples:
  holdall record -a --control-socket /run/user/1000/rec.sock &
  holdall control /run/user/1000/rec.sock pause
  holdall control /run/user/1000/rec.sock status | jq .status.lost
  holdall control /run/user/1000/rec.sock metrics      OpenMetrics text
  holdall control /run/user/1000/rec.sock add_marker door opens

The socket takes one JSON object a line, {\"request\": \"pause\"}, and answers with one: {\"ok\": true, \"paused\": true}
or {\"ok\": false, \"error\": \"one sentence\"}. The names are those of rosbag2's services.";

/// All flags of `holdall control`.
#[derive(Args, Clone, Debug)]
pub struct ControlArguments {
    /// The recording's --control-socket
    #[arg(value_name = "PATH")]
    pub socket: PathBuf,

    /// The request
    #[arg(value_name = "REQUEST", value_parser = PossibleValuesParser::new(REQUESTS))]
    pub request: String,

    /// What the request needs: the marker's name, topics to subscribe to
    #[arg(value_name = "ARGUMENT")]
    pub arguments: Vec<String>,
}

impl ControlArguments {
    /// Refuses arguments that the request does not take, and their absence where it needs some.
    ///
    /// # Errors
    /// One sentence.
    pub fn check(&self) -> Result<(), UsageError> {
        match (argument_of(&self.request), self.arguments.is_empty()) {
            (Some(_), true) => Err(UsageError::RequestNeedsArgument(self.request.clone())),
            (None, false) => Err(UsageError::RequestTakesNoArgument(self.request.clone())),
            _ => Ok(()),
        }
    }
}
