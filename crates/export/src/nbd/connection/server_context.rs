//! The parts of a server that a connection uses.

use stripewise_drive::{Context, Semaphore};

use crate::block::Exports;
use crate::budget::Line;
use crate::nbd::door::Door;
use crate::nbd::limits::Limits;
use crate::nbd::shards::Shards;
use crate::nbd::shutting_down::ShuttingDown;
use crate::nbd::transport::tls::{Tls, TlsPolicy};

/// State shared by all connections of a server, and the listener of this one.
pub(crate) struct ServerContext<'a, E: Exports> {
    pub context: &'a Context,
    pub exports: &'a E,
    pub limits: Limits,
    pub tls: Option<&'a Tls>,
    pub tls_policy: TlsPolicy,
    /// Permits to compute steps of TLS handshakes.
    pub computing: &'a Semaphore,
    /// Memory for requests of this listener's clients.
    pub line: &'a Line,
    /// The listener, and the exports it makes available.
    pub door: &'a Door,
    pub shutting_down: &'a ShuttingDown,
    /// Other shards, to which the connection may be handed.
    pub shards: &'a Shards<E::Export>,
    /// The connection's number.
    pub number: u64,
}
