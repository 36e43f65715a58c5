//! Records kept from one life to the next: old images of drives, and drives with the only copy of a
//! structure.

use std::collections::BTreeSet;
use std::rc::Rc;

use stripewise_drive::MemoryDrive;

/// Image of a drive at the end of a life.
pub(crate) struct KeptCopy {
    pub disk: usize,
    /// Number of the life.
    pub life: usize,
    pub image: Rc<MemoryDrive>,
    /// Numbers of the volumes written since.
    pub changed: BTreeSet<u32>,
}

/// A drive that has the only copy of a structure since the end of a life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnlyCopy {
    pub disk: usize,
    pub life: usize,
}
