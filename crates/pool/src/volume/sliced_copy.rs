//! Services of a volume's arrays to its conversion, in the volume's addresses.
//!
//! Faults expected: those of arrays, and slices of which some fail.

use std::collections::BTreeSet;
use std::ops::Range;

use futures_util::future::join_all;
use stripewise_array::{Array, ArrayError, ArrayHandle, BlockArray, Class};
use stripewise_drive::Buffer;

use crate::BLOCK_BYTES;
use crate::volume::sliced::Sliced;

/// A stretch of a volume in which all regions were ever written, or none was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub start: u64,
    pub end: u64,
    pub is_written: bool,
}

impl Sliced {
    /// As [`BlockArray::read`], for background work.
    pub(crate) async fn read_as(
        &self,
        class: Class,
        offset_bytes: u64,
        length: usize,
    ) -> Result<Buffer, ArrayError> {
        let read = async |array: &ArrayHandle, at, length| array.read_as(class, at, length).await;
        match self.whole(offset_bytes, length as u64) {
            Some((array, at)) => read(array, at, length).await,
            None => self.gather(offset_bytes, length, read).await,
        }
    }

    /// As [`BlockArray::write`], for background work; not durable.
    pub(crate) async fn write_as(
        &self,
        class: Class,
        offset_bytes: u64,
        data: Buffer,
    ) -> Result<(), ArrayError> {
        let write = async |array: &ArrayHandle, at, data| array.write_as(class, at, data, false).await;
        match self.whole(offset_bytes, data.len() as u64) {
            Some((array, at)) => write(array, at, data).await,
            None => self.scatter(offset_bytes, data, write).await,
        }
    }

    /// Makes durable what was written, and reports nothing to clients.
    pub(crate) async fn flush_internally(&self) -> Result<(), ArrayError> {
        let flush =
            async |array: &ArrayHandle| array.call(async |array| array.flush_internally().await).await;
        join_all(self.handles().iter().map(flush)).await.into_iter().collect()
    }

    /// Waits until reads that have begun have ended.
    pub(crate) async fn drain_reads(&self) {
        for array in self.handles() {
            array.call(async |array| array.drain_reads().await).await;
        }
    }

    /// Stretches of a range, cut where regions that were written and others meet.
    pub(crate) fn stretches(&self, start: u64, end: u64) -> Vec<Stretch> {
        let mut all: Vec<Stretch> = Vec::new();
        for piece in self.slicing().pieces(start..end) {
            let (mut at, until) = (piece.slice_offset, piece.slice_offset + piece.length_bytes);
            let to_volume = |offset: u64| piece.volume_offset + (offset - piece.slice_offset);
            self.handles()[piece.slice].visit(|array| {
                let region_bytes = array.region_data_bytes();
                while at < until {
                    let region = at / region_bytes;
                    let to = ((region + 1) * region_bytes).min(until);
                    let is_written = !array.holds_nothing(region);
                    match all.last_mut() {
                        Some(last) if last.is_written == is_written => last.end = to_volume(to),
                        _ => all.push(Stretch { start: to_volume(at), end: to_volume(to), is_written }),
                    }
                    at = to;
                }
            });
        }
        all
    }

    /// Dead blocks, by their numbers in the volume.
    pub(crate) fn dead_blocks(&self) -> BTreeSet<u64> {
        let of_slice = |(slice, array): (usize, &ArrayHandle)| {
            let in_volume =
                move |block: u64| self.slicing().volume_offset(slice, block * BLOCK_BYTES) / BLOCK_BYTES;
            array.visit(Array::dead_blocks).into_iter().map(in_volume)
        };
        self.handles().iter().enumerate().flat_map(of_slice).collect()
    }

    /// Notes that the dead blocks of a range were written.
    pub(crate) fn repair_dead(&self, range: Range<u64>) {
        for (array, range) in self.ranges(range.start, range.end - range.start) {
            array.visit(|array| array.repair_dead(range));
        }
    }

    /// Notes blocks of the volume as dead. Journal records of them predate that, and would count
    /// as written since: so all that the journals hold is put in place first.
    pub(crate) async fn note_dead_blocks(&self, blocks: &[u64]) -> Result<(), ArrayError> {
        for (slice, array) in self.handles().iter().enumerate() {
            let places = blocks.iter().filter_map(|block| {
                let offset = block * BLOCK_BYTES;
                self.slicing().pieces(offset..offset + BLOCK_BYTES).next()
            });
            let of_slice = places.filter(|place| place.slice == slice);
            let of_slice: Vec<u64> = of_slice.map(|place| place.slice_offset / BLOCK_BYTES).collect();
            if of_slice.is_empty() {
                continue;
            }
            let note = async move |array: Array| {
                array.destage_all().await?;
                array.note_dead_blocks(of_slice);
                Ok::<(), ArrayError>(())
            };
            array.call(note).await?;
        }
        Ok(())
    }

    /// True if a block that cannot be read may be on a drive that is out.
    pub(crate) fn may_come_back(&self) -> bool {
        let lacks = |array: &Array| array.is_protected() || !array.lacking_rows().is_empty();
        self.handles().iter().any(|array| array.visit(lacks))
    }

    /// True if a drive has refused a flush since this count.
    pub(crate) fn has_refused_since(&self, count: u64) -> bool {
        self.refused_flushes() != count
    }

    /// Number of blocks that are lost.
    pub(crate) fn bad_block_count(&self) -> u64 {
        self.handles().iter().map(|array| array.visit(Array::bad_block_count)).sum()
    }
}
