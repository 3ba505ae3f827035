//! The arguments of `holdall control`.

use clap::{Args, builder::PossibleValuesParser};
use holdall::supervise::control_socket::REQUESTS;
use std::path::PathBuf;

/// Shown below `-h` and `--help`.
pub const EXAMPLES: &str = "\
Examples:
  holdall record -a --control-socket /run/user/1000/rec.sock &
  holdall control /run/user/1000/rec.sock pause
  holdall control /run/user/1000/rec.sock status | jq .status.lost
  holdall control /run/user/1000/rec.sock metrics      OpenMetrics text

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
}
