//! Frames over a connection.

use std::io;

use stripewise_drive::BufferPool;
use stripewise_runtime::{Piece, Stream};

use super::frames::{self, HEAD_BYTES, Kind};

/// Sends one frame.
pub async fn send(stream: &Stream, kind: Kind, body: &[u8]) -> io::Result<()> {
    stream.send(vec![Piece::from(frames::encode(kind, body))]).await
}

/// Receives one frame. What is no frame is an error of kind `InvalidData`.
pub async fn receive(stream: &Stream) -> io::Result<(Kind, Vec<u8>)> {
    let memory = BufferPool::new(0);
    let head = memory.allocate(HEAD_BYTES);
    stream.receive_all(head.clone()).await?;
    let head: [u8; HEAD_BYTES] = head.to_vec().try_into().expect("as long as it was made");
    let (kind, length) =
        frames::decode_head(head).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    if length == 0 {
        return Ok((kind, Vec::new()));
    }
    let body = memory.allocate(length);
    stream.receive_all(body.clone()).await?;
    Ok((kind, body.to_vec()))
}
