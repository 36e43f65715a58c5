//! Strips of a segment as each member has them: for comparing copies and parity with the data.
//!
//! Faults expected: blocks that cannot be read; they are named, the others are there.

use futures_util::future::join_all;
use stripewise_array::Class;
use stripewise_drive::{Buffer, Cause, IoRequest};
use stripewise_layout::Place;

use crate::drives::Drives;
use crate::drives::read::Manner;
use crate::shape::BLOCK_BYTES;

/// A strip as its member has it.
pub(crate) struct StoredUnit {
    /// Number of the stripe within its segment.
    pub(crate) stripe: usize,
    /// Number of the unit within its stripe.
    pub(crate) unit: usize,
    pub(crate) place: Place,
    pub(crate) bytes: Buffer,
    /// Numbers of the blocks that could not be read.
    pub(crate) unreadable: Vec<usize>,
}

impl StoredUnit {
    /// Bytes of a block, unless it could not be read.
    pub(crate) fn block(&self, number: usize) -> Option<Buffer> {
        let start = number * BLOCK_BYTES as usize;
        let is_readable = !self.unreadable.contains(&number);
        is_readable.then(|| self.bytes.slice(start..start + BLOCK_BYTES as usize))
    }
}

impl Drives {
    /// Reads all strips of a segment from the members that are present.
    pub(crate) async fn read_units(&self, segment: u32, manner: Manner) -> Vec<StoredUnit> {
        let geometry = &self.segments.geometry;
        let strip = geometry.interleave_bytes() as usize;
        let missing = self.missing();
        let mut units = Vec::new();
        for stripe in 0..self.segments.stripes as usize {
            let index = u64::from(segment) * self.segments.stripes + stripe as u64;
            for (unit, &place) in geometry.stripe(index).units.iter().enumerate() {
                if !missing.contains(place.member) {
                    let bytes = self.buffers.allocate(strip);
                    units.push(StoredUnit { stripe, unit, place, bytes, unreadable: Vec::new() });
                }
            }
        }
        join_all(units.iter_mut().map(|unit| self.read_unit(unit, manner))).await;
        units
    }

    /// Reads a strip; block by block if that fails as a whole.
    async fn read_unit(&self, unit: &mut StoredUnit, manner: Manner) {
        let start = self.segments.base_bytes + unit.place.offset_bytes;
        let read = |from: usize, to: usize| {
            let request = IoRequest::read(start + from as u64, unit.bytes.slice(from..to));
            self.ask(unit.place.member, manner.class, request.because(Cause::Scrub))
        };
        if read(0, unit.bytes.len()).await.is_ok() {
            return;
        }
        let block = BLOCK_BYTES as usize;
        for number in 0..unit.bytes.len() / block {
            if let Err(error) = read(number * block, (number + 1) * block).await {
                self.note(unit.place.member, &error, manner);
                unit.unreadable.push(number);
            }
        }
    }

    /// Writes one block of a strip in place; true if the member took it.
    pub(crate) async fn mend(&self, unit: &StoredUnit, number: usize, bytes: Buffer) -> bool {
        let at = self.segments.base_bytes + unit.place.offset_bytes + number as u64 * BLOCK_BYTES;
        let request = IoRequest::write(at, bytes, false).because(Cause::Repair);
        self.ask(unit.place.member, Class::Background, request).await.is_ok()
    }
}
