//! Refusal of clients over the limit. The protocol allows an error only as a reply to an option, so
//! the server answers the first options of such a client.
//!
//! Expected faults: those of any client. A time limit applies, since these clients are over the
//! limit.

use std::io;
use std::rc::Rc;

use stripewise_drive::Context;
use stripewise_runtime::{Piece, Stream};

use crate::nbd::transport::Transport;
use crate::nbd::transport::inbox::Inbox;
use crate::nbd::transport::patience::within;
use crate::nbd::wire::negotiation::{greeting, reply};
use crate::nbd::wire::options::{LONGEST_OPTION, OPTION_HEAD_BYTES, parse_option_head};
use crate::nbd::wire::protocol::{OPT_ABORT, OPT_EXPORT_NAME, REP_ERR_POLICY};

/// Time limit for the client to send its options.
const PATIENCE_NS: u64 = 2_000_000_000;
/// Maximum options answered, as a client may try several before it gives up.
const MOST_OPTIONS: usize = 8;
const WHY: &[u8] = b"too many clients are connected; try again later";

/// Answers the first options of a client with the reason. The task that drops the stream closes it.
pub(crate) async fn tell(context: &Context, stream: Rc<Stream>) {
    // A client that disconnects first needs no reply.
    let _ = within(context, PATIENCE_NS, Box::pin(answer_options(context, stream))).await;
}

async fn answer_options(context: &Context, stream: Rc<Stream>) -> io::Result<()> {
    let transport = Transport::Plain(stream);
    let mut inbox = Inbox::new(context, PATIENCE_NS);
    transport.send(vec![Piece::from(greeting())]).await?;
    if !inbox.need(&transport, 4).await? {
        return Ok(());
    }
    let _flags = inbox.take::<4>();
    for _ in 0..MOST_OPTIONS {
        if !inbox.need(&transport, OPTION_HEAD_BYTES).await? {
            return Ok(());
        }
        let head = inbox.take::<OPTION_HEAD_BYTES>();
        let Some((option, length)) = parse_option_head(&head) else { return Ok(()) };
        if length > LONGEST_OPTION || option == OPT_EXPORT_NAME {
            return Ok(());
        }
        inbox.skip(&transport, u64::from(length)).await?;
        let mut replies = Vec::new();
        reply(&mut replies, option, REP_ERR_POLICY, WHY);
        transport.send(vec![Piece::from(replies)]).await?;
        if option == OPT_ABORT {
            return Ok(());
        }
    }
    Ok(())
}
