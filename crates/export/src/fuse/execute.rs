//! Executes the kernel's requests on the executor. Requests for metadata are answered at once;
//! those that read or write are tasks of their own.

use std::cell::Cell;
use std::io;
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::select;
use stripewise_array::ArrayError;
use stripewise_drive::{Buffer, BufferPool, Context, Event, MovedBuffer};

use super::device::{Answer, Asked, Device, Held, RETAINED_BYTES};
use super::files::{Files, Open};
use super::links::FuseShards;
use super::trouble::Trouble;
use super::wire::{self, Errno, FileType, Listing, Look, Question, Transfer};
use super::{Host, Tree};
use crate::block::{self, Export};
use crate::direct::DirectExport;
use crate::pools::PoolExports;

/// Block size of the reported space.
const BLOCK_BYTES: u32 = 4096;
/// Maximum length of volume and pool names, bytes.
const LONGEST_NAME: u32 = 63;

/// Executes the requests of one mount.
pub(super) struct Worker {
    files: Files,
    trouble: Trouble,
    /// Number of requests running as tasks.
    in_flight: Cell<usize>,
    /// Number of tasks that have ended.
    answered: Cell<u64>,
    one_ended: Event,
    /// Other threads that receive requests.
    pub(super) shards: FuseShards,
    /// Memory for data that other threads received.
    buffers: BufferPool,
}

/// A request running as a task.
struct InFlight {
    worker: Rc<Worker>,
    _held: Held,
}

impl InFlight {
    fn begin(worker: &Rc<Worker>, held: Held) -> Self {
        worker.in_flight.set(worker.in_flight.get() + 1);
        Self { worker: worker.clone(), _held: held }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.worker.in_flight.set(self.worker.in_flight.get() - 1);
        self.worker.answered.set(self.worker.answered.get() + 1);
        self.worker.one_ended.notify_all();
    }
}

impl Worker {
    pub(super) fn new(exports: PoolExports, tree: Tree, host: Rc<dyn Host>) -> io::Result<Self> {
        Ok(Self {
            files: Files::new(exports, tree)?,
            trouble: Trouble::new(host),
            in_flight: Cell::new(0),
            answered: Cell::new(0),
            one_ended: Event::new(),
            shards: FuseShards::default(),
            buffers: BufferPool::new(RETAINED_BYTES),
        })
    }

    /// Number of requests running as tasks, on all threads.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.get() + self.shards.in_flight() as usize
    }

    /// Number of tasks that have ended, on all threads.
    pub(super) fn answered(&self) -> u64 {
        self.answered.get() + self.shards.answered()
    }

    /// Serves until it is unmounted and all requests are answered.
    pub(super) async fn serve(self: Rc<Self>, context: &Context, device: Device, over_ring: Option<Device>) {
        let receive = async |mut device: Device| {
            while let Some(asked) = device.next().await {
                self.execute(context, asked);
            }
        };
        match over_ring {
            Some(over_ring) => {
                // Both end with the mount.
                select(pin!(receive(device)), pin!(receive(over_ring))).await;
            }
            None => receive(device).await,
        }
        self.shards.until_ended().await;
        while self.in_flight.get() > 0 {
            self.one_ended.wait().await;
        }
    }

    /// Executes a request, or begins to.
    pub(super) fn execute(self: &Rc<Self>, context: &Context, asked: Asked) {
        let Asked { question, data, answer, held } = asked;
        match question {
            Question::Transfer(transfer) => self.begin(context, transfer, data, answer, held),
            Question::Look(look) => match self.look(look) {
                Ok(bytes) => answer.bytes(bytes),
                Err(number) => answer.error(number),
            },
            Question::Forget(nodes) => {
                nodes.into_iter().for_each(|(node, lookups)| self.files.forget(node, lookups));
                answer.none();
            }
            Question::Refused(number) => answer.error(Errno(number)),
            Question::Done(bytes) => answer.bytes(bytes),
            // The device that has received it ends.
            Question::End => answer.none(),
        }
    }

    /// The volume of an open file, for requests on another thread; `None` if all of them have to
    /// come here.
    pub(super) fn direct(&self, handle: u64) -> Option<DirectExport> {
        let file = self.files.opened(handle)?;
        let direct = file.export.direct()?;
        (!file.may_have_lost()).then_some(direct)
    }

    /// Data that another thread received.
    pub(super) fn adopt(&self, data: MovedBuffer) -> Buffer {
        self.buffers.adopt(data)
    }

    /// Answers a request that needs no drive.
    fn look(&self, look: Look) -> Result<Vec<u8>, Errno> {
        match look {
            Look::Lookup { folder, name } => {
                let found = self.files.look_up(folder, &name).ok_or(Errno::ENOENT)?;
                Ok(wire::entry(&found))
            }
            Look::Attributes { node } => {
                let attributes = self.files.attributes(node).ok_or(Errno::ESTALE)?;
                Ok(wire::attributes(&attributes))
            }
            Look::Change { node, size, owner_or_mode } => {
                let attributes = self.files.attributes(node).ok_or(Errno::ESTALE)?;
                if owner_or_mode {
                    return Err(Errno::EPERM);
                }
                if size.is_some_and(|size| size != attributes.size) {
                    let name = self.files.volume_name(node).unwrap_or_default();
                    return Err(self.trouble.refuses_to_cut(&name));
                }
                // Times are not recorded.
                Ok(wire::attributes(&attributes))
            }
            Look::Open { node, write } => self.open(node, write).map(wire::opened),
            Look::List { folder, from, room } => self.list(folder, from, room),
            Look::Space { node } => Ok(self.space(node)),
            Look::Seek { handle, offset, whence } => self.seek(handle, offset, whence).map(wire::place),
            Look::Close { handle } => {
                self.files.close(handle);
                self.shards.closed(handle);
                Ok(Vec::new())
            }
        }
    }

    /// Starts a task that reads, writes, zeroes or flushes. `data`: for a write.
    ///
    /// Each kind has its own future: one future for all would be as large as the largest of them.
    fn begin(
        self: &Rc<Self>,
        context: &Context,
        transfer: Transfer,
        data: Option<Buffer>,
        answer: Answer,
        held: Held,
    ) {
        let in_flight = InFlight::begin(self, held);
        let _task = match transfer {
            Transfer::Read { handle, offset, length } => context.spawn(async move {
                match in_flight.worker.read(handle, offset, length).await {
                    Ok(Some(data)) => answer.data(data),
                    Ok(None) => answer.bytes(Vec::new()),
                    Err(number) => answer.error(number),
                }
            }),
            Transfer::Write { handle, offset, durable, .. } => context.spawn(async move {
                match in_flight.worker.write(handle, offset, data, durable).await {
                    Ok(written) => answer.bytes(wire::written(written)),
                    Err(number) => answer.error(number),
                }
            }),
            Transfer::Zero { handle, offset, length, keep_size } => context.spawn(async move {
                match in_flight.worker.zero(handle, offset, length, keep_size).await {
                    Ok(()) => answer.bytes(Vec::new()),
                    Err(number) => answer.error(number),
                }
            }),
            Transfer::Flush { handle, closes } => context.spawn(async move {
                match in_flight.worker.flush(handle, closes).await {
                    Ok(()) => answer.bytes(Vec::new()),
                    Err(number) => answer.error(number),
                }
            }),
        };
    }

    fn opened(&self, handle: u64) -> Result<Rc<Open>, Errno> {
        self.files.opened(handle).ok_or(Errno::EBADF)
    }

    async fn read(&self, handle: u64, offset: u64, length: u32) -> Result<Option<Buffer>, Errno> {
        let file = self.opened(handle)?;
        let rest = file.export.size_bytes().saturating_sub(offset);
        let length = rest.min(u64::from(length)) as usize;
        if length == 0 {
            return Ok(None);
        }
        let data = block::read(&*file.export, offset, length).await;
        data.map(Some).map_err(|error| self.number("read", &file, &error))
    }

    async fn write(
        &self,
        handle: u64,
        offset: u64,
        data: Option<Buffer>,
        durable: bool,
    ) -> Result<u32, Errno> {
        let file = self.opened(handle)?;
        let Some(data) = data.filter(|data| !data.is_empty()) else { return Ok(0) };
        let room = file.export.size_bytes().saturating_sub(offset);
        let length = room.min(data.len() as u64) as usize;
        if length == 0 {
            return Err(Errno::ENOSPC);
        }
        let written = block::write(&*file.export, offset, data.slice(0..length), durable).await;
        written.map_err(|error| self.number("write", &file, &error))?;
        // With `O_DSYNC` a write includes an `fsync`, as in Linux: programs that write so call no
        // other.
        let may_have_lost = durable && file.reports_loss();
        if may_have_lost { Err(self.trouble.may_have_lost(&file.name)) } else { Ok(length as u32) }
    }

    async fn zero(&self, handle: u64, offset: u64, length: u64, keep_size: bool) -> Result<(), Errno> {
        let file = self.opened(handle)?;
        let room = file.export.size_bytes().saturating_sub(offset);
        if length > room && !keep_size {
            return Err(Errno::ENOSPC);
        }
        let length = length.min(room);
        if length == 0 {
            return Ok(());
        }
        let zeroed = block::write_zeroes(&*file.export, offset, length, false).await;
        zeroed.map_err(|error| self.number("zero part of", &file, &error))
    }

    async fn flush(&self, handle: u64, closes: bool) -> Result<(), Errno> {
        let file = self.opened(handle)?;
        if closes && !file.write {
            return Ok(());
        }
        // An `fsync` makes all writes to the file durable, through any descriptor.
        let flushed = file.export.flush().await;
        // The error of a close is often ignored, and a process that starts another closes its
        // descriptors once more: so a close does not mark the loss as reported.
        let may_have_lost = if closes { file.may_have_lost() } else { file.reports_loss() };
        flushed.map_err(|error| self.number("flush", &file, &error))?;
        if may_have_lost { Err(self.trouble.may_have_lost(&file.name)) } else { Ok(()) }
    }

    fn number(&self, doing: &str, file: &Open, error: &ArrayError) -> Errno {
        self.trouble.number(doing, &file.name, error)
    }

    /// Opens a file; returns its handle.
    fn open(&self, node: u64, write: bool) -> Result<u64, Errno> {
        let Some((name, export)) = self.files.volume(node) else {
            if self.files.is_held(node) {
                return Err(Errno::EBUSY);
            }
            return Err(if self.files.is_folder(node) { Errno::EISDIR } else { Errno::ESTALE });
        };
        if write && export.is_read_only() {
            return Err(Errno::EROFS);
        }
        if write && let Some(number) = self.trouble.keeps_from_writing(&name) {
            return Err(number);
        }
        Ok(self.files.open(name, export, write))
    }

    /// Lists entries from number `from` on, as many as fit.
    fn list(&self, folder: u64, from: u64, room: usize) -> Result<Vec<u8>, Errno> {
        let entries = self.files.list(folder).ok_or(Errno::ENOTDIR)?;
        let own = [(".".to_owned(), folder), ("..".to_owned(), super::files::ROOT)];
        let own = own.into_iter().map(|(name, node)| (name, node, FileType::Directory));
        let entries = entries.into_iter().map(|entry| (entry.name, entry.node, entry.kind));
        let mut listing = Listing::new(room);
        for (index, (name, node, kind)) in own.chain(entries).enumerate().skip(from as usize) {
            if !listing.add(node, index as u64 + 1, kind, name.as_ref()) {
                break;
            }
        }
        Ok(listing.into_bytes())
    }

    fn space(&self, node: u64) -> Vec<u8> {
        let pools = self.files.pools_at(node);
        let (mut total, mut free, mut volumes) = (0, 0, 0);
        for pool in &pools {
            let status = pool.status();
            total += status.capacity_bytes;
            free += status.capacity_bytes.saturating_sub(status.allocated_bytes);
            volumes += status.volumes.len() as u64;
        }
        let blocks = |bytes: u64| bytes / u64::from(BLOCK_BYTES);
        wire::space(blocks(total), blocks(free), volumes, BLOCK_BYTES, LONGEST_NAME)
    }

    /// Offset of the next data or hole; unwritten ranges are holes.
    fn seek(&self, handle: u64, offset: i64, whence: i32) -> Result<i64, Errno> {
        let file = self.opened(handle)?;
        let size = file.export.size_bytes();
        let offset = u64::try_from(offset).ok().filter(|offset| *offset < size).ok_or(Errno::ENXIO)?;
        let extents = block::extents(&*file.export, offset, size - offset, 1);
        let extents = extents.map_err(|error| self.number("read", &file, &error))?;
        let first = extents.first().ok_or(Errno::EIO)?;
        let next = offset + first.length_bytes;
        let place = match (whence, first.written) {
            (libc::SEEK_DATA, true) | (libc::SEEK_HOLE, false) => offset,
            (libc::SEEK_HOLE, true) => next,
            (libc::SEEK_DATA, false) if next < size => next,
            (libc::SEEK_DATA, false) => return Err(Errno::ENXIO),
            _ => return Err(Errno::EINVAL),
        };
        i64::try_from(place).map_err(|_| Errno::EOVERFLOW)
    }
}
