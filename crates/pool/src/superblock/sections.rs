//! The manifest in sections: what a checkpoint or a change consists of.
//!
//! A section is a byte that says its kind, its length, and JSON for what is small and varied, or
//! binary rows. A checkpoint has all sections, a change only those that are new or different.
//! Faults expected: anything; memory is bounded by the bytes given, and what cannot be a section
//! makes the whole invalid.

use serde::{Deserialize, Serialize};

use crate::manifest::branches::{Branch, OldBranch};
use crate::manifest::care::Care;
use crate::manifest::drive_record::DriveRecord;
use crate::manifest::events::Event;
use crate::manifest::format::{Manifest, Patrol, RebalanceIntent, ScrubIntent, Settings};
use crate::manifest::host_use::HostUse;
use crate::manifest::ids::{Id, VolumeId};
use crate::manifest::volume_record::VolumeRecord;
use crate::superblock::row_runs::{Patch, Reader, put_patch, take_patch};

const POOL: u8 = 1;
const DRIVE: u8 = 2;
const VOLUME: u8 = 3;
const MAP: u8 = 4;
const ROWS: u8 = 5;
const EVENTS: u8 = 6;
const LOST: u8 = 7;
const DEAD: u8 = 8;

/// No event's text is longer, bytes.
const MAX_EVENT_TEXT_BYTES: usize = 256;

/// The pool's own attributes. Drives and volumes that it does not list are gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head {
    pub name: String,
    pub branches: Vec<Branch>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub old_branches: Vec<OldBranch>,
    pub next_number: u32,
    pub drives: Vec<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<Id>,
    pub slab_bytes: u64,
    pub volumes: Vec<VolumeId>,
    pub rebuild_priority_percent: u32,
    #[serde(default)]
    pub patrol: Patrol,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrub: Option<ScrubIntent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebalance: Option<RebalanceIntent>,
    #[serde(default)]
    pub settings: Settings,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostUse>,
    #[serde(default, skip_serializing_if = "Care::is_empty")]
    pub care: Care,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destroyed_unix_s: Option<u64>,
}

impl Head {
    pub(crate) fn of(manifest: &Manifest) -> Self {
        Self {
            name: manifest.name.clone(),
            branches: manifest.branches.clone(),
            old_branches: manifest.old_branches.clone(),
            next_number: manifest.next_number,
            drives: manifest.drives.iter().map(|drive| drive.number).collect(),
            former: manifest.former.clone(),
            slab_bytes: manifest.slab_bytes,
            volumes: manifest.volumes.iter().map(|volume| volume.id).collect(),
            rebuild_priority_percent: manifest.rebuild_priority_percent,
            patrol: manifest.patrol,
            scrub: manifest.scrub.clone(),
            rebalance: manifest.rebalance,
            settings: manifest.settings,
            host: manifest.host.clone(),
            care: manifest.care.clone(),
            destroyed_unix_s: manifest.destroyed_unix_s,
        }
    }
}

/// A part of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Pool(Box<Head>),
    Drive(Box<DriveRecord>),
    /// Without rows.
    Volume(Box<VolumeRecord>),
    /// Size of a part's map; the map keeps the rows that it has.
    Map {
        part: Id,
        width: u16,
        rows: u64,
    },
    /// Some rows of a part's map.
    Rows {
        part: Id,
        width: u16,
        patch: Patch,
    },
    /// Blocks of a part that hold nothing valid, as changes of the set; with `dead` blocks of the
    /// volume, else of columns.
    Lost {
        part: Id,
        dead: bool,
        changes: Vec<u8>,
    },
    /// Events from a number on.
    Events {
        number: u64,
        list: Vec<Event>,
    },
}

/// For fuzzers: the same sections with other numbers; `None` where these are no sections.
pub(crate) fn change_numbers(bytes: &[u8], number: &mut dyn FnMut(u64) -> u64) -> Option<Vec<u8>> {
    fn change(value: &mut serde_json::Value, number: &mut dyn FnMut(u64) -> u64) {
        match value {
            serde_json::Value::Number(old) => {
                if let Some(old) = old.as_u64() {
                    *value = number(old).into();
                }
            }
            serde_json::Value::Array(all) => all.iter_mut().for_each(|below| change(below, number)),
            serde_json::Value::Object(all) => all.values_mut().for_each(|below| change(below, number)),
            _ => {}
        }
    }
    let (mut reader, mut out) = (Reader(bytes), Vec::new());
    while !reader.0.is_empty() {
        let kind = reader.byte()?;
        let length = u32::from_le_bytes(reader.array()?);
        let mut body = reader.take(length as usize)?.to_vec();
        match kind {
            POOL | DRIVE | VOLUME => {
                let mut value = serde_json::from_slice(&body).ok()?;
                change(&mut value, number);
                body = json(&value);
            }
            MAP => {
                let rows = body.last_chunk_mut::<8>()?;
                *rows = number(u64::from_le_bytes(*rows)).to_le_bytes();
            }
            _ => {}
        }
        out.push(kind);
        out.extend((body.len() as u32).to_le_bytes());
        out.extend(body);
    }
    Some(out)
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("records have only strings as keys")
}

impl Section {
    /// Adds the section's bytes.
    pub(crate) fn put(&self, bytes: &mut Vec<u8>) {
        let (kind, body) = match self {
            Self::Pool(head) => (POOL, json(head)),
            Self::Drive(drive) => (DRIVE, json(drive)),
            Self::Volume(volume) => (VOLUME, json(volume)),
            Self::Map { part, width, rows } => {
                let mut body = part.0.to_be_bytes().to_vec();
                body.extend(width.to_le_bytes());
                body.extend(rows.to_le_bytes());
                (MAP, body)
            }
            Self::Rows { part, width, patch } => {
                let mut body = part.0.to_be_bytes().to_vec();
                body.extend(width.to_le_bytes());
                put_patch(&mut body, usize::from(*width), patch);
                (ROWS, body)
            }
            Self::Lost { part, dead, changes } => {
                let mut body = part.0.to_be_bytes().to_vec();
                body.extend(changes);
                (if *dead { DEAD } else { LOST }, body)
            }
            Self::Events { number, list } => {
                let mut body = number.to_le_bytes().to_vec();
                body.extend(json(list));
                (EVENTS, body)
            }
        };
        bytes.push(kind);
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(body);
    }

    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        let kind = reader.byte()?;
        let length = u32::from_le_bytes(reader.array()?);
        let mut body = Reader(reader.take(length as usize)?);
        let section = match kind {
            POOL => Self::Pool(serde_json::from_slice(body.0).ok()?),
            DRIVE => Self::Drive(serde_json::from_slice(body.0).ok()?),
            VOLUME => Self::Volume(serde_json::from_slice(body.0).ok()?),
            MAP => {
                let part = Id(u128::from_be_bytes(body.array()?));
                let width = u16::from_le_bytes(body.array()?);
                let rows = u64::from_le_bytes(body.array()?);
                body.0.is_empty().then_some(Self::Map { part, width, rows })?
            }
            ROWS => {
                let part = Id(u128::from_be_bytes(body.array()?));
                let width = u16::from_le_bytes(body.array()?);
                let patch = take_patch(&mut body, usize::from(width))?;
                body.0.is_empty().then_some(Self::Rows { part, width, patch })?
            }
            LOST | DEAD => {
                let part = Id(u128::from_be_bytes(body.array()?));
                Self::Lost { part, dead: kind == DEAD, changes: body.0.to_vec() }
            }
            EVENTS => {
                let number = u64::from_le_bytes(body.array()?);
                let list: Vec<Event> = serde_json::from_slice(body.0).ok()?;
                let fits = number <= u64::MAX / 2
                    && list.iter().all(|event| event.text.len() <= MAX_EVENT_TEXT_BYTES);
                fits.then_some(Self::Events { number, list })?
            }
            _ => return None,
        };
        Some(section)
    }

    /// Reads all sections there are; `None` if anything else is among them.
    pub(crate) fn take_all(bytes: &[u8]) -> Option<Vec<Self>> {
        let mut reader = Reader(bytes);
        let mut sections = Vec::new();
        while !reader.0.is_empty() {
            sections.push(Self::take(&mut reader)?);
        }
        Some(sections)
    }
}
