//! Maps the engine's errors to error numbers, and reports them to the daemon's operator: once per
//! kind and volume, since a file system may repeat a failed request for ever.

use std::cell::RefCell;
use std::collections::HashSet;
use std::mem::{Discriminant, discriminant};
use std::rc::Rc;

use stripewise_array::ArrayError;

use super::Host;
use super::wire::Errno;

/// The errors that were reported.
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

    /// The error number of a failed operation.
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

    /// The error number for lost writes: unflushed when the pool was reopened.
    pub(super) fn may_have_lost(&self, volume: &str) -> Errno {
        if self.lost.borrow_mut().insert(volume.to_owned()) {
            self.host.remark(format!(
                "unflushed writes to {volume} from before its pool was reopened may be lost; the \
                 next flush of each open file fails with EIO, once"
            ));
        }
        Errno::EIO
    }

    /// The error number for a program that tried to resize a volume.
    pub(super) fn refuses_to_cut(&self, volume: &str) -> Errno {
        if self.cut_off.borrow_mut().insert(volume.to_owned()) {
            self.host.remark(format!(
                "a program tried to change the size of {volume} and was refused; use \
                 `stripewise volume resize`; programs that truncate their output file can often be \
                 set not to (dd conv=notrunc)"
            ));
        }
        Errno::EPERM
    }

    /// The error number if the volume must not be written.
    pub(super) fn keeps_from_writing(&self, volume: &str) -> Option<Errno> {
        let why = self.host.keeps_from_writing(volume)?;
        self.host.remark(why);
        Some(Errno::EBUSY)
    }
}
