//! The arrays that have a volume between them: one, or several slices to which extents of the
//! volume go in turn. Requests are distributed over the slices, concurrently.
//!
//! A flush covers all slices, and fails if one of them fails. Each slice keeps the promises of an
//! array for its extents; nothing is promised across blocks, so nothing is lost by distribution.
//! Faults expected: those of arrays, and slices of which some fail.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures_util::future::join_all;
use stripewise_array::mutation::{self, Mutation};
use stripewise_array::{Array, ArrayError, ArrayHandle, BlockArray, Extent, push_extent};
use stripewise_drive::{Buffer, BufferPool};
use stripewise_layout::{Geometry, Slicing};

use crate::manifest::volume_record::PartRecord;

/// Requests are multiples of this.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// The arrays of a volume in place. Clones are the same arrays.
#[derive(Clone)]
pub(crate) struct Sliced(Rc<Slices>);

struct Slices {
    handles: Vec<ArrayHandle>,
    slicing: Slicing,
    /// Size of the volume; of a volume with one array, that array knows it.
    capacity_bytes: Cell<u64>,
}

impl Sliced {
    /// The arrays of a group of parts, in their order, of a volume of this size.
    pub(crate) fn of_group(group: &[PartRecord], handles: Vec<ArrayHandle>, capacity_bytes: u64) -> Self {
        let slice = group.first().and_then(|part| part.slice);
        Self::of(handles, slice.map_or(Slicing::WHOLE, |slice| slice.slicing()), capacity_bytes)
    }

    /// A volume of this size with an array for each slice, in order.
    pub(crate) fn of(handles: Vec<ArrayHandle>, slicing: Slicing, capacity_bytes: u64) -> Self {
        assert_eq!(handles.len(), slicing.slices(), "an array for each slice");
        Self(Rc::new(Slices { handles, slicing, capacity_bytes: Cell::new(capacity_bytes) }))
    }

    /// The arrays, in the order of the slices.
    pub(crate) fn handles(&self) -> &[ArrayHandle] {
        &self.0.handles
    }

    /// The only array, or the first slice: all have the same layout.
    pub(crate) fn first(&self) -> &ArrayHandle {
        &self.0.handles[0]
    }

    /// The layout's addresses.
    pub(crate) fn geometry(&self) -> &Geometry {
        self.first().geometry()
    }

    fn only(&self) -> Option<&ArrayHandle> {
        match &self.0.handles[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Addresses of the slices.
    pub(crate) fn slicing(&self) -> Slicing {
        self.0.slicing
    }

    /// Sets the size of a volume that was resized: its arrays have theirs.
    pub(crate) fn set_capacity_bytes(&self, bytes: u64) {
        self.0.capacity_bytes.set(bytes);
    }

    /// Refuses writes beyond this offset until it is set again; `u64::MAX`: they may reach the end.
    pub(crate) fn end_writes_at(&self, bytes: u64) {
        for (slice, array) in self.0.handles.iter().enumerate() {
            let in_slice = match bytes {
                u64::MAX => bytes,
                bytes => self.0.slicing.bytes_below(slice, bytes),
            };
            array.visit(|array| array.end_writes_at(in_slice));
        }
    }

    /// Range of each slice that a range of the volume has there; slices without any are left out.
    pub(crate) fn ranges(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> impl Iterator<Item = (&ArrayHandle, Range<u64>)> {
        let range = offset_bytes..offset_bytes + length_bytes;
        let ranges = self
            .0
            .handles
            .iter()
            .enumerate()
            .map(move |(slice, array)| (array, self.0.slicing.range_in(slice, &range)));
        ranges.filter(|(_, in_slice)| !in_slice.is_empty())
    }

    /// The slice that has all of a range, and the range's offset there; `None` if several have some
    /// of it.
    pub(super) fn whole(&self, offset_bytes: u64, length_bytes: u64) -> Option<(&ArrayHandle, u64)> {
        let piece = self.0.slicing.pieces(offset_bytes..offset_bytes + length_bytes).next();
        match piece {
            Some(piece) if piece.length_bytes == length_bytes => {
                Some((&self.0.handles[piece.slice], piece.slice_offset))
            }
            Some(_) => None,
            None => Some((self.first(), 0)),
        }
    }

    /// True if a slice takes no writes.
    pub(crate) fn is_protected(&self) -> bool {
        self.0.handles.iter().any(|array| array.visit(Array::is_protected))
    }

    /// True if a crash left regions of a slice whose copies or parity may disagree.
    pub(crate) fn needs_resync(&self) -> bool {
        self.0.handles.iter().any(|array| array.visit(Array::needs_resync))
    }

    /// Set once each array was closed with everything durable.
    pub(crate) fn closed_in_order(&self) -> Vec<Arc<AtomicBool>> {
        self.0.handles.iter().map(|array| array.visit(Array::closed_in_order)).collect()
    }

    /// Flushes all slices. The first error is that of the volume.
    async fn flush_slices(&self) -> Result<(), ArrayError> {
        let flushed = match &self.0.handles[..] {
            [all @ .., _] if mutation::is_chosen(Mutation::FlushForgetsSlice) => all,
            all => all,
        };
        let results = join_all(flushed.iter().map(BlockArray::flush)).await;
        let Some(failed) = results.iter().position(Result::is_err) else { return Ok(()) };
        // The refusal of a drive concerns every slice on it, also those whose own flush had ended
        // by then: their next flush would report it once more.
        let others = flushed.iter().zip(&results).filter(|(_, result)| result.is_ok());
        join_all(others.map(|(array, _)| array.flush())).await;
        results.into_iter().nth(failed).unwrap_or(Ok(()))
    }

    /// Reads a range that several slices have.
    pub(super) async fn gather(
        &self,
        offset_bytes: u64,
        length: usize,
        read: impl AsyncFn(&ArrayHandle, u64, usize) -> Result<Buffer, ArrayError>,
    ) -> Result<Buffer, ArrayError> {
        let pieces: Vec<_> = self.0.slicing.pieces(offset_bytes..offset_bytes + length as u64).collect();
        let reads = pieces
            .iter()
            .map(|piece| read(&self.0.handles[piece.slice], piece.slice_offset, piece.length_bytes as usize));
        let reads = join_all(reads).await;
        let buffer = self.buffers().allocate(length);
        for (piece, read) in pieces.iter().zip(reads) {
            let (at, bytes) = ((piece.volume_offset - offset_bytes) as usize, read?);
            buffer.slice(at..at + bytes.len()).copy_from(&bytes);
        }
        Ok(buffer)
    }

    /// Writes a range that several slices have. The pieces are views of the data.
    pub(super) async fn scatter(
        &self,
        offset_bytes: u64,
        data: Buffer,
        write: impl AsyncFn(&ArrayHandle, u64, Buffer) -> Result<(), ArrayError>,
    ) -> Result<(), ArrayError> {
        let pieces = self.0.slicing.pieces(offset_bytes..offset_bytes + data.len() as u64);
        let writes = pieces.map(|piece| {
            let at = (piece.volume_offset - offset_bytes) as usize;
            let part = data.slice(at..at + piece.length_bytes as usize);
            write(&self.0.handles[piece.slice], piece.slice_offset, part)
        });
        join_all(writes).await.into_iter().collect()
    }
}

impl BlockArray for Sliced {
    fn capacity_bytes(&self) -> u64 {
        match self.only() {
            Some(only) => only.capacity_bytes(),
            None => self.0.capacity_bytes.get(),
        }
    }

    fn buffers(&self) -> &BufferPool {
        self.first().buffers()
    }

    fn check_range(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        if let Some(only) = self.only() {
            return only.check_range(offset_bytes, length_bytes);
        }
        if !(offset_bytes | length_bytes).is_multiple_of(SECTOR_BYTES) {
            return Err(ArrayError::Misaligned { offset_bytes, length_bytes, unit_bytes: SECTOR_BYTES });
        }
        let capacity_bytes = self.capacity_bytes();
        match offset_bytes.checked_add(length_bytes) {
            Some(end) if end <= capacity_bytes => Ok(()),
            _ => Err(ArrayError::OutOfRange { offset_bytes, length_bytes, capacity_bytes }),
        }
    }

    async fn read(&self, offset_bytes: u64, length: usize) -> Result<Buffer, ArrayError> {
        if let Some(only) = self.only() {
            return only.read(offset_bytes, length).await;
        }
        self.check_range(offset_bytes, length as u64)?;
        match self.whole(offset_bytes, length as u64) {
            Some((array, at)) => array.read(at, length).await,
            None => Box::pin(self.gather(offset_bytes, length, ArrayHandle::read)).await,
        }
    }

    async fn write(&self, offset_bytes: u64, data: Buffer, fua: bool) -> Result<(), ArrayError> {
        if let Some(only) = self.only() {
            return only.write(offset_bytes, data, fua).await;
        }
        self.check_range(offset_bytes, data.len() as u64)?;
        match self.whole(offset_bytes, data.len() as u64) {
            Some((array, at)) => array.write(at, data, fua).await,
            None => {
                let write = async |array: &ArrayHandle, at, part| array.write(at, part, fua).await;
                Box::pin(self.scatter(offset_bytes, data, write)).await
            }
        }
    }

    async fn write_zeroes(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        self.check_range(offset_bytes, length_bytes)?;
        let cleared = self
            .ranges(offset_bytes, length_bytes)
            .map(|(array, range)| array.write_zeroes(range.start, range.end - range.start));
        join_all(cleared).await.into_iter().collect()
    }

    async fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        self.check_range(offset_bytes, length_bytes)?;
        let discarded = self
            .ranges(offset_bytes, length_bytes)
            .map(|(array, range)| array.discard(range.start, range.end - range.start));
        join_all(discarded).await.into_iter().collect()
    }

    async fn flush(&self) -> Result<(), ArrayError> {
        match self.only() {
            Some(only) => only.flush().await,
            None => Box::pin(self.flush_slices()).await,
        }
    }

    async fn durable_until(&self, start_bytes: u64, end_bytes: u64) -> u64 {
        if let Some(only) = self.only() {
            return only.durable_until(start_bytes, end_bytes).await;
        }
        let slicing = &self.0.slicing;
        let until = self.0.handles.iter().enumerate().map(async |(slice, array)| {
            let range = slicing.range_in(slice, &(start_bytes..end_bytes));
            match array.durable_until(range.start, range.end).await {
                until if until < range.end => slicing.volume_offset(slice, until),
                _ => end_bytes,
            }
        });
        join_all(until).await.into_iter().min().unwrap_or(start_bytes)
    }

    fn extents(&self, offset_bytes: u64, length_bytes: u64, most: usize) -> Result<Vec<Extent>, ArrayError> {
        if let Some(only) = self.only() {
            return only.extents(offset_bytes, length_bytes, most);
        }
        self.check_range(offset_bytes, length_bytes)?;
        let mut extents = Vec::new();
        for piece in self.0.slicing.pieces(offset_bytes..offset_bytes + length_bytes) {
            let array = &self.0.handles[piece.slice];
            let of_piece = array.extents(piece.slice_offset, piece.length_bytes, most)?;
            let covered_bytes: u64 = of_piece.iter().map(|extent| extent.length_bytes).sum();
            for extent in of_piece {
                if !push_extent(&mut extents, extent.length_bytes, extent.written, most) {
                    return Ok(extents);
                }
            }
            if covered_bytes < piece.length_bytes {
                return Ok(extents);
            }
        }
        Ok(extents)
    }

    fn is_unwritten(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool, ArrayError> {
        self.ask_all(offset_bytes, length_bytes, BlockArray::is_unwritten)
    }

    fn zeroes_at_once(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool, ArrayError> {
        self.ask_all(offset_bytes, length_bytes, BlockArray::zeroes_at_once)
    }

    fn is_abandoned(&self) -> bool {
        self.0.handles.iter().all(BlockArray::is_abandoned)
    }

    fn refused_flushes(&self) -> u64 {
        self.0.handles.iter().map(BlockArray::refused_flushes).sum()
    }

    fn take_over_refusals(&self, other: &Self) {
        for array in &other.0.handles {
            self.first().take_over_refusals(array);
        }
    }

    fn journal_fill(&self) -> Option<(u64, u64)> {
        let fills = self.0.handles.iter().filter_map(BlockArray::journal_fill);
        fills.reduce(|sum, fill| (sum.0 + fill.0, sum.1 + fill.1))
    }
}

impl Sliced {
    /// True if all slices answer true for what they have of a range.
    fn ask_all(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        question: impl Fn(&ArrayHandle, u64, u64) -> Result<bool, ArrayError>,
    ) -> Result<bool, ArrayError> {
        self.check_range(offset_bytes, length_bytes)?;
        for (array, range) in self.ranges(offset_bytes, length_bytes) {
            if !question(array, range.start, range.end - range.start)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
