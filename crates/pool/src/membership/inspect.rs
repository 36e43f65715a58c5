//! The pool label of a drive, as shown to the user. Read-only.

use stripewise_drive::Drive;

use crate::error::PoolError;
use crate::manifest::drive_record::{DriveRecord, ExclusionKind, Role, Standing};
use crate::manifest::host_use::HostUse;
use crate::manifest::ids::{DriveId, PoolId};
use crate::manifest::volume_record::PartRecord;
use crate::superblock::entries::FORMAT_VERSION;
use crate::superblock::slots::{Content, Superblock, read_identities, read_superblock};

/// A drive's record of the pool that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct DriveLabel {
    /// The pool's identity.
    pub pool_id: PoolId,
    /// The pool's name.
    pub pool_name: String,
    /// This drive's identity.
    pub drive_id: DriveId,
    /// Purpose of this drive.
    pub role: Role,
    /// `online`, or the reason for its exclusion, as of `generation`: other drives may be more
    /// recent.
    pub state: String,
    /// Number of the last commit; of several drives the highest is the newest.
    pub generation: u64,
    /// Version of the on-disk format.
    pub format_version: u32,
    /// The same is written at both ends of the drive.
    pub intact: bool,
    /// Slab size, bytes.
    pub slab_bytes: u64,
    /// Number of slabs on the drive.
    pub slabs: u32,
    /// Number of slabs that are used by volumes.
    pub used_slabs: u64,
    /// Drives of the pool, this one included.
    pub drives: Vec<LabelDrive>,
    /// Volumes of the pool.
    pub volumes: Vec<LabelVolume>,
    /// The host that uses the pool, or used it last; omitted if none was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostUse>,
    /// When the pool was destroyed, seconds since 1970; omitted if it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destroyed_unix_s: Option<u64>,
}

/// A drive as listed in a label.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LabelDrive {
    /// Identity of the drive.
    pub id: DriveId,
    /// Path at which it was last seen.
    pub path: String,
    /// Purpose of the drive.
    pub role: Role,
    /// `online`, or the reason for its exclusion.
    pub state: String,
}

/// A volume as listed in a label.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LabelVolume {
    /// Name of the volume.
    pub name: String,
    /// Layout of the volume.
    pub layout: stripewise_layout::Level,
    /// Number of columns.
    pub columns: usize,
    /// Usable capacity, bytes.
    pub capacity_bytes: u64,
    /// This drive holds a part of the volume.
    pub on_this_drive: bool,
    /// Slabs of the volume on this drive, map and journal included.
    pub slabs_on_this_drive: u64,
}

/// Reads a drive's label; `None` if it belongs to no pool. Writes nothing.
pub async fn inspect(drive: &dyn Drive) -> Result<Option<DriveLabel>, PoolError> {
    let label = drive.info().label.to_string();
    let (superblock, intact) = match read_superblock(drive).await? {
        Content::None => return Ok(None),
        Content::Older(version) => return Err(PoolError::OlderFormat { drive: label, version }),
        Content::Newer(version) => {
            return Err(PoolError::NewerFormat { drive: label, version, known: FORMAT_VERSION });
        }
        Content::Unknown(flags) => return Err(PoolError::UnknownFeatures { drive: label, flags }),
        Content::Unreadable { pool_id, .. } => {
            return Err(PoolError::UnreadableState { drive: label, pool_id });
        }
        Content::Valid { superblock, intact, .. } => (superblock, intact),
    };
    let Superblock { pool_id, drive_id, manifest, .. } = *superblock;
    let own = manifest.drive_by_id(drive_id);
    let is_own = |number: u32| own.is_some_and(|own| own.number == number);
    let volumes = manifest.volumes.iter().map(|volume| {
        // During a conversion this is the new layout.
        let shape = volume.parts.last().map(|part| part.shape);
        LabelVolume {
            name: volume.name.clone(),
            layout: shape.map_or(stripewise_layout::Level::Single, |shape| shape.level),
            columns: shape.map_or(0, |shape| shape.width),
            capacity_bytes: volume.size_bytes,
            on_this_drive: volume.parts.iter().any(|part| part.drives().any(is_own)),
            slabs_on_this_drive: volume.parts.iter().map(|part| slabs_on(part, is_own)).sum(),
        }
    });
    let volumes: Vec<LabelVolume> = volumes.collect();
    let drive = |drive: &DriveRecord| LabelDrive {
        id: drive.id,
        path: drive.path.clone(),
        role: drive.role,
        state: in_words(drive),
    };
    Ok(Some(DriveLabel {
        pool_id,
        pool_name: manifest.name.clone(),
        drive_id,
        role: own.map_or(Role::Data, |drive| drive.role),
        state: own.map_or_else(|| "no longer a drive of the pool".to_owned(), in_words),
        generation: manifest.generation,
        format_version: FORMAT_VERSION,
        intact,
        slab_bytes: manifest.slab_bytes,
        slabs: own.map_or(0, |drive| drive.slab_count(manifest.slab_bytes)),
        used_slabs: volumes.iter().map(|volume| volume.slabs_on_this_drive).sum(),
        drives: manifest.drives.iter().map(drive).collect(),
        volumes,
        host: manifest.host,
        destroyed_unix_s: manifest.destroyed_unix_s,
    }))
}

/// Slabs of a part on a drive: those of its rows, its map and its journal.
fn slabs_on(part: &PartRecord, is_it: impl Fn(u32) -> bool) -> u64 {
    let in_rows = part
        .rows
        .runs()
        .map(|run| run.places.iter().filter(|place| is_it(place.drive)).count() as u64 * run.rows);
    let maps = part.meta.places.iter().filter(|place| is_it(place.drive)).count() as u64;
    let journals = part.journal.iter().filter(|place| is_it(place.drive)).map(|place| u64::from(place.slabs));
    in_rows.sum::<u64>() + maps * u64::from(part.meta.slabs) + journals.sum::<u64>()
}

/// Returns the pool and drive identities that a drive claims, reading as little as possible; `None`
/// if it belongs to no known pool, or makes two claims. Writes nothing. The answer is trusted only
/// for opening the drive with its pool.
pub async fn identify(drive: &dyn Drive) -> Result<Option<(PoolId, DriveId)>, PoolError> {
    let names = read_identities(drive).await?;
    match names.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(*only)),
        _ => Ok(inspect(drive).await?.map(|label| (label.pool_id, label.drive_id))),
    }
}

fn in_words(drive: &DriveRecord) -> String {
    match &drive.standing {
        Standing::Online if drive.retiring => "online, retiring".to_owned(),
        Standing::Online if drive.successor.is_some() => "online, being replaced".to_owned(),
        Standing::Online => "online".to_owned(),
        Standing::Excluded { reason, kind: ExclusionKind::Offline } => format!("offline: {reason}"),
        Standing::Excluded { reason, .. } => format!("excluded: {reason}"),
    }
}
