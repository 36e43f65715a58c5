//! Messages between the home and a shard that serves connections: plain data that may leave its
//! thread.

use std::io;

use stripewise_array::Extent;
use stripewise_drive::{BufferPool, MovedBuffer};
use stripewise_runtime::HandedStream;

use crate::client_id::ClientId;
use crate::direct::DirectExport;
use crate::nbd::transport::tls::HandedSession;
use crate::nbd::wire::errors::Failure;
use crate::nbd::wire::negotiation::Terms;
use crate::nbd::wire::replies::Outcome;
use crate::nbd::wire::requests::Request;
use crate::shares::Group;

/// From the home.
pub(crate) enum ToShard {
    /// A connection to serve; answered by [`ToHome::Over`].
    Serve(Box<Handed>),
    /// The volume of this connection is no longer served.
    VolumeEnded(u64),
    /// The result of a request, and memory in exchange for its payload.
    Outcome(MovedOutcome, Option<MovedBuffer>),
}

/// To the home.
pub(crate) enum ToHome {
    /// A request; answered by [`ToShard::Outcome`].
    Request(Remote),
    /// The connection has ended, and all its requests are answered.
    Over(io::Result<()>),
}

/// A request of a connection on another shard.
pub(crate) struct Remote {
    pub connection: u64,
    pub request: Request,
    /// The payload of a write, or memory for the answer of a read.
    pub memory: Option<MovedBuffer>,
}

/// A connection after its negotiation.
pub(crate) struct Handed {
    pub number: u64,
    pub stream: HandedStream,
    pub tls: Option<HandedSession>,
    /// Received bytes that are not used yet.
    pub received: Vec<u8>,
    pub terms: Terms,
    pub client: ClientId,
    /// Memory of its listener.
    pub memory: Group,
    /// The volume's arrays on the shard, for its requests.
    pub direct: Option<DirectExport>,
}

/// An [`Outcome`] between threads.
pub(crate) enum MovedOutcome {
    Done,
    Data(MovedBuffer),
    Hole,
    Status(Vec<Extent>),
    Failed(Failure),
}

impl MovedOutcome {
    pub(super) fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::Done,
            Outcome::Data(data) => Self::Data(data.into_moved()),
            Outcome::Hole => Self::Hole,
            Outcome::Status(extents) => Self::Status(extents),
            Outcome::Failed(failure) => Self::Failed(failure),
        }
    }

    pub(super) fn arrived(self, buffers: &BufferPool) -> Outcome {
        match self {
            Self::Done => Outcome::Done,
            Self::Data(data) => Outcome::Data(buffers.adopt(data)),
            Self::Hole => Outcome::Hole,
            Self::Status(extents) => Outcome::Status(extents),
            Self::Failed(failure) => Outcome::Failed(failure),
        }
    }
}
