//! Servers for Foxglove and other viewers: `holdall bridge`, and `--foxglove` of `record` and `play`.

use crate::{
    VerbResult,
    args::{
        TransportName,
        choice::DefinitionArguments,
        viewers::{AccessArguments, BridgeArguments},
    },
    exit::{Failure, Outcome},
    resolve::{self, pattern},
    terminal::{
        events::{Event, queue},
        log, signals,
    },
    transport,
    verbs::input,
};
use holdall::{BagSet, Selection, reader::Ros1View};
use holdall_io::clock::{Clock, SystemClock};
use holdall_model::topic::NodeName;
use holdall_transport::Transport;
use holdall_web::{
    Token,
    foxglove::{Bridge, BridgeOptions, PlaybackServer, ViewerAccess, ViewerPort},
};
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tracing::{info, warn};

/// Time between two polls for a signal.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The node of a bridge that runs next to a recording.
const BESIDE_NAME: &str = "holdall_bridge";

/// Who may connect to the ports of this program: all of them have one token.
pub fn access(args: &AccessArguments) -> Result<ViewerAccess, Failure> {
    let token = match &args.token_file {
        Some(path) => Token::kept_in(path).map_err(Failure::refused)?,
        None => Token::random().map_err(|error| Failure::failed(format!("no token can be made: {error}")))?,
    };
    Ok(ViewerAccess {
        token,
        origins: args.foxglove_origin.clone(),
    })
}

/// Binds the port, before anything is made or joined.
pub fn bind(address: Option<SocketAddr>, access: &ViewerAccess) -> Result<Option<ViewerPort>, Failure> {
    address
        .map(|address| ViewerPort::bind(address, access.clone()))
        .transpose()
        .map_err(Failure::refused)
}

/// Services for viewers of live topics besides topics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allowed {
    /// They may publish, call services and set parameters.
    pub control: bool,
    /// They may fetch meshes and images of packages.
    pub assets: bool,
    /// They get the time of `/clock`.
    pub sim_time: bool,
}

/// Permissions of viewers of live topics, for the log.
fn about_control(control: bool) -> &'static str {
    match control {
        true => " (viewers may publish, call services and set parameters)",
        false => {
            " (viewers only watch; --foxglove-control lets them publish, call services and set parameters)"
        }
    }
}

/// Shows live topics until a signal.
pub fn bridge(args: &BridgeArguments) -> VerbResult {
    let node = resolve::node(&args.node_name).map_err(Failure::refused)?;
    let everything = args.topics.is_empty() && args.regex.is_none();
    let mut topics = args.topics.clone();
    resolve::names::complete(&mut topics, &node);
    let selection = Selection {
        all_topics: everything,
        topics,
        regex: pattern::compile("--regex", args.regex.as_deref()).map_err(Failure::refused)?,
        exclude_regex: pattern::compile("--exclude-regex", args.exclude_regex.as_deref())
            .map_err(Failure::refused)?,
        include_hidden_topics: args.include_hidden_topics,
        ..Selection::default()
    };
    selection.validate().map_err(Failure::refused)?;
    log::start(args.log_level.filter());
    let port = ViewerPort::bind(args.foxglove, access(&args.access)?).map_err(Failure::refused)?;
    let (sender, events) = queue();
    signals::listen(sender).map_err(|error| Failure::failed(format!("cannot listen to signals: {error}")))?;
    let allowed = Allowed {
        control: args.foxglove_control,
        assets: args.foxglove_assets,
        sim_time: args.use_sim_time,
    };
    let _bridge = start(
        port,
        &args.transport,
        &node,
        args.enclave.as_deref(),
        &selection,
        allowed,
    )?;
    loop {
        if let Some(Event::Stop(signal)) = events.next(POLL_INTERVAL) {
            info!("{signal}: stopping");
            return Ok(Outcome::Done);
        }
    }
}

/// Shows the topics that a recording selects, with separate subscriptions: the recording is not involved.
pub fn beside_recording(
    port: Option<ViewerPort>,
    transports: &[TransportName],
    enclave: Option<&str>,
    selection: &Selection,
    allowed: Allowed,
) -> Result<Option<Bridge>, Failure> {
    let node = NodeName::in_root(BESIDE_NAME);
    port.map(|port| start(port, transports, &node, enclave, selection, allowed))
        .transpose()
}

fn start(
    port: ViewerPort,
    transports: &[TransportName],
    node: &NodeName,
    enclave: Option<&str>,
    selection: &Selection,
    allowed: Allowed,
) -> Result<Bridge, Failure> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let transports = transport::join(transports, node, enclave, &clock, transport::Purpose::Other)?;
    for warning in transports.iter().flat_map(|transport| transport.warnings()) {
        warn!("{warning}");
    }
    let surroundings = resolve::surroundings::real(SystemClock.now());
    let ament_prefixes = resolve::record::ament_prefixes(&surroundings);
    if allowed.assets && ament_prefixes.is_empty() {
        warn!("--foxglove-assets: viewers get no files, because AMENT_PREFIX_PATH names no folder");
    }
    let options = BridgeOptions {
        filter: selection.compile(node).map_err(Failure::refused)?,
        asset_prefixes: if allowed.assets {
            ament_prefixes.clone()
        } else {
            Vec::new()
        },
        ament_prefixes,
        name: "holdall".to_owned(),
        control: allowed.control,
        use_sim_time: allowed.sim_time,
    };
    let bridge = Bridge::start(port, options, transports).map_err(Failure::failed)?;
    info!("Foxglove: {}{}", bridge.link(), about_control(allowed.control));
    Ok(bridge)
}

/// A server of the messages played from these bags.
pub fn of_playback(
    port: Option<ViewerPort>,
    inputs: &[PathBuf],
    definitions: &DefinitionArguments,
) -> Result<Option<PlaybackServer>, Failure> {
    let folders = input::definition_folders(definitions)?;
    let Some(port) = port else { return Ok(None) };
    let failed = |error| Failure::opening(error, inputs);
    let bags = BagSet::open_with(inputs, Ros1View::AllConverted).map_err(failed)?;
    let bags = bags.with_definitions(&folders);
    PlaybackServer::new(port, &bags).map(Some).map_err(failed)
}

/// The transports of a playback: those joined, each with viewers, or viewers alone.
pub fn with_viewers(
    server: Option<&PlaybackServer>,
    joined: Vec<Box<dyn Transport>>,
) -> Vec<Box<dyn Transport>> {
    let Some(server) = server else { return joined };
    if joined.is_empty() {
        return vec![server.transport(None)];
    }
    joined
        .into_iter()
        .map(|inner| server.transport(Some(inner)))
        .collect()
}

/// The name of a bag for viewers.
pub fn shown_name(inputs: &[PathBuf]) -> String {
    let names = inputs.iter().filter_map(|path| path.file_name().map(Path::new));
    names
        .map(|name| name.display().to_string())
        .collect::<Vec<_>>()
        .join(", ")
}
