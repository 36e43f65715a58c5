//! Exports as block devices, and access at byte granularity: the path of every request from NBD,
//! FUSE and HTTP to the volume.
//!
//! A volume takes whole sectors, of 512 bytes, or of 4096 where it is a log. A write that begins or
//! ends within a sector first reads the rest of that sector. No other write may come between that
//! read and the write, so an unaligned write runs alone; aligned writes run concurrently. Clients
//! that care for speed write whole sectors.
//!
//! Expected faults: a sector that cannot be read, which then fails the write as well.

use std::cell::Cell;
use std::future::{Future, ready};
use std::rc::Rc;

use stripewise_array::mutation::{self, Mutation};
use stripewise_array::{ArrayError, Extent};
use stripewise_drive::{Buffer, BufferPool, Event, Operation, Semaphore, SemaphorePermit};
use stripewise_pool::{DirectHold, OpenMode, Volume};

use crate::direct::DirectExport;
use crate::losses::Losses;

/// Requests shorter than this are never preferred.
const LEAST_PREFERRED_BYTES: u64 = 4096;

/// Length of writes of zeros that must not become holes, bytes.
const ZERO_WRITE_BYTES: u64 = 1 << 20;

/// Something that clients use as a block device. Offsets and lengths are multiples of
/// [`Export::sector_bytes`] and within its size when requested; errors are the engine's. Its
/// futures are polled to completion.
pub trait Export: 'static {
    /// Current size, bytes.
    fn size_bytes(&self) -> u64;
    /// True if it cannot be written.
    fn is_read_only(&self) -> bool;
    /// Requests are multiples of this many bytes.
    fn sector_bytes(&self) -> u64;
    /// Preferred request size, bytes: a power of two from 512 on.
    fn preferred_bytes(&self) -> u32;
    /// A description for people.
    fn description(&self) -> String;
    /// Pool of the requests' buffers.
    fn buffers(&self) -> &BufferPool;
    /// Serialises unaligned writes; shared by all writers of the export.
    fn unaligned(&self) -> &UnalignedGate;
    /// Signals the export's end; shared by all its users.
    fn ending(&self) -> &Ending;
    /// Acknowledged writes that were lost; shared by all its users.
    fn losses(&self) -> &Rc<Losses>;
    /// Reads; the returned buffer is the caller's.
    fn read(&self, offset_bytes: u64, length: usize) -> impl Future<Output = Result<Buffer, ArrayError>>;
    /// Writes; durable on return if `fua`, else after the next flush.
    fn write(
        &self,
        offset_bytes: u64,
        data: Buffer,
        fua: bool,
    ) -> impl Future<Output = Result<(), ArrayError>>;
    /// Makes all acknowledged writes durable, of every client.
    fn flush(&self) -> impl Future<Output = Result<(), ArrayError>>;
    /// Discards the contents of the range.
    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> impl Future<Output = Result<(), ArrayError>>;
    /// Zeroes the range.
    fn write_zeroes(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> impl Future<Output = Result<(), ArrayError>>;
    /// The written and unwritten stretches of the range, from its beginning on, at most `most`.
    fn extents(&self, offset_bytes: u64, length_bytes: u64, most: usize) -> Result<Vec<Extent>, ArrayError>;
    /// True if the range reads as zeros because it was never written.
    fn is_unwritten(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool, ArrayError>;
    /// True if zeroing the range is much faster than writing it.
    fn zeroes_at_once(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool, ArrayError>;
    /// The export for a client on another thread; `None` if all requests have to come here.
    fn direct(&self) -> Option<DirectExport> {
        None
    }
    /// Keeps requests of other threads out, and waits for those that are in.
    fn hold_direct(&self) -> impl Future<Output = Option<DirectHold<'_>>> {
        ready(None)
    }
}

/// Signals the users of an export that it has ended: its pool was closed, or its volume deleted. It
/// does not come back, but another export of the same name may.
#[derive(Default)]
pub struct Ending {
    has_begun: Cell<bool>,
    changed: Event,
}

impl Ending {
    /// Signals the end.
    pub fn begin(&self) {
        self.has_begun.set(true);
        self.changed.notify_all();
    }

    /// True if the export has ended.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.get()
    }

    /// Waits for the end.
    pub async fn until_begun(&self) {
        while !self.has_begun.get() {
            self.changed.wait().await;
        }
    }
}

/// Available exports.
pub trait Exports: 'static {
    /// The type of the exports.
    type Export: Export;
    /// The export of that name. While any user holds it, it is the same object.
    fn find(&self, name: &str) -> Option<Rc<Self::Export>>;
    /// All names, in listing order.
    fn list(&self) -> Vec<String>;
}

/// A volume as an export.
pub struct VolumeExport {
    volume: Volume,
    read_only: bool,
    unaligned: UnalignedGate,
    ending: Ending,
    losses: Rc<Losses>,
    /// Number of times the volume had been reopened when this was made.
    reopenings: u64,
}

impl VolumeExport {
    /// `read_only`: even if the volume is writable.
    pub fn new(volume: Volume, read_only: bool) -> Self {
        Self::with_losses(volume, read_only, Rc::default())
    }

    /// As [`Self::new`], with the losses of the volume before this opening.
    pub(crate) fn with_losses(volume: Volume, read_only: bool, losses: Rc<Losses>) -> Self {
        let reopenings = losses.reopenings();
        let (unaligned, ending) = (UnalignedGate::new(), Ending::default());
        Self { volume, read_only, unaligned, ending, losses, reopenings }
    }

    /// Records an acknowledged change that needs a flush to be durable.
    fn note_written(&self) {
        if self.losses.reopenings() == self.reopenings {
            self.losses.note_written();
        } else {
            // Its pool was closed and reopened in between: no flush will cover the change.
            self.losses.lose();
        }
    }

    /// The volume.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }
}

impl Export for VolumeExport {
    fn size_bytes(&self) -> u64 {
        self.volume.capacity_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.read_only || self.volume.pool().mode() == OpenMode::ReadOnly || self.volume.is_protected()
    }

    fn sector_bytes(&self) -> u64 {
        self.volume.sector_bytes()
    }

    fn preferred_bytes(&self) -> u32 {
        self.volume.geometry().interleave_bytes().max(LEAST_PREFERRED_BYTES) as u32
    }

    fn description(&self) -> String {
        format!("volume {} of pool {}", self.volume.name(), self.volume.pool().name())
    }

    fn buffers(&self) -> &BufferPool {
        self.volume.buffers()
    }

    fn unaligned(&self) -> &UnalignedGate {
        &self.unaligned
    }

    fn ending(&self) -> &Ending {
        &self.ending
    }

    fn losses(&self) -> &Rc<Losses> {
        &self.losses
    }

    async fn read(&self, offset_bytes: u64, length: usize) -> Result<Buffer, ArrayError> {
        self.volume.read(offset_bytes, length).await
    }

    async fn write(&self, offset_bytes: u64, data: Buffer, fua: bool) -> Result<(), ArrayError> {
        self.volume.write(offset_bytes, data, fua).await?;
        if !fua {
            self.note_written();
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), ArrayError> {
        let (written, losses) = (self.losses.written(), self.losses.count());
        let flushed = self.volume.flush().await;
        match &flushed {
            Ok(()) if self.losses.reopenings() == self.reopenings => self.losses.note_flushed(written),
            Err(ArrayError::Drive(error)) if error.operation == Operation::Flush => {
                self.losses.note_failed_flush(losses, self.volume.refused_flushes());
            }
            _ => {}
        }
        flushed
    }

    async fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        self.volume.discard(offset_bytes, length_bytes).await?;
        self.note_written();
        Ok(())
    }

    async fn write_zeroes(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        self.volume.write_zeroes(offset_bytes, length_bytes).await?;
        self.note_written();
        Ok(())
    }

    fn extents(&self, offset_bytes: u64, length_bytes: u64, most: usize) -> Result<Vec<Extent>, ArrayError> {
        self.volume.extents(offset_bytes, length_bytes, most)
    }

    fn is_unwritten(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool, ArrayError> {
        self.volume.is_unwritten(offset_bytes, length_bytes)
    }

    fn zeroes_at_once(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool, ArrayError> {
        self.volume.zeroes_at_once(offset_bytes, length_bytes)
    }

    fn direct(&self) -> Option<DirectExport> {
        let volume = self.volume.direct()?;
        let (written, losses) = self.losses.for_another_thread();
        let informed = self.losses.count();
        Some(DirectExport { volume, may_write: !self.is_read_only(), written, losses, informed })
    }

    async fn hold_direct(&self) -> Option<DirectHold<'_>> {
        Some(self.volume.hold_direct().await)
    }
}

fn is_whole(export: &impl Export, offset: u64, length: u64) -> bool {
    (offset | length).is_multiple_of(export.sector_bytes())
}

/// The whole sectors around a range.
fn around(export: &impl Export, offset: u64, length: u64) -> (u64, u64) {
    let sector = export.sector_bytes();
    (offset / sector * sector, (offset + length).next_multiple_of(sector))
}

/// The whole sectors within a range; empty (`start == end`) if there are none.
fn within(export: &impl Export, offset: u64, length: u64) -> (u64, u64) {
    let sector = export.sector_bytes();
    let (start, end) = (offset.next_multiple_of(sector), (offset + length) / sector * sector);
    (start, end.max(start))
}

/// Reads any range of bytes.
pub(crate) async fn read(export: &impl Export, offset: u64, length: usize) -> Result<Buffer, ArrayError> {
    if is_whole(export, offset, length as u64) {
        return export.read(offset, length).await;
    }
    let (start, end) = around(export, offset, length as u64);
    let sectors = export.read(start, (end - start) as usize).await?;
    let at = (offset - start) as usize;
    Ok(sectors.slice(at..at + length))
}

/// Writes any range of bytes; durable on return if `fua`, else after the next flush.
pub async fn write(export: &impl Export, offset: u64, data: Buffer, fua: bool) -> Result<(), ArrayError> {
    if is_whole(export, offset, data.len() as u64) {
        let _inside = export.unaligned().enter().await;
        return export.write(offset, data, fua).await;
    }
    let _alone = alone(export).await;
    write_alone(export, offset, data, fua).await
}

/// Keeps all other writes out.
async fn alone(export: &impl Export) -> (SemaphorePermit, Option<DirectHold<'_>>) {
    (export.unaligned().enter_alone().await, export.hold_direct().await)
}

async fn write_alone(export: &impl Export, offset: u64, data: Buffer, fua: bool) -> Result<(), ArrayError> {
    let (start, end) = around(export, offset, data.len() as u64);
    let sectors = export.buffers().allocate((end - start) as usize);
    let sector_bytes = export.sector_bytes();
    let sector = sector_bytes as usize;
    let first = export.read(start, sector).await?;
    sectors.slice(0..sector).copy_from(&first);
    if end - start > sector_bytes {
        let last = export.read(end - sector_bytes, sector).await?;
        sectors.slice(sectors.len() - sector..sectors.len()).copy_from(&last);
    }
    let at = (offset - start) as usize;
    sectors.slice(at..at + data.len()).copy_from(&data);
    export.write(start, sectors, fua).await
}

/// Zeroes any range of bytes; durable on return if `fua`, else after the next flush.
pub async fn write_zeroes(
    export: &impl Export,
    offset: u64,
    length: u64,
    fua: bool,
) -> Result<(), ArrayError> {
    zero(export, offset, length).await?;
    flush_if(export, fua).await
}

async fn zero(export: &impl Export, offset: u64, length: u64) -> Result<(), ArrayError> {
    if is_whole(export, offset, length) {
        let _inside = export.unaligned().enter().await;
        return export.write_zeroes(offset, length).await;
    }
    let _alone = alone(export).await;
    let (start, end) = within(export, offset, length);
    let partial = if start == end {
        // No whole sector: one stretch, in one sector or across two.
        [(offset, offset + length), (end, end)]
    } else {
        export.write_zeroes(start, end - start).await?;
        [(offset, start), (end, offset + length)]
    };
    for (from, to) in partial.into_iter().filter(|(from, to)| from < to) {
        let zeroes = export.buffers().allocate_zeroed((to - from) as usize);
        write_alone(export, from, zeroes, false).await?;
    }
    Ok(())
}

/// Writes zeros, which take up space.
pub(crate) async fn fill_with_zeroes(
    export: &impl Export,
    offset: u64,
    length: u64,
) -> Result<(), ArrayError> {
    let (mut at, end) = (offset, offset + length);
    while at < end {
        // Pieces end at multiples of `ZERO_WRITE_BYTES`, so only the first and last are unaligned.
        let next = ((at / ZERO_WRITE_BYTES + 1) * ZERO_WRITE_BYTES).min(end);
        let zeroes = export.buffers().allocate_zeroed((next - at) as usize);
        write(export, at, zeroes, false).await?;
        at = next;
    }
    Ok(())
}

/// Discards the whole sectors of any range; the rest stays, as discards allow. Durable on return if
/// `fua`, else after the next flush.
pub async fn discard(export: &impl Export, offset: u64, length: u64, fua: bool) -> Result<(), ArrayError> {
    let (start, end) = within(export, offset, length);
    if start < end {
        export.discard(start, end - start).await?;
    }
    flush_if(export, fua).await
}

/// Ends a change that has to be durable on return if `fua`.
pub(crate) async fn flush_if(export: &impl Export, fua: bool) -> Result<(), ArrayError> {
    let is_forced = fua && !mutation::is_chosen(Mutation::ForcedZeroesNotFlushed);
    if is_forced { export.flush().await } else { Ok(()) }
}

/// The stretches of any range of bytes; a sector partly inside counts with that part.
pub(crate) fn extents(
    export: &impl Export,
    offset: u64,
    length: u64,
    most: usize,
) -> Result<Vec<Extent>, ArrayError> {
    let (start, end) = around(export, offset, length);
    let mut extents = export.extents(start, end - start, most)?;
    if let Some(first) = extents.first_mut() {
        first.length_bytes -= offset - start;
    }
    let covered: u64 = extents.iter().map(|extent| extent.length_bytes).sum();
    if let Some(last) = extents.last_mut() {
        last.length_bytes -= covered.saturating_sub(length);
    }
    Ok(extents)
}

/// True if no byte of the range was ever written.
pub(crate) fn is_unwritten(export: &impl Export, offset: u64, length: u64) -> Result<bool, ArrayError> {
    let (start, end) = around(export, offset, length);
    export.is_unwritten(start, end - start)
}

/// True if zeroing the range is fast.
pub(crate) fn zeroes_at_once(export: &impl Export, offset: u64, length: u64) -> Result<bool, ArrayError> {
    let (start, end) = around(export, offset, length);
    if is_whole(export, offset, length) {
        export.zeroes_at_once(start, end - start)
    } else {
        export.is_unwritten(start, end - start)
    }
}

/// Lets aligned writes run together, and an unaligned write alone; first come, first served.
pub struct UnalignedGate(Semaphore);

/// Number of aligned writes that can run together: more than there are.
const TOGETHER: u64 = 1 << 32;

impl Default for UnalignedGate {
    fn default() -> Self {
        Self::new()
    }
}

impl UnalignedGate {
    /// A gate with no write inside.
    pub fn new() -> Self {
        Self(Semaphore::new(TOGETHER))
    }

    async fn enter(&self) -> SemaphorePermit {
        self.0.acquire(1).await
    }

    async fn enter_alone(&self) -> SemaphorePermit {
        let is_broken = mutation::is_chosen(Mutation::UnalignedWritesTogether);
        self.0.acquire(if is_broken { 1 } else { TOGETHER }).await
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use stripewise_runtime::VirtualExecutor;

    use super::*;

    #[test]
    fn unaligned_writes_starve_no_aligned_ones() {
        let executor = VirtualExecutor::new();
        let (context, gate, is_over) =
            (executor.context(), Rc::<UnalignedGate>::default(), Rc::<Cell<bool>>::default());
        for start_ns in [0, 5] {
            let (clock, gate, is_over) = (context.clone(), gate.clone(), is_over.clone());
            drop(context.spawn(async move {
                clock.sleep_ns(start_ns).await;
                while !is_over.get() {
                    let _alone = gate.enter_alone().await;
                    clock.sleep_ns(10).await;
                }
            }));
        }
        executor.block_on(async {
            context.sleep_ns(100).await;
            let entered = context.time_limit_ns(1000, Box::pin(gate.enter())).await;
            is_over.set(true);
            assert!(entered.is_ok(), "two others take turns");
        });
    }
}
