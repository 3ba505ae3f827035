//! The arguments of `holdall control`.

use clap::{Args, builder::PossibleValuesParser};
use holdall::supervise::control_socket::all_requests;
use std::path::PathBuf;

/// Shown below `-h` and `--help`.
pub const EXAMPLES: &str = "\
Examples:
  holdall record -a --control-socket /run/user/1000/rec.sock &
  holdall control /run/user/1000/rec.sock pause
  holdall control /run/user/1000/rec.sock status | jq .status.lost
  holdall control /run/user/1000/rec.sock metrics      OpenMetrics text
  holdall control /run/user/1000/rec.sock add_marker door opens
  holdall control /run/user/1000/rec.sock trigger near miss

  holdall play lab --persistent --control-socket /run/user/1000/play.sock &
  holdall control /run/user/1000/play.sock set_rate 2
  holdall control /run/user/1000/play.sock seek 12.5   seconds after the beginning
  holdall control /run/user/1000/play.sock seek time_ns=1700000000500000000
  holdall control /run/user/1000/play.sock burst 10    while paused; without a number, all remaining messages
  holdall control /run/user/1000/play.sock play start_offset=5 duration=10

A playback takes status, is_paused, pause, resume, toggle_paused, get_rate, set_rate, play, play_next, burst, seek and stop. A recording
takes status, is_paused, pause, resume, toggle_paused, stop and all other requests.

The socket takes one JSON object a line, {\"request\": \"seek\", \"time\": 12.5}, and answers with one: {\"ok\": true, ...}
or {\"ok\": false, \"error\": \"one sentence\"}. The names are those of rosbag2's services.";

/// All flags of `holdall control`.
#[derive(Args, Clone, Debug)]
pub struct ControlArguments {
    /// The --control-socket of a recording or a playback
    #[arg(value_name = "PATH")]
    pub socket: PathBuf,

    /// The request
    #[arg(value_name = "REQUEST", value_parser = PossibleValuesParser::new(all_requests()))]
    pub request: String,

    /// What the request takes: the name of a marker or an event, topics to subscribe to, a rate, a time, NAME=VALUE
    #[arg(value_name = "ARGUMENT", allow_negative_numbers = true)]
    pub arguments: Vec<String>,
}
