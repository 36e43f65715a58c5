//! The device that a front end sees: its features, and its configuration space
//! (`struct virtio_blk_config`).

use crate::block::Export;

/// Unit of sizes and places in virtio, whatever the block size.
pub(super) const SECTOR_BYTES: u64 = 512;
/// Maximum queues of a device.
pub(super) const MAX_QUEUES: usize = 64;
/// Maximum entries of a queue.
pub(super) const MAX_QUEUE_SIZE: u16 = 1024;
/// Maximum transfer of a request.
pub(super) const MAX_REQUEST_BYTES: u64 = 32 << 20;
/// Maximum pieces of memory of a request: with head and status, a queue of 128 entries holds it.
const MAX_SEGMENTS: u32 = 126;
/// Maximum ranges of a discard or zeroing, and the length of one.
pub(super) const MAX_RANGES: usize = 32;
const MAX_RANGE_SECTORS: u32 = (1 << 30) / SECTOR_BYTES as u32;
/// Physical blocks are 4 KiB: what clients should write as a whole.
const PHYSICAL_BYTES: u64 = 4096;
/// Length of the configuration space up to the last field in use.
const CONFIG_BYTES: usize = 60;

/// Features of the device, as bits.
pub(super) mod feature {
    pub(in super::super) const SEG_MAX: u64 = 1 << 2;
    pub(in super::super) const READ_ONLY: u64 = 1 << 5;
    pub(in super::super) const BLK_SIZE: u64 = 1 << 6;
    pub(in super::super) const FLUSH: u64 = 1 << 9;
    pub(in super::super) const TOPOLOGY: u64 = 1 << 10;
    pub(in super::super) const MQ: u64 = 1 << 12;
    pub(in super::super) const DISCARD: u64 = 1 << 13;
    pub(in super::super) const WRITE_ZEROES: u64 = 1 << 14;
    pub(in super::super) const INDIRECT_DESC: u64 = 1 << 28;
    pub(in super::super) const EVENT_IDX: u64 = 1 << 29;
    pub(in super::super) const PROTOCOL_FEATURES: u64 = 1 << 30;
    pub(in super::super) const VERSION_1: u64 = 1 << 32;
}

/// Features offered for an export.
pub(super) fn features(export: &impl Export) -> u64 {
    use feature::*;
    let of_ring = INDIRECT_DESC | EVENT_IDX | PROTOCOL_FEATURES | VERSION_1;
    let of_device = SEG_MAX | BLK_SIZE | FLUSH | TOPOLOGY | MQ | DISCARD | WRITE_ZEROES;
    let protection = if export.is_read_only() { READ_ONLY } else { 0 };
    of_ring | of_device | protection
}

/// The configuration space.
pub(super) fn config(export: &impl Export) -> [u8; CONFIG_BYTES] {
    let block_bytes = export.sector_bytes();
    let physical_exponent = (PHYSICAL_BYTES / block_bytes).max(1).trailing_zeros();
    let discard_sectors = (PHYSICAL_BYTES.max(block_bytes) / SECTOR_BYTES) as u32;
    let preferred_blocks = (u64::from(export.preferred_bytes()) / block_bytes) as u32;
    let mut config = [0; CONFIG_BYTES];
    let mut put = |at: usize, bytes: &[u8]| config[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &(export.size_bytes() / SECTOR_BYTES).to_le_bytes());
    put(12, &MAX_SEGMENTS.to_le_bytes());
    put(20, &(block_bytes as u32).to_le_bytes());
    put(24, &[physical_exponent as u8]);
    // The minimum I/O is a block.
    put(26, &1_u16.to_le_bytes());
    put(28, &preferred_blocks.to_le_bytes());
    // Write-back: what a flush does not cover may be lost.
    put(32, &[1]);
    put(34, &(MAX_QUEUES as u16).to_le_bytes());
    put(36, &MAX_RANGE_SECTORS.to_le_bytes());
    put(40, &(MAX_RANGES as u32).to_le_bytes());
    put(44, &discard_sectors.to_le_bytes());
    put(48, &MAX_RANGE_SECTORS.to_le_bytes());
    put(52, &(MAX_RANGES as u32).to_le_bytes());
    // Zeroing may free space.
    put(56, &[1]);
    config
}

/// `length` bytes of the space from `offset` on, with zeros past its end.
pub(super) fn config_part(export: &impl Export, offset: usize, length: usize) -> Vec<u8> {
    let config = config(export);
    (offset..offset + length).map(|at| config.get(at).copied().unwrap_or(0)).collect()
}
