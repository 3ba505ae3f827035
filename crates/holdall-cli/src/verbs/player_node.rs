//! The node of `holdall play`: its services, and its events about files.

use crate::{exit::Failure, resolve::surroundings};
use holdall::{
    node::{
        Node, NodeServices, Parameters,
        player::{PlayerHandler, ReadSplitEvents, SERVICES},
    },
    play::{Player, options::PlayOptions},
};
use holdall_io::clock::{Clock, SystemClock};
use holdall_model::topic::NodeName;
use holdall_transport::Transport;
use std::sync::Arc;

/// The player's node before it answers.
pub struct PlayerNode {
    services: NodeServices,
    events: ReadSplitEvents,
    parameters: Parameters,
}

impl PlayerNode {
    /// Offers the services over these transports.
    pub fn offer(options: &PlayOptions, node: &NodeName, transports: &mut [Box<dyn Transport>]) -> Self {
        let distribution = surroundings::real(SystemClock.now()).distribution();
        Self {
            services: NodeServices::offer(node, &SERVICES, distribution, transports),
            events: ReadSplitEvents::offer(&node.to_string(), transports),
            parameters: crate::resolve::parameters::of_playback(options),
        }
    }

    /// Answers requests about this playback, until the returned value is dropped.
    pub fn start(self, player: &Player, clock: Arc<dyn Clock>) -> Result<Node, Failure> {
        let control = player.control();
        control.on_read_split(self.events.reporter(self.services.waker()));
        let handler = PlayerHandler::new(control, Some(self.events)).with_definitions(player.definitions());
        let node = self.services.start(Box::new(handler), self.parameters, clock);
        node.map_err(|error| Failure::failed(format!("no thread for services: {error}")))
    }
}
