//! States of pools, drives and volumes, with their words in JSON: those of the engine, and
//! `unknown` for a user who may not read the drives. Deserialised from the status files of other
//! processes.

use std::fmt;

use serde::{Deserialize, Serialize};
use stripewise_pool as pool;
use utoipa::ToSchema;

/// State of a pool as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PoolState {
    /// All drives are present, and all volumes have their full redundancy.
    #[default]
    Online,
    /// Readable and writable, but a drive or some redundancy is missing.
    Degraded,
    /// A volume has lost more drives than its layout tolerates, or the pool is unreadable.
    Failed,
    /// This user may not read the drives.
    Unknown,
}

/// State of a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DriveState {
    /// Current and in use.
    Online,
    /// In use; new slabs on it are being filled.
    Rebuilding,
    /// In use again after an absence; changed regions are being copied to it.
    CatchingUp,
    /// Being evacuated; it leaves the pool when it is empty.
    Retiring,
    /// In use until its replacement holds all of its data.
    Replacing,
    /// Out of service: not found.
    #[default]
    Missing,
    /// Out of service by command.
    Offline,
    /// Out of service after errors.
    Failed,
    /// Out of service: present, and has to catch up.
    Behind,
    /// Out of service: its contents are out of date.
    Stale,
    /// This user may not read the drive.
    Unknown,
}

/// State of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeState {
    /// Full redundancy.
    Online,
    /// Readable and writable, with less redundancy.
    Degraded,
    /// Readable and writable; lost columns are being rebuilt.
    Rebuilding,
    /// More drives are lost than the layout tolerates.
    Failed,
}

/// State of a drive's share of a volume: the worst of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ShareState {
    /// Current.
    Active,
    /// Regions that changed while the drive was away are being copied.
    CatchingUp,
    /// Being filled.
    Rebuilding,
    /// Current, but the drive is absent.
    Away,
    /// Lost.
    Missing,
}

impl DriveState {
    /// True if a drive in this state is in service.
    pub fn takes_part(self) -> bool {
        matches!(self, Self::Online | Self::Rebuilding | Self::CatchingUp | Self::Retiring | Self::Replacing)
    }
}

/// Displays states by their JSON words.
macro_rules! words {
    ($($state:ty),*) => {$(
        impl fmt::Display for $state {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&word(self))
            }
        }
    )*};
}

words!(PoolState, DriveState, VolumeState, ShareState);

impl From<pool::PoolState> for PoolState {
    fn from(state: pool::PoolState) -> Self {
        match state {
            pool::PoolState::Online => Self::Online,
            pool::PoolState::Degraded => Self::Degraded,
            pool::PoolState::Failed => Self::Failed,
        }
    }
}

impl From<pool::DriveState> for DriveState {
    fn from(state: pool::DriveState) -> Self {
        match state {
            pool::DriveState::Online => Self::Online,
            pool::DriveState::Rebuilding => Self::Rebuilding,
            pool::DriveState::CatchingUp => Self::CatchingUp,
            pool::DriveState::Retiring => Self::Retiring,
            pool::DriveState::Replacing => Self::Replacing,
            pool::DriveState::Missing => Self::Missing,
            pool::DriveState::Offline => Self::Offline,
            pool::DriveState::Failed => Self::Failed,
            pool::DriveState::Behind => Self::Behind,
            pool::DriveState::Stale => Self::Stale,
        }
    }
}

impl From<pool::VolumeState> for VolumeState {
    fn from(state: pool::VolumeState) -> Self {
        match state {
            pool::VolumeState::Online => Self::Online,
            pool::VolumeState::Degraded => Self::Degraded,
            pool::VolumeState::Rebuilding => Self::Rebuilding,
            pool::VolumeState::Failed => Self::Failed,
        }
    }
}

impl From<pool::ShareState> for ShareState {
    fn from(state: pool::ShareState) -> Self {
        match state {
            pool::ShareState::Active => Self::Active,
            pool::ShareState::CatchingUp => Self::CatchingUp,
            pool::ShareState::Rebuilding => Self::Rebuilding,
            pool::ShareState::Away => Self::Away,
            pool::ShareState::Missing => Self::Missing,
        }
    }
}

/// The JSON word of a plain enum.
pub fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        other => unreachable!("not a word: {other:?}"),
    }
}
