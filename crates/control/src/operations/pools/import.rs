//! `pool import`: finds pools on drives, in any order and under any name. Lists them, or registers
//! the named ones. Reads only, unless the pool is renamed, taken from another host, or forced to
//! use drives that were restored from older copies. With `--destroyed` it finds destroyed pools
//! instead, and brings the named one back.
//!
//! Expected faults: folders full of other things, drives of several pools, pools of one name,
//! copies of one pool, drives missing or out of date, halves that diverged, pools in use by another
//! process or host. A problem with one pool does not prevent the import of others.

mod destroyed;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use stripewise_drive::{BufferPool, Drive};
use stripewise_export::nbd::client::NbdUri;
use stripewise_pool::{
    DriveLabel, OfDestroyed, OpenMode, Pool, PoolId, PoolOptions, give_new_identity, identify,
};
use stripewise_runtime::{Holder, OpenError, OpenFile, OpenOptions, RealExecutor};

use crate::access::Access;
use crate::control::Control;
use crate::drives::candidates::{Candidate, Identity, noted_export, refuse_long_name};
use crate::drives::search::{Found, Way, on_exports, on_paths, on_volume, places};
use crate::failure::{Failure, Result, pool_failure};
use crate::messages::report::{DriveReport, DriveState, PoolReport};
use crate::messages::request::ImportPools;
use crate::messages::response::{FoundPool, PoolsFound, Response};
use crate::notation::names::in_shell;
use crate::notation::times::host_in_words;
use crate::pools::stacked::StackOpener;
use crate::registry::this_host::this_host;
use crate::registry::{KnownDrive, KnownPool, Registry};

/// Searches, and imports the pools asked for.
pub async fn run(asked: &ImportPools, control: &Control) -> Result<Response> {
    let opener = StackOpener::new(control, "pool import")?;
    let found = find_and_import(asked, control, &opener).await;
    let closed = opener.close().await;
    let found = found?;
    closed?;
    let (are_only_listed, are_destroyed) = (asked.pool.is_none() && !asked.all, asked.destroyed);
    for found in &found {
        found.pool.notices.iter().for_each(|notice| control.warning(notice));
        if let (Some(why), false) = (&found.held_back, are_only_listed) {
            control.warning(format!("pool {} ({}) is not imported: {why}", found.pool.name, found.pool.id));
        }
    }
    Ok(Response::PoolsFound(PoolsFound { pools: found, are_destroyed, are_only_listed }))
}

/// The drives of one pool.
struct FoundDrives<'a> {
    id: PoolId,
    drives: Vec<&'a Found>,
}

impl FoundDrives<'_> {
    fn newest(&self) -> &DriveLabel {
        let newest = self.drives.iter().max_by_key(|found| found.label.generation);
        &newest.expect("no pool without drives").label
    }

    fn name(&self) -> &str {
        &self.newest().pool_name
    }

    fn is_destroyed(&self) -> bool {
        self.newest().destroyed_unix_s.is_some()
    }

    fn is(&self, wanted: &str) -> bool {
        self.name() == wanted || self.id.to_string() == wanted
    }
}

fn groups(found: &[Found]) -> Vec<FoundDrives<'_>> {
    let mut groups: Vec<FoundDrives<'_>> = Vec::new();
    for found in found {
        let id = found.label.pool_id;
        match groups.iter_mut().find(|group| group.id == id) {
            Some(group) => group.drives.push(found),
            None => groups.push(FoundDrives { id, drives: vec![found] }),
        }
    }
    groups
}

async fn find_and_import(
    asked: &ImportPools,
    control: &Control,
    opener: &StackOpener,
) -> Result<Vec<FoundPool>> {
    let import = Import { asked, control, registry: control.registry()?, executor: opener.executor() };
    let places = control.without_turn(places(control, &asked.folders, &asked.drives)).await?;
    let mut found = control.without_turn(on_paths(control, import.executor, &places.paths)).await;
    import.follow_exports(places.exports, &mut found).await?;
    let mut pools: Vec<FoundPool> = Vec::new();
    let mut looked_at: Vec<String> = Vec::new();
    loop {
        let of_kind = groups(&found).into_iter().filter(|group| group.is_destroyed() == asked.destroyed);
        import.take_all(&of_kind.collect::<Vec<_>>(), &mut pools).await?;
        if asked.pool.is_some() && !pools.is_empty() {
            break;
        }
        let known = import.registry.pools()?.into_iter();
        let is_free =
            |pool: &KnownPool| control.served.has(&pool.name) || import.registry.pool_user(pool).is_none();
        let names = known.filter(is_free).map(|pool| pool.name);
        let below: Vec<String> = names.filter(|name| !looked_at.contains(name)).collect();
        if below.is_empty() {
            break;
        }
        for name in below {
            for opened in opener.volumes_of(&name).await {
                found.extend(on_volume(control, import.executor, opened).await);
            }
            looked_at.push(name);
        }
    }
    import.note_others(&groups(&found), pools.is_empty())?;
    if pools.is_empty() { Err(import.nothing_found(&places.words)) } else { Ok(pools) }
}

/// Places to search, as options of the command line.
fn places_as_options(asked: &ImportPools) -> String {
    let folders =
        asked.folders.iter().map(|folder| format!(" --dir {}", in_shell(&folder.to_string_lossy())));
    let drives = asked.drives.iter().map(|drive| format!(" --drive {}", in_shell(drive)));
    folders.chain(drives).collect()
}

struct Import<'a> {
    asked: &'a ImportPools,
    control: &'a Control,
    registry: Registry,
    executor: &'a RealExecutor,
}

impl Import<'_> {
    /// Searches the named exports, and, if a pool was named, the exports recorded by its drives or
    /// in the registry. Merely finding a drive must not make this machine connect anywhere.
    async fn follow_exports(&self, named: Vec<NbdUri>, found: &mut Vec<Found>) -> Result<()> {
        let mut looked_at: Vec<NbdUri> = Vec::new();
        let mut next = named;
        if let Some(wanted) = &self.asked.pool {
            let known = self.registry.pools()?;
            let meant = known.iter().filter(|pool| pool.name == *wanted || pool.id == *wanted);
            next.extend(meant.flat_map(|pool| &pool.drives).filter_map(|drive| noted_export(&drive.path)));
        }
        loop {
            if let Some(wanted) = &self.asked.pool {
                let meant = groups(found);
                let labels = meant.iter().filter(|group| group.is(wanted)).flat_map(|group| &group.drives);
                let noted = labels.flat_map(|found| &found.label.drives);
                next.extend(noted.filter_map(|drive| noted_export(Path::new(&drive.path))));
            }
            let mut new: Vec<NbdUri> = Vec::new();
            for uri in next.drain(..) {
                if looked_at.iter().chain(&new).all(|other| other.address != uri.address) {
                    new.push(uri);
                }
            }
            if new.is_empty() {
                return Ok(());
            }
            looked_at.extend(new.iter().cloned());
            let looking = on_exports(self.control, self.executor, new, found);
            self.control.without_turn(looking).await;
        }
    }

    /// Judges new pools, and imports those asked for.
    async fn take_all(&self, groups: &[FoundDrives<'_>], pools: &mut Vec<FoundPool>) -> Result<()> {
        if let Some(wanted) = &self.asked.pool {
            let meant: Vec<&FoundDrives<'_>> = groups.iter().filter(|group| group.is(wanted)).collect();
            return match meant.as_slice() {
                [] => Ok(()),
                [group] => {
                    pools.push(self.take_named(group).await?);
                    Ok(())
                }
                [first, second, ..] => Err(Failure::new(format!("there are two pools `{wanted}`"))
                    .hint(format!("name one by its identity: {} or {}", first.id, second.id))),
            };
        }
        for group in groups {
            let id = group.id.to_string();
            let before = pools.iter().position(|found| found.pool.id == id);
            // A pool of which more drives turned up is judged again.
            if before.is_some_and(|index| {
                let present =
                    pools[index].pool.drives.iter().filter(|drive| drive.state != DriveState::Missing);
                present.count() >= group.drives.len()
            }) {
                continue;
            }
            let namesake = groups.iter().any(|other| other.id != group.id && other.name() == group.name());
            let judged = self.take_found(group, namesake).await;
            match before {
                Some(index) => pools[index] = judged,
                None => pools.push(judged),
            }
        }
        Ok(())
    }

    async fn take_named(&self, group: &FoundDrives<'_>) -> Result<FoundPool> {
        // Under another name and by force a copy can only be meant as another pool.
        let is_other = self.asked.force && self.asked.new_name.is_some();
        if self.asked.new_identity || (is_other && self.copy_of_registered(group).await.is_some()) {
            return self.take_copy(group).await;
        }
        let mut found = self.look(group).await?;
        if let Some(why) = self.copies(group).await {
            return Err(why);
        }
        if let Some((why, hint)) = self.other_host(&found) {
            return Err(Failure::new(format!("pool `{}` ({}) {why}", found.pool.name, group.id)).hint(hint));
        }
        if let Err(why) = self.put_on_list(group, &mut found).await {
            let lost = if self.asked.destroyed { self.lost_drives(&found).await } else { Vec::new() };
            return Err(match lost.is_empty() {
                true => why,
                false => Failure {
                    message: format!("{}; {}", why.message, lost.join("; ")),
                    hint: Some("a drive that was used again since holds nothing of the pool".to_owned()),
                    ..why
                },
            });
        }
        Ok(found)
    }

    /// Gives a copy of a pool a new identity, and imports it.
    async fn take_copy(&self, group: &FoundDrives<'_>) -> Result<FoundPool> {
        let name =
            self.asked.new_name.as_ref().map_or_else(|| group.name().to_owned(), |name| name.0.clone());
        let known = self.registry.pools()?;
        if known.iter().any(|pool| pool.name == name) {
            return Err(Failure::new(format!("there is a pool `{name}` already"))
                .hint("--as NEWNAME imports the copy under another name"));
        }
        if let Some(why) = self.double(group) {
            return Err(why);
        }
        let paths: Vec<&Path> = group.drives.iter().map(|found| found.path.as_path()).collect();
        let id = group.id.to_string();
        let registered = known.iter().filter(|pool| pool.id == id);
        for path in registered.flat_map(|pool| &pool.drives).map(|drive| &drive.path) {
            let Ok(noted) = Candidate::look(self.control, path).await else { continue };
            if group.drives.iter().any(|found| found.opened.identity == noted.identity) {
                return Err(Failure::new(format!(
                    "{} is a drive of the registered pool `{}`, and no copy",
                    path.display(),
                    group.name()
                ))
                .hint("name the copies alone, with --dir or --drive"));
            }
        }
        let options = OpenOptions { read_only: false, lock: true, buffered: false };
        let mut drives: Vec<Rc<dyn Drive>> = Vec::new();
        for path in &paths {
            let opening = self.control.look_at_drive(path, move |path| OpenFile::open(path, &options));
            drives.push(self.executor.opener().drive(opening.await?));
        }
        let (context, buffers) = (self.executor.context(), BufferPool::new(0));
        let options = PoolOptions {
            pool_id: Some(group.id),
            take_from_host: true,
            host: Some(this_host()),
            destroyed: OfDestroyed::BringBack,
            ..PoolOptions::default()
        };
        let given = give_new_identity(&context, &buffers, drives, options).await;
        given.map_err(|error| {
            pool_failure(format!("cannot give the copy of pool `{}` a new identity", group.name()), &error)
        })?;
        let paths: Vec<PathBuf> = paths.into_iter().map(Path::to_owned).collect();
        let again = on_paths(self.control, self.executor, &paths).await;
        // Drives that took no part keep the old identity.
        let groups = groups(&again);
        let Some(copy) = groups.iter().find(|copy| copy.id != group.id) else {
            return Err(Failure::new(format!("the copy of pool `{}` is gone", group.name())));
        };
        let mut found = self.look(copy).await?;
        self.put_on_list(copy, &mut found).await?;
        Ok(found)
    }

    /// Judges a pool that was not named; a problem is recorded in the result.
    async fn take_found(&self, group: &FoundDrives<'_>, namesake: bool) -> FoundPool {
        let mut found = match self.look(group).await {
            Ok(found) => found,
            Err(failure) => self.unreadable(group, failure),
        };
        if found.held_back.is_none() {
            let other_host = || self.other_host(&found).map(|(why, hint)| format!("it {why}; {hint}"));
            found.held_back = match self.copies(group).await.map(in_one_line).or_else(other_host) {
                Some(why) => Some(why),
                None if namesake && !found.imported => Some(format!(
                    "there are two pools of this name; import this one by its identity: {}",
                    self.command(&group.id.to_string())
                )),
                None => {
                    let why = self.wants_to_be_named(group, &found);
                    found.must_be_named = why.is_some();
                    why
                }
            };
        }
        if found.held_back.is_none() && self.asked.all {
            let put = self.put_on_list(group, &mut found).await;
            found.held_back = put.err().map(in_one_line);
        }
        found
    }

    /// The reason for which `--all` skips a pool that can be imported by name.
    fn wants_to_be_named(&self, group: &FoundDrives<'_>, found: &FoundPool) -> Option<String> {
        if found.imported {
            return None;
        }
        let name = group.name();
        let by_name = format!("if it is yours: {}", self.command(name));
        if group.drives.iter().any(|found| found.way == Way::Volume) {
            return Some(format!("it lies on a volume of another pool; {by_name}"));
        }
        let is_export = |path: &str| noted_export(Path::new(path)).is_some();
        let on_network = group.drives.iter().any(|found| found.way == Way::Network)
            || group.newest().drives.iter().any(|drive| is_export(&drive.path));
        on_network.then(|| format!("it has drives on other machines; {by_name}"))
    }

    /// The command that imports a pool, by its name or identity, from the places searched.
    fn command(&self, pool: &str) -> String {
        let destroyed = if self.asked.destroyed { " --destroyed" } else { "" };
        format!("stripewise pool import{}{destroyed} {pool}", places_as_options(self.asked))
    }

    /// As [`Self::command`], under another name if the pool's is taken.
    fn command_for(&self, group: &FoundDrives<'_>, known: &[KnownPool]) -> String {
        let is_taken = known.iter().any(|pool| pool.name == group.name() && pool.id != group.id.to_string());
        let new_name = if is_taken { " --as NEWNAME" } else { "" };
        format!("{}{new_name}", self.command(group.name()))
    }

    /// Reads a pool's condition from its drives.
    async fn look(&self, group: &FoundDrives<'_>) -> Result<FoundPool> {
        let what = format!("cannot import pool `{}`", group.name());
        // One of several copies; `copies` reports the others.
        let mut given = Vec::new();
        for (index, found) in group.drives.iter().enumerate() {
            let is_same = |other: &&Found| other.label.drive_id == found.label.drive_id;
            if !group.drives[..index].iter().copied().any(|other| is_same(&other)) {
                given.push(found.opened.drive.clone());
            }
        }
        let (context, buffers) = (self.executor.context(), BufferPool::new(0));
        let take_rolled_back = self.asked.force;
        let options = PoolOptions {
            pool_id: Some(group.id),
            take_rolled_back,
            destroyed: OfDestroyed::Keep,
            ..PoolOptions::default()
        };
        let opening = Pool::open(&context, &buffers, given, OpenMode::ReadOnly, options);
        let pool = opening.await.map_err(|error| pool_failure(&what, &error))?;
        let (mut report, last_host) = (PoolReport::from(&pool.status()), pool.host());
        let takes_rolled_back = pool.takes_rolled_back();
        pool.close().await.map_err(|error| pool_failure(&what, &error))?;
        let used_by = self.user(group).await;
        if let Some(user) = &used_by {
            report.note_user(user);
        }
        let known = self.registry.pools()?;
        let registered = known.iter().find(|pool| pool.id == report.id);
        let mut has_moved = false;
        for found in &group.drives {
            let id = found.label.drive_id.to_string();
            let noted = registered.and_then(|pool| pool.drives.iter().find(|drive| drive.id == id));
            let Some(noted) = noted else { continue };
            let there = Candidate::look(self.control, &noted.path).await;
            has_moved |= there.map_or(true, |there| there.identity != found.opened.identity);
        }
        Ok(FoundPool {
            has_moved,
            command: self.command_for(group, &known),
            pool: report,
            imported: registered.is_some(),
            held_back: None,
            destroyed_unix_s: group.newest().destroyed_unix_s,
            last_host,
            must_be_named: false,
            used_by,
            takes_rolled_back,
        })
    }

    /// A pool whose condition cannot be read.
    fn unreadable(&self, group: &FoundDrives<'_>, failure: Failure) -> FoundPool {
        let drive =
            |found: &&Found| KnownDrive { id: found.label.drive_id.to_string(), path: found.path.clone() };
        let drives = group.drives.iter().map(drive).collect();
        let known = KnownPool { name: group.name().to_owned(), id: group.id.to_string(), drives };
        let (hint, why) = (failure.hint.clone().unwrap_or_default(), in_one_line(failure));
        FoundPool {
            pool: PoolReport::unreachable(&known, &why, &hint),
            imported: false,
            has_moved: false,
            command: self.command(group.name()),
            held_back: Some(why),
            destroyed_unix_s: group.newest().destroyed_unix_s,
            last_host: group.newest().host.clone(),
            must_be_named: false,
            used_by: None,
            takes_rolled_back: false,
        }
    }

    /// The process that has the pool's drives open and uses another registry; one that uses this
    /// registry is shown by `pool status`.
    async fn user(&self, group: &FoundDrives<'_>) -> Option<Holder> {
        let id = group.id.to_string();
        let known = KnownPool { name: group.name().to_owned(), id, drives: Vec::new() };
        if self.control.served.has(&known.name) || self.registry.pool_user(&known).is_some() {
            return None;
        }
        let options = OpenOptions { read_only: true, lock: true, buffered: false };
        for found in group.drives.iter().filter(|found| found.opened.file.is_some()) {
            // A shared lock: several callers can look at the same time.
            let opening = self.control.look_at_drive(&found.path, move |path| OpenFile::open(path, &options));
            match opening.await {
                Err(OpenError::Busy { holder: Holder::ThisProcess, .. }) => {}
                Err(OpenError::Busy { holder, .. }) => return Some(holder),
                _ => {}
            }
        }
        None
    }

    /// The failure if drives are copies of one another, or of a registered pool: only the user
    /// knows which ones are meant.
    async fn copies(&self, group: &FoundDrives<'_>) -> Option<Failure> {
        if let Some(why) = self.double(group) {
            return Some(why);
        }
        self.copy_of_registered(group).await
    }

    /// The failure if drives are copies of those of a registered pool.
    async fn copy_of_registered(&self, group: &FoundDrives<'_>) -> Option<Failure> {
        let known = self.registry.pools().ok()?.into_iter().find(|pool| pool.id == group.id.to_string())?;
        for drive in &known.drives {
            let id = drive.id.parse().ok();
            let Some(found) = group.drives.iter().find(|found| Some(found.label.drive_id) == id) else {
                continue;
            };
            if self.is_another_copy(&drive.path, found).await {
                return Some(
                    Failure::new(format!(
                        "pool `{}` ({}) is registered already, with {}; {} is a copy of that",
                        known.name,
                        known.id,
                        drive.path.display(),
                        found.path.display()
                    ))
                    .hint(format!(
                        "{} --new-identity --as NEWNAME makes the copy a pool of its own; `stripewise \
                         pool export {}` unregisters the other one; keep its drives apart from then on",
                        self.command(group.name()),
                        known.name
                    )),
                );
            }
        }
        None
    }

    /// The failure if two drives are copies of one.
    fn double(&self, group: &FoundDrives<'_>) -> Option<Failure> {
        let name = group.name();
        for (index, found) in group.drives.iter().enumerate() {
            let is_same = |other: &&&Found| other.label.drive_id == found.label.drive_id;
            if let Some(other) = group.drives[..index].iter().find(is_same) {
                return Some(
                    Failure::new(format!(
                        "{} and {} are copies of one drive of pool `{name}` ({})",
                        other.path.display(),
                        found.path.display(),
                        group.id
                    ))
                    .hint("name the ones to import, with --dir or --drive, and keep the others apart"),
                );
            }
        }
        None
    }

    /// True if the registered drive is still at its path, and is not the one that was found.
    async fn is_another_copy(&self, path: &Path, found: &Found) -> bool {
        let options = OpenOptions { read_only: true, lock: false, buffered: false };
        let opening = self.control.look_at_drive(path, move |path| OpenFile::open(path, &options));
        let Ok(file) = opening.await else { return false };
        if Identity::Drive(file.identity()) == found.opened.identity {
            return false;
        }
        let drive = self.executor.opener().drive(file);
        let says = identify(&*drive).await.ok().flatten();
        says == Some((found.label.pool_id, found.label.drive_id))
    }

    /// The reason and hint if another host has the pool.
    fn other_host(&self, found: &FoundPool) -> Option<(String, String)> {
        let host =
            found.last_host.as_ref().filter(|host| host.is_other(&this_host()) && !self.asked.force)?;
        let why = format!("is in use by host {}", host_in_words(host));
        let hint = format!(
            "on {1}: `stripewise pool export {0}`; if that host no longer uses the pool: {2} --force",
            found.pool.name,
            host.name,
            self.command(&found.pool.id)
        );
        Some((why, hint))
    }

    /// Registers the pool; renames it, and takes it from another host, if that was asked for.
    async fn put_on_list(&self, group: &FoundDrives<'_>, found: &mut FoundPool) -> Result<()> {
        group.drives.iter().try_for_each(|found| refuse_long_name(&found.path))?;
        let name =
            self.asked.new_name.as_ref().map_or_else(|| found.pool.name.clone(), |name| name.0.clone());
        // Drives that were not found are registered at their last recorded paths.
        let known = |drive: &DriveReport| {
            let found = group.drives.iter().find(|found| found.label.drive_id.to_string() == drive.id);
            KnownDrive {
                id: drive.id.clone(),
                path: found.map_or_else(|| PathBuf::from(&drive.path), |found| found.path.clone()),
            }
        };
        let drives = found.pool.drives.iter().map(known).collect();
        let pool = KnownPool { name: name.clone(), id: found.pool.id.clone(), drives };
        let before = self.registry.pools()?.into_iter().find(|other| other.id == pool.id);
        if let Some(before) =
            before.as_ref().filter(|before| before.name != name && self.control.served.has(&before.name))
        {
            return Err(Failure::new(format!("pool `{}` is served by a daemon", before.name))
                .hint(format!("stripewise pool rename {} {name}", before.name)));
        }
        // Until the import is complete, the daemon must not start to serve the pool.
        let _coming = self.control.served.comes(&name);
        let context = self.executor.context();
        let remembered = self.registry.remember(&context, pool.clone()).await;
        remembered.map_err(|failure| match failure.hint {
            Some(hint) => Failure {
                hint: Some(format!("{hint}; --as NEWNAME imports this one under another name")),
                ..failure
            },
            None => failure,
        })?;
        let is_others = found.last_host.as_ref().is_some_and(|host| host.is_other(&this_host()));
        if is_others || found.takes_rolled_back || self.asked.destroyed || name != found.pool.name {
            if let Err(failure) = self.claim(&pool).await {
                match before {
                    Some(before) => self.registry.remember(&context, before).await?,
                    None => self.registry.forget(&context, &pool.id).await?,
                }
                return Err(failure);
            }
            found.pool.name = name;
        }
        found.imported = true;
        Ok(())
    }

    /// Records this host and the registered name in the pool.
    async fn claim(&self, pool: &KnownPool) -> Result<()> {
        let opener = StackOpener::new(self.control, &format!("pool import {}", pool.name))?;
        if self.asked.force {
            opener.force(&pool.id);
        }
        if self.asked.destroyed {
            opener.treat_destroyed(&pool.id, OfDestroyed::BringBack);
        }
        let claimed = match opener.open_pool(self.registry.clone(), pool.clone(), Access::Change).await {
            Ok(session) => session.close().await,
            Err(trouble) => Err(trouble.failure()),
        };
        let closed = opener.close().await;
        claimed.and(closed)
    }

    fn nothing_found(&self, places: &str) -> Failure {
        let kind = if self.asked.destroyed { "destroyed pool" } else { "pool" };
        let what = self.asked.pool.as_ref();
        let what = what.map_or_else(|| format!("no {kind}"), |name| format!("no {kind} `{name}`"));
        Failure::new(format!("{what} was found in {places}")).hint(
            "--dir DIR names a folder with the pool's drives, --drive DRIVE one of them, as a \
             path or an NBD URI; to show a drive's contents: `stripewise drive show DRIVE`",
        )
    }
}

fn in_one_line(failure: Failure) -> String {
    match failure.hint {
        Some(hint) => format!("{}; {hint}", failure.message),
        None => failure.message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_commands_repeat_the_places_searched() {
        let asked = ImportPools {
            folders: vec!["../store".into(), "my disks".into()],
            drives: vec!["nbd://host/x?timeout=2s".to_owned()],
            pool: None,
            all: false,
            new_name: None,
            force: false,
            new_identity: false,
            destroyed: false,
        };
        let options = places_as_options(&asked);
        assert_eq!(options, " --dir ../store --dir 'my disks' --drive 'nbd://host/x?timeout=2s'");
        assert_eq!(in_shell("it's"), r"'it'\''s'");
    }
}
