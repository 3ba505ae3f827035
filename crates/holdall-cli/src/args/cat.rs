//! The arguments of `holdall cat`.

use super::choice::ChoiceArguments;
use clap::{Args, ValueEnum};

/// Shown below `-h` and `--help`.
pub const EXAMPLES: &str = "\
Examples:
  holdall cat lab | head -40                       the first messages, as YAML
  holdall cat lab -t /tf -n 1                      one message of /tf
  holdall cat lab -t /imu/data --format json | jq .message.linear_acceleration.z
  holdall cat lab -w '/imu/data: abs(angular_velocity.z) > 1 && header.frame_id == \"base\"'
  holdall cat lab -t /camera/image_raw --no-arr    without the pixels
  holdall cat lab -t /chatter -n 1 --raw | xxd     the serialized bytes";

/// Shown below `--help`.
pub const NOTES: &str = "\
Values:
  Messages are decoded by the definition in the bag; where it is missing, by that of ROS 2 Jazzy,
  else their bytes are shown as base64. Times are nanoseconds since 1970. YAML ends each message
  with ---, JSON writes one line each. Lists and texts come in full unless a flag cuts them. JSON
  has no NaN: it and the infinities are \"NaN\", \"Infinity\" and \"-Infinity\"; in YAML .nan, .inf
  and -.inf. Messages that are JSON texts are shown unchanged.

Expressions:
  ||  &&  !  or  and  not      == != < <= > >=      =~ !~ (regular expression)      + - * / %
  len(x)  abs(x)      fields by name: pose.position.x      elements by number: ranges[0], ranges[-1]
  any element by *: transforms[*].child_frame_id == \"base\"      times and durations are seconds";

/// How messages are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// YAML documents.
    #[default]
    Yaml,
    /// JSON lines.
    Json,
}

/// All flags of `holdall cat`.
#[derive(Args, Clone, Debug, Default)]
pub struct CatArguments {
    /// Which messages.
    #[command(flatten)]
    pub choice: ChoiceArguments,

    /// How messages are written
    #[arg(
        short = 'f',
        long,
        value_name = "FORMAT",
        default_value = "yaml",
        help_heading = "How they are shown"
    )]
    pub format: Format,

    /// JSON lines, like --format json
    #[arg(long, conflicts_with = "format", help_heading = "How they are shown")]
    pub json: bool,

    /// Write the serialized bytes of the messages, one after the other
    #[arg(long, conflicts_with_all = ["format", "json", "truncate_length", "no_arr", "no_str", "base64"], help_heading = "How they are shown")]
    pub raw: bool,

    /// Cut lists and strings after this many elements
    #[arg(long, value_name = "N", help_heading = "How they are shown")]
    pub truncate_length: Option<usize>,

    /// Show lists as their type and length
    #[arg(long, help_heading = "How they are shown")]
    pub no_arr: bool,

    /// Show strings as their length
    #[arg(long, help_heading = "How they are shown")]
    pub no_str: bool,

    /// Lists of bytes (uint8[], byte[]) as base64 text
    #[arg(long, help_heading = "How they are shown")]
    pub base64: bool,
}
