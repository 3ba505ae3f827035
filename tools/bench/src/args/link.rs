//! The arguments of `holdall bench link`.

use crate::link::spec::LinkSpec;
use clap::Args;
use std::ffi::OsString;

/// Shown below the help of `holdall bench link`.
pub(super) const LINK_EXAMPLES: &str = "\
Examples:
  holdall bench link 'rate=54Mb/s,loss=10%,delay=5ms' -- holdall play lab -- holdall record -a --max-recording-duration 60
  holdall bench link 'loss=5%/burst=20,down=5s@20s' -- ros2 run demo_nodes_cpp talker -- ros2 run demo_nodes_cpp listener
  holdall bench link 'rate=54Mb/s,bottleneck=nic' --json -- CMD_A -- CMD_B | jq .a_to_b.rtps

The link, ethernet (1000 Mb/s, 0.2 ms), wifi (54 Mb/s, 1 to 5 ms, 1 % lost, 5 in a row) or 4g (30 Mb/s, 20 to 40 ms, 0.1 % lost), or:
  rate=54Mb/s          bits a second, counted with 14 bytes of Ethernet header for each packet
  loss=10%             of packets, each by itself; loss=10%/burst=20: 20 in a row on average
  delay=5ms            beyond the rate; delay=5ms±1ms: between 4 and 6 ms, in order
  reorder=1%           packets without the delay, which overtake others
  queue=200ms          how long packets may wait for the rate; a full queue drops them
  bottleneck=path      where they wait: on the way, or at the sender's own interface (nic), where `send` waits
  down=5s@20s          an outage; may be given several times
  mtu=1500             largest packet in bytes
  seed=1               the same seed loses the same packets
  backend=netem        use the kernel's netem, where it exists, instead of holdall's model
  spin=500us           the link does not sleep this long before a packet is due: more exact delays, more processor time
  group=100us          packets that are due within this time of each other arrive together: less processor time, up to this much late

A has the address 10.99.0.1, B 10.99.0.2; each has its own network and /dev/shm and reaches nothing else.
Needs root, or user namespaces and a /dev/net/tun that every user may open.";

/// All flags of `holdall bench link`.
#[derive(Args, Clone, Debug)]
pub struct LinkArguments {
    /// The link, for example rate=54Mb/s,loss=10%/burst=20,delay=5ms±1ms,queue=200ms,bottleneck=path
    #[arg(value_name = "LINK", required_unless_present = "check")]
    pub spec: Option<LinkSpec>,

    /// Measure how exactly this machine keeps to links: rates, delays, losses, in half a minute; exit code 1 when one is missed
    #[arg(long, conflicts_with_all = ["spec", "commands"])]
    pub check: bool,

    /// Print JSON instead of a table, on standard output after what the programs print
    #[arg(long)]
    pub json: bool,

    /// Two command lines, -- before each: the program on end A, then the one on end B
    #[arg(value_name = "CMD_A -- CMD_B", last = true, required_unless_present = "check", num_args = 1..)]
    pub commands: Vec<OsString>,
}
