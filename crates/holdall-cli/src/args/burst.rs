//! The arguments of `holdall burst`: the flags of `ros2 bag burst`, same names and meaning.

use super::{TransportName, console::ConsoleArguments, play::PlayArguments};
use crate::units;
use clap::Args;
use std::{path::PathBuf, time::Duration};

/// Shown below `-h` and `--help`.
pub const EXAMPLES: &str = "\
Examples:
  holdall burst lab -n 100                  publish the first 100 messages at once
  holdall burst lab --topics /imu/data      all messages of one topic";

/// All flags of `holdall burst`.
#[derive(Args, Clone, Debug, Default)]
pub struct BurstArguments {
    /// Bag directory or single storage file
    #[arg(value_name = "BAG")]
    pub bag: PathBuf,

    /// The bag's storage; it is detected, so this is only checked
    #[arg(short = 's', long, value_name = "ID")]
    pub storage: Option<String>,

    /// Number of messages to read ahead
    #[arg(long, value_name = "N", default_value = "1000", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub read_ahead_queue_size: u32,

    /// Publish these topics only
    #[arg(long, value_name = "TOPIC", num_args = 1..)]
    pub topics: Vec<String>,

    /// Publish the recorded events of these services only
    #[arg(long, value_name = "SERVICE", num_args = 1..)]
    pub services: Vec<String>,

    /// YAML file with QoS overrides by topic; without one the recorded QoS is offered
    #[arg(long, value_name = "FILE")]
    pub qos_profile_overrides_path: Option<PathBuf>,

    /// Publish topics under other names
    #[arg(short = 'm', long, value_name = "OLD:=NEW", num_args = 1..)]
    pub remap: Vec<String>,

    /// Accepted for scripts of rosbag2: reading needs no settings, but the file must exist
    #[arg(long, value_name = "FILE")]
    pub storage_config_file: Option<PathBuf>,

    /// Skip the beginning of the bag, in seconds
    #[arg(long, value_name = "S", default_value = "0", allow_negative_numbers = true, value_parser = units::parse_seconds)]
    pub start_offset: Duration,

    /// How many messages to publish; 0 for all
    #[arg(short = 'n', long, value_name = "N", default_value = "0")]
    pub num_messages: u64,

    /// Transports to publish on; may be given several times
    #[arg(long, value_name = "TRANSPORT", action = clap::ArgAction::Append)]
    pub transport: Vec<TransportName>,

    /// Enclave of the node in a secured domain (SROS 2); `ROS_SECURITY_ENCLAVE_OVERRIDE` overrides it
    #[arg(long, value_name = "NAME")]
    pub enclave: Option<String>,

    #[command(flatten)]
    pub console: ConsoleArguments,
}

impl BurstArguments {
    /// The same as a playback that begins paused.
    pub fn as_play(&self) -> PlayArguments {
        PlayArguments {
            bags: vec![self.bag.clone()],
            storage: self.storage.clone(),
            read_ahead_queue_size: self.read_ahead_queue_size,
            topics: self.topics.clone(),
            services: self.services.clone(),
            qos_profile_overrides_path: self.qos_profile_overrides_path.clone(),
            remap: self.remap.clone(),
            storage_config_file: self.storage_config_file.clone(),
            start_offset: self.start_offset,
            transport: self.transport.clone(),
            enclave: self.enclave.clone(),
            console: ConsoleArguments {
                disable_keyboard_controls: true,
                ..self.console.clone()
            },
            rate: 1.0,
            node_name: "rosbag2_player".to_owned(),
            start_paused: true,
            progress_bar_update_rate: 10,
            ..PlayArguments::default()
        }
    }
}
