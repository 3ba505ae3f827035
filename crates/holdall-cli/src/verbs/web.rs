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

/// Where recordings and playbacks of this user are found, whatever the environment that they were started in.
pub fn running_folder() -> RunningFolder {
    let user = holdall_io::process::user();
    let is_usable = |folder: &PathBuf| {
        folder.is_absolute() && folder.is_dir() && folder.as_os_str().len() <= RUNTIME_PATH_BYTES_MAX
    };
    let of_variable = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let of_session = PathBuf::from(format!("/run/user/{user}"));
    let without = std::env::temp_dir().join(format!("holdall-{user}"));
    let own = match of_variable.filter(is_usable) {
        Some(folder) => folder.join("holdall"),
        None => without.clone(),
    };
    RunningFolder::new(own)
        .and(of_session.join("holdall"))
        .and(without)
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
