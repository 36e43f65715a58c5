//! The thread that takes the kernel's requests: puts each into the queue, with its answer to be, and takes the next. It knows
//! nothing of volumes, and never waits but for room in the queue.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, TimeOrNow, WriteFlags,
};

use crate::bridge::Sender;

/// Reads and writes come in pieces of at most this.
const MAX_REQUEST_BYTES: u32 = 1 << 20;
/// Asynchronous requests (of loop devices, of io_uring) that the kernel hands over at a time.
const MAX_BACKGROUND: u16 = 512;
/// Every request takes some memory, whatever its data: this bounds their number, too.
const LEAST_COUNTED_BYTES: u64 = 16 << 10;

/// What the kernel asks. `node` is a number that [`super::files`] gave.
pub(super) enum Request {
    Lookup {
        folder: u64,
        name: OsString,
        reply: ReplyEntry,
    },
    Forget {
        node: u64,
        lookups: u64,
    },
    Attributes {
        node: u64,
        reply: ReplyAttr,
    },
    Change {
        node: u64,
        size: Option<u64>,
        owner_or_mode: bool,
        reply: ReplyAttr,
    },
    Open {
        node: u64,
        write: bool,
        reply: ReplyOpen,
    },
    List {
        folder: u64,
        from: u64,
        reply: ReplyDirectory,
    },
    Space {
        node: u64,
        reply: ReplyStatfs,
    },
    Read {
        handle: u64,
        offset: u64,
        length: u32,
        reply: ReplyData,
    },
    Write {
        handle: u64,
        offset: u64,
        data: Vec<u8>,
        durable: bool,
        reply: ReplyWrite,
    },
    Zero {
        handle: u64,
        offset: u64,
        length: u64,
        keep_size: bool,
        reply: ReplyEmpty,
    },
    Seek {
        handle: u64,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    },
    /// `closes`: one of those who have the file open closes it.
    Flush {
        handle: u64,
        closes: bool,
        reply: ReplyEmpty,
    },
    Close {
        handle: u64,
        reply: ReplyEmpty,
    },
}

impl Request {
    fn bytes(&self) -> u64 {
        let data = match self {
            Self::Read { length, .. } => u64::from(*length),
            Self::Write { data, .. } => data.len() as u64,
            _ => 0,
        };
        data.max(LEAST_COUNTED_BYTES)
    }
}

/// Puts requests into the queue.
pub(super) struct Queue {
    sender: Sender<Request>,
}

impl Queue {
    pub(super) fn new(sender: Sender<Request>) -> Self {
        Self { sender }
    }

    /// An answer that is dropped, since nobody is there to give it, is an I/O error.
    fn put(&self, request: Request) {
        let bytes = request.bytes();
        let _ = self.sender.send(request, bytes);
    }
}

/// Volumes are made, renamed and deleted by commands.
const NOT_BY_FILES: Errno = Errno::EPERM;

impl Filesystem for Queue {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        // Each of these at least as the kernel has it; it takes less where it knows less.
        for capability in [InitFlags::FUSE_ASYNC_DIO, InitFlags::FUSE_PARALLEL_DIROPS] {
            let _ = config.add_capabilities(capability);
        }
        let _ = config.set_max_write(MAX_REQUEST_BYTES);
        let _ = config.set_max_background(MAX_BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.put(Request::Lookup { folder: parent.0, name: name.to_owned(), reply });
    }

    fn forget(&self, _: &fuser::Request, node: INodeNo, lookups: u64) {
        self.put(Request::Forget { node: node.0, lookups });
    }

    fn getattr(&self, _: &fuser::Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.put(Request::Attributes { node: node.0, reply });
    }

    fn setattr(
        &self,
        _: &fuser::Request,
        node: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let owner_or_mode = mode.is_some() || user.is_some() || group.is_some();
        self.put(Request::Change { node: node.0, size, owner_or_mode, reply });
    }

    fn open(&self, _: &fuser::Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let write = flags.acc_mode() != OpenAccMode::O_RDONLY;
        self.put(Request::Open { node: node.0, write, reply });
    }

    fn readdir(&self, _: &fuser::Request, node: INodeNo, _: FileHandle, offset: u64, reply: ReplyDirectory) {
        self.put(Request::List { folder: node.0, from: offset, reply });
    }

    fn statfs(&self, _: &fuser::Request, node: INodeNo, reply: ReplyStatfs) {
        self.put(Request::Space { node: node.0, reply });
    }

    fn read(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.put(Request::Read { handle: handle.0, offset, length, reply });
    }

    fn write(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // O_SYNC includes O_DSYNC's bit.
        let durable = flags.0 & libc::O_DSYNC != 0;
        self.put(Request::Write { handle: handle.0, offset, data: data.to_vec(), durable, reply });
    }

    fn fallocate(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let kind = mode & !libc::FALLOC_FL_KEEP_SIZE;
        if kind != libc::FALLOC_FL_PUNCH_HOLE && kind != libc::FALLOC_FL_ZERO_RANGE {
            reply.error(Errno::EOPNOTSUPP);
            return;
        }
        // Both: whoever punches a hole relies on zeros being there, as file systems on a loop device do.
        self.put(Request::Zero { handle: handle.0, offset, length, keep_size, reply });
    }

    fn lseek(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        self.put(Request::Seek { handle: handle.0, offset, whence, reply });
    }

    fn fsync(&self, _: &fuser::Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        self.put(Request::Flush { handle: handle.0, closes: false, reply });
    }

    fn flush(&self, _: &fuser::Request, _: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.put(Request::Flush { handle: handle.0, closes: true, reply });
    }

    fn fsyncdir(&self, _: &fuser::Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.put(Request::Close { handle: handle.0, reply });
    }

    fn create(&self, _: &fuser::Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        reply.error(NOT_BY_FILES);
    }

    fn mknod(&self, _: &fuser::Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(NOT_BY_FILES);
    }

    fn mkdir(&self, _: &fuser::Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(NOT_BY_FILES);
    }

    fn symlink(&self, _: &fuser::Request, _: INodeNo, _: &OsStr, _: &Path, reply: ReplyEntry) {
        reply.error(NOT_BY_FILES);
    }

    fn link(&self, _: &fuser::Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(NOT_BY_FILES);
    }

    fn unlink(&self, _: &fuser::Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(NOT_BY_FILES);
    }

    fn rmdir(&self, _: &fuser::Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(NOT_BY_FILES);
    }

    fn rename(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(NOT_BY_FILES);
    }
}
