//! States of pools, drives and volumes, with their words in JSON. They are those of the engine, and
//! what is said where a user may not look; read back from what another process leaves.

use std::fmt;

use serde::{Deserialize, Serialize};
use stripewise_engine::pool;
use utoipa::ToSchema;

/// How a pool is as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PoolState {
    /// All of its drives are there, and all volumes have all of their redundancy.
    #[default]
    Online,
    /// Works, with less than its owner wants.
    Degraded,
    /// Some volume has lost more than it can do without, or nothing of the pool can be read.
    Failed,
    /// Its drives may not be read by this user.
    Unknown,
}

/// How a drive is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DriveState {
    /// All of it is current.
    Online,
    /// New slabs on it are being filled.
    Rebuilding,
    /// It was away; what changed is being copied to it.
    CatchingUp,
    /// It is being emptied, and then let go of.
    Retiring,
    /// In use until its successor has all that it holds.
    Replacing,
    /// Out of service: not there.
    #[default]
    Missing,
    /// Out of service by command.
    Offline,
    /// Out of service after errors.
    Failed,
    /// Out of service: there, and to catch up.
    Behind,
    /// Out of service: what it holds is out of date.
    Stale,
    /// It may not be read by this user.
    Unknown,
}

/// How a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeState {
    /// All there.
    Online,
    /// Works, with less redundancy.
    Degraded,
    /// Works; a replacement is being filled.
    Rebuilding,
    /// More is gone than the layout can do without.
    Failed,
}

/// How that is which a drive holds of a volume: the worst that holds for any of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ShareState {
    /// Current.
    Active,
    /// What changed while the drive was away is being copied.
    CatchingUp,
    /// Being filled.
    Rebuilding,
    /// Current, but the drive is not there.
    Away,
    /// Lost.
    Missing,
}

impl DriveState {
    /// Whether a drive in this state takes part.
    pub fn takes_part(self) -> bool {
        matches!(self, Self::Online | Self::Rebuilding | Self::CatchingUp | Self::Retiring | Self::Replacing)
    }
}

/// Words of states, as JSON has them.
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

/// The word that a plain enum serialises to.
pub fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        other => unreachable!("not a word: {other:?}"),
    }
}
