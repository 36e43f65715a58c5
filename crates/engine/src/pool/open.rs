//! Making a pool, opening one, and looking at a drive without touching it.
//!
//! To open a pool is to choose what counts (`assemble.rs`), to record, before anything is written, that volumes go on
//! without the drives that are not there, and to open the volumes that can be read. Opened for reading only, nothing is
//! recorded: drives that are not there are passed over in memory.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use futures_util::future::join_all;
use stripewise_drive::{BufferPool, Context, Drive, Semaphore};

use super::assemble::{Choice, Found, Worth, choose};
use super::error::PoolError;
use super::format::{Errors, MAX_DRIVES, MIB, Manifest, Role, SlotState, Standing, check_name};
use super::ids::{DriveId, IdSource, PoolId};
use super::jobs::Jobs;
use super::read_only::ReadOnly;
use super::superblock::{self, Content, FORMAT_VERSION, Superblock};
use super::{
    Inner, OpenDrive, OpenMode, Pool, PoolOptions, PoolSpec, REBUILD_PRIORITY_MEDIUM_PERCENT, check_priority,
};
use crate::member::Member;

/// What a drive says of the pool it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct DriveLabel {
    /// The pool's identity.
    pub pool_id: PoolId,
    /// The pool's name.
    pub pool_name: String,
    /// This drive's identity.
    pub drive_id: DriveId,
    /// What this drive is for.
    pub role: Role,
    /// `online`, or why it was excluded. As of `generation`: the other drives may know better.
    pub state: String,
    /// Counts commits: of several drives the highest is the newest.
    pub generation: u64,
    /// The version of the format.
    pub format_version: u32,
    /// All drives of the pool, this one included.
    pub drives: Vec<LabelDrive>,
    /// The volumes.
    pub volumes: Vec<LabelVolume>,
}

/// A drive as a label names it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LabelDrive {
    /// Its identity.
    pub id: DriveId,
    /// Where it was last seen.
    pub path: String,
    /// What it is for.
    pub role: Role,
    /// `online`, or why it was excluded.
    pub state: String,
}

/// A volume as a label names it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LabelVolume {
    /// Its name.
    pub name: String,
    /// Its layout.
    pub layout: stripewise_layout::Level,
    /// Its members.
    pub columns: usize,
    /// Usable bytes.
    pub capacity_bytes: u64,
    /// Whether this drive holds a part of it.
    pub on_this_drive: bool,
}

/// Reads what a drive says of its pool; `None` where it belongs to none. Writes nothing.
pub async fn inspect(drive: &dyn Drive) -> Result<Option<DriveLabel>, PoolError> {
    let label = drive.info().label.to_string();
    let superblock = match superblock::read_superblock(drive).await? {
        Content::None => return Ok(None),
        Content::Newer(version) => {
            return Err(PoolError::NewerFormat { drive: label, version, known: FORMAT_VERSION });
        }
        Content::Unknown(flags) => return Err(PoolError::UnknownFeatures { drive: label, flags }),
        Content::Valid { superblock, .. } => superblock,
    };
    let Superblock { pool_id, drive_id, manifest } = *superblock;
    let in_words = |standing: &Standing| match standing {
        Standing::Online => "online".to_owned(),
        Standing::Excluded { reason, .. } => format!("excluded: {reason}"),
    };
    let own = manifest.drive_by_id(drive_id);
    let number = own.map(|drive| drive.number);
    let volumes = manifest.volumes.iter().map(|volume| LabelVolume {
        name: volume.name.clone(),
        layout: volume.shape.level,
        columns: volume.shape.width,
        capacity_bytes: volume.spec().geometry().map_or(0, |(geometry, _)| geometry.capacity_bytes()),
        on_this_drive: volume.slots.iter().any(|slot| Some(slot.drive) == number),
    });
    Ok(Some(DriveLabel {
        pool_id,
        pool_name: manifest.name.clone(),
        drive_id,
        role: own.map_or(Role::Data, |drive| drive.role),
        state: own.map_or_else(|| "no longer a drive of the pool".to_owned(), |own| in_words(&own.standing)),
        generation: manifest.generation,
        format_version: FORMAT_VERSION,
        drives: manifest
            .drives
            .iter()
            .map(|drive| LabelDrive {
                id: drive.id,
                path: drive.path.clone(),
                role: drive.role,
                state: in_words(&drive.standing),
            })
            .collect(),
        volumes: volumes.collect(),
    }))
}

impl Pool {
    /// Makes a pool of drives. What they held is lost; drives of another pool are refused unless `force` is set (file
    /// systems are not looked for here).
    pub async fn create(context: &Context, buffers: &BufferPool, spec: PoolSpec) -> Result<Self, PoolError> {
        check_spec(&spec)?;
        let drives: Vec<(Rc<dyn Drive>, Role)> =
            (spec.drives.iter().map(|drive| (drive.clone(), Role::Data)))
                .chain(spec.spares.iter().map(|drive| (drive.clone(), Role::Spare)))
                .collect();
        if !spec.force {
            let read = |drive| superblock::read_in_time(context, &spec.options.member, drive);
            let contents = drives.iter().map(|(drive, _)| read(&**drive));
            for ((drive, _), content) in drives.iter().zip(join_all(contents).await) {
                refuse_taken(&drive.info().label, content?)?;
            }
        }
        let percent = spec.options.rebuild_priority_percent.unwrap_or(REBUILD_PRIORITY_MEDIUM_PERCENT);
        check_priority(percent)?;
        let mut ids = IdSource::new(spec.options.id_seed);
        let pool_id = ids.next();
        let mut manifest = Manifest::new(&spec.name, percent);
        let mut open = BTreeMap::new();
        for (drive, role) in drives {
            let info = drive.info().clone();
            let number = manifest.add_drive(ids.next(), &info.label, role, info.capacity_bytes);
            open.insert(
                number,
                open_drive(context, drive, OpenMode::ReadWrite, &spec.options, Errors::default()),
            );
        }
        manifest.fork(ids.next());
        let wiped = join_all(open.values().map(|drive| superblock::wipe(&drive.member))).await;
        if let Some(error) = wiped.into_iter().find_map(Result::err) {
            open.values().for_each(|drive| drive.member.stop());
            return Err(error.into());
        }
        let pool =
            assembled(context, buffers, spec.options, OpenMode::ReadWrite, pool_id, ids, manifest, open);
        note_sizes(&pool.0);
        pool.0.commit(None, |_| ()).await?;
        if let Some(failed) = pool.status().drives.iter().find(|drive| drive.state != "online") {
            let why = failed.reason.clone().unwrap_or_default();
            return Err(PoolError::Job(format!(
                "{} failed while the pool was being made: {why}",
                failed.path
            )));
        }
        pool.0.set_background_share();
        Ok(pool)
    }

    /// Opens the pool on these drives, in any order; some may be missing, or out of date. Drives that hold no pool are
    /// passed over with a notice; drives of two pools are refused.
    pub async fn open(
        context: &Context,
        buffers: &BufferPool,
        drives: Vec<Rc<dyn Drive>>,
        mode: OpenMode,
        options: PoolOptions,
    ) -> Result<Self, PoolError> {
        if drives.is_empty() {
            return Err(PoolError::NoDrives);
        }
        if let Some(percent) = options.rebuild_priority_percent {
            check_priority(percent)?;
        }
        let mut notices = Vec::new();
        let (found, mut torn) = read_all(context, &options, &drives, &mut notices).await?;
        let Some(first) = found.first() else {
            let drives = drives.iter().map(|drive| drive.info().label.to_string()).collect();
            return Err(PoolError::NoPool { drives });
        };
        let pool_id = first.superblock.pool_id;
        let mut choice = choose(&found)?;
        torn |= choice.behind;
        let open = take_in(context, &drives, &mut choice, mode, &options, &mut notices);
        let mut manifest = choice.manifest.clone();
        if let Some(percent) = options.rebuild_priority_percent {
            manifest.rebuild_priority_percent = percent;
        }
        let ids = IdSource::new(options.id_seed.map(|seed| seed ^ moment(&manifest, &found)));
        let pool = assembled(context, buffers, options, mode, pool_id, ids, manifest, open);
        let inner = &pool.0;
        notices.into_iter().for_each(|notice| inner.notice(notice));
        note_strangers(inner, &drives, &choice);
        note_sizes(inner);
        let returned = returning(&choice);
        let is_due = torn || !returned.is_empty() || inner.must_exclude();
        if mode == OpenMode::ReadWrite && is_due && inner.check_readable().is_ok() {
            inner
                .commit(None, move |manifest| {
                    for number in returned {
                        if let Some(drive) = manifest.drive_mut(number) {
                            drive.standing = Standing::Online;
                        }
                    }
                })
                .await?;
        } else {
            let mut manifest = inner.manifest.borrow_mut();
            for number in returned {
                if let Some(drive) = manifest.drive_mut(number) {
                    drive.standing = Standing::Online;
                }
            }
        }
        inner.set_background_share();
        inner.open_volumes().await;
        Ok(pool)
    }
}

fn check_spec(spec: &PoolSpec) -> Result<(), PoolError> {
    check_name(&spec.name).map_err(|why| PoolError::BadName {
        what: "pool",
        name: spec.name.clone(),
        why,
    })?;
    if spec.drives.is_empty() {
        return Err(PoolError::NoDrives);
    }
    let all: Vec<&Rc<dyn Drive>> = spec.drives.iter().chain(&spec.spares).collect();
    if all.len() > MAX_DRIVES {
        return Err(PoolError::TooManyDrives { given: all.len(), allowed: MAX_DRIVES });
    }
    for (index, drive) in all.iter().enumerate() {
        let info = drive.info();
        let same = |other: &&&Rc<dyn Drive>| Rc::ptr_eq(other, drive) || other.info().label == info.label;
        if let Some(other) = all[..index].iter().find(same) {
            let (first, second) = (other.info().label.to_string(), info.label.to_string());
            return Err(PoolError::SameDriveTwice { first, second });
        }
        if !superblock::is_large_enough(info.capacity_bytes) {
            return Err(PoolError::DriveTooSmall {
                drive: info.label.to_string(),
                capacity_bytes: info.capacity_bytes,
                needed_bytes: 4 * MIB,
            });
        }
    }
    let smallest = spec.drives.iter().map(|drive| drive.info().capacity_bytes).min().unwrap_or(0);
    let small = spec.spares.iter().find(|spare| spare.info().capacity_bytes / MIB < smallest / MIB);
    match small {
        Some(spare) => Err(PoolError::DriveTooSmall {
            drive: spare.info().label.to_string(),
            capacity_bytes: spare.info().capacity_bytes,
            needed_bytes: smallest,
        }),
        None => Ok(()),
    }
}

/// A drive that holds a pool already.
fn refuse_taken(label: &str, content: Content) -> Result<(), PoolError> {
    match content {
        Content::None => Ok(()),
        Content::Newer(version) => {
            Err(PoolError::NewerFormat { drive: label.to_owned(), version, known: FORMAT_VERSION })
        }
        Content::Unknown(flags) => Err(PoolError::UnknownFeatures { drive: label.to_owned(), flags }),
        Content::Valid { superblock, .. } => Err(PoolError::DriveOfOtherPool {
            drive: label.to_owned(),
            pool_name: superblock.manifest.name,
            pool_id: superblock.pool_id,
        }),
    }
}

fn open_drive(
    context: &Context,
    drive: Rc<dyn Drive>,
    mode: OpenMode,
    options: &PoolOptions,
    errors_before: Errors,
) -> OpenDrive {
    let drive = if mode == OpenMode::ReadOnly { ReadOnly::over(drive) } else { drive };
    OpenDrive { member: Member::new(context, drive, options.member), errors_before }
}

#[allow(clippy::too_many_arguments)] // the parts of one struct
fn assembled(
    context: &Context,
    buffers: &BufferPool,
    options: PoolOptions,
    mode: OpenMode,
    pool_id: PoolId,
    ids: IdSource,
    manifest: Manifest,
    drives: BTreeMap<u32, OpenDrive>,
) -> Pool {
    Pool(Rc::new_cyclic(|me| Inner {
        me: me.clone(),
        context: context.clone(),
        buffers: buffers.clone(),
        options,
        mode,
        pool_id,
        ids: RefCell::new(ids),
        manifest: RefCell::new(manifest),
        drives: RefCell::new(drives),
        arrays: RefCell::default(),
        failures: RefCell::default(),
        notices: RefCell::default(),
        stale: RefCell::default(),
        committing: Semaphore::new(1),
        administering: Semaphore::new(1),
        jobs: Jobs::default(),
        closed: Cell::new(false),
    }))
}

/// Reads the superblocks of all drives. Also tells whether any is damaged in part.
async fn read_all(
    context: &Context,
    options: &PoolOptions,
    drives: &[Rc<dyn Drive>],
    notices: &mut Vec<String>,
) -> Result<(Vec<Found>, bool), PoolError> {
    let read = |drive| superblock::read_in_time(context, &options.member, drive);
    let contents = join_all(drives.iter().map(|drive| read(&**drive))).await;
    let mut found: Vec<Found> = Vec::new();
    let mut torn = false;
    for (index, content) in contents.into_iter().enumerate() {
        let label = drives[index].info().label.to_string();
        let superblock = match content {
            Err(error) => {
                notices.push(format!("{label} could not be read and is left out: {error}"));
                continue;
            }
            Ok(Content::None) => {
                notices.push(format!("{label} holds no pool and is left out"));
                continue;
            }
            Ok(Content::Newer(version)) => {
                return Err(PoolError::NewerFormat { drive: label, version, known: FORMAT_VERSION });
            }
            Ok(Content::Unknown(flags)) => return Err(PoolError::UnknownFeatures { drive: label, flags }),
            Ok(Content::Valid { superblock, intact }) => {
                torn |= !intact;
                *superblock
            }
        };
        let named =
            |superblock: &Superblock| format!("{} ({})", superblock.manifest.name, superblock.pool_id);
        if let Some(other) = found.iter().find(|other| other.superblock.pool_id != superblock.pool_id) {
            return Err(PoolError::SeveralPools {
                first: other.label.clone(),
                first_pool: named(&other.superblock),
                second: label,
                second_pool: named(&superblock),
            });
        }
        if let Some(other) = found.iter().find(|other| other.superblock.drive_id == superblock.drive_id) {
            return Err(PoolError::SameDriveTwice { first: other.label.clone(), second: label });
        }
        found.push(Found { index, label, superblock });
    }
    Ok((found, torn))
}

/// Puts queues in front of the drives that count, and notes where they are now.
fn take_in(
    context: &Context,
    drives: &[Rc<dyn Drive>],
    choice: &mut Choice,
    mode: OpenMode,
    options: &PoolOptions,
    notices: &mut Vec<String>,
) -> BTreeMap<u32, OpenDrive> {
    let mut open = BTreeMap::new();
    for &(index, number, worth) in &choice.drives {
        let drive = &drives[index];
        let record = choice.manifest.drive_mut(number).expect("chosen drives are in the manifest");
        if worth == Worth::Stale {
            continue;
        }
        let info = drive.info();
        if info.capacity_bytes < record.capacity_bytes {
            notices.push(format!(
                "{} has shrunk from {} to {} bytes and is left out",
                info.label, record.capacity_bytes, info.capacity_bytes
            ));
            continue;
        }
        record.path = super::format::shortened(&info.label);
        open.insert(number, open_drive(context, drive.clone(), mode, options, record.errors));
    }
    open
}

/// A number for the pool as it is now on these drives: identities drawn from a seed must repeat neither those that the
/// pool has already nor those that its other half draws.
fn moment(manifest: &Manifest, found: &[Found]) -> u64 {
    let mut moment = manifest.generation;
    for drive in found {
        let id = drive.superblock.drive_id.0;
        moment ^= ((id >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ id as u64;
    }
    moment
}

fn returning(choice: &Choice) -> Vec<u32> {
    let back = choice.drives.iter().filter(|(_, _, worth)| *worth == Worth::Returning);
    back.map(|(_, number, _)| *number).collect()
}

fn note_strangers(inner: &Inner, drives: &[Rc<dyn Drive>], choice: &Choice) {
    for &(index, number, worth) in &choice.drives {
        if worth == Worth::Stale {
            let label = &drives[index].info().label;
            inner.stale.borrow_mut().push(number);
            inner.notice(format!(
                "{label} was away while the pool was used: what it holds is out of date, it is left out. `pool replace` \
                 takes it back"
            ));
        }
    }
    for &index in &choice.strangers {
        let label = &drives[index].info().label;
        inner.notice(format!("{label} is no drive of pool {} any more and is left out", inner.name()));
    }
    let manifest = inner.manifest.borrow();
    let away =
        manifest.drives.iter().filter(|drive| drive.is_online() && inner.open_drive(drive.number).is_none());
    for drive in away {
        inner.notice(format!("{} ({}) is missing", drive.path, drive.id));
    }
}

/// Drives that differ in size are used as far as the smallest goes.
fn note_sizes(inner: &Inner) {
    let manifest = inner.manifest.borrow();
    let data: Vec<_> =
        manifest.drives.iter().filter(|drive| drive.role == Role::Data && !drive.replaced).collect();
    let smallest = data.iter().min_by_key(|drive| drive.end_bytes());
    let largest = data.iter().map(|drive| drive.end_bytes()).max();
    if let (Some(smallest), Some(largest)) = (smallest, largest)
        && largest > smallest.end_bytes()
    {
        inner.notice(format!(
            "the drives differ in size: of each as much is used as the smallest has, {} with {} bytes",
            smallest.path, smallest.capacity_bytes
        ));
    }
}

impl Inner {
    /// Whether a volume is about to be used without a drive that its record counts on.
    fn must_exclude(&self) -> bool {
        let manifest = self.manifest.borrow();
        let is_away = |number: u32| manifest.is_online(number) && self.open_drive(number).is_none();
        let is_gone = |number: u32| self.open_drive(number).is_none();
        let readable = manifest.volumes.iter().filter(|volume| volume.survives(is_gone));
        let mut slots = readable.flat_map(|volume| &volume.slots);
        slots.any(|slot| is_away(slot.drive) && slot.state != SlotState::Missing)
    }
}
