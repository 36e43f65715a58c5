//! Making a pool: which drives it takes, and the first commit.
//!
//! What was asked for is checked before anything is written, and whether two of the drives are one
//! under two names afterwards, since only what was written shows it. Faults expected: drives that
//! are too small, or hold another pool, or fail while they are written.

use std::collections::BTreeMap;
use std::rc::Rc;

use futures_util::future::join_all;
use stripewise_drive::{BufferPool, Context, Drive};

use crate::error::PoolError;
use crate::jobs::tier::TIER_BYTES_PER_S;
use crate::manifest::drive_record::{Errors, Role};
use crate::manifest::events::EventKind;
use crate::manifest::format::{MAX_DRIVES, Manifest, check_name};
use crate::manifest::ids::{DriveId, IdSource};
use crate::open::{assembled, open_drive};
use crate::settings::check_priority;
use crate::space::addresses::{
    MIN_DRIVE_BYTES, capacity_for, choose_slab_bytes, is_slab_size, refuse_too_large, slab_count,
};
use crate::status::DriveState;
use crate::superblock::entries::FORMAT_VERSION;
use crate::superblock::slots::{Content, identities_in_time, is_large_enough, read_in_time};
use crate::superblock::writer::begin;
use crate::{OpenMode, Pool, PoolSpec, REBUILD_PRIORITY_MEDIUM_PERCENT};
use stripewise_array::MemberOptions;

impl Pool {
    /// Makes a pool of drives. What they held is lost; drives of another pool are refused unless
    /// `force` is set (file systems are not looked for here).
    pub async fn create(context: &Context, buffers: &BufferPool, spec: PoolSpec) -> Result<Self, PoolError> {
        check_spec(&spec)?;
        let drives = by_role(&spec);
        if !spec.force {
            let read = |drive| read_in_time(context, &spec.options.member, drive);
            let contents = drives.iter().map(|(drive, _)| read(&**drive));
            for ((drive, _), content) in drives.iter().zip(join_all(contents).await) {
                refuse_taken(&drive.info().label, content?)?;
            }
        }
        let percent = spec.options.rebuild_priority_percent.unwrap_or(REBUILD_PRIORITY_MEDIUM_PERCENT);
        check_priority(percent)?;
        let all: Vec<Rc<dyn Drive>> = drives.iter().map(|(drive, _)| drive.clone()).collect();
        let options = spec.options.for_threads(context, &all);
        let mut ids = IdSource::new(options.id_seed);
        let pool_id = ids.next();
        let mut manifest = Manifest::new(&spec.name, slab_bytes(&spec)?, percent);
        manifest.settings.tier_bytes_per_s = Some(TIER_BYTES_PER_S);
        let (mut open, mut named) = (BTreeMap::new(), Vec::new());
        for (drive, role) in drives {
            let (id, info) = (ids.next(), drive.info().clone());
            let number = manifest.add_drive(id, &info.label, role, info.capacity_bytes);
            named.push((id, drive.clone()));
            open.insert(number, open_drive(context, drive, OpenMode::ReadWrite, &options, Errors::default()));
        }
        manifest.generation += options.array.tuning.first_number;
        manifest.fork(ids.next(), manifest.generation);
        let wiped = join_all(open.values().map(|drive| begin(&drive.member))).await;
        if let Some(error) = wiped.into_iter().find_map(Result::err) {
            open.values().for_each(|drive| drive.member.stop());
            return Err(error.into());
        }
        let member_options = options.member;
        let session = options.host.map(|_| ids.next());
        let pool = assembled(context, buffers, options, OpenMode::ReadWrite, pool_id, ids, manifest, open);
        pool.0.news.event(EventKind::Pool, &format!("pool {} was made", spec.name));
        pool.0.name_session(session);
        pool.0.commit(None, |_| ()).await?;
        pool.0.begin_session().await?;
        if let Err(error) = check_one_name_each(context, &member_options, &named).await {
            pool.erase().await?;
            return Err(error);
        }
        if let Some(failed) = pool.status().drives.iter().find(|drive| drive.state != DriveState::Online) {
            let why = failed.reason.clone().unwrap_or_default();
            return Err(PoolError::Job(format!(
                "{} failed while the pool was being made: {why}",
                failed.path
            )));
        }
        pool.0.set_background_share();
        Ok(pool)
    }
}

/// Refuses drives of a new pool that are one drive under two names, such as a file and the export
/// of a server that has it open: what was written last under one of them is read under both.
async fn check_one_name_each(
    context: &Context,
    options: &MemberOptions,
    drives: &[(DriveId, Rc<dyn Drive>)],
) -> Result<(), PoolError> {
    let says = drives.iter().map(|(_, drive)| identities_in_time(context, options, &**drive));
    for ((id, drive), says) in drives.iter().zip(join_all(says).await) {
        let says = says?;
        let is_other = |other: &&(DriveId, Rc<dyn Drive>)| {
            other.0 != *id && says.iter().any(|(_, said)| *said == other.0)
        };
        if let Some((_, other)) = drives.iter().find(is_other) {
            let (first, second) = (other.info().label.to_string(), drive.info().label.to_string());
            return Err(PoolError::SameDriveTwice { first, second });
        }
    }
    Ok(())
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
    let all: Vec<Rc<dyn Drive>> = by_role(spec).into_iter().map(|(drive, _)| drive).collect();
    if all.len() > MAX_DRIVES {
        return Err(PoolError::TooManyDrives { given: all.len(), allowed: MAX_DRIVES });
    }
    for (index, drive) in all.iter().enumerate() {
        let info = drive.info();
        let same = |other: &&Rc<dyn Drive>| Rc::ptr_eq(other, drive) || other.info().label == info.label;
        if let Some(other) = all[..index].iter().find(same) {
            let (first, second) = (other.info().label.to_string(), info.label.to_string());
            return Err(PoolError::SameDriveTwice { first, second });
        }
        refuse_too_large(&info.label, info.capacity_bytes)?;
        if !is_large_enough(info.capacity_bytes) {
            return Err(PoolError::DriveTooSmall {
                drive: info.label.to_string(),
                capacity_bytes: info.capacity_bytes,
                needed_bytes: MIN_DRIVE_BYTES,
            });
        }
    }
    slab_bytes(spec).map(|_| ())
}

fn by_role(spec: &PoolSpec) -> Vec<(Rc<dyn Drive>, Role)> {
    let all = [
        (&spec.drives, Role::Data),
        (&spec.spares, Role::Spare),
        (&spec.journals, Role::Journal),
        (&spec.fast, Role::Fast),
    ];
    all.into_iter().flat_map(|(drives, role)| drives.iter().map(move |drive| (drive.clone(), role))).collect()
}

/// The slab size asked for, or one that suits the smallest drive; an error where a drive has no
/// room for a single slab.
fn slab_bytes(spec: &PoolSpec) -> Result<u64, PoolError> {
    let smallest =
        spec.drives.iter().min_by_key(|drive| drive.info().capacity_bytes).ok_or(PoolError::NoDrives)?;
    let slab_bytes = match spec.slab_bytes {
        None => choose_slab_bytes(smallest.info().capacity_bytes),
        Some(slab_bytes) if is_slab_size(slab_bytes) => slab_bytes,
        Some(slab_bytes) => {
            return Err(PoolError::BadSetting(format!(
                "slabs cannot have {slab_bytes} bytes: it must be a power of two from 1 MiB to 128 MiB"
            )));
        }
    };
    for (drive, _) in by_role(spec) {
        let info = drive.info();
        if slab_count(info.capacity_bytes, slab_bytes) == 0 {
            return Err(PoolError::DriveTooSmall {
                drive: info.label.to_string(),
                capacity_bytes: info.capacity_bytes,
                needed_bytes: least_capacity_bytes(slab_bytes),
            });
        }
    }
    Ok(slab_bytes)
}

/// The smallest drive that has a slab of this size.
pub(crate) fn least_capacity_bytes(slab_bytes: u64) -> u64 {
    capacity_for(1, slab_bytes)
}

/// Refuses a drive that holds a pool already. A drive of a destroyed pool is free.
pub(crate) fn refuse_taken(label: &str, content: Content) -> Result<(), PoolError> {
    match content {
        Content::None => Ok(()),
        Content::Older(version) => Err(PoolError::OlderFormat { drive: label.to_owned(), version }),
        Content::Newer(version) => {
            Err(PoolError::NewerFormat { drive: label.to_owned(), version, known: FORMAT_VERSION })
        }
        Content::Unknown(flags) => Err(PoolError::UnknownFeatures { drive: label.to_owned(), flags }),
        Content::Unreadable { pool_id, .. } => {
            Err(PoolError::UnreadableState { drive: label.to_owned(), pool_id })
        }
        Content::Valid { superblock, .. } if superblock.manifest.destroyed_unix_s.is_some() => Ok(()),
        Content::Valid { superblock, .. } => Err(PoolError::DriveOfOtherPool {
            drive: label.to_owned(),
            pool_name: superblock.manifest.name,
            pool_id: superblock.pool_id,
        }),
    }
}
