//! From the engine's errors to the numbers that programs get, and to a line for the person who runs
//! the daemon: once per kind and volume, since a file system that is told of an error may try again
//! for ever.

use std::cell::RefCell;
use std::collections::HashSet;
use std::mem::{Discriminant, discriminant};
use std::rc::Rc;

use stripewise_engine::ArrayError;

use super::Host;
use super::wire::Errno;

/// What was said already.
pub(super) struct Trouble {
    host: Rc<dyn Host>,
    said: RefCell<HashSet<(String, Discriminant<ArrayError>)>>,
    cut_off: RefCell<HashSet<String>>,
    lost: RefCell<HashSet<String>>,
}

impl Trouble {
    pub(super) fn new(host: Rc<dyn Host>) -> Self {
        Self { host, said: RefCell::default(), cut_off: RefCell::default(), lost: RefCell::default() }
    }

    /// The number for what could not be done to a volume.
    pub(super) fn number(&self, doing: &str, volume: &str, error: &ArrayError) -> Errno {
        if self.said.borrow_mut().insert((volume.to_owned(), discriminant(error))) {
            self.host.remark(format!(
                "cannot {doing} {volume}: {error}. The client got an error; repeats are suppressed"
            ));
        }
        match error {
            ArrayError::NoSpace(_) | ArrayError::FileSystemFull { .. } | ArrayError::OutOfRange { .. } => {
                Errno::ENOSPC
            }
            _ => Errno::EIO,
        }
    }

    /// What was written before its pool was reopened and not flushed.
    pub(super) fn may_have_lost(&self, volume: &str) -> Errno {
        if self.lost.borrow_mut().insert(volume.to_owned()) {
            self.host.remark(format!(
            "some of what was written to {volume} and not flushed before its pool was reopened may be lost; the next flush of each open file \
             fails with EIO, once"
        ));
        }
        Errno::EIO
    }

    /// A program wanted to give a volume another size.
    pub(super) fn refuses_to_cut(&self, volume: &str) -> Errno {
        if self.cut_off.borrow_mut().insert(volume.to_owned()) {
            self.host.remark(format!(
                "a program tried to change the size of {volume} and was refused; `stripewise volume resize` does that, and \
                 programs that begin by emptying a file can be told not to (dd conv=notrunc)"
            ));
        }
        Errno::EPERM
    }

    /// A volume that is not to be written.
    pub(super) fn keeps_from_writing(&self, volume: &str) -> Option<Errno> {
        let why = self.host.keeps_from_writing(volume)?;
        self.host.remark(why);
        Some(Errno::EBUSY)
    }
}
