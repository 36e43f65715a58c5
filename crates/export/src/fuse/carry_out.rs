//! Carrying out the kernel's requests on the executor. What only looks is answered at once; what reads or writes is a task of its
//! own.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use fuser::{Errno, FileHandle, FileType, FopenFlags, Generation, ReplyDirectory, ReplyOpen, ReplyStatfs};
use stripewise_drive::{Buffer, Context, Event};
use stripewise_engine::ArrayError;

use super::files::{Files, Open};
use super::requests::Request;
use super::trouble::Trouble;
use super::{Host, Tree};
use crate::bridge::Receiver;
use crate::edges;
use crate::export::Export;
use crate::pools::PoolExports;

/// The kernel keeps nothing it was told: volumes come, go and grow by commands it does not see.
const NOT_KEPT: Duration = Duration::ZERO;
/// In which space is told.
const BLOCK_BYTES: u32 = 4096;

/// Carries out the requests of one mount.
pub(super) struct Worker {
    files: Files,
    trouble: Trouble,
    /// Requests that are tasks now.
    under_way: Cell<usize>,
    one_ended: Event,
}

impl Worker {
    pub(super) fn new(exports: PoolExports, tree: Tree, host: Rc<dyn Host>) -> io::Result<Self> {
        Ok(Self {
            files: Files::new(exports, tree)?,
            trouble: Trouble::new(host),
            under_way: Cell::new(0),
            one_ended: Event::new(),
        })
    }

    /// Requests that are being carried out.
    pub(super) fn under_way(&self) -> usize {
        self.under_way.get()
    }

    /// Until it is mounted no more, and all was answered.
    pub(super) async fn serve(self: Rc<Self>, context: &Context, requests: Receiver<Request>) {
        while let Some((request, admission)) = requests.next().await {
            let Some(lasting) = self.answer_at_once(request) else { continue };
            let worker = self.clone();
            self.under_way.set(self.under_way.get() + 1);
            drop(context.spawn(async move {
                worker.transfer(lasting).await;
                drop(admission);
                worker.under_way.set(worker.under_way.get() - 1);
                worker.one_ended.notify_all();
            }));
        }
        while self.under_way.get() > 0 {
            self.one_ended.wait().await;
        }
    }

    /// Answers what needs no drive; gives back the rest.
    fn answer_at_once(&self, request: Request) -> Option<Request> {
        match request {
            Request::Lookup { folder, name, reply } => match self.files.look_up(folder, &name) {
                Some(attributes) => reply.entry(&NOT_KEPT, &attributes, Generation(0)),
                None => reply.error(Errno::ENOENT),
            },
            Request::Forget { node, lookups } => self.files.forget(node, lookups),
            Request::Attributes { node, reply } => match self.files.attributes(node) {
                Some(attributes) => reply.attr(&NOT_KEPT, &attributes),
                None => reply.error(Errno::ESTALE),
            },
            Request::Change { node, size, owner_or_mode, reply } => {
                match self.files.attributes(node) {
                    None => reply.error(Errno::ESTALE),
                    Some(_) if owner_or_mode => reply.error(Errno::EPERM),
                    Some(attributes) if size.is_some_and(|size| size != attributes.size) => {
                        let name = self.files.volume(node).map(|(name, _)| name).unwrap_or_default();
                        reply.error(self.trouble.refuses_to_cut(&name));
                    }
                    // Times are not recorded.
                    Some(attributes) => reply.attr(&NOT_KEPT, &attributes),
                }
            }
            Request::Open { node, write, reply } => self.open(node, write, reply),
            Request::List { folder, from, reply } => self.list(folder, from, reply),
            Request::Space { node, reply } => self.space(node, reply),
            Request::Seek { handle, offset, whence, reply } => match self.seek(handle, offset, whence) {
                Ok(place) => reply.offset(place),
                Err(number) => reply.error(number),
            },
            Request::Close { handle, reply } => {
                self.files.close(handle);
                reply.ok();
            }
            Request::Read { .. } | Request::Write { .. } | Request::Zero { .. } | Request::Flush { .. } => {
                return Some(request);
            }
        }
        None
    }

    /// Reads, writes, zeroes, flushes.
    async fn transfer(&self, request: Request) {
        match request {
            Request::Read { handle, offset, length, reply } => {
                match self.read(handle, offset, length).await {
                    Ok(Some(data)) => {
                        data.with(|bytes| reply.data(bytes));
                    }
                    Ok(None) => reply.data(&[]),
                    Err(number) => reply.error(number),
                }
            }
            Request::Write { handle, offset, data, durable, reply } => {
                match self.write(handle, offset, &data, durable).await {
                    Ok(written) => reply.written(written),
                    Err(number) => reply.error(number),
                }
            }
            Request::Zero { handle, offset, length, keep_size, reply } => {
                match self.zero(handle, offset, length, keep_size).await {
                    Ok(()) => reply.ok(),
                    Err(number) => reply.error(number),
                }
            }
            Request::Flush { handle, closes, reply } => match self.flush(handle, closes).await {
                Ok(()) => reply.ok(),
                Err(number) => reply.error(number),
            },
            _ => unreachable!("everything else was answered at once"),
        }
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
        let data = edges::read(&*file.export, offset, length).await;
        data.map(Some).map_err(|error| self.number("read", &file, &error))
    }

    async fn write(&self, handle: u64, offset: u64, data: &[u8], durable: bool) -> Result<u32, Errno> {
        let file = self.opened(handle)?;
        let room = file.export.size_bytes().saturating_sub(offset);
        let length = room.min(data.len() as u64) as usize;
        if length == 0 {
            return if data.is_empty() { Ok(0) } else { Err(Errno::ENOSPC) };
        }
        let buffer = file.export.buffers().allocate(length);
        buffer.with_mut(|bytes| bytes.copy_from_slice(&data[..length]));
        let written = edges::write(&*file.export, offset, buffer, durable).await;
        written.map_err(|error| self.number("write", &file, &error))?;
        if !durable {
            file.has_written();
        }
        Ok(length as u32)
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
        let zeroed = edges::write_zeroes(&*file.export, offset, length).await;
        zeroed.map_err(|error| self.number("zero part of", &file, &error))?;
        file.has_written();
        Ok(())
    }

    async fn flush(&self, handle: u64, closes: bool) -> Result<(), Errno> {
        let file = self.opened(handle)?;
        if !file.write {
            return Ok(());
        }
        let written = file.written_so_far();
        file.export.flush().await.map_err(|error| self.number("flush", &file, &error))?;
        file.has_flushed(written);
        // Nobody looks at the error of a close, and a process that starts another closes what it has open once more.
        let may_have_lost = if closes { file.may_have_lost() } else { file.tells_what_it_lost() };
        if may_have_lost { Err(self.trouble.may_have_lost(&file.name)) } else { Ok(()) }
    }

    fn number(&self, doing: &str, file: &Open, error: &ArrayError) -> Errno {
        self.trouble.number(doing, &file.name, error)
    }

    fn open(&self, node: u64, write: bool, reply: ReplyOpen) {
        let Some((name, export)) = self.files.volume(node) else {
            return reply.error(if self.files.is_folder(node) { Errno::EISDIR } else { Errno::ESTALE });
        };
        if write && export.is_read_only() {
            return reply.error(Errno::EROFS);
        }
        if write && let Some(number) = self.trouble.keeps_from_writing(&name) {
            return reply.error(number);
        }
        let handle = self.files.open(name, export, write);
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(handle), flags);
    }

    /// From the entry with number `from` on, as many as fit.
    fn list(&self, folder: u64, from: u64, mut reply: ReplyDirectory) {
        let Some(entries) = self.files.list(folder) else { return reply.error(Errno::ENOTDIR) };
        let own = [(".".to_owned(), folder), ("..".to_owned(), super::files::ROOT)];
        let own = own.into_iter().map(|(name, node)| (name, node, FileType::Directory));
        let entries = entries.into_iter().map(|entry| (entry.name, entry.node, entry.kind));
        for (index, (name, node, kind)) in own.chain(entries).enumerate().skip(from as usize) {
            if reply.add(fuser::INodeNo(node), index as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn space(&self, node: u64, reply: ReplyStatfs) {
        let pools = self.files.pools_at(node);
        let (mut total, mut free, mut volumes) = (0, 0, 0);
        for pool in &pools {
            let status = pool.status();
            total += status.capacity_bytes;
            free += status.capacity_bytes.saturating_sub(status.allocated_bytes);
            volumes += status.volumes.len() as u64;
        }
        let blocks = |bytes: u64| bytes / u64::from(BLOCK_BYTES);
        reply.statfs(blocks(total), blocks(free), blocks(free), volumes, 0, BLOCK_BYTES, 63, BLOCK_BYTES);
    }

    /// Where data, or a hole, begins next: what was never written is a hole.
    fn seek(&self, handle: u64, offset: i64, whence: i32) -> Result<i64, Errno> {
        let file = self.opened(handle)?;
        let size = file.export.size_bytes();
        let offset = u64::try_from(offset).ok().filter(|offset| *offset < size).ok_or(Errno::ENXIO)?;
        let extents = edges::extents(&*file.export, offset, size - offset, 1);
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
