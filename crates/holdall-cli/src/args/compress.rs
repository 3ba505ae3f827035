//! The arguments of `holdall compress` and `holdall decompress`.

use super::tools::{Codec, Level};
use clap::{Args, ValueEnum};
use holdall::recode;
use holdall_program::names::{Words, one_of};
use std::path::PathBuf;

/// Shown below `holdall compress --help`.
pub const COMPRESS_EXAMPLES: &str = "\
Examples:
  holdall compress lab -o lab_zstd                          MCAP: chunks by zstd; other storages: whole files
  holdall compress lab -o lab_small --level slowest
  holdall compress lab -o lab_file --mode file              as `ros2 bag record --compression-mode file`
  holdall compress lab -o lab_video --video '/camera/.*=h264,quality=23' --video '/depth/.*=lossless'";

/// Shown below `holdall decompress --help`.
pub const DECOMPRESS_EXAMPLES: &str = "\
Example:
  holdall decompress lab_zstd -o lab
  holdall decompress lab_video -o lab                       video and depth that `compress --video` made are images again";

/// The messages that carry video.
pub const CARRIERS: Words<recode::Carrier> = &[
    (
        "foxglove",
        "foxglove_msgs/msg/CompressedVideo",
        recode::Carrier::Foxglove,
    ),
    (
        "ffmpeg_image_transport",
        "ffmpeg_image_transport_msgs/msg/FFMPEGPacket",
        recode::Carrier::FfmpegImageTransport,
    ),
    (
        "compressed_image",
        "sensor_msgs/msg/CompressedImage of format h264, h265, av1 or vp9",
        recode::Carrier::CompressedImage,
    ),
];

/// What `compress` packs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompressMode {
    /// The chunks of MCAP files: every MCAP reader reads them.
    Chunk,
    /// Each storage file (rosbag2's file compression).
    File,
    /// Each message (rosbag2's message compression).
    Message,
}

/// All flags of `holdall compress`.
#[derive(Args, Clone, Debug)]
pub struct CompressArguments {
    /// Bag directories or single files, - for one on standard input
    #[arg(value_name = "BAG", required = true)]
    pub bags: Vec<PathBuf>,

    /// Bag directory to create; - for one storage file on standard output
    #[arg(short = 'o', long, value_name = "PATH")]
    pub output: PathBuf,

    /// What is compressed [default: chunk for MCAP, file for others]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<CompressMode>,

    /// Codec of chunks
    #[arg(
        long = "compression",
        alias = "codec",
        value_name = "CODEC",
        default_value = "zstd"
    )]
    pub codec: Codec,

    /// Compression level of chunks
    #[arg(long, value_name = "LEVEL", default_value = "default")]
    pub level: Level,

    /// Encode the images of these topics as video by ffmpeg, what cannot be stays: h264 or h265 with quality=0 (best) to 51 [default: 23], av1 or vp9 with quality=0 to 63 [default: 32], or lossless, also for depth, floats and 16 bits; may be given several times, the first that matches counts
    #[arg(
        long,
        value_name = "TOPICS=CODEC",
        value_parser = recode::Rule::video,
        action = clap::ArgAction::Append
    )]
    pub video: Vec<recode::Rule>,

    /// The messages that carry the video of --video
    #[arg(long = "as", value_name = "MESSAGE", default_value = "foxglove", requires = "video", value_parser = one_of(CARRIERS))]
    pub carrier: recode::Carrier,

    /// Give the point clouds of these topics a smaller form: lossless, or cloudini with coordinates as multiples of resolution=METRES [default: 0.001]; may be given several times
    #[arg(
        long,
        value_name = "TOPICS=CODEC",
        value_parser = recode::Rule::cloud,
        action = clap::ArgAction::Append
    )]
    pub cloud: Vec<recode::Rule>,

    /// Compare all messages of the new bag with those of the originals, decoded, and delete the originals when none differs
    #[arg(long)]
    pub delete_original_after_verify: bool,

    /// Encrypt the output, as for `holdall record`: a public key (age1..., ssh-ed25519 ..., ssh-rsa ...), or a file of these; may be given several times
    #[arg(long, value_name = "RECIPIENT", action = clap::ArgAction::Append)]
    pub encrypt_to: Vec<String>,

    /// Print a report as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// All flags of `holdall decompress`.
#[derive(Args, Clone, Debug)]
pub struct DecompressArguments {
    /// Bag directories or single files, - for one on standard input
    #[arg(value_name = "BAG", required = true)]
    pub bags: Vec<PathBuf>,

    /// Bag directory to create; - for one storage file on standard output
    #[arg(short = 'o', long, value_name = "PATH")]
    pub output: PathBuf,

    /// Encrypt the output, as for `holdall record`: a public key (age1..., ssh-ed25519 ..., ssh-rsa ...), or a file of these; may be given several times
    #[arg(long, value_name = "RECIPIENT", action = clap::ArgAction::Append)]
    pub encrypt_to: Vec<String>,

    /// Print a report as one JSON object
    #[arg(long)]
    pub json: bool,
}
