//! The record of a pool that every drive carries: drives, volumes and jobs. Plain data, and queries
//! that need only this data; `superblock/` stores it on drives.

pub(crate) mod ancestry;
pub(crate) mod branches;
pub(crate) mod care;
pub(crate) mod check;
pub(crate) mod clone_record;
pub(crate) mod drive_record;
pub(crate) mod events;
pub(crate) mod format;
pub(crate) mod host_use;
pub(crate) mod ids;
pub(crate) mod part_groups;
pub(crate) mod received;
pub(crate) mod slice_record;
pub(crate) mod snapshot_path;
pub(crate) mod snapshot_schedule;
pub(crate) mod taken_back;
pub(crate) mod volume_record;
