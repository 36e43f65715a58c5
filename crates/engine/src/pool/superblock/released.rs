//! The mark of a drive that its pool has released: the pool needs nothing that is on it. The mark
//! lies in the first and in the last block, so that a drive that something else was written to
//! since has at most one of them.
//!
//! Expected faults: a mark that cannot be read counts as none.

use std::rc::Rc;

use stripewise_drive::{Buffer, Drive, DriveError, IoRequest};

use crate::member::{Class, Member};
use crate::pool::BLOCK_BYTES;
use crate::pool::manifest::ids::{Id, PoolId};
use crate::pool::superblock::writer::wipe;

const MAGIC: [u8; 8] = *b"SWFREED\0";

/// Removes the superblocks of a drive that leaves its pool, and marks it as released. Durable when
/// done.
pub(in crate::pool) async fn release(member: &Rc<Member>, pool_id: PoolId) -> Result<(), DriveError> {
    wipe(member).await?;
    let failures = member.flush_failures().count();
    for place in places(member.info().capacity_bytes) {
        let mark = Buffer::from_bytes(&mark(pool_id));
        member.submit(Class::Upkeep, IoRequest::write(place, mark, false)).await?;
    }
    member.flush_since(failures).await
}

/// True if a drive has the mark in both places.
pub async fn is_released(drive: &dyn Drive) -> bool {
    let mut marks = Vec::new();
    for place in places(drive.info().capacity_bytes) {
        let block = Buffer::from_bytes(&vec![0; BLOCK_BYTES as usize]);
        if drive.submit(IoRequest::read(place, block.clone())).await.is_err() {
            return false;
        }
        marks.push(block.to_vec());
    }
    let [first, last] = marks.as_slice() else { return false };
    let pool_id = first[8..24].try_into().map_or(0, u128::from_be_bytes);
    first == last && *first == mark(Id(pool_id))
}

/// Places of the mark, bytes.
fn places(capacity_bytes: u64) -> [u64; 2] {
    [0, (capacity_bytes / BLOCK_BYTES).saturating_sub(1) * BLOCK_BYTES]
}

/// The block: magic, the pool's identity, a checksum of both, zeros.
fn mark(pool_id: PoolId) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES as usize];
    block[..8].copy_from_slice(&MAGIC);
    block[8..24].copy_from_slice(&pool_id.0.to_be_bytes());
    let checksum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &block[..24]) as u32;
    block[24..28].copy_from_slice(&checksum.to_le_bytes());
    block
}
