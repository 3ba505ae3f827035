//! The arguments of `holdall export`.

use super::choice::ChoiceArguments;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Shown below `-h` and `--help`.
pub const EXAMPLES: &str = "\
Examples:
  holdall export lab -f csv                          a table for each topic, in lab_csv/
  holdall export lab -f parquet -o tables            with typed columns, for Polars, DuckDB, Spark
  holdall export lab -f parquet --flat               a column for each field, for pandas
  holdall export lab -f png -t /camera/image_raw     an image file for each message
  holdall export lab -f pcd -t /lidar/points         a point cloud file for each message
  holdall export lab -f csv -w '/imu: linear_acceleration.z > 12'
  holdall export lab -f csv --time header.stamp      ordered by when the data was measured
  holdall export runs/* -f lerobot --mapping arm.yaml -o dataset";

/// Shown below `--help`.
pub const NOTES: &str = "\
Tables:
  One file for each topic: /camera/info becomes camera.info.csv. The first columns are log_time and
  publish_time (nanoseconds since 1970) and sequence; they begin with bag_ where the message has a
  field of that name. With --time header.stamp the first column is header_stamp.
  CSV: a column for each plain field, named by its path (header.stamp.sec); arrays of up to 64
  elements have a column for each (covariance[0]), longer ones and sequences are JSON in one column.
  Parquet: structs are nested, arrays and sequences are lists, uint8[] is binary; zstd. These are the
  columns that Python's to_arrow, to_polars and DuckDB have; with --flat those of flat=True.

Images:
  sensor_msgs/msg/Image and CompressedImage; other topics are left out. Files are named by the time
  of the message, in a folder for each topic. 8-bit and 16-bit mono, rgb, bgr, rgba, bgra; bayer
  unchanged, yuv422 and nv12 as RGB; depth in metres (32FC1, compressed depth) as millimetres in 16
  bits, 0 where nothing was measured; 16 bits are always PNG. JPEG and PNG are written unchanged.
  H.264, H.265, VP9 and AV1 (CompressedImage, foxglove_msgs/msg/CompressedVideo, FFMPEGPacket) by
  the program ffmpeg, from the first key frame on. mp4: the same video in one file for each topic,
  not decoded, with the times of its messages.

Point clouds:
  sensor_msgs/msg/PointCloud2 and CompressedPointCloud2 (holdall, Cloudini, Draco); other topics
  are left out. Files are named as images are, and have no padding. pcd: PCD 0.7 (binary) with all
  fields, width and height. ply: binary, a property for each number; rgb and rgba become red, green,
  blue (alpha); the order in rows is lost.

Training data:
  lerobot: a LeRobot dataset (version 3) of frames at a fixed rate in episodes: tables, statistics,
  images as PNG or videos by ffmpeg. webdataset: tar archives with files for each frame.
  --mapping is a YAML file that names the features, where episodes begin, and the rate:
    fps: 30
    task: pick up the cube
    episodes: {by: marker, start: begin, end: done}
    features:
      observation.state: {topic: /joint_states, fields: [position]}
      action: {topic: /command, fields: [data]}
      observation.images.top: {topic: /camera/image_raw}
  The output lists for each feature how far its messages are from the frames.

Files get their names when they are complete; existing files are not overwritten.";

/// What is made of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Comma-separated values.
    Csv,
    /// Apache Parquet.
    Parquet,
    /// Images as PNG.
    Png,
    /// Images as JPEG.
    Jpeg,
    /// Video as MP4, not decoded.
    Mp4,
    /// Point clouds as PCD.
    Pcd,
    /// Point clouds as PLY.
    Ply,
    /// A dataset of LeRobot.
    #[cfg(feature = "parquet")]
    Lerobot,
    /// A dataset of WebDataset.
    #[cfg(feature = "parquet")]
    Webdataset,
}

impl ExportFormat {
    /// Its name on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Parquet => "parquet",
            Self::Png => "png",
            Self::Jpeg => "jpeg",
            Self::Mp4 => "mp4",
            Self::Pcd => "pcd",
            Self::Ply => "ply",
            #[cfg(feature = "parquet")]
            Self::Lerobot => "lerobot",
            #[cfg(feature = "parquet")]
            Self::Webdataset => "webdataset",
        }
    }
}

/// All flags of `holdall export`.
#[derive(Args, Clone, Debug)]
pub struct ExportArguments {
    /// Which messages.
    #[command(flatten)]
    pub choice: ChoiceArguments,

    /// Format of the output
    #[arg(short = 'f', long, value_name = "FORMAT", help_heading = "What is written")]
    pub format: ExportFormat,

    /// YAML file with the features and episodes of training data
    #[arg(long, value_name = "FILE", help_heading = "What is written")]
    pub mapping: Option<PathBuf>,

    /// Parquet: columns with dotted names (header.stamp.sec) instead of nested structs
    #[arg(long, help_heading = "What is written")]
    pub flat: bool,

    /// Output directory [default: the bag's name and the format]
    #[arg(short = 'o', long, value_name = "PATH", help_heading = "What is written")]
    pub output: Option<PathBuf>,

    /// Overwrite existing files
    #[arg(long, help_heading = "What is written")]
    pub overwrite: bool,

    /// Quality of JPEG files
    #[arg(long, value_name = "PERCENT", default_value = "90", value_parser = clap::value_parser!(u8).range(1..=100), help_heading = "What is written")]
    pub quality: u8,

    /// Write the report to standard output as one JSON object
    #[arg(long, help_heading = "What is written")]
    pub json: bool,
}
