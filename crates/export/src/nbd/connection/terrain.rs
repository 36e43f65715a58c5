//! What a connection needs of its server.

use std::cell::Cell;

use stripewise_drive::Context;

use crate::budget::Line;
use crate::nbd::door::Door;
use crate::nbd::limits::Limits;
use crate::nbd::transport::tls::{Tls, TlsPolicy};

/// What all connections of a server share, and where this one came in.
pub(crate) struct Terrain<'a, E> {
    pub context: &'a Context,
    pub exports: &'a E,
    pub limits: Limits,
    pub tls: Option<&'a Tls>,
    pub tls_policy: TlsPolicy,
    /// Memory for requests of clients of this listener.
    pub line: &'a Line,
    /// Where it came in, and what it may open there.
    pub door: &'a Door,
    /// Set when the server ends: no further requests are read.
    pub ending: &'a Cell<bool>,
}
