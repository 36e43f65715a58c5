//! What is kept from life to life of copies: what a drive held once, and which drive alone has
//! something.

use std::collections::BTreeSet;
use std::rc::Rc;

use stripewise_drive::MemoryDrive;

/// What a drive held at the end of a life.
pub(crate) struct KeptCopy {
    pub disk: usize,
    /// The life that had just ended.
    pub life: usize,
    pub image: Rc<MemoryDrive>,
    /// Volumes (by number) that were written since.
    pub changed: BTreeSet<u32>,
}

/// The drive that alone has a copy of something, since the end of a life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnlyCopy {
    pub disk: usize,
    pub life: usize,
}
