//! A pool in format version 2: slabs, rows, and the record of them that every drive carries (bytes: `docs/format2.md`).
//!
//! The rooms: `format.rs` (the manifest; its parts in `drive_record.rs`, `volume_record.rs`, `events.rs`; what is believed of
//! it in `check.rs`), `addresses.rs` (what lies where on a drive), `free_slabs.rs`, `space.rs` and `spread.rs` (handing out
//! slabs), `run_code.rs`, `sections.rs` and `changes.rs` (the manifest, and changes of it, as bytes), `entries.rs`, `slots.rs`
//! and `writer.rs` (those bytes on drives, and back), `assemble.rs` (which of the drives say what counts).

#![allow(dead_code)] // until the pool's operations use it

pub(crate) mod addresses;
pub(crate) mod assemble;
pub(crate) mod changes;
mod check;
pub(crate) mod drive_record;
mod entries;
pub(crate) mod events;
pub(crate) mod format;
mod free_slabs;
pub(crate) mod ids;
mod run_code;
mod sections;
pub(crate) mod slots;
pub(crate) mod space;
mod row_queue;
mod spread;
mod takeover;
#[cfg(test)]
mod testing;
pub(crate) mod volume_record;
pub(crate) mod writer;

/// The unit that checksum pages, superblocks and slabs are counted in.
pub(crate) const MIB: u64 = 1 << 20;
/// The block of checksums, of pages, and of everything that is written to a superblock.
pub(crate) const BLOCK_BYTES: u64 = 4096;
