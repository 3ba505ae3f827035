//! `holdall web`: a folder of bags in a browser.

use super::{live_topics::LiveTopics, player_node::PlayerNode, viewers, web};
use crate::{
    VerbResult,
    args::{
        TransportName,
        viewers::{WebArguments, lasting},
    },
    exit::{Failure, Outcome},
    resolve,
    terminal::{
        events::{Event, queue},
        log, signals,
    },
    transport,
};
use holdall::{
    node::Node,
    play::Player,
    supervise::{
        control_socket::{PlayRequests, Requests},
        running::Running,
    },
};
use holdall_io::{
    clock::{Clock, SystemClock},
    fs,
};
use holdall_model::text::OutsidePath;
use holdall_web::{
    DEFAULT_WEB,
    dashboard::LiveSource,
    folder::{FolderServer, Host, PlayTo, PlayingBag},
    foxglove::{PlaybackServer, ViewerAccess, ViewerPort, ViewerReport},
    parse_address,
};
use serde_json::Value;
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tracing::{info, warn};

/// Time between two polls for a signal.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Serves the folder until a signal.
pub fn run(args: &WebArguments) -> VerbResult {
    log::start(args.log_level.filter());
    let (sender, events) = queue();
    signals::listen(sender).map_err(|error| Failure::failed(format!("cannot listen to signals: {error}")))?;
    let (folder, address) = place(&args.place)?;
    let access = viewers::access(&args.access)?;
    let host = Arc::new(Bags {
        foxglove: args.foxglove,
        access: access.clone(),
        transports: args.transport.clone(),
        live: Arc::new(LiveTopics::new(&args.transport, None)),
    });
    let server = FolderServer::start(address, access.token, &folder, host, args.allow_changes)
        .map_err(Failure::refused)?;
    info!("bags: {}", server.link());
    loop {
        if let Some(Event::Stop(signal)) = events.next(POLL_INTERVAL) {
            info!("{signal}: stopping");
            return Ok(Outcome::Done);
        }
    }
}

/// The folder and the address among the words; a word that is both is a folder if it exists.
fn place(words: &[PathBuf]) -> Result<(PathBuf, SocketAddr), Failure> {
    let (mut folder, mut address) = (None, None);
    for word in words {
        let named = word.to_str().and_then(|text| parse_address(text).ok());
        let is_folder = named.is_none() || fs::exists(word).unwrap_or(false);
        let is_second = match named {
            Some(named) if !is_folder => address.replace(named).is_some(),
            _ => folder.replace(word.clone()).is_some(),
        };
        if is_second {
            if is_folder && !fs::exists(word).unwrap_or(false) {
                parse_address(&word.to_string_lossy()).map_err(Failure::refused)?;
            }
            let kind = if is_folder { "folder" } else { "address" };
            return Err(Failure::refused(format!(
                "{}: a second {kind}; expected one folder and one address, for example holdall web /data/bags 9000",
                OutsidePath(word)
            )));
        }
    }
    let default = || parse_address(DEFAULT_WEB).map_err(Failure::failed);
    Ok((
        folder.unwrap_or_else(|| ".".into()),
        address.map_or_else(default, Ok)?,
    ))
}

/// The parts of this program that the page uses.
struct Bags {
    foxglove: SocketAddr,
    access: ViewerAccess,
    transports: Vec<TransportName>,
    live: Arc<dyn LiveSource>,
}

impl Host for Bags {
    fn play(&self, bag: &Path, to: PlayTo) -> Result<Box<dyn PlayingBag>, String> {
        self.start(bag, to)
            .map_err(|failure| failure.sentence().to_owned())
    }

    fn running(&self) -> Vec<Running> {
        web::running_folder().list()
    }

    fn live(&self) -> Option<Arc<dyn LiveSource>> {
        Some(Arc::clone(&self.live))
    }

    #[cfg(feature = "parquet")]
    fn find(&self, folder: &Path, expression: &str) -> Result<Vec<PathBuf>, String> {
        use holdall::catalog::Catalog;

        let places = [folder.join("catalog"), folder.to_owned()];
        let place = places
            .iter()
            .find(|place| Catalog::is_one(place))
            .ok_or_else(|| {
                let folder = OutsidePath(folder);
                format!("find: needs a catalog in this folder: holdall catalog {folder} -o {folder}/catalog")
            })?;
        let mut catalog = Catalog::open(place).map_err(|error| error.to_string())?;
        let found = catalog.find(expression).map_err(|error| error.to_string())?;
        Ok(found.into_iter().map(|found| found.bag.into()).collect())
    }

    #[cfg(not(feature = "parquet"))]
    fn find(&self, _: &Path, _: &str) -> Result<Vec<PathBuf>, String> {
        Err("this build has no catalogs".to_owned())
    }
}

impl Bags {
    fn start(&self, bag: &Path, to: PlayTo) -> Result<Box<dyn PlayingBag>, Failure> {
        let args = lasting(vec![bag.to_owned()]);
        let surroundings = resolve::surroundings::real(SystemClock.now());
        let mut options = resolve::play::resolve(&args, &surroundings).map_err(Failure::refused)?;
        let port = ViewerPort::bind(self.foxglove, self.access.clone()).map_err(Failure::refused)?;
        let viewers = viewers::of_playback(Some(port), &options.inputs, &args.definitions)?
            .ok_or_else(|| Failure::failed("no server for viewers"))?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let node = resolve::node(&args.node_name).map_err(Failure::refused)?;
        let joined = match to {
            PlayTo::Nodes => transport::join(
                &self.transports,
                &node,
                args.enclave.as_deref(),
                &clock,
                transport::Purpose::Other,
            )?,
            PlayTo::Viewers => {
                // Nothing has to be discovered.
                options.discovery_wait = Duration::ZERO;
                Vec::new()
            }
        };
        let mut transports = viewers::with_viewers(Some(&viewers), joined);
        let node = (to == PlayTo::Nodes).then(|| PlayerNode::offer(&options, &node, &mut transports));
        let inputs = options.inputs.clone();
        let player = Player::start(options, transports, Arc::clone(&clock))
            .map_err(|error| Failure::playing(error, &inputs))?;
        let node = node.map(|node| node.start(&player, clock)).transpose()?;
        viewers
            .serve(player.control(), viewers::shown_name(&inputs))
            .map_err(Failure::failed)?;
        for notice in player.notices() {
            warn!("{notice}");
        }
        info!("playing {} to {}", bag.display(), viewers.link());
        Ok(Box::new(Played {
            requests: Arc::new(StoppableRequests {
                inner: PlayRequests(player.control()),
                is_over: AtomicBool::new(false),
            }),
            viewers,
            _node: node,
            _player: player,
        }))
    }
}

/// A playback that the page has begun. Its parts end in their order.
struct Played {
    requests: Arc<StoppableRequests>,
    viewers: PlaybackServer,
    _node: Option<Node>,
    _player: Player,
}

impl PlayingBag for Played {
    fn requests(&self) -> Arc<dyn Requests> {
        Arc::clone(&self.requests) as Arc<dyn Requests>
    }

    fn link(&self) -> String {
        self.viewers.link()
    }

    fn viewers(&self) -> ViewerReport {
        self.viewers.report()
    }

    fn is_over(&self) -> bool {
        self.requests.is_over.load(Ordering::SeqCst)
    }
}

/// The requests to a playback, which would stay after a stop.
struct StoppableRequests {
    inner: PlayRequests,
    is_over: AtomicBool,
}

impl Requests for StoppableRequests {
    fn names(&self) -> &'static [&'static str] {
        self.inner.names()
    }

    fn execute(&self, name: &str, request: &Value) -> Value {
        if name == "stop" {
            self.is_over.store(true, Ordering::SeqCst);
        }
        self.inner.execute(name, request)
    }
}
