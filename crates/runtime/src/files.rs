//! Files and block devices as drives: making them, finding out what they are, locking them, and
//! their requests.

pub(crate) mod alignment;
pub(crate) mod attribute;
pub(crate) mod block_device;
pub(crate) mod common;
pub(crate) mod extents;
pub(crate) mod file_drive;
pub(crate) mod identity;
pub(crate) mod lock;
pub(crate) mod make;
pub(crate) mod open;
pub(crate) mod open_handle;
pub(crate) mod opened;
pub(crate) mod small_file;
