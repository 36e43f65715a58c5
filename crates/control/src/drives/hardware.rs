//! The hardware of drives: serial number, model, firmware, slot, temperature and health. Sampled
//! off the executor and kept, since a drive that fails may take seconds to answer.
//!
//! Expected faults: drives that are files or volumes (nothing is known), no `smartctl`, one that
//! hangs (ended), documents of anything.

pub mod locate;
pub(crate) mod samples;
mod smart;
mod sysfs;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Facts about the hardware of a drive; each is `None` where it cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Hardware {
    /// Serial number.
    pub serial: Option<String>,
    /// Model.
    pub model: Option<String>,
    /// Firmware version.
    pub firmware: Option<String>,
    /// Slot of the enclosure, else the name by the path of the bus.
    pub slot: Option<String>,
    /// Temperature in degrees Celsius.
    pub temperature_c: Option<i64>,
    /// Highest temperature for which the drive is made, in degrees Celsius.
    #[serde(default)]
    pub temperature_limit_c: Option<i64>,
    /// Result of the drive's own health assessment.
    pub smart: Option<SmartHealth>,
    /// Counters that precede failures, by their names, and the hours in service.
    #[serde(default)]
    pub smart_counters: Vec<SmartCounter>,
}

/// Result of a drive's own health assessment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SmartHealth {
    /// The drive expects to go on.
    Passed,
    /// The drive expects to fail soon.
    Failed,
}

/// A counter of a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SmartCounter {
    /// Name, such as `pending sectors`.
    pub name: String,
    /// Value.
    pub value: u64,
}

impl Hardware {
    /// Facts that stay the same while the drive is in its place: they name a drive that is missing.
    pub(crate) fn identity(&self) -> Self {
        let Self { serial, model, firmware, slot, .. } = self.clone();
        Self { serial, model, firmware, slot, ..Self::default() }
    }

    /// Takes facts from `other` where there are none.
    pub(crate) fn or(self, other: Self) -> Self {
        let counters = self.smart_counters;
        Self {
            serial: self.serial.or(other.serial),
            model: self.model.or(other.model),
            firmware: self.firmware.or(other.firmware),
            slot: self.slot.or(other.slot),
            temperature_c: self.temperature_c.or(other.temperature_c),
            temperature_limit_c: self.temperature_limit_c.or(other.temperature_limit_c),
            smart: self.smart.or(other.smart),
            smart_counters: if counters.is_empty() { other.smart_counters } else { counters },
        }
    }

    /// Serial number and slot in words, to find the drive by hand: `serial Z1, slot 4`.
    pub(crate) fn place(&self) -> Option<String> {
        let serial = self.serial.as_ref().map(|serial| format!("serial {serial}"));
        let slot = self.slot.as_ref().map(|slot| format!("slot {slot}"));
        let words: Vec<String> = serial.into_iter().chain(slot).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

/// Text of a device: without controls, blanks around it and what is beyond 64 characters.
fn plain(text: &str) -> Option<String> {
    let text: String = text.trim().chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(64).collect();
    (!text.is_empty()).then_some(text)
}
