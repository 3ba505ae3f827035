//! The dashboard beside a recording or playback (`--web`).

use crate::exit::Failure;
use holdall::supervise::control_socket::Requests;
use holdall_web::{
    dashboard::{Dashboard, Subject},
    foxglove::ViewerReport,
};
use std::{net::SocketAddr, sync::Arc};
use tracing::info;

/// Binds the port, before anything is made or joined.
pub fn bind(address: Option<SocketAddr>) -> Result<Option<Dashboard>, Failure> {
    address.map(Dashboard::bind).transpose().map_err(Failure::refused)
}

/// Serves the page, and logs its link.
pub fn serve(
    dashboard: Option<&Dashboard>,
    kind: &'static str,
    requests: impl Requests,
    viewers: Option<ViewerReport>,
) -> Result<(), Failure> {
    let Some(dashboard) = dashboard else { return Ok(()) };
    let requests = Arc::new(requests);
    dashboard
        .serve(Subject {
            kind,
            requests,
            viewers,
        })
        .map_err(Failure::failed)?;
    info!("dashboard: {}", dashboard.link());
    Ok(())
}
