//! The arrays of a volume, whatever their kind.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use stripewise_array::{ArrayError, BlockArray, Extent};
use stripewise_drive::{Buffer, BufferPool};
use stripewise_layout::Geometry;
use stripewise_log::BLOCK_BYTES;

use crate::volume::log::LogArray;
use crate::volume::sliced::{SECTOR_BYTES, Sliced};

/// Arrays in place, or a log. Clones are the same arrays.
#[derive(Clone)]
pub(crate) enum VolumeArray {
    /// Blocks are written where they are.
    InPlace(Sliced),
    /// Nothing is overwritten.
    Log(LogArray),
}

impl VolumeArray {
    /// The arrays, if blocks are written in place.
    pub(crate) fn in_place(&self) -> Option<&Sliced> {
        match self {
            Self::InPlace(array) => Some(array),
            Self::Log(_) => None,
        }
    }

    /// The log, if it is one.
    pub(crate) fn log(&self) -> Option<LogArray> {
        match self {
            Self::InPlace(_) => None,
            Self::Log(log) => Some(log.clone()),
        }
    }

    /// The layout's addresses.
    pub(crate) fn geometry(&self) -> &Geometry {
        match self {
            Self::InPlace(array) => array.geometry(),
            Self::Log(log) => log.log().geometry(),
        }
    }

    /// True if it takes no writes.
    pub(crate) fn is_protected(&self) -> bool {
        match self {
            Self::InPlace(array) => array.is_protected(),
            Self::Log(log) => log.is_protected(),
        }
    }

    /// Set once each array was closed with everything durable.
    pub(crate) fn closed_in_order(&self) -> Vec<Arc<AtomicBool>> {
        match self {
            Self::InPlace(array) => array.closed_in_order(),
            Self::Log(log) => vec![log.closed_in_order()],
        }
    }

    /// Requests are multiples of this many bytes.
    pub(crate) fn sector_bytes(&self) -> u64 {
        match self {
            Self::InPlace(_) => SECTOR_BYTES,
            Self::Log(_) => BLOCK_BYTES,
        }
    }
}

impl BlockArray for VolumeArray {
    fn capacity_bytes(&self) -> u64 {
        match self {
            Self::InPlace(array) => array.capacity_bytes(),
            Self::Log(log) => log.capacity_bytes(),
        }
    }

    fn buffers(&self) -> &BufferPool {
        match self {
            Self::InPlace(array) => array.buffers(),
            Self::Log(log) => log.buffers(),
        }
    }

    fn check_range(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        match self {
            Self::InPlace(array) => array.check_range(offset_bytes, length_bytes),
            Self::Log(log) => log.check_range(offset_bytes, length_bytes),
        }
    }

    async fn read(&self, offset_bytes: u64, length: usize) -> Result<Buffer, ArrayError> {
        match self {
            Self::InPlace(array) => array.read(offset_bytes, length).await,
            Self::Log(log) => log.read(offset_bytes, length).await,
        }
    }

    async fn write(&self, offset_bytes: u64, data: Buffer, fua: bool) -> Result<(), ArrayError> {
        match self {
            Self::InPlace(array) => array.write(offset_bytes, data, fua).await,
            Self::Log(log) => log.write(offset_bytes, data, fua).await,
        }
    }

    async fn write_zeroes(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        match self {
            Self::InPlace(array) => array.write_zeroes(offset_bytes, length_bytes).await,
            Self::Log(log) => log.write_zeroes(offset_bytes, length_bytes).await,
        }
    }

    async fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        match self {
            Self::InPlace(array) => array.discard(offset_bytes, length_bytes).await,
            Self::Log(log) => log.discard(offset_bytes, length_bytes).await,
        }
    }

    async fn flush(&self) -> Result<(), ArrayError> {
        match self {
            Self::InPlace(array) => array.flush().await,
            Self::Log(log) => log.flush().await,
        }
    }

    async fn durable_until(&self, start_bytes: u64, end_bytes: u64) -> u64 {
        match self {
            Self::InPlace(array) => array.durable_until(start_bytes, end_bytes).await,
            Self::Log(log) => log.durable_until(start_bytes, end_bytes).await,
        }
    }

    fn extents(&self, offset_bytes: u64, length_bytes: u64, most: usize) -> Result<Vec<Extent>, ArrayError> {
        match self {
            Self::InPlace(array) => array.extents(offset_bytes, length_bytes, most),
            Self::Log(log) => log.extents(offset_bytes, length_bytes, most),
        }
    }

    fn is_unwritten(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool, ArrayError> {
        match self {
            Self::InPlace(array) => array.is_unwritten(offset_bytes, length_bytes),
            Self::Log(log) => log.is_unwritten(offset_bytes, length_bytes),
        }
    }

    fn zeroes_at_once(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool, ArrayError> {
        match self {
            Self::InPlace(array) => array.zeroes_at_once(offset_bytes, length_bytes),
            Self::Log(log) => log.zeroes_at_once(offset_bytes, length_bytes),
        }
    }

    fn is_abandoned(&self) -> bool {
        match self {
            Self::InPlace(array) => array.is_abandoned(),
            Self::Log(log) => log.is_abandoned(),
        }
    }

    fn refused_flushes(&self) -> u64 {
        match self {
            Self::InPlace(array) => array.refused_flushes(),
            Self::Log(log) => log.refused_flushes(),
        }
    }

    fn take_over_refusals(&self, other: &Self) {
        if let (Self::InPlace(array), Self::InPlace(other)) = (self, other) {
            array.take_over_refusals(other);
        }
    }

    fn journal_fill(&self) -> Option<(u64, u64)> {
        match self {
            Self::InPlace(array) => array.journal_fill(),
            Self::Log(log) => log.journal_fill(),
        }
    }
}
