//! Sessions: each opening of a pool for writing is a *session* with its own identity. The headers
//! of a drive's slots name the session that has the drive.
//!
//! A session's first commit is a checkpoint, so it writes the header of the slot that the previous
//! session does not write to next; reading both headers of a drive therefore shows whether another
//! session has taken it. Expected faults: headers that are torn or cannot be read (the copy at the
//! drive's other end is as good), drives that answer late or never.

use std::rc::Rc;

use stripewise_drive::{Buffer, Cause, Drive, DriveError, IoRequest};

use crate::BLOCK_BYTES;
use crate::manifest::ids::Id;
use crate::space::addresses::slot_places;
use crate::superblock::entries::{Header, HeaderContent, session, set_session};
use stripewise_array::{Class, Member};

/// Result of reading a drive's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// No session but this one and those before it.
    Ours,
    /// Another session has the drive.
    Other,
    /// No header could be read.
    Nothing,
}

/// The session that the header of a slot names; `None` where no copy of it can be read.
pub(crate) async fn read_session(member: &Rc<Member>, of: &Header, slot: usize) -> Option<Id> {
    for place in slot_places(of.capacity_bytes, slot) {
        let block = Buffer::from_bytes(&vec![0; BLOCK_BYTES as usize]);
        let read = IoRequest::read(place, block.clone()).because(Cause::Record);
        if member.submit(Class::Upkeep, read).await.is_err() {
            continue;
        }
        let bytes = block.to_vec();
        if Header::decode(&bytes, place) == HeaderContent::Valid(*of) {
            return Some(session(&bytes));
        }
    }
    None
}

/// Takes a drive from the session that has it, and leaves the pool's record as it is: the header of
/// the slot without the newest state names the new session from now on.
pub(crate) async fn claim(
    drive: &dyn Drive,
    of: &Header,
    newest_slot: usize,
    features: u64,
    new: Id,
) -> Result<(), DriveError> {
    for place in slot_places(of.capacity_bytes, 1 - newest_slot) {
        let block = Buffer::from_bytes(&vec![0; BLOCK_BYTES as usize]);
        let read = drive.submit(IoRequest::read(place, block.clone()).because(Cause::Record)).await;
        let mut bytes = block.to_vec();
        match read.is_ok() && Header::decode(&bytes, place) == HeaderContent::Valid(*of) {
            true => set_session(&mut bytes, new),
            false => bytes = of.encode(place, features, new),
        }
        let write = IoRequest::write(place, Buffer::from_bytes(&bytes), true).because(Cause::Record);
        drive.submit(write).await?;
    }
    Ok(())
}
