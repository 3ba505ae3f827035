//! The arguments of `holdall control`.

use super::known::Known;
use clap::Args;

/// Shown below `-h` and `--help`.
pub const EXAMPLES: &str = "\
Examples:
  holdall control pause                         the only recording or playback that runs
  holdall control status | jq .status.lost
  holdall control add_marker door opens
  holdall control /run/user/1000/rec.sock status   one of several: holdall ps has the paths

Of a recording:
  holdall control metrics                       OpenMetrics text
  holdall control trigger near miss
  holdall control episode start task='pick cup' operator=ana
  holdall control episode stop outcome=success    or: episode discard reason=slipped
  holdall control promote event from=@1700000000 to=@1700000060 topics=/scan,/odom   copies a part into a bag beside it
  holdall control status | jq .status.promotions        how far that is

Of a playback:
  holdall control set_rate 2
  holdall control seek 12.5                     seconds after the beginning
  holdall control seek time_ns=1700000000500000000
  holdall control burst 10                      while paused; without a number, all remaining messages
  holdall control play start_offset=5 duration=10

A playback takes status, is_paused, pause, resume, toggle_paused, get_rate, set_rate, play, play_next, burst, seek and stop. A recording
takes status, is_paused, pause, resume, toggle_paused, stop and all other requests.

The socket takes one JSON object a line, {\"request\": \"seek\", \"time\": 12.5}, and answers with one: {\"ok\": true, ...}
or {\"ok\": false, \"error\": \"one sentence\"}. The names are those of rosbag2's services.";

/// All flags of `holdall control`.
#[derive(Args, Clone, Debug)]
pub struct ControlArguments {
    /// The request, after the path of a control socket where several recordings and playbacks run (holdall ps lists them)
    #[arg(value_name = "PATH|REQUEST", value_parser = Known::requests(), hide_possible_values = true)]
    pub first: String,

    /// What the request takes: the name of a marker or an event, topics to subscribe to, a rate, a time, NAME=VALUE
    #[arg(value_name = "ARGUMENT", value_parser = Known::requests(), hide_possible_values = true, allow_negative_numbers = true)]
    pub words: Vec<String>,
}
