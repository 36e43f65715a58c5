//! The life of a connection: its session runs until the front end leaves, violates the protocol, or
//! its export or the server ends. Then its queues stop, and their requests in flight are finished.
//!
//! Expected faults: those of `session.rs` and `queue.rs`.

use std::io;
use std::net::Shutdown;
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{Either, select};
use stripewise_drive::Context;
use stripewise_runtime::{Network, Stream};

use super::device::Device;
use super::limits::{LOOK_NS, VhostLimits};
use super::session::{BackendSocket, Session};
use super::wire::config_has_changed;
use crate::block::{Ending, Export};
use crate::budget::ClientLine;
use crate::client_id::ClientId;

/// A front end that has connected, and its export.
pub(super) struct Connected<X> {
    pub context: Context,
    pub network: Network,
    pub export: Rc<X>,
    pub name: String,
    pub memory: Rc<ClientLine>,
    pub client: ClientId,
    pub limits: VhostLimits,
    pub stop: Rc<Ending>,
}

/// Serves a front end. An error is the reason for dropping it.
pub(super) async fn serve<X: Export>(stream: Stream, connected: Connected<X>) -> io::Result<()> {
    let Connected { context, network, export, name, memory, client, limits, stop } = connected;
    let losses = export.losses().connect(client);
    let requests = limits.client_requests;
    let device = Rc::new(Device::new(context, export.clone(), name, losses, memory, requests));
    let backend_socket = BackendSocket::default();
    let mut session = Session::new(device.clone(), network, limits.message_stall_ns, backend_socket.clone());
    let outcome = {
        // The reason to end the connection; `None` at shutdown.
        let ended = async {
            match select(pin!(export.ending().until_begun()), pin!(stop.until_begun())).await {
                Either::Left(_) => {
                    Some(io::Error::new(io::ErrorKind::NotConnected, "its volume is no longer served"))
                }
                Either::Right(_) => None,
            }
        };
        let failed = async {
            match select(pin!(notify_of_changes(&device, &backend_socket)), pin!(device.until_failed())).await
            {
                Either::Left((never, _)) => match never {},
                Either::Right((why, _)) => Some(why),
            }
        };
        let watching = async { select(pin!(ended), pin!(failed)).await.factor_first().0 };
        match select(pin!(session.run(&stream)), pin!(watching)).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right((Some(why), _)) => Err(why),
            Either::Right((None, _)) => Ok(()),
        }
    };
    session.stop_all().await;
    // Not before: while it is connected, a front end may rely on answers being on their way.
    stream.shutdown(Shutdown::Both);
    if stop.has_begun() && !export.is_read_only() && !export.ending().has_begun() {
        export.flush().await.map_err(|error| io::Error::other(error.to_string()))?;
    }
    outcome
}

/// Notifies the front end when the volume has another size.
async fn notify_of_changes<X: Export>(
    device: &Device<X>,
    socket: &BackendSocket,
) -> std::convert::Infallible {
    let mut size_bytes = device.export.size_bytes();
    loop {
        device.context.sleep_ns(LOOK_NS).await;
        let now = device.export.size_bytes();
        if now != size_bytes
            && let Some(socket) = &*socket.0.borrow()
        {
            size_bytes = now;
            // A front end that does not read these messages learns the size when it reconnects.
            let _ = socket.send_at_once(&config_has_changed(), None);
        }
    }
}
