//! Opening a pool.
//!
//! That is to choose what counts (`superblock/assemble.rs`), to record, before anything is
//! written, that volumes go on without the drives that are not there, and to open the volumes that
//! can be read. Opened for reading only, nothing is recorded: drives that are not there are passed
//! over in memory. Drives that were away while the pool was used are kept at hand and take no part
//! until a job has them catch up.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use futures_util::future::join_all;
use stripewise_drive::{BufferPool, Context, Drive};

use crate::claims::Approach;
use crate::error::PoolError;
use crate::lifecycle::Lifecycle;
use crate::manifest::drive_record::{DriveRecord, Errors, Standing, shortened};
use crate::manifest::events::EventKind;
use crate::manifest::format::Manifest;
use crate::manifest::ids::{IdSource, PoolId};
use crate::membership::host::check_host;
use crate::news::News;
use crate::open_drives::{Admission, OpenDrive, OpenDrives};
use crate::rolled_back::{ROLLED_BACK, RolledBack, SHARED, judge_rolled_back};
use crate::session::Session;
use crate::settings::check_priority;
use crate::space::slabs::FreeSlabs;
use crate::superblock::assemble::{Choice, Diverged, Found, Worth, choose, last_lived};
use crate::superblock::commits::Commits;
use crate::superblock::entries::FORMAT_VERSION;
use crate::superblock::slots::{Content, Superblock, read_in_time};
use crate::volume::shadow::Shadow;
use crate::volume::site::ArraySites;
use crate::volume::thin_growth::ThinGrowth;
use crate::{Inner, OfDestroyed, OpenMode, Pool, PoolOptions};
use stripewise_array::Member;
use stripewise_array::mutation::{self, Mutation};

impl From<Diverged> for PoolError {
    fn from(Diverged { first, second }: Diverged) -> Self {
        Self::Diverged { first, second }
    }
}

impl Pool {
    /// Opens the pool on these drives, in any order; some may be missing, or out of date. Drives
    /// that hold no pool are passed over with a notice; drives of two pools are refused.
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
        let options = match mode {
            OpenMode::ReadOnly => options,
            OpenMode::ReadWrite => options.for_threads(context, &drives),
        };
        if let Some(percent) = options.rebuild_priority_percent {
            check_priority(percent)?;
        }
        let mut notices = Vec::new();
        let mut read = read_all(context, &options, &drives, &mut notices).await?;
        if read.found.is_empty() {
            let drives = drives.iter().map(|drive| drive.info().label.to_string()).collect();
            return Err(match options.pool_id {
                Some(id) => PoolError::NotOfPool { drives, id, notices },
                None => PoolError::NoPool { drives },
            });
        }
        let mut choice = choose(&read.found)?;
        check_host(&choice.manifest, mode, &options)?;
        refuse_destroyed(&choice.manifest, &options)?;
        let mut ids = IdSource::new(options.id_seed.map(|seed| seed ^ moment(&choice.manifest, &read.found)));
        let has_session = mode == OpenMode::ReadWrite && options.host.is_some();
        let session = has_session.then(|| ids.next());
        if let Some(session) = session {
            let approach = Approach::to(&choice, &read.found, &drives, &options);
            if approach != Approach::AtOnce {
                let slots: Vec<(usize, usize)> =
                    read.slots.iter().map(|(index, slot)| (*index, *slot)).collect();
                approach.execute(context, &choice, &read.found, &drives, (session, &slots)).await?;
                notices.clear();
                let before =
                    std::mem::replace(&mut read, read_all(context, &options, &drives, &mut notices).await?);
                if read.found.is_empty() || approach.is_disproved(&before.found, &read.found, session) {
                    let (pool, host) = (choice.manifest.name.clone(), choice.manifest.host.clone());
                    return Err(PoolError::InUse { pool, host });
                }
                choice = choose(&read.found)?;
                check_host(&choice.manifest, mode, &options)?;
                refuse_destroyed(&choice.manifest, &options)?;
            }
        }
        let ReadAll { found, mut torn, slots } = read;
        let pool_id = found[0].superblock.pool_id;
        let rolled_back = judge_rolled_back(&mut choice, &found, &options)?;
        let takes_rolled_back = rolled_back.iter().any(|drive| drive.is_taken);
        torn |= choice.behind || choice.manifest.is_tentative();
        let open = take_in(context, &drives, &found, &mut choice, mode, &options, &mut notices);
        let slots: Vec<(u32, usize)> = choice
            .drives
            .iter()
            .filter_map(|(index, number, _)| Some((*number, *slots.get(index)?)))
            .collect();
        let mut manifest = choice.manifest.clone();
        if let Some(percent) = options.rebuild_priority_percent {
            manifest.rebuild_priority_percent = percent;
        }
        let pool = assembled(context, buffers, options, mode, pool_id, ids, manifest, open);
        let inner = &pool.0;
        // Also that of a commit which never counted, so that the next one is newer than it on every
        // drive.
        inner.commits.note_attempted(choice.newest_generation);
        inner.commits.prove(proven_by_all(&choice, &found));
        inner.drives.set_takes_rolled_back(takes_rolled_back);
        notices.into_iter().for_each(|notice| inner.news.notice(notice));
        for &(index, number, _) in &choice.drives {
            if is_cut(&drives[index], choice.manifest.drive(number)) {
                inner.drives.note_cut(number);
            }
        }
        for (number, slot) in slots {
            inner.commits.writer.found(number, slot);
        }
        for (index, number, _) in &choice.drives {
            let own = found.iter().find(|found| found.index == *index).expect("chosen from these");
            inner.commits.writer.knows(*number, own.superblock.sessions.clone());
        }
        inner.name_session(session);
        note_strangers(inner, &drives, &choice, &rolled_back);
        let returned = returning(&choice);
        // After a power cut the current state may be at one end of one drive only: it is written
        // to both ends of all participating drives before a volume is opened. If no volume can be
        // read, nothing depends on it.
        let brings_back = inner.brings_back();
        if brings_back && mode == OpenMode::ReadWrite {
            inner.drives.check_readable(&inner.manifest.borrow())?;
            inner.news.event(EventKind::Pool, "the destroyed pool was brought back");
        }
        let is_due = torn
            || !returned.is_empty()
            || inner.drives.must_exclude(&inner.manifest.borrow())
            || inner.must_claim()
            || brings_back;
        let claims = (mode == OpenMode::ReadWrite).then(|| inner.rc());
        let take_in = move |manifest: &mut Manifest| {
            if let Some(inner) = &claims {
                inner.stamp_host(manifest, true);
            }
            if brings_back {
                manifest.destroyed_unix_s = None;
            }
            let take_back = |manifest: &mut Manifest| {
                for number in &returned {
                    if let Some(drive) = manifest.drive_mut(*number) {
                        drive.standing = Standing::Online;
                    }
                }
            };
            take_back(manifest);
            if !rolled_back.is_empty() {
                // From now on only data that a volume depends on counts on the accepted drives.
                manifest.exclude(&rolled_back.iter().map(RolledBack::exclusion).collect::<Vec<_>>());
                take_back(manifest);
            }
        };
        if mode == OpenMode::ReadWrite
            && (is_due || !inner.manifest.borrow().volumes.is_empty())
            && inner.drives.check_readable(&inner.manifest.borrow()).is_ok()
        {
            // Before anything is written: once all are known to have a commit of this opening, a
            // drive restored from an earlier copy is distinguishable from one that a power cut
            // left behind.
            let begun = match inner.commit(None, take_in).await {
                Ok(()) if inner.manifest.borrow().proven > choice.newest_generation => Ok(()),
                Ok(()) => inner.commit(None, |_| ()).await,
                Err(error) => Err(error),
            };
            match begun {
                // Everything can be read, and deleted; such a copy is detected later.
                Err(PoolError::FileSystemFull { .. }) if !is_due => {}
                begun => begun?,
            }
        } else {
            take_in(&mut inner.manifest.borrow_mut());
            inner.space.borrow_mut().refresh(&inner.manifest.borrow());
        }
        inner.set_background_share();
        if mode == OpenMode::ReadWrite {
            inner.begin_session().await?;
        }
        inner.open_volumes().await;
        Ok(pool)
    }
}

fn refuse_destroyed(manifest: &Manifest, options: &PoolOptions) -> Result<(), PoolError> {
    match manifest.destroyed_unix_s {
        Some(_) if options.destroyed == OfDestroyed::Refuse => {
            Err(PoolError::Destroyed { pool: manifest.name.clone() })
        }
        _ => Ok(()),
    }
}

impl Inner {
    /// True if the pool is destroyed, and this opening brings it back.
    fn brings_back(&self) -> bool {
        let is_destroyed = self.manifest.borrow().destroyed_unix_s.is_some();
        is_destroyed && self.options.destroyed == OfDestroyed::BringBack
    }
}

/// Puts a queue in front of a drive.
pub(crate) fn open_drive(
    context: &Context,
    drive: Rc<dyn Drive>,
    mode: OpenMode,
    options: &PoolOptions,
    errors_before: Errors,
) -> OpenDrive {
    let drive = if mode == OpenMode::ReadOnly { Shadow::over(context, drive) } else { drive };
    OpenDrive { member: Member::new(context, drive, options.member()), errors_before, behind: None }
}

#[allow(clippy::too_many_arguments)] // the parts of one struct
pub(crate) fn assembled(
    context: &Context,
    buffers: &BufferPool,
    options: PoolOptions,
    mode: OpenMode,
    pool_id: PoolId,
    ids: IdSource,
    manifest: Manifest,
    drives: BTreeMap<u32, OpenDrive>,
) -> Pool {
    Pool(Rc::new_cyclic(|me| {
        let session = Session::new(me.clone(), context, manifest.generation);
        let sites = ArraySites::new(context, buffers, &options, me);
        let admission = || Admission { session: session.clone(), sites: sites.clone() };
        let admission = (mode == OpenMode::ReadWrite).then(admission);
        Inner {
            me: me.clone(),
            session,
            context: context.clone(),
            buffers: buffers.clone(),
            options,
            pool_id,
            ids: RefCell::new(ids),
            space: RefCell::new(FreeSlabs::new(&manifest)),
            freed: Default::default(),
            commits: Commits::new(pool_id, &options.array.tuning, manifest.generation),
            growth: ThinGrowth::new(),
            news: News::new(context, options.unix_ms),
            status_memo: Default::default(),
            drives: OpenDrives::new(drives, admission),
            volumes: Default::default(),
            sites,
            manifest: RefCell::new(manifest),
            jobs: Default::default(),
            lifecycle: Lifecycle::new(mode),
        }
    }))
}

pub(crate) struct ReadAll {
    pub found: Vec<Found>,
    /// True if any is damaged in part.
    pub torn: bool,
    /// The slot that holds each drive's newest state, by the drive's index.
    pub slots: BTreeMap<usize, usize>,
}

/// Reads the superblocks of all drives.
pub(crate) async fn read_all(
    context: &Context,
    options: &PoolOptions,
    drives: &[Rc<dyn Drive>],
    notices: &mut Vec<String>,
) -> Result<ReadAll, PoolError> {
    let read = |drive| read_in_time(context, &options.member, drive);
    let contents = join_all(drives.iter().map(|drive| read(&**drive))).await;
    let mut found: Vec<Found> = Vec::new();
    let (mut torn, mut slots) = (false, BTreeMap::new());
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
            Ok(Content::Unreadable { pool_id, .. }) => {
                notices.push(format!(
                    "{label} is a drive of pool {pool_id}, but what it says of the pool cannot be read; it is left out"
                ));
                continue;
            }
            // All drives of a pool are in one format, so beside drives that can be read these are
            // of another pool.
            Ok(Content::Older(version) | Content::Newer(version)) if options.pool_id.is_some() => {
                notices.push(format!(
                    "{label} holds a pool in format version {version} (this program reads {FORMAT_VERSION}) and is left out"
                ));
                continue;
            }
            Ok(Content::Unknown(flags)) if options.pool_id.is_some() => {
                notices.push(format!(
                    "{label} holds a pool that uses features unknown to this program (flags {flags:#x}) and is left out"
                ));
                continue;
            }
            Ok(Content::Older(version)) => return Err(PoolError::OlderFormat { drive: label, version }),
            Ok(Content::Newer(version)) => {
                return Err(PoolError::NewerFormat { drive: label, version, known: FORMAT_VERSION });
            }
            Ok(Content::Unknown(flags)) => return Err(PoolError::UnknownFeatures { drive: label, flags }),
            Ok(Content::Valid { superblock, slot, intact }) => {
                torn |= !intact;
                slots.insert(index, slot);
                *superblock
            }
        };
        let named =
            |superblock: &Superblock| format!("{} ({})", superblock.manifest.name, superblock.pool_id);
        if options.pool_id.is_some_and(|wanted| wanted != superblock.pool_id) {
            notices.push(format!("{label} holds a drive of pool {} and is left out", named(&superblock)));
            continue;
        }
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
    Ok(ReadAll { found, torn, slots })
}

/// Puts queues in front of the drives that count, and notes where they are now.
fn take_in(
    context: &Context,
    drives: &[Rc<dyn Drive>],
    found: &[Found],
    choice: &mut Choice,
    mode: OpenMode,
    options: &PoolOptions,
    notices: &mut Vec<String>,
) -> BTreeMap<u32, OpenDrive> {
    let mut open = BTreeMap::new();
    for &(index, number, worth) in &choice.drives {
        let drive = &drives[index];
        let record = choice.manifest.drive_mut(number).expect("chosen drives are in the manifest");
        if matches!(worth, Worth::Stale | Worth::RolledBack) {
            continue;
        }
        let info = drive.info();
        if is_cut(drive, Some(record)) {
            notices.push(format!(
                "{} has shrunk from {} to {} bytes and is left out",
                info.label, record.capacity_bytes, info.capacity_bytes
            ));
            continue;
        }
        record.path = shortened(&info.label);
        if mutation::is_chosen(Mutation::LongerDriveCounts) {
            record.capacity_bytes = info.capacity_bytes;
        }
        let mut opened = open_drive(context, drive.clone(), mode, options, record.errors);
        if matches!(worth, Worth::Behind | Worth::Returning) {
            let own = found.iter().find(|found| found.index == index).expect("chosen from these");
            let mut behind = own.superblock.manifest.clone();
            if choice.misled.contains(&index) {
                behind.volumes.clear();
            }
            opened.behind = Some(Rc::new(behind));
        }
        open.insert(number, opened);
    }
    open
}

/// True if a drive is shorter than it was.
pub(crate) fn is_cut(drive: &Rc<dyn Drive>, record: Option<&DriveRecord>) -> bool {
    !mutation::is_chosen(Mutation::CutDriveCounts)
        && record.is_some_and(|record| drive.info().capacity_bytes < record.capacity_bytes)
}

/// A number for the pool as it is now on these drives: identities drawn from a seed must repeat
/// neither those that the pool has already nor those that its other half draws.
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

/// The last commit that all drives which are to take part are known to have: also those that come
/// back with this opening.
fn proven_by_all(choice: &Choice, found: &[Found]) -> u64 {
    let of_returning = |(index, _, worth): &(usize, u32, Worth)| {
        let drive = found.iter().find(|drive| *worth == Worth::Returning && drive.index == *index)?;
        let theirs = &drive.superblock.manifest;
        let is_past = choice.manifest.descends_from(theirs);
        Some(if is_past { theirs.generation } else { last_lived(theirs, found).generation })
    };
    let returning = choice.drives.iter().filter_map(of_returning);
    returning.chain([choice.manifest.proven]).min().unwrap_or(0)
}

fn note_strangers(inner: &Inner, drives: &[Rc<dyn Drive>], choice: &Choice, rolled_back: &[RolledBack]) {
    for &(index, number, worth) in &choice.drives {
        let label = &drives[index].info().label;
        if let Some(drive) = rolled_back.iter().find(|drive| drive.number == number) {
            inner.news.notice(match drive.is_taken {
                true => format!(
                    "{label} was put back from an older copy, and is taken as it is: what was written since is lost where only \
                     this drive had it. `pool scrub` finds what disagrees"
                ),
                false => format!("{label}: {ROLLED_BACK}. `pool replace` takes the drive back"),
            });
            if !drive.is_taken {
                inner.drives.note_stale(number);
            }
            continue;
        }
        match worth {
            Worth::Current | Worth::Returning | Worth::RolledBack => {}
            Worth::Behind => inner.news.notice(format!(
                "{label} was away while the pool was used: a resync of changed data is needed"
            )),
            Worth::Stale if choice.shared.contains(&index) => {
                inner.drives.note_stale(number);
                inner.news.notice(format!("{label} {SHARED}"));
            }
            Worth::Stale => {
                inner.drives.note_stale(number);
                inner.news.notice(format!(
                    "{label} was left out while the pool was used: what it holds is out of date. `pool replace` takes it \
                     back"
                ));
            }
        }
    }
    for &index in &choice.strangers {
        let label = &drives[index].info().label;
        inner.news.notice(format!("{label} is no drive of pool {} any more and is left out", inner.name()));
    }
    let manifest = inner.manifest.borrow();
    let away =
        manifest.drives.iter().filter(|drive| drive.is_online() && inner.drives.get(drive.number).is_none());
    for drive in away {
        inner.news.notice(format!("{} ({}) is missing", drive.path, drive.id));
    }
}
