//! Pools that are open: for one command, or served for as long as the process lives; with the pools
//! beneath them, and what brings them back when their drives were gone.

pub mod load;
pub mod mount_list;
pub(crate) mod open_pool;
pub mod other_process;
pub mod pieces;
pub(crate) mod pool_stack;
pub mod reconnect;
pub(crate) mod redundancy;
pub(crate) mod reopen;
pub mod served;
pub mod session;
pub(crate) mod stacked;
pub(crate) mod standstill;
pub mod status_file;
