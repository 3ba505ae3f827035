//! The arguments of the processes that `holdall bench run` starts.

use clap::{Args, ValueEnum};
use holdall_bench::middleware::worker::Shape;
use holdall_program::names::TransportName;
use std::{net::SocketAddr, path::PathBuf};

/// Flags of the processes that `holdall bench run` starts.
#[derive(Args, Clone, Debug)]
pub struct LiveArguments {
    /// The transport
    #[arg(long, value_name = "NAME", default_value = holdall_transport::registry::default_id())]
    pub transport: TransportName,

    /// Only join the transport, to find out whether this build can
    #[arg(long)]
    pub probe: bool,
}

/// Flags of the two processes of a run over a middleware.
#[derive(Args, Clone, Debug)]
pub struct WorkerArguments {
    /// Which side
    #[arg(long, value_name = "SIDE")]
    pub role: WorkerRole,

    /// Through this transport
    #[arg(long, value_name = "NAME", conflicts_with_all = ["udp", "tcp"])]
    pub transport: Option<TransportName>,

    /// By datagrams to or at this address
    #[arg(long, value_name = "ADDRESS", conflicts_with = "tcp")]
    pub udp: Option<SocketAddr>,

    /// By a stream to or at this address
    #[arg(long, value_name = "ADDRESS")]
    pub tcp: Option<SocketAddr>,

    /// The topic's name
    #[arg(long, value_name = "NAME")]
    pub topic: String,

    /// Join when started, send nothing, and report when this many processes of the other side are known
    #[arg(long, value_name = "N")]
    pub nodes: Option<usize>,

    /// Type of the messages: `bytes`, `point_cloud` or `poses`
    #[arg(long, value_name = "NAME", default_value_t)]
    pub message: Shape,

    /// Content of a message in bytes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(8..=1 << 30))]
    pub bytes: u64,

    /// Messages a second
    #[arg(long, value_name = "HZ")]
    pub rate: f64,

    /// Messages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub count: u64,

    /// `reliable` or `best-effort`
    #[arg(long, value_name = "NAME")]
    pub reliability: WorkerReliability,

    /// Messages to keep for late receivers
    #[arg(long, value_name = "N")]
    pub depth: u64,

    /// The file for a record of each message
    #[arg(long, value_name = "FILE")]
    pub records: PathBuf,
}

/// The side of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WorkerRole {
    /// Sends.
    Publisher,
    /// Receives.
    Subscriber,
    /// A node without topics.
    Idle,
    /// Both.
    Both,
}

/// Whether lost messages are sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WorkerReliability {
    /// They are.
    Reliable,
    /// They are not.
    BestEffort,
}
