//! The dashboard of a recording or playback (`--web`).

use crate::exit::Failure;
use holdall::supervise::{
    control_socket::{ControlSocket, Requests},
    running::{RunningFolder, RunningKind},
};
use holdall_web::{
    Token,
    dashboard::{Dashboard, LiveSource, Subject},
    foxglove::ViewerReport,
};
use std::{net::SocketAddr, path::PathBuf, sync::Arc};
use tracing::{debug, info};

/// Binds the port, before anything is made or joined.
pub fn bind(address: Option<SocketAddr>, token: &Token) -> Result<Option<Dashboard>, Failure> {
    address
        .map(|address| Dashboard::bind(address, token.clone()))
        .transpose()
        .map_err(Failure::refused)
}

/// Serves the page, and logs its link.
pub fn serve(
    dashboard: Option<&Dashboard>,
    kind: &'static str,
    requests: impl Requests,
    viewers: Option<ViewerReport>,
    live: Option<Arc<dyn LiveSource>>,
) -> Result<(), Failure> {
    let Some(dashboard) = dashboard else { return Ok(()) };
    let requests = Arc::new(requests);
    dashboard
        .serve(Subject {
            kind,
            requests,
            viewers,
            live,
        })
        .map_err(Failure::failed)?;
    info!("dashboard: {}", dashboard.link());
    Ok(())
}

/// A socket's path has at most 107 bytes; its name below this folder takes up to 31 of them.
const RUNTIME_PATH_BYTES_MAX: usize = 76;

/// Where recordings and playbacks of this user are found by `holdall web`.
pub fn running_folder() -> RunningFolder {
    let of_session = std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|folder| folder.is_absolute() && folder.is_dir())
        .filter(|folder| folder.as_os_str().len() <= RUNTIME_PATH_BYTES_MAX);
    RunningFolder::new(match of_session {
        Some(folder) => folder.join("holdall"),
        None => std::env::temp_dir().join(format!("holdall-{}", holdall_io::process::user())),
    })
}

/// Lets `holdall web` find this process. Without it a recording is none the worse.
pub fn be_found(kind: RunningKind, requests: impl Requests) -> Option<ControlSocket> {
    let bound = running_folder().bind(kind).and_then(|socket| {
        socket.serve(requests)?;
        Ok(socket)
    });
    bound
        .inspect_err(|error| debug!("holdall web will not find this process: {error}"))
        .ok()
}
