//! The node of `holdall record`: its services, and the recordings that they end and begin.

use crate::{
    args::record::RunningArguments,
    exit::Failure,
    resolve::record::ResolvedRecord,
    terminal::events::{Event, Events},
};
use holdall::{
    RecordOptions, Recorder,
    node::{
        BagPlaces, Distribution, Node, NodeServices, Parameters,
        recorder::{RecorderHandler, SERVICES},
        recording::{RecordRequest, RecordingSlot},
    },
};
use holdall_io::clock::Clock;
use holdall_model::topic::NodeName;
use holdall_transport::Transport;
use std::{path::PathBuf, sync::Arc, time::Duration};
use tracing::info;

/// Time between two polls for the next bag.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The recorder's node, over all recordings of this process.
pub struct RecorderNode {
    name: NodeName,
    parameters: Parameters,
    distribution: Option<Distribution>,
    slot: RecordingSlot,
    has_services: bool,
    /// Until the first recording runs.
    offered: Option<NodeServices>,
    node: Option<Node>,
    /// The service that waits for the next recording.
    request: Option<RecordRequest>,
}

impl RecorderNode {
    /// A node without services yet.
    pub fn new(args: &RunningArguments, resolved: &ResolvedRecord) -> Self {
        let places = if args.allow_paths {
            BagPlaces::Anywhere
        } else {
            BagPlaces::BesideFirst
        };
        Self {
            name: resolved.node.clone(),
            parameters: crate::resolve::parameters::of_recording(&resolved.options),
            distribution: resolved
                .options
                .files
                .ros_distro
                .as_deref()
                .map(Distribution::from_name),
            slot: RecordingSlot::new(&resolved.options.output, &places),
            has_services: !args.no_services,
            offered: None,
            node: None,
            request: None,
        }
    }

    /// Offers the services over these transports, unless they are offered already.
    pub fn offer(&mut self, transports: &mut [Box<dyn Transport>]) {
        if self.has_services && self.node.is_none() {
            let offered = NodeServices::offer(&self.name, &SERVICES, self.distribution, transports);
            self.offered = Some(offered);
        }
    }

    /// Answers requests about this recording from now on.
    pub fn began(
        &mut self,
        recorder: &Recorder,
        options: &RecordOptions,
        clock: &Arc<dyn Clock>,
    ) -> Result<(), Failure> {
        self.slot.began(recorder, &options.output, options.cache.snapshot);
        if let Some(request) = self.request.take() {
            request.answer(Ok(()));
        }
        if let Some(offered) = self.offered.take() {
            let handler = Box::new(RecorderHandler::new(self.slot.clone()));
            let node = offered.start(handler, self.parameters.clone(), Arc::clone(clock));
            self.node =
                Some(node.map_err(|error| Failure::failed(format!("no thread for services: {error}")))?);
        }
        Ok(())
    }

    /// The recording is closed; whether a service has ended it, so that the node stays.
    pub fn ended(&self) -> bool {
        self.slot.ended()
    }

    /// A recording did not begin: a failure for the service that asked for it, else of the program.
    pub fn not_begun(&mut self, failure: Failure) -> Result<(), Failure> {
        let Some(request) = self.request.take() else {
            return Err(failure);
        };
        let (Failure::Refused(reason) | Failure::Failed(reason)) = failure;
        request.answer(Err(reason));
        Ok(())
    }

    /// Waits for a service that asks for the next bag; `None` if a signal comes before. The folder is `None` if none is named.
    pub fn next_bag(&mut self, events: &Events) -> Option<Option<PathBuf>> {
        info!("the recording was ended by a service; waiting for the service record, or a signal");
        loop {
            if let Some(request) = self.slot.next() {
                let uri = request.uri.clone();
                self.request = Some(request);
                return Some(uri);
            }
            if let Some(Event::Stop(_)) = events.next(POLL_INTERVAL) {
                return None;
            }
        }
    }
}
