//! Flags of `holdall bench run` for two machines.

use clap::Args;

/// Two machines instead of an emulated link.
#[derive(Args, Clone, Debug, Default)]
pub struct PeerArguments {
    /// The side that this machine runs; the machine of --peer runs the other
    #[arg(
        long,
        value_name = "SIDE",
        requires = "peer",
        help_heading = "Two machines",
        value_parser = ["publisher", "subscriber"]
    )]
    pub side: Option<String>,

    /// The other machine, where `holdall bench run --listen` waits; used instead of the experiment's links
    #[arg(
        long,
        value_name = "HOST[:PORT]",
        requires = "side",
        help_heading = "Two machines"
    )]
    pub peer: Option<String>,

    /// Wait at this address for a machine with --peer, run the other side of its run, and end with it
    #[arg(
        long,
        value_name = "ADDRESS[:PORT]",
        conflicts_with_all = ["peer", "experiments", "producers"],
        help_heading = "Two machines"
    )]
    pub listen: Option<String>,
}
